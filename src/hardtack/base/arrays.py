"""Columns (parquet) and arrays (npz) on disk, written whole and renamed into place. Nothing is pickled."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from hardtack.base.errors import UserError
from hardtack.base.files import atomic
from hardtack.base.limits import CELLS, COLUMNS, ROWS, check_unpacked, read_npz, shorten

Columns = dict[str, np.ndarray]
_FLOATS = {
    "halffloat": "float16",
    "float": "float32",
    "double": "float64",
}  # Arrow's names; those of integers are NumPy's
UNREADABLE_NPZ = (
    OSError, ValueError, EOFError, KeyError, RuntimeError, MemoryError, zipfile.BadZipFile, zlib.error
)  # fmt: skip


def write_columns(path: str | Path, columns: Mapping[str, Any]) -> Path:
    """Columns of one length as parquet. `columns`: name → n numbers, booleans or texts (None allowed)."""
    arrays = {name: _to_arrow(values) for name, values in columns.items()}
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        raise UserError(f"the columns of {Path(path).name} differ in length: {lengths}")
    with atomic(path) as file:
        pq.write_table(pa.table(arrays), file, compression="zstd")
    return Path(path)


def read_columns(path: str | Path) -> Columns:
    """The columns of a parquet file: name → array of shape (n,)."""
    try:
        return _read_columns(path)
    except (OSError, pa.ArrowException, MemoryError) as error:
        raise UserError(f"{path} is not a readable parquet file ({shorten(error)})") from None


def _read_columns(path: str | Path) -> Columns:
    """Texts are read as a dictionary and shared between rows, so that a small file cannot fill the memory."""
    schema = pq.read_schema(path)
    texts = [field.name for field in schema if field.type in (pa.string(), pa.large_string(), pa.binary())]
    for field in schema:
        plain = pa.types.is_primitive(field.type) or pa.types.is_null(field.type) or field.name in texts
        if not plain or pa.types.is_temporal(field.type):
            raise UserError(f"{path}: column '{shorten(field.name)}' holds {shorten(field.type)}, not numbers or texts")
    if len(set(schema.names)) < len(schema.names):
        raise UserError(f"{path} has two columns of one name")
    with pq.ParquetFile(path, read_dictionary=texts) as file:
        rows, columns = file.metadata.num_rows, len(schema.names)
        if rows > ROWS or columns > COLUMNS or rows * columns > CELLS:
            raise UserError(f"{path} has {rows} rows × {columns} columns, and the limit is {ROWS} × {COLUMNS}")
        packed = sum(file.metadata.row_group(place).total_byte_size for place in range(file.metadata.num_row_groups))
        check_unpacked(path, packed)
        table = file.read()
    return {name: to_numpy(table.column(name)) for name in table.column_names}


def to_numpy(column: pa.ChunkedArray) -> np.ndarray:
    """A column as an array, without pandas, which Arrow's own `to_numpy` imports where it is installed."""
    numbers = pa.types.is_primitive(column.type) and not pa.types.is_temporal(column.type)
    if numbers and not column.null_count:
        return np.concatenate([_numbers(chunk) for chunk in column.chunks] or [column.to_numpy()])
    if not pa.types.is_dictionary(column.type):
        return column.to_numpy()
    parts = []
    for chunk in column.chunks:
        values = np.array([*chunk.dictionary.to_pylist(), None], dtype=object)  # the last is for missing texts
        parts.append(values[np.where(_numbers(chunk.is_null()), len(values) - 1, _numbers(chunk.indices))])
    return np.concatenate(parts) if parts else np.empty(0, dtype=object)


def _numbers(chunk: pa.Array) -> np.ndarray:
    """A chunk without missing values."""
    values, end = chunk.buffers()[1], chunk.offset + len(chunk)
    if values is None or pa.types.is_boolean(chunk.type):
        packed = np.frombuffer(values or b"", dtype=np.uint8)
        return np.unpackbits(packed, count=end, bitorder="little")[chunk.offset :].astype(bool)
    dtype = np.dtype(_FLOATS.get(str(chunk.type), str(chunk.type)))
    return np.frombuffer(values, dtype=dtype, count=end)[chunk.offset :]


def count_rows(path: str | Path) -> int | None:
    """The number of rows of a parquet file, from its footer; None where the file is damaged."""
    try:
        return int(pq.read_metadata(path).num_rows)
    except (OSError, pa.ArrowInvalid):
        return None


def write_arrays(path: str | Path, arrays: Mapping[str, Any], *, compressed: bool = True) -> Path:
    """Arrays by name as one npz file."""
    with atomic(path) as file:
        plain: dict[str, Any] = {name: np.asarray(value) for name, value in arrays.items()}
        (np.savez_compressed if compressed else np.savez)(file, **plain)
    return Path(path)


def read_arrays(path: str | Path, *, names: Sequence[str] | None = None) -> Columns:
    """The arrays of an npz file, or those of `names` that it has; a file that would execute code is refused."""
    try:
        return read_npz(path, names)
    except UserError:
        raise
    except UNREADABLE_NPZ as error:
        raise UserError(f"{path} is not a readable npz file of plain arrays ({shorten(error, 300)})") from None


def join_columns(parts: Sequence[Mapping[str, np.ndarray]]) -> Columns:
    """Columns of several parts, one below the other; all parts must have the same names."""
    if not parts:
        return {}
    names = list(parts[0])
    for part in parts:
        if set(part) != set(names):
            raise UserError(f"parts of one table differ in their columns: {names} and {list(part)}")
    return {name: np.concatenate([part[name] for part in parts]) for name in names}


def _to_arrow(values: Any) -> pa.Array:
    """A column in Arrow's layout. `pa.array` imports pandas where it is installed, to see whether it is pandas'."""
    if isinstance(values, list | tuple) or np.asarray(values).dtype.kind in "OUS":
        items = list(values) if isinstance(values, list | tuple) else np.asarray(values).tolist()
        return _texts(items) if all(item is None or isinstance(item, str) for item in items) else pa.array(items)
    array = np.asarray(values)
    if array.ndim != 1 or array.dtype.kind not in "biuf" or not array.dtype.isnative:
        return pa.array(values)
    if array.dtype.kind == "b":
        return pa.Array.from_buffers(pa.bool_(), len(array), [None, _bits(array)])
    buffer = pa.py_buffer(np.ascontiguousarray(array))
    return pa.Array.from_buffers(pa.from_numpy_dtype(array.dtype), len(array), [None, buffer])


def _texts(items: Sequence[str | None]) -> pa.Array:
    """A column of texts, also where every value is None."""
    encoded = [b"" if item is None else item.encode() for item in items]
    ends = np.cumsum([0, *map(len, encoded)], dtype=np.int64)
    if ends[-1] >= 2**31:
        raise UserError(f"a column of texts has {ends[-1]} bytes, and the limit is {2**31}")
    present = _bits(np.array([item is not None for item in items], dtype=bool)) if None in items else None
    offsets = pa.py_buffer(ends.astype(np.int32))
    return pa.Array.from_buffers(pa.string(), len(items), [present, offsets, pa.py_buffer(b"".join(encoded))])


def _bits(values: np.ndarray) -> pa.Buffer:
    return pa.py_buffer(np.packbits(values, bitorder="little"))
