"""Tiny data sets in every stored format, made in the exact layout of the real ones."""

from __future__ import annotations

import io
import json
import pickle
import tarfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image


def pixels(count: int, size: tuple[int, int] = (32, 32), seed: int = 0) -> np.ndarray:
    """count×H×W×3 uint8."""
    return np.random.default_rng(seed).integers(0, 256, (count, *size, 3), dtype=np.uint8)


def png(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(array).save(buffer, "png")
    return buffer.getvalue()


def cifar10(root: Path, *, each: int = 6, archive: bool = False) -> Path:
    """data_batch_1 … 5 and test_batch with `each` images of two classes; returns `root`."""
    names = [f"data_batch_{n}" for n in range(1, 6)] + ["test_batch"]
    files = {"batches.meta": {b"label_names": [f"class{n}".encode() for n in range(10)], b"num_vis": 3072}}
    for seed, name in enumerate(names):
        data = pixels(each, seed=seed).transpose(0, 3, 1, 2).reshape(each, 3072)
        files[name] = {b"data": data, b"labels": [n % 2 for n in range(each)], b"batch_label": name.encode()}
    return _write(root, "cifar-10-batches-py", "cifar-10-python.tar.gz", files, archive=archive)


def cifar100(root: Path, *, archive: bool = False) -> Path:
    meta = {
        b"fine_label_names": [b"f%d" % n for n in range(100)],
        b"coarse_label_names": [b"c%d" % n for n in range(20)],
    }
    files: dict = {"meta": meta}
    for name in ("train", "test"):
        data = pixels(8).transpose(0, 3, 1, 2).reshape(8, 3072)
        files[name] = {b"data": data, b"fine_labels": [98, 99] * 4, b"coarse_labels": [18, 19] * 4}
    return _write(root, "cifar-100-python", "cifar-100-python.tar.gz", files, archive=archive)


def _write(root: Path, folder: str, archive_name: str, files: dict, *, archive: bool) -> Path:
    # protocol 2 is what Python 2 wrote the official files with
    blobs = {name: pickle.dumps(value, protocol=2) for name, value in files.items()}
    if archive:
        with tarfile.open(root / archive_name, "w:gz") as tar:
            for name, blob in blobs.items():
                info = tarfile.TarInfo(f"{folder}/{name}")
                info.size = len(blob)
                tar.addfile(info, io.BytesIO(blob))
    else:
        (root / folder).mkdir()
        for name, blob in blobs.items():
            (root / folder / name).write_bytes(blob)
    return root


def parquet(path: Path, count: int = 8, *, names: list[str] | None = None, size: tuple[int, int] = (32, 32),
            seed: int = 0, rows: int = 3, labels: list | None = None) -> Path:  # fmt: skip
    images = [{"bytes": png(image), "path": f"{n}.png"} for n, image in enumerate(pixels(count, size, seed))]
    table = pa.table({"img": images, "label": [n % 2 for n in range(count)] if labels is None else labels})
    if names:
        features = {"img": {"_type": "Image"}, "label": {"names": names, "_type": "ClassLabel"}}
        info = json.dumps({"info": {"features": features}})
        table = table.replace_schema_metadata({"huggingface": info})
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, row_group_size=rows)
    return path


def folder(
    root: Path, *, each: int = 4, size: tuple[int, int] = (32, 32), classes: tuple[str, ...] = ("cat", "dog")
) -> Path:
    for seed, name in enumerate(classes):
        (root / name).mkdir(parents=True)
        for number, image in enumerate(pixels(each, size, seed)):
            Image.fromarray(image).save(root / name / f"{number}.png")
    return root


def npz(path: Path, count: int = 8) -> Path:
    images, labels = pixels(count), np.arange(count) % 2
    np.savez(path, x_train=images, y_train=labels, x_test=images[:4], y_test=labels[:4])
    return path


def web_shards(root: Path, *, shards: int = 2, each: int = 4) -> Path:
    root.mkdir(exist_ok=True)
    for shard in range(shards):
        with tarfile.open(root / f"train-{shard:04d}.tar", "w") as tar:
            for number, image in enumerate(pixels(each, seed=shard)):
                key = f"{shard * each + number:05d}"
                for suffix, blob in (("png", png(image)), ("cls", str(number % 2).encode())):
                    info = tarfile.TarInfo(f"{key}.{suffix}")
                    info.size = len(blob)
                    tar.addfile(info, io.BytesIO(blob))
    return root


def walk_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have shards walked, as those are that cannot be looked up."""
    pytest.importorskip("webdataset", reason="timm's wds reader needs webdataset")
    monkeypatch.setattr("hardtack.data.timm_readers.index_shards", lambda files: None)
