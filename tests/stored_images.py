"""Small sets of images as folders, web shards and parquet, whose files differ in their pixels alone."""

import io
import os
import tarfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image


def picture(seed, side=8):
    return np.random.default_rng(seed).integers(0, 256, (side, side, 3), dtype=np.uint8)


def png(seed):
    file = io.BytesIO()
    Image.fromarray(picture(seed)).save(file, "PNG", compress_level=0)  # so that all files have one size
    return file.getvalue()


def write_folder(root, seeds):
    for number, seed in enumerate(seeds):
        path = root / "cat" / f"{number}.png" if number % 2 else root / "dog" / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(png(seed))
        os.utime(path, (1, 1))
    return f"folder:{root}"


def write_shards(root, seeds):
    root.mkdir(parents=True, exist_ok=True)
    with tarfile.open(root / "test-0.tar", "w") as tar:
        for number, seed in enumerate(seeds):
            for suffix, data in (("png", png(seed)), ("cls", str(number % 2).encode())):
                member = tarfile.TarInfo(f"{number:04d}.{suffix}")
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))
    return f"timm:wds/{root}"


def write_parquet(root, seeds):
    root.mkdir(parents=True, exist_ok=True)
    images = pa.array([{"bytes": png(seed), "path": ""} for seed in seeds])
    pq.write_table(pa.table({"image": images, "label": [n % 2 for n in range(len(seeds))]}), root / "test.parquet")
    return f"parquet:{root}"


WRITERS = {"folder": write_folder, "shards": write_shards, "parquet": write_parquet}
