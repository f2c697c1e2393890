"""Limits for files that may come from anybody: how large and how deep they may be, checked before they are read.

A file that lies about its size, or unpacks to thousands of times its size, would otherwise fill the memory. Each fault
is a UserError in one line: what, where, which limit. Honest files are far below every limit.
"""

from __future__ import annotations

import json
import math
import os
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from hardtack.base.errors import UserError

if TYPE_CHECKING:
    import numpy as np  # imported where arrays are read: listing names and recipes needs no numpy

MIB = 2**20
YAML_BYTES = 256 * 1024  # a recipe has 5 kB
YAML_NODES = 20_000  # after aliases are expanded
DEPTH = 64  # of nested lists and mappings, in YAML and JSON
JSON_BYTES = 64 * MIB  # one JSON file
LINE_BYTES = 8 * MIB  # one line of results.jsonl or metrics.jsonl
LINES_BYTES = 1024 * MIB  # all lines of such a file
LINES = 5_000_000  # of metrics.jsonl
RESULTS = 100_000  # lines of results.jsonl: a run has hundreds
ROWS = 20_000_000  # of a table with one row per image: ImageNet has 1.3 million
CELLS = 400_000_000  # rows × columns
COLUMNS = 20_000
UNPACKED_BYTES = 512 * MIB  # of a compressed file, and in addition UNPACKED_RATIO times its size
UNPACKED_RATIO = 200
CLASSES = 1_000_000
PIXELS = 100_000_000  # of one image: 10,000 × 10,000
MEMBERS = 100_000  # arrays in one npz file


def shorten(text: object, limit: int = 120) -> str:
    """Text from a file for a message: on one line, without control characters, not too long."""
    plain = "".join(letter if letter.isprintable() else " " for letter in str(text)[: limit + 1])
    return plain if len(plain) <= limit else f"{plain[:limit]}…"


# ---------------------------------------------------------------- text


def read_bounded(path: str | Path, limit: int) -> str:
    """The text of a file of at most `limit` bytes (UTF-8; bytes that are not are replaced)."""
    with open(path, "rb") as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        raise UserError(f"{path} is larger than {_size(limit)}, the limit for such a file; it was not read")
    return data.decode("utf-8", errors="replace")


def bounded_lines(path: str | Path, *, most: int = LINES) -> Iterator[tuple[int, str, bool]]:
    """Number, text and whether it ends with a newline, of each line of a file of JSON lines."""
    with open(path, "rb") as file:
        if os.fstat(file.fileno()).st_size > LINES_BYTES:
            raise UserError(f"{path} is larger than {_size(LINES_BYTES)}, the limit for such a file; it was not read")
        number = 0
        while line := file.readline(LINE_BYTES + 1):
            number += 1
            if number > most:
                raise UserError(f"{path} has more than {most} lines, the limit for such a file; it was not read")
            if len(line) > LINE_BYTES:
                raise UserError(f"{path}:{number} is longer than {_size(LINE_BYTES)}, the limit for a line; remove it")
            yield number, line.decode("utf-8", errors="replace"), line.endswith(b"\n")


def parse_json(text: str, where: object) -> Any:
    """The value of a JSON text; a fault is a UserError that names `where`."""
    try:
        check_depth(text)
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{where} is not valid JSON ({shorten(error)})") from None


def read_json(path: str | Path, *, limit: int = JSON_BYTES) -> Any:
    """The value in a JSON file."""
    return parse_json(read_bounded(path, limit), path)


def check_depth(text: str) -> None:
    """Refuse JSON that nests deeper than any record, which could exhaust the stack of what reads it later."""
    if text.count("[") + text.count("{") <= DEPTH:
        return
    depth, quoted, escaped = 0, False, False
    for letter in text:
        if quoted:
            quoted, escaped = (letter != '"' or escaped), letter == "\\" and not escaped
        elif letter == '"':
            quoted, escaped = True, False
        elif letter in "[{":
            depth += 1
            if depth > DEPTH:
                raise UserError(f"it is nested deeper than {DEPTH} levels, the limit")
        elif letter in "]}":
            depth -= 1


# ---------------------------------------------------------------- archives and arrays


def unpacked_limit(path: str | Path) -> int:
    """How many bytes a compressed file may unpack to."""
    return UNPACKED_BYTES + UNPACKED_RATIO * os.stat(path).st_size


def check_unpacked(path: str | Path, size: int) -> None:
    """Refuse a file that unpacks to `size` bytes, if that is far more than files of its size hold."""
    if size > (limit := unpacked_limit(path)):
        raise UserError(
            f"{path} would unpack to {_size(size)}, and the limit for a file of its size is {_size(limit)}; "
            "it was not read"
        )


def read_npz(path: str | Path, names: Sequence[str] | None = None) -> dict[str, np.ndarray]:
    """The arrays of an npz file (of these names): numbers, booleans and texts, of the sizes that their headers say."""
    with zipfile.ZipFile(path) as archive:
        every = archive.infolist()
        members = [member for member in every if names is None or member.filename.removesuffix(".npy") in names]
        if len(members) > MEMBERS:
            raise UserError(f"{path} has {len(members)} arrays, and the limit is {MEMBERS}")
        check_unpacked(path, sum(member.file_size for member in members))
        arrays = {}
        for member in members:
            with archive.open(member) as file:
                arrays[member.filename.removesuffix(".npy")] = read_npy(file, member.file_size, path)
        return arrays


def read_npy(file: IO[bytes], size: int, where: object) -> np.ndarray:
    """One array of `size` bytes with its header, which must say as much as there is."""
    import numpy as np

    shape, fortran, dtype, header = read_npy_header(file, where)
    check_array(shape, dtype, size - header, where)
    data = file.read(size - header)
    array: np.ndarray = np.frombuffer(bytearray(data), dtype=dtype)
    return array.reshape(shape, order="F" if fortran else "C")


def read_npy_header(file: IO[bytes], where: object) -> tuple[tuple[int, ...], bool, np.dtype, int]:
    """Shape, order, type and the length in bytes of the header of an npy file."""
    import numpy as np

    try:
        version = np.lib.format.read_magic(file)
        read = {(1, 0): np.lib.format.read_array_header_1_0}.get(version, np.lib.format.read_array_header_2_0)
        shape, fortran, dtype = read(file)
    except (ValueError, EOFError, RecursionError, MemoryError, SyntaxError) as error:
        raise ValueError(f"{where}: the header of an array cannot be read ({shorten(error)})") from None
    return shape, fortran, dtype, file.tell()


def check_array(shape: tuple[int, ...], dtype: np.dtype, size: int, where: object) -> None:
    """Whether a header agrees with the `size` bytes that are stored, and is of plain values."""
    if dtype.hasobject or dtype.kind not in "biufcUS":
        raise ValueError(f"{where}: an array of {dtype} holds Python objects or records, which are not loaded")
    if any(not isinstance(side, int) or side < 0 for side in shape) or math.prod(shape) * dtype.itemsize != size:
        raise ValueError(f"{where}: the header of an array says {shorten(shape)} of {dtype}, but has {size} bytes")


def check_classes(count: int, where: object) -> None:
    """Refuse labels that ask for more classes than any data set has: one wrong label would make names for all."""
    if count > CLASSES:
        raise UserError(
            f"{where}: the largest label is {count - 1}, and the limit is {CLASSES} classes; labels must count from 0"
        )


def check_pixels(width: int, height: int, where: object) -> None:
    """Refuse an image that is too large to be decoded."""
    if width * height > PIXELS:
        raise UserError(f"{where} has {width}×{height} pixels, and the limit is {PIXELS}; it was not decoded")


def _size(count: int) -> str:
    return f"{count / 2**30:.1f} GiB" if count >= 2**30 else f"{count / MIB:.3g} MiB"
