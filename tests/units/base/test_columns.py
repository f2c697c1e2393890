"""Columns in Arrow's layout: what `pa.array` makes of them, without the import of pandas that it brings along."""

import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest
import torch

from hardtack.base.arrays import _to_arrow, read_columns, to_numpy, write_columns
from processes import environment

COLUMNS = [
    np.arange(5), np.arange(6, dtype=np.int8)[::2], np.arange(3, dtype=np.uint64), np.array([1.5, -0.0], np.float32),
    np.array([1, 2], dtype=np.float16), np.array([True, False, True] * 5),
    np.array([], dtype=bool), np.array([]), np.array(["x", "yy"]), np.array(["x", None], dtype=object),
    torch.arange(4), torch.tensor([True, False]), ["a", None, "é", ""], [1, 2], [1, 2.5], [1, None], [True, False],
    [b"a\0", b"\0\0"], np.array([b"a\0", None], dtype=object),
    (np.int64(3), np.int64(4)),
]  # fmt: skip


@pytest.mark.parametrize("values", COLUMNS, ids=repr)
def test_a_column_is_what_arrow_makes_of_it(values):
    plain = values if isinstance(values, list | tuple) else np.asarray(values)
    expected = pa.array(plain.tolist() if isinstance(plain, np.ndarray) and plain.dtype.kind in "OU" else plain)
    made = _to_arrow(values)
    made.validate(full=True)
    assert made.type == expected.type and made.equals(expected)


def test_columns_without_any_text_are_texts(tmp_path):
    assert _to_arrow([None, None]).type == pa.string() == _to_arrow([]).type
    write_columns(tmp_path / "a.parquet", {"text": [None, "b"], "number": [1.0, np.nan]})
    columns = read_columns(tmp_path / "a.parquet")
    assert columns["text"].tolist() == [None, "b"] and np.isnan(columns["number"][1])


def test_writing_and_reading_columns_imports_no_pandas(tmp_path):
    """It takes as long as importing numpy and Arrow together, and every evaluation would wait for it."""
    pytest.importorskip("pandas", reason="pandas is not installed")
    code = "import sys; import numpy as np; from hardtack.base.arrays import read_columns, write_columns; "
    code += "write_columns('a.parquet', {'a': np.arange(3), 'b': np.array([True] * 3), 'c': ['x', None, 'y']}); "
    code += "read_columns('a.parquet'); assert 'pandas' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


KINDS = (
    *(pa.array([1, 2, 3], kind) for kind in (pa.int8(), pa.uint16(), pa.int64(), pa.float32())), pa.array([None, None]),
    pa.array(np.array([1, 2], np.float16)), pa.array([True, False, True] * 7), pa.array([True, None]),
    pa.array([1, None]), pa.array([1.5, None]), pa.array([], pa.bool_()), pa.array([], pa.int64()),
)  # fmt: skip


@pytest.mark.parametrize("part", KINDS, ids=lambda part: f"{part.type}{len(part)}")
def test_a_column_is_read_as_arrow_reads_it(part):
    for parts in ([part], [part, part], [part[1:], part[:1]], [part[5:9]], []):
        column = pa.chunked_array(parts, part.type)
        mine, expected = to_numpy(column), column.to_numpy()
        assert mine.dtype == expected.dtype
        np.testing.assert_array_equal(mine, expected)
