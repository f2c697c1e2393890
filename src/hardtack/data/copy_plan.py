"""What a corrupted copy will cost (`hardtack plan corrupt cifar10 OUT`): a few images of every file are corrupted."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from hardtack.base.cost import device_name
from hardtack.base.instruments import Instruments, Stopwatch
from hardtack.data.corrupted_copy import Copy, read_copy
from hardtack.engine.job_plan import JobPlan, rehearse

_ROWS_S = 10.0  # for the images that are tried, all files together


def plan_copy(source: str, values: dict[str, Any], instruments: Instruments | None = None) -> JobPlan:
    """What `corrupt` with the same words will cost; nothing is written to its folder."""
    instruments = instruments or Instruments()
    planned = instruments.now()
    with tempfile.TemporaryDirectory() as folder:
        copy = read_copy(source, folder, values)
        device = copy.runtime.torch_device
        watch = Stopwatch(instruments, device)
        instruments.begin_memory(device)
        start_s = watch.since(instruments.began) + instruments.end_s(device)
        jobs = copy.jobs()
        each = [(job.type, rehearse(job, job.store, watch, rows_s=_ROWS_S / len(jobs))) for job in jobs]
        other_s = watch.time(copy.finish)
        disk_mb = _disk_mb(copy)
    images, files = len(copy.data), f"{len(jobs)} {'file' if copy.facts['layout'] != 'folder' else 'folder'}"
    return JobPlan(
        title=f"corrupted copy of {copy.facts['data']}: {len(copy.types)} types × {len(copy.severities)} severities, "
        f"layout={copy.facts['layout']}, {files}{'s' * (len(jobs) != 1)} of {images:,} images",
        device=device_name(copy.runtime), unit="images", rows=images, jobs=tuple(each), start_s=start_s,
        other_s=other_s, disk_mb=disk_mb, on_gpu=device.type == "cuda", load=instruments.load(device),
        plan_s=instruments.now().since(planned).wall_s,
    )  # fmt: skip


def _disk_mb(copy: Copy) -> float:
    """Of all files, by the images in those that were tried."""
    images = len(copy.types) * len(copy.severities) * len(copy.data)
    if copy.facts["layout"] == "npy":
        channels, height, width = copy.data.image_shape
        return images * channels * height * width / 2**20
    files = [path for path in copy.folder.rglob("*") if path.suffix in (".JPEG", ".png", ".parquet")]
    files = [path for path in files if path.parent != copy.folder or path.suffix == ".parquet"]  # not the contact sheet
    stored = sum(pq.read_metadata(path).num_rows if path.suffix == ".parquet" else 1 for path in files if _made(path))
    return sum(path.stat().st_size for path in files if _made(path)) / max(stored, 1) * images / 2**20


def _made(path: Path) -> bool:
    return not any(part.startswith(".") for part in path.parts)
