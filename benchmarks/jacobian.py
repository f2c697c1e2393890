"""Jacobian spectra: how exact, with how many products, how fast; and how loose the bound of paper 4 is.

    python benchmarks/jacobian.py --output benchmarks/results/jacobian.json                    # on a GPU
    python benchmarks/jacobian.py --models runs/a runs/b --data parquet:cifar10 --root ~/data  # trained ones
    python benchmarks/jacobian.py --models cauchy_vit_t2_32 --images 4 --bound-images 1 --dense cauchy_vit_t1_32

For each model σ_max of all blocks, with and without the identity, at the default tolerance (1e-3); its relative error
against a run at 1e-6 with up to 600 products; products for each block and image, of which the bound needs as many as
the block has outputs; images·blocks/s of the whole analysis, which has two values for each; the bound on the first few
images and how many times it exceeds σ_max, of the first model. `dense`: the same against the singular values of the
whole matrix, for a model of width 32.

Without --data the images are noise of low frequency. A name means fresh weights (seed 0), a run folder its own.
"""

from __future__ import annotations

import argparse
import datetime
import json
import shlex
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import hardtack as ht
from hardtack.base.runtime import Runtime
from hardtack.data import batches

KINDS = ("block", "residual")


def load(name: str, **options: Any) -> nn.Module:
    if Path(name).is_dir():
        from hardtack.models import rebuild

        return rebuild(Path(name))
    return ht.load_model(name, num_classes=10, seed=0, **options)


def images(count: int, size: int, data: str | None, root: str | None) -> tuple[Tensor, Tensor]:
    if data is not None:
        source = ht.load_data(data, "test", image_size=size, root=root).first(count)
        batch = next(batches(source, count, device=torch.device("cpu"), workers=0))
        return batch.x, batch.y
    coarse = torch.rand(count, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    return nn.functional.interpolate(coarse, (size, size), mode="bicubic").clamp(0, 1), torch.zeros(count).long()


def find(model: nn.Module, data: tuple[Tensor, Tensor], runtime: Runtime, **settings: Any) -> Any:
    return ht.analyze(model, data, "jacobian", runtime=runtime, n=len(data[0]), **settings)


def errors(found: Any, exact: Any) -> dict[str, float]:
    """The largest relative error over images and layers."""
    away = {k: np.abs(found.arrays[f"sigma_{k}"] / exact.arrays[f"sigma_{k}"] - 1) for k in KINDS}
    return {kind: float(values.max()) for kind, values in away.items()}


def measure(name: str, given: argparse.Namespace, runtime: Runtime) -> dict[str, Any]:
    """The bound is that of the first model alone: it takes longer than all the rest."""
    model = load(name)
    data = images(given.images, model.image_size or 32, given.data, given.root)
    find(model, tuple(part[: given.batch_size or 8] for part in data), runtime, most=8)  # warm
    found = find(model, data, runtime, batch_size=given.batch_size)
    exact = find(model, data, runtime, tolerance=1e-6, most=600, batch_size=given.batch_size)
    blocks, size = len(found.facts["layers"]["block"]), found.facts["sizes"]["block"][0]
    seconds = found.about["seconds"]
    result: dict[str, Any] = {
        "model": name, "blocks": blocks, "inputs": size[0], "outputs": size[1], "images": given.images,
        "sigma_max": {kind: found.facts["spread"][kind] for kind in KINDS},
        "relative_error": errors(found, exact), "converged": found.facts["converged"],
        "products": found.facts["products"], "converged_products": exact.facts["products"],
        "fewer_products_than_bound": size[1] / found.facts["products"]["block"]["mean"],
        "seconds": seconds, "images_blocks_per_s": round(given.images * blocks / seconds, 2),
    }  # fmt: skip
    if given.bound_images and name == given.models[0]:
        few = tuple(part[: given.bound_images] for part in data)
        bounds = find(model, few, runtime, bound=True, rows=given.rows)
        result["bound"] = {
            "images": given.bound_images, "seconds": bounds.about["seconds"], "backward_passes_each": size[1],
            "looseness": {kind: bounds.of("looseness", kind).value for kind in KINDS},
            "largest_looseness": {
                kind: float((bounds.arrays[f"bound_{kind}"] / bounds.arrays[f"sigma_{kind}"][:, :, 0]).max())
                for kind in KINDS
            },
        }  # fmt: skip
    return result


def against_dense(name: str, given: argparse.Namespace, runtime: Runtime) -> dict[str, Any]:
    model = load(name, width=32)
    data = images(given.dense_images, model.image_size or 32, given.data, given.root)
    found, exact = (find(model, data, runtime, method=method) for method in ("lanczos", "dense"))
    size = found.facts["sizes"]["block"][0]
    return {
        "model": f"{name}, width 32", "size": size, "images": given.dense_images,
        "relative_error": errors(found, exact), "products": found.facts["products"],
        "seconds": {"lanczos": found.about["seconds"], "dense": exact.about["seconds"]},
    }  # fmt: skip


def main() -> None:
    reads = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    reads.add_argument("--models", nargs="*", default=["cauchy_vit_m1_224", "cauchy_vit_m2_224"])
    reads.add_argument("--images", type=int, default=64)
    reads.add_argument("--batch-size", type=int, default=None)
    reads.add_argument("--bound-images", type=int, default=1)
    reads.add_argument("--rows", type=int, default=256, help="of the bound, at once")
    reads.add_argument("--dense", default="cauchy_vit_t1_224", help="name of the model whose width becomes 32")
    reads.add_argument("--dense-images", type=int, default=2)
    reads.add_argument("--data")
    reads.add_argument("--root")
    reads.add_argument("--device", default="auto")
    reads.add_argument("--output", type=Path)
    given = reads.parse_args()
    runtime = Runtime(device=given.device)
    on_gpu = runtime.torch_device.type == "cuda"
    record: dict[str, Any] = {
        "command": shlex.join(["python", *sys.argv]), "date": datetime.date.today().isoformat(),
        "device": torch.cuda.get_device_name(runtime.torch_device) if on_gpu else "CPU",
        "torch": torch.__version__, "data": given.data or "noise of low frequency", "tolerance": 1e-3,
        "dense": against_dense(given.dense, given, runtime) if given.dense else None, "models": [],
    }  # fmt: skip
    for name in reversed(given.models):
        record["models"].insert(0, measure(name, given, runtime))
        text = json.dumps(record, indent=1) + "\n"
        print(text, flush=True)
        if given.output:
            given.output.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
