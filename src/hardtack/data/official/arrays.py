"""NumPy's `.npy` files as memory maps, from a folder or from inside an uncompressed `.tar`: nothing is copied."""

from __future__ import annotations

import functools
import hashlib
import math
import tarfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hardtack.base.errors import UserError
from hardtack.base.limits import read_npy_header

_GIVE_UP = 100  # members of an archive


@dataclass(frozen=True)
class ArrayFile:
    """Bytes `start` … `start + size` of `path`."""

    path: Path
    start: int
    size: int
    where: str

    @functools.cached_property
    def _header(self) -> tuple[tuple[int, ...], bool, np.dtype, int]:
        """(shape, whether in Fortran's order, type, where the numbers begin)."""
        try:
            with self.path.open("rb") as file:
                file.seek(self.start)
                return read_npy_header(file, self.where)
        except (ValueError, OSError) as error:
            raise UserError(f"{self.where} is not a NumPy .npy file ({error}); download it again") from None

    @property
    def shape(self) -> tuple[int, ...]:
        return self._header[0]

    @property
    def dtype(self) -> np.dtype:
        return self._header[2]

    def open(self) -> np.ndarray:
        """The array, its pages read from disk when they are touched."""
        shape, fortran, dtype, begin = self._header
        if dtype.hasobject:
            raise UserError(f"{self.where} holds Python objects, which could run code; expected plain numbers")
        there, needed = self.start + self.size - begin, math.prod(shape) * dtype.itemsize
        if there < needed:
            raise UserError(f"{self.where} is cut off: {there:,} of {needed:,} bytes are there; download it again")
        # copy on write: torch warns of arrays it must not write to, and nobody writes
        return np.memmap(self.path, dtype, mode="c", offset=begin, shape=shape, order="F" if fortran else "C")

    def md5(self) -> str:
        digest = hashlib.md5(usedforsecurity=False)
        with self.path.open("rb") as file:
            file.seek(self.start)
            left = self.size
            while left and (part := file.read(min(left, 1 << 20))):
                digest.update(part)
                left -= len(part)
        return digest.hexdigest()


def array_files(location: Path) -> dict[str, ArrayFile]:
    """The `.npy` files of a folder or a `.tar`, by name without the ending."""
    if location.is_dir():
        paths = sorted(path for path in location.glob("*.npy") if not path.name.startswith("."))
        return {path.stem: ArrayFile(path, 0, path.stat().st_size, str(path)) for path in paths}
    try:
        with tarfile.open(location, "r:") as archive:
            members = []
            for place, member in enumerate(archive):
                if member.isreg() and member.name.endswith(".npy"):
                    members.append(member)
                if place == _GIVE_UP and not members:
                    break  # ImageNet-C's archives have hundreds of thousands of members, none of them an array
    except (tarfile.TarError, EOFError, OSError) as error:
        raise UserError(f"{location} cannot be read as an uncompressed .tar ({error}); extract it first") from None
    return {
        Path(member.name).stem: ArrayFile(location, member.offset_data, member.size, f"{location}:{member.name}")
        for member in members
        if not Path(member.name).name.startswith(".")
    }
