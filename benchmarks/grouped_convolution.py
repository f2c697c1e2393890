"""RVT's pool, a convolution whose groups have one channel in and two out, against a depthwise one of repeated channels.

    python benchmarks/grouped_convolution.py --output benchmarks/results/grouped_convolution.json      # on a GPU

Milliseconds of the forward pass, and of it with the gradient to the images or to the weights; bf16, 192 channels to
384, 3×3, stride 2, on 8×8 places, which is `rvt_tiny_plus_32`'s. The depthwise one is given channels that are repeated
already: repeating them is a copy of a few megabytes.
"""

from __future__ import annotations

import argparse
import datetime
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

WAYS = {"grouped": 192, "depthwise": 384}  # channels that come in, each a group of its own
LAYOUTS = {"channels last": torch.channels_last, "channels first": torch.contiguous_format}


def milliseconds(step: Callable[[], Any], times: int = 10) -> float:
    for _ in range(3):
        step()
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(times):
        step()
    torch.cuda.synchronize()
    return round((time.perf_counter() - began) / times * 1e3, 3)


def measure(channels: int, layout: torch.memory_format, images: int) -> dict[str, float]:
    conv = nn.Conv2d(channels, 384, 3, padding=1, stride=2, groups=channels).cuda().bfloat16().to(memory_format=layout)
    x = torch.randn(images, channels, 8, 8, device="cuda", dtype=torch.bfloat16).to(memory_format=layout)
    towards = torch.randn_like(conv(x.requires_grad_()))
    return {
        "forward": milliseconds(lambda: conv(x)),
        "to_images": milliseconds(lambda: torch.autograd.grad(conv(x), x, towards)),
        "to_weights": milliseconds(lambda: torch.autograd.grad(conv(x), conv.weight, towards)),
    }


def main() -> None:
    reads = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    reads.add_argument("--output", type=Path)
    given = reads.parse_args()
    record: dict[str, Any] = {
        "command": "python benchmarks/grouped_convolution.py", "device": torch.cuda.get_device_name(),
        "torch": torch.__version__, "date": datetime.date.today().isoformat(), "milliseconds": {},
    }  # fmt: skip
    for layout, form in LAYOUTS.items():
        for way, channels in WAYS.items():
            for images in (512, 1024):
                record["milliseconds"][f"{way}, {layout}, {images} images"] = measure(channels, form, images)
    text = json.dumps(record, indent=1) + "\n"
    print(text)
    if given.output:
        given.output.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
