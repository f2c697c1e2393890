"""Files that lie about their size, or unpack to thousands of times their size, are refused in one line and at once."""

import io
import json
import struct
import time
import zipfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hardtack.base import limits
from hardtack.base.arrays import read_arrays, read_columns, write_arrays, write_columns
from hardtack.base.errors import UserError
from hardtack.base.layers import parse_words, parse_yaml, read_yaml


@pytest.fixture(autouse=True)
def quick():
    start = time.monotonic()
    yield
    assert time.monotonic() - start < 5


def refused(call, *arguments, match):
    with pytest.raises(UserError, match=match) as caught:
        call(*arguments)
    message = str(caught.value)
    assert "\n" not in message and len(message) < 1000
    return message


# ---------------------------------------------------------------- YAML


def laughs(levels=12, width=10):
    lines = ["a0: &a0 [x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * width)}]" for n in range(1, levels)]
    return "\n".join(lines)


def test_aliases_to_aliases_are_counted(tmp_path):
    (tmp_path / "config.yaml").write_text(laughs())
    assert "config.yaml" in refused(read_yaml, tmp_path / "config.yaml", match="20000 values")


def test_a_few_aliases_are_fine():
    assert parse_yaml("a: &a [1, 2]\nb: *a\nc: {<<: &m {x: 1}, y: 2}") == {
        "a": [1, 2],
        "b": [1, 2],
        "c": {"x": 1, "y": 2},
    }


@pytest.mark.parametrize("text", ["[" * 5000, "{a: " * 5000, "- " * 5000 + "x"])
def test_deep_yaml(tmp_path, text):
    (tmp_path / "config.yaml").write_text(text)
    refused(read_yaml, tmp_path / "config.yaml", match="deeper than 64")


def test_large_yaml(tmp_path):
    (tmp_path / "config.yaml").write_text("a: " + "x" * 10**6)
    refused(read_yaml, tmp_path / "config.yaml", match="limit for settings")


@pytest.mark.parametrize("text", ["a: 2020-99-99", "a: !!python/object/apply:os.system [id]", "a: " + "9" * 5000])
def test_yaml_values_that_cannot_be_built(tmp_path, text):
    (tmp_path / "config.yaml").write_text(text)
    refused(read_yaml, tmp_path / "config.yaml", match="not valid YAML")


def test_words_of_the_same_kinds_are_texts_or_refused():
    assert parse_words(["day=2020-99-99"]) == {"day": "2020-99-99"}
    refused(parse_words, ["a=" + "[" * 5000], match="deeper than 64")
    refused(parse_words, ["a=" + "x" * 10**6], match="limit for settings")
    refused(parse_words, ["a." * 10**5 + "b=1"], match="deeper than 64")


# ---------------------------------------------------------------- JSON


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("[" * 10**6, "deeper"),
        ('{"a":' * 10**5, "deeper"),
        ("9" * 5000, "not valid JSON"),
        ('{"a": "' + "[" * 1000, "not valid JSON"),
        ("\x00", "not valid JSON"),
    ],
)
def test_json_that_is_too_deep_or_no_json(text, match):
    refused(limits.parse_json, text, "file.json", match=match)


def test_brackets_inside_texts_do_not_count():
    text = json.dumps({"a": "[" * 1000, "b": 'quoted " and \\' + "{" * 100})
    assert limits.parse_json(text, "file.json")["b"].endswith("{")


def test_lines_beyond_the_limit(tmp_path):
    path = tmp_path / "results.jsonl"
    path.write_bytes(b"{}\n" + b"x" * (limits.LINE_BYTES + 2))
    refused(lambda: list(limits.bounded_lines(path)), match=r"results.jsonl:2 is longer")
    path.write_bytes(b"{}\n" * 20)
    refused(lambda: list(limits.bounded_lines(path, most=10)), match="more than 10 lines")
    with path.open("wb") as file:  # takes no space on disk
        file.truncate(limits.LINES_BYTES + 1)
    refused(lambda: list(limits.bounded_lines(path)), match="larger than 1.0 GiB")


# ---------------------------------------------------------------- npz


def npz_with(path, header, data=b"", *, compress=zipfile.ZIP_STORED):
    text = header.encode().ljust(118) + b"\n"
    member = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + data
    with zipfile.ZipFile(path, "w", compress) as archive:
        archive.writestr("x.npy", member)
    return path


@pytest.mark.parametrize(
    "header",
    [
        "{'descr': '<f8', 'fortran_order': False, 'shape': (100000000000,)}",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (-1, 5)}",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (3,)}",
        "{'descr': '|O', 'fortran_order': False, 'shape': (1,)}",
        "{'descr': [('a', '<f8')], 'fortran_order': False, 'shape': (1,)}",
        "{'descr': '<U1000000000', 'fortran_order': False, 'shape': (1,)}",
        "{'descr': '<M8[s]', 'fortran_order': False, 'shape': (1,)}",
        "__import__('os').system('true')",
    ],
)
def test_headers_that_lie(tmp_path, header):
    refused(read_arrays, npz_with(tmp_path / "a.npz", header, b"\0" * 8), match="a.npz")


def test_an_archive_that_unpacks_to_far_more(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "UNPACKED_BYTES", 2**24)
    shape = (70 * 2**20,)
    with zipfile.ZipFile(tmp_path / "a.npz", "w", zipfile.ZIP_DEFLATED) as archive, archive.open("x.npy", "w") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "|u1", "fortran_order": False, "shape": shape})
        for _ in range(70):
            file.write(b"\0" * 2**20)
    assert (tmp_path / "a.npz").stat().st_size < 2**20
    refused(read_arrays, tmp_path / "a.npz", match="would unpack to")


def test_arrays_of_objects_are_never_unpickled(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.array([print], dtype=object))
    refused(read_arrays, tmp_path / "a.npz", match="Python objects")


def test_plain_arrays_come_back_equal(tmp_path):
    arrays = {
        "a": np.arange(12.0).reshape(3, 4), "b": np.array("text"), "c": np.array([True, False]), "d": np.array(3),
        "e": np.asfortranarray(np.arange(6, dtype=np.int16).reshape(2, 3)), "f": np.empty((0, 3)),
        "g": np.array(["a", "bc"]),
    }  # fmt: skip
    for compressed in (True, False):
        read = read_arrays(write_arrays(tmp_path / "a.npz", arrays, compressed=compressed))
        assert list(read) == list(arrays)
        for name, array in arrays.items():
            np.testing.assert_array_equal(read[name], array)
            assert read[name].dtype == array.dtype and read[name].shape == array.shape
        read["a"][0, 0] = 5  # may be written to, as before


# ---------------------------------------------------------------- parquet


def test_long_texts_are_stored_once(tmp_path):
    """One text of 1 MB in 4,000 rows is 4 GB when every row has a copy."""
    texts = pa.DictionaryArray.from_arrays(pa.array(np.zeros(4000, np.int32)), pa.array(["y" * 10**6]))
    pq.write_table(pa.table({"x": texts}), tmp_path / "a.parquet", compression="zstd", store_schema=False)
    assert (tmp_path / "a.parquet").stat().st_size < 10**5
    column = read_columns(tmp_path / "a.parquet")["x"]
    assert len(column) == 4000 and column[0] is column[3999]


def test_too_many_rows(tmp_path):
    values = pa.DictionaryArray.from_arrays(pa.array(np.zeros(30_000_000, np.int8)), pa.array([1]))
    pq.write_table(pa.table({"x": values.dictionary_decode()}), tmp_path / "a.parquet")
    assert (tmp_path / "a.parquet").stat().st_size < 10**6
    refused(read_columns, tmp_path / "a.parquet", match="30000000 rows")


@pytest.mark.parametrize("column", [pa.array([[1, 2]]), pa.array([{"a": 1}]), pa.array([0], pa.timestamp("s"))])
def test_columns_of_other_types(tmp_path, column):
    pq.write_table(pa.table({"x": column}), tmp_path / "a.parquet")
    refused(read_columns, tmp_path / "a.parquet", match="column 'x'")


def test_columns_come_back_equal(tmp_path):
    columns = {
        "index": np.arange(3),
        "robust": np.array([True, False, True]),
        "by": ["a", None, "a"],
        "none": [None] * 3,
    }
    read = read_columns(write_columns(tmp_path / "a.parquet", columns))
    assert read["by"].tolist() == ["a", None, "a"] and read["none"].tolist() == [None] * 3
    assert read["robust"].dtype == bool and read["index"].tolist() == [0, 1, 2]


def test_bytes_that_are_no_parquet(tmp_path):
    for data in (b"", b"PAR1", b"PAR1" + b"\xff" * 100 + b"PAR1", bytes(io.BytesIO(b"PAR1" * 50).getvalue())):
        (tmp_path / "a.parquet").write_bytes(data)
        refused(read_columns, tmp_path / "a.parquet", match="not a readable parquet file")
