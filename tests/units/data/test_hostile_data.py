"""Data files of strangers: one wrong label, a lying header or a bomb is refused in one line, before memory fills."""

import io
import json
import struct
import tarfile
import time
import zlib

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from hardtack.base import limits
from hardtack.base.errors import UserError
from hardtack.data import cifar, load_data


@pytest.fixture(autouse=True)
def quick():
    start = time.monotonic()
    yield
    assert time.monotonic() - start < 10


def refused(name, match, **settings):
    with pytest.raises(UserError, match=match) as caught:
        data = load_data(name, "test", **settings)
        data.batch(range(len(data)))
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 1000


@pytest.mark.parametrize("label", [10**11, 2**62, 10**6])
def test_one_huge_label(tmp_path, label):
    labels = np.array([0, 1, label])
    np.savez(tmp_path / "a.npz", x=np.zeros((3, 8, 8, 3), np.uint8), y=labels)
    refused(f"npz:{tmp_path}/a.npz", "limit is 1000000 classes", test=1.0)
    table = pa.table({"image": pa.array([{"bytes": png()}] * 3), "label": pa.array(labels)})
    pq.write_table(table, tmp_path / "test.parquet")
    refused(f"parquet:{tmp_path}/test.parquet", "limit is 1000000 classes")


@pytest.mark.parametrize("shape", ["(100000000000, 8, 8, 3)", "(3, 8, 8, -3)", "(3, 8, 8, 3, 9999999)"])
def test_a_header_that_lies(tmp_path, shape):
    import zipfile

    header = f"{{'descr': '|u1', 'fortran_order': False, 'shape': {shape}}}".encode().ljust(117) + b"\n"
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("x.npy", b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + b"\0" * 576)
        labels = io.BytesIO()
        np.save(labels, np.zeros(3, np.int64))
        archive.writestr("y.npy", labels.getvalue())
    refused(f"npz:{tmp_path}/a.npz", "header of an array", test=1.0)


def png(side=8):
    file = io.BytesIO()
    Image.new("RGB", (side, side)).save(file, "PNG")
    return file.getvalue()


def png_bomb(side):
    """A PNG whose header says side×side pixels; a few hundred bytes."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(b"\0" * 1000))
        + chunk(b"IEND", b"")
    )


POSTSCRIPT = (
    b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\n(ran) (w) file closefile\nshowpage\n%%EOF\n"
)


@pytest.mark.parametrize(
    ("content", "match"),  # the second is refused by Pillow itself
    [
        (png_bomb(12_000), "pixels, and the limit"),
        (png_bomb(50_000), "exceeds limit"),
        (POSTSCRIPT, "cannot read the image"),
        (b"", "cannot read the image"),
    ],
)
def test_images_that_are_bombs_or_programs(tmp_path, content, match):
    for name in ("0", "1"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.png").write_bytes(content)
    refused(f"folder:{tmp_path}", match, test=1.0)
    table = pa.table({"image": pa.array([{"bytes": content}] * 2), "label": pa.array([0, 1])})
    pq.write_table(table, tmp_path / "test.parquet")
    refused(f"parquet:{tmp_path}/test.parquet", match)


def test_a_small_parquet_of_large_images(tmp_path, monkeypatch):
    """One value in thousands of rows is stored once in the file, and thousands of times in memory."""
    monkeypatch.setattr(limits, "UNPACKED_BYTES", 2**24)
    kind = pa.struct([("bytes", pa.dictionary(pa.int32(), pa.binary()))])
    values = pa.DictionaryArray.from_arrays(pa.array(np.zeros(4000, np.int32)), pa.array([b"\0" * 2**20]))
    images = pa.StructArray.from_arrays([values], fields=list(kind))
    table = pa.table({"image": images, "label": pa.array(np.arange(4000) % 2)})
    pq.write_table(table, tmp_path / "test.parquet", compression="zstd", store_schema=False)
    assert (tmp_path / "test.parquet").stat().st_size < 10**5  # and 4 GB when it is read
    refused(f"parquet:{tmp_path}/test.parquet", "would unpack to")
    refused(f"parquet:{tmp_path}/test.parquet", "would unpack to", memory_limit_mb=0)


def test_labels_that_are_no_numbers(tmp_path):
    table = pa.table({"image": pa.array([{"bytes": png()}]), "label": pa.array([["a"]])})
    pq.write_table(table, tmp_path / "test.parquet")
    refused(f"parquet:{tmp_path}/test.parquet", "labels must be whole numbers")


def test_an_archive_of_cifar_that_unpacks_to_too_much(tmp_path, monkeypatch):
    monkeypatch.setattr(cifar, "LARGEST_FILE", 2**19)
    member = tarfile.TarInfo("cifar-10-batches-py/test_batch")
    member.size = 2**24
    with tarfile.open(tmp_path / "cifar-10-python.tar.gz", "w:gz") as archive:
        archive.addfile(member, io.BytesIO(bytes(2**24)))
        meta = tarfile.TarInfo("cifar-10-batches-py/batches.meta")
        meta.size = 6
        archive.addfile(meta, io.BytesIO(b"\x80\x02}q\x00."))
    refused("cifar10", "no CIFAR file is", root=str(tmp_path))


@pytest.mark.parametrize("name", ["../outside.tar", "/etc/passwd", "a/../../outside.tar"])
def test_lists_of_shards_cannot_lead_elsewhere(tmp_path, name):
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "_info.json").write_text(json.dumps({"splits": {"test": {"filenames": [name]}}}))
    refused(f"timm:wds/{tmp_path}/set", "not in that folder")


@pytest.mark.parametrize("text", ["[1]", '{"splits": 5}', '{"splits": {"test": []}}', "[" * 10**5])
def test_lists_of_shards_that_are_none(tmp_path, text):
    (tmp_path / "_info.json").write_text(text)
    refused(f"timm:wds/{tmp_path}", "_info.json")
