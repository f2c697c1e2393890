"""CIFAR-10 and CIFAR-100 from their official python archives, extracted or `.tar.gz`.

The archives are pickles, and a pickle is a program. The reader below knows four harmless names (numpy's
array reconstruction and its scalars) and refuses every other, so a doctored archive cannot run anything.
"""

from __future__ import annotations

import io
import pickle
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from hardtack.base.errors import UserError
from hardtack.base.registry import datasets
from hardtack.data.paths import nearest, search_places
from hardtack.data.source import Splits, Stored, integer_labels

if TYPE_CHECKING:
    from hardtack.data.datasets import DataConfig

LARGEST_FILE = 2**29  # the training images of CIFAR-100 have 155 MB
_CIFAR10 = ("cifar-10-batches-py", "cifar-10-python.tar.gz")
_CIFAR100 = ("cifar-100-python", "cifar-100-python.tar.gz")
_TRAIN = [f"data_batch_{number}" for number in range(1, 6)]
_MODULES = ("numpy.core.multiarray", "numpy._core.multiarray", "numpy")
_HARMLESS = {
    *((module, name) for module in _MODULES for name in ("_reconstruct", "ndarray", "dtype", "scalar")),
    ("_codecs", "encode"),
}


class _ArrayUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _HARMLESS:
            raise UserError(
                f"the pickle needs {module}.{name}, which no CIFAR file does; it was not loaded: do not trust it"
            )
        if module == "_codecs":
            return _encode
        if name in ("_reconstruct", "scalar"):
            module = (
                "numpy._core.multiarray" if np.lib.NumpyVersion(np.__version__) >= "2.0.0" else "numpy.core.multiarray"
            )
        return super().find_class(module, name)


def _encode(text: str, encoding: str = "latin1") -> bytes:
    return text.encode(encoding)


def unpickle(data: bytes, where: str) -> dict[bytes, Any]:
    """The dictionary in a CIFAR pickle; anything but arrays and plain containers is refused."""
    if len(data) > LARGEST_FILE:
        raise UserError(f"{where} is larger than {LARGEST_FILE} bytes, and no CIFAR file is; it was not read")
    try:
        value = _ArrayUnpickler(io.BytesIO(data), encoding="bytes").load()
    except UserError as error:
        raise UserError(f"{where}: {error}") from None
    except Exception as error:  # a damaged pickle fails in any way it likes
        raise UserError(f"{where} is not a readable CIFAR file: {error}") from None
    if not isinstance(value, dict):
        raise UserError(f"{where} holds {type(value).__name__}, not the dictionary of a CIFAR file")
    return {(key.encode() if isinstance(key, str) else key): item for key, item in value.items()}


def _opener(config: DataConfig, folder: str, archive: str, meta: str) -> Callable[[str], dict[bytes, Any]]:
    """A function from a file's name inside the archive to its contents."""
    tries = []
    for place in search_places(config.root):
        for where in (place / folder, place / archive, place):
            if where.is_dir() and (where / meta).is_file():
                return lambda name, where=where: _from_folder(where, name)  # type: ignore[misc]
            if where.is_file() and tarfile.is_tarfile(where):
                return lambda name, where=where: _from_tar(where, f"{folder}/{name}")  # type: ignore[misc]
        tries += [place / folder, place / archive]
    places = ", ".join(str(place) for place in search_places(config.root))
    raise UserError(
        f"neither {folder} nor {archive} is in {places}{nearest(tries)};  "
        "get it from https://www.cs.toronto.edu/~kriz/cifar.html and set data.root to its folder"
    )


def _files(config: DataConfig, folder: str, archive: str, names: list[str]) -> list[Path]:
    """Everything that `_opener` may find or read, whether it is there or not."""
    places = search_places(config.root)
    inside = [place / name for place in places for name in (folder, archive, *names)]
    return [*inside, *(place for place in places if not place.is_dir())]


def _cifar10_files(config: DataConfig, path: str) -> list[Path]:
    return _files(config, *_CIFAR10, ["batches.meta", *_TRAIN, "test_batch"])


def _cifar100_files(config: DataConfig, path: str) -> list[Path]:
    return _files(config, *_CIFAR100, ["meta", "train", "test"])


def _from_folder(folder: Path, name: str) -> dict[bytes, Any]:
    if not (folder / name).is_file():
        raise UserError(f"{folder} has no file '{name}'; extract the archive again")
    with (folder / name).open("rb") as file:
        return unpickle(file.read(LARGEST_FILE + 1), str(folder / name))


def _from_tar(path: Path, name: str) -> dict[bytes, Any]:
    try:
        with tarfile.open(path) as archive:
            member = archive.extractfile(name)
            data = member.read(LARGEST_FILE + 1) if member else b""
    except (KeyError, tarfile.TarError, EOFError, OSError) as error:
        raise UserError(f"{path}: cannot read '{name}' ({error}); download the archive again") from None
    return unpickle(data, f"{path}:{name}")


def _stored(parts: list[dict[bytes, Any]], label_key: bytes, names: list[Any], where: str) -> Stored:
    if any(b"data" not in part or label_key not in part for part in parts):
        raise UserError(f"{where}: a file lacks 'data' or '{label_key.decode()}'; is it the python version of the set?")
    data = np.concatenate([np.asarray(part[b"data"], dtype=np.uint8) for part in parts])
    labels = np.concatenate([np.asarray(part[label_key]) for part in parts])
    classes = tuple(name.decode() if isinstance(name, bytes) else str(name) for name in names)
    return Stored(torch.from_numpy(data.reshape(-1, 3, 32, 32)), integer_labels(labels, where), classes)


@datasets.register(
    "cifar10", files=_cifar10_files, help="CIFAR-10, official python archive (folder or .tar.gz) below data.root"
)
def read_cifar10(config: DataConfig, path: str) -> Splits:
    load = _opener(config, *_CIFAR10, "batches.meta")

    def opener(files: list[str]) -> Stored:
        names = load("batches.meta").get(b"label_names", [])
        return _stored([load(file) for file in files], b"labels", names, "cifar10")

    return {"train": lambda: opener(_TRAIN), "test": lambda: opener(["test_batch"])}


@datasets.register(
    "cifar100",
    files=_cifar100_files,
    help="CIFAR-100, official python archive below data.root; label=coarse_label: 20 groups",
)
def read_cifar100(config: DataConfig, path: str) -> Splits:
    load = _opener(config, *_CIFAR100, "meta")
    if config.label not in (None, "fine_label", "coarse_label"):
        raise UserError(f"cifar100 has labels fine_label and coarse_label, not '{config.label}'")
    kind = "coarse" if config.label == "coarse_label" else "fine"

    def opener(file: str) -> Stored:
        names = load("meta").get(f"{kind}_label_names".encode(), [])
        return _stored([load(file)], f"{kind}_labels".encode(), names, "cifar100")

    return {"train": lambda: opener("train"), "test": lambda: opener("test")}
