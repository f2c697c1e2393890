"""Peak memory of an evaluation whose data grow tenfold: parquet files, tar shards and a folder of 32-pixel images.

    python benchmarks/data_memory.py --output benchmarks/results/data_memory.json      # 2 CPU cores, about 6 minutes

Each set is evaluated (suite=clean, data.stream=true, a small convolution) by the command in a process of its own. The
peak is the largest resident memory of that process or of one of its loader processes, as the kernel counted it. Pages
of files that are in memory only as cache do not count. Each set is evaluated several times and medians are compared.
"""

from __future__ import annotations

import argparse
import datetime
import io
import json
import os
import statistics
import sys
import tarfile
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

CLASSES, SHARD, GROUP = 10, 10_000, 1000
NOTE = (
    "Parquet of 20,000 images is held in memory (files up to 256 MB are) and that of 200,000 is not, so the growth "
    "of parquet is understated by about the size of the small set divided by 180,000."
)
MODEL = """
import torch
from torch import nn

def build():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 8, 4, stride=4), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 64, 10))
"""


def pictures() -> list[bytes]:
    """A few encoded images, which are repeated: writing is not what is measured."""
    drawn = np.random.default_rng(0).integers(0, 256, (50, 32, 32, 3), dtype=np.uint8)
    texts = []
    for array in drawn:
        file = io.BytesIO()
        Image.fromarray(array).save(file, "PNG", compress_level=1)
        texts.append(file.getvalue())
    return texts


def write_parquet(folder: Path, count: int, images: list[bytes]) -> str:
    for number in range(count // SHARD):
        rows = range(number * SHARD, (number + 1) * SHARD)
        column = pa.array([{"bytes": images[row % len(images)], "path": ""} for row in rows])
        table = pa.table({"image": column, "label": [row % CLASSES for row in rows]})
        # without the dictionary, which would store each of the few images once
        pq.write_table(table, folder / f"test-{number:04d}.parquet", row_group_size=GROUP, use_dictionary=False)
    return f"parquet:{folder}"


def write_tar(folder: Path, count: int, images: list[bytes]) -> str:
    for number in range(count // SHARD):
        with tarfile.open(folder / f"test-{number:04d}.tar", "w") as tar:
            for row in range(number * SHARD, (number + 1) * SHARD):
                for suffix, data in (("png", images[row % len(images)]), ("cls", str(row % CLASSES).encode())):
                    member = tarfile.TarInfo(f"{row:08d}.{suffix}")
                    member.size = len(data)
                    tar.addfile(member, io.BytesIO(data))
    return f"wds/{folder}"


def write_folder(folder: Path, count: int, images: list[bytes]) -> str:
    for name in range(CLASSES):
        (folder / f"class{name}").mkdir()
    for row in range(count):
        (folder / f"class{row % CLASSES}" / f"{row:08d}.png").write_bytes(images[row % len(images)])
    return f"folder:{folder}"


WRITERS = {"parquet": write_parquet, "tar": write_tar, "folder": write_folder}


def evaluate(name: str, folder: Path, turn: int) -> tuple[float, float]:
    """Peak memory (MB) and time (s) of one evaluation in a fresh process."""
    (folder / "model.py").write_text(MODEL)
    words = [
        "model=model.py:build", f"data={name}", "data.stream=true", "data.workers=2", "data.test=1", "suite=clean",
        "runtime.device=cpu", f"output={folder / f'run{turn}'}",
    ]  # fmt: skip
    command = [str(Path(sys.executable).with_name("hardtack")), "evaluate", *words]
    environment = os.environ | {"HARDTACK_CACHE": str(folder / "cache"), "XDG_STATE_HOME": str(folder / "state")}
    started = time.monotonic()
    log = os.open(folder / "log.txt", os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
    os.chdir(folder)
    actions = [(os.POSIX_SPAWN_DUP2, log, 1), (os.POSIX_SPAWN_DUP2, log, 2)]
    child = os.posix_spawn(command[0], command, environment, file_actions=actions)
    _, status, usage = os.wait4(child, 0)  # of the process and of the loaders that it waited for, the largest
    os.close(log)
    if status:
        raise SystemExit((folder / "log.txt").read_text()[-2000:])
    return round(usage.ru_maxrss / 1024, 1), round(time.monotonic() - started, 1)


def main() -> None:
    reads = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    reads.add_argument("--counts", type=int, nargs="*", default=[20_000, 200_000])
    reads.add_argument("--kinds", nargs="*", default=list(WRITERS))
    reads.add_argument("--turns", type=int, default=3)
    reads.add_argument("--output", type=Path)
    given = reads.parse_args()
    output = given.output.resolve() if given.output else None
    images = pictures()
    record: dict[str, Any] = {
        "command": f"python benchmarks/data_memory.py {' '.join(sys.argv[1:])}".strip(),
        "date": datetime.date.today().isoformat(), "device": f"{os.cpu_count()} CPU cores",
        "image_bytes": round(sum(map(len, images)) / len(images)), "note": NOTE, "rows": [],
    }  # fmt: skip
    for kind in given.kinds:
        for count in given.counts:
            with tempfile.TemporaryDirectory(prefix="data-memory-") as place:
                folder = Path(place) / "set"
                folder.mkdir()
                name = WRITERS[kind](folder, count, images)
                peaks, seconds = zip(*(evaluate(name, Path(place), turn) for turn in range(given.turns)), strict=True)
                os.chdir("/")
            row = {"kind": kind, "images": count, "peak_mb": statistics.median(peaks), "peaks_mb": peaks, "s": seconds}
            record["rows"].append(row)
            print(json.dumps(row), flush=True)
    for kind in given.kinds:
        rows = [row for row in record["rows"] if row["kind"] == kind]
        grown = (rows[-1]["peak_mb"] - rows[0]["peak_mb"]) * 2**20 / max(1, rows[-1]["images"] - rows[0]["images"])
        record.setdefault("bytes_per_image", {})[kind] = round(grown, 1)
    print(json.dumps(record["bytes_per_image"]))
    if output:
        output.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
