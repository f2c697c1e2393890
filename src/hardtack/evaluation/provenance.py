"""Provenance: which model was measured, with which software, on which device."""

from __future__ import annotations

import platform
from dataclasses import dataclass

import torch

import hardtack
from hardtack.base.runtime import Runtime
from hardtack.evaluation.sanity import Flag


@dataclass(frozen=True, kw_only=True)
class Provenance:
    """Where the measured model comes from, in words for the record.

    flags   warnings that are known before anything is measured
    words   the settings of `hardtack evaluate` or `analyze` that repeat this measurement
    """

    run: str = ""
    model: str = ""
    checkpoint: str | None = None
    weights_sha256: str | None = None
    flags: tuple[Flag, ...] = ()
    words: tuple[str, ...] = ()


def versions() -> dict[str, str]:
    """Of the software that decides the numbers."""
    return {
        "hardtack": hardtack.__version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
    }


def device_name(runtime: Runtime) -> str:
    """`NVIDIA H100`, or `cpu (x86_64)`."""
    device = runtime.torch_device
    return torch.cuda.get_device_name(device) if device.type == "cuda" else f"cpu ({platform.machine()})"
