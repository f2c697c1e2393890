"""Weights as files: where they lie, whether they are whole, and what is in them.

Nothing here can execute code: safetensors cannot, and `.pt` files are read with `weights_only=True`.
"""

from __future__ import annotations

import argparse
import hashlib
import pickle
import re
import warnings
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from hardtack.base.errors import UserError, did_you_mean
from hardtack.base.limits import check_unpacked, parse_json, read_bounded
from hardtack.models.stored_architecture import check_metadata

# Where training scripts put the weights in a checkpoint; averaged weights first, as timm does.
ENTRIES = (
    "state_dict_ema", "model_ema", "ema_state_dict", "ema_model", "ema",
    "state_dict", "model_state_dict", "model", "net", "weights", "params",
)  # fmt: skip
METADATA_KEY = "hardtack"
_MOST_RUNS = 5  # named in a message


def find_weights(path: str | Path, *, checkpoint: str = "best") -> Path:
    """The weights file itself, or the one of that name in a run folder (`best` falls back to `last`).

    A folder in Hugging Face's layout has one, `model.safetensors`.
    """
    path = Path(path).expanduser()
    if path.is_file():
        return path
    if not path.is_dir():
        near = did_you_mean(path.name, [p.name for p in path.parent.iterdir()] if path.parent.is_dir() else [])
        raise UserError(f"there is no weights file or run folder {path}{near}")
    *_, file = searched_weights(path, checkpoint=checkpoint)
    if file.is_file():
        return file
    raise UserError(f"{file.parent} holds no checkpoint '{checkpoint}'{_what_to_name(path, file.parent)}")


def _what_to_name(path: Path, folder: Path) -> str:
    """The rest of the message: the checkpoints that there are, else the runs inside, else how to do without."""
    if held := sorted(file.stem for file in folder.glob("*.safetensors")):
        return f"; it holds: {', '.join(held)}"
    if runs := sorted(str(child.parent) for child in path.glob("*/checkpoints")):
        return f"; name one of the runs in it: {', '.join(runs[:_MOST_RUNS])}{', …' if len(runs) > _MOST_RUNS else ''}"
    return " and no other one; name a run that was trained, or the model itself: model=NAME data=NAME"


def searched_weights(path: str | Path, *, checkpoint: str = "best") -> list[Path]:
    """Where `find_weights` looks, up to the file that it finds."""
    path = Path(path).expanduser()
    if not path.is_dir():
        return [path]
    folder, files = path / "checkpoints", list[Path]()
    names = [checkpoint, "last"] if checkpoint == "best" else [checkpoint]
    if not folder.is_dir():
        folder, files = path, [folder]
        names += ["model"] if checkpoint == "best" else []
    for name in names:
        files.append(folder / f"{name}.safetensors")
        if files[-1].is_file():
            break
    return files


def read_state(file: Path, *, entry: str | None = None) -> tuple[dict[str, Tensor], str | None]:
    """The tensors in a file by name, and the entry of a checkpoint they were found under."""
    if file.suffix == ".safetensors":
        return _read_safetensors(file), None
    return _pick(_read_pickle(file), file, entry)


def read_metadata(path: str | Path) -> dict[str, Any]:
    """What `save_weights` wrote beside the tensors; empty for files that came from elsewhere."""
    file = find_weights(path)
    if file.suffix != ".safetensors":
        return {}
    try:
        with safetensors.safe_open(file, framework="pt") as opened:
            text = (opened.metadata() or {}).get(METADATA_KEY, "{}")
    except (safetensors.SafetensorError, OSError) as error:
        raise _damaged(file, error) from None
    return check_metadata(parse_json(text, f"the metadata of {file}"), read_shapes(file), file)


def read_shapes(file: Path) -> list[list[int]]:
    """The shapes of the tensors in a .safetensors file, from its header."""
    try:
        with safetensors.safe_open(file, framework="pt") as opened:
            return [opened.get_slice(name).get_shape() for name in opened.keys()]  # noqa: SIM118
    except (safetensors.SafetensorError, OSError) as error:
        raise _damaged(file, error) from None


def check_sum(file: Path) -> str:
    digest = sha256(file)
    side = side_file(file)
    if side.is_file() and (read_bounded(side, 4096).split() or [""])[0] != digest:
        raise UserError(f"{file} does not match its checksum in {side.name}; fetch it again, or delete {side.name}")
    return digest


def side_file(file: Path) -> Path:
    return file.with_name(file.name + ".sha256")


def sha256(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def _read_safetensors(file: Path) -> dict[str, Tensor]:
    try:
        return safetensors.torch.load_file(file)
    except (safetensors.SafetensorError, OSError) as error:
        raise _damaged(file, error) from None


def _read_pickle(file: Path) -> Any:
    if zipfile.is_zipfile(file):
        with zipfile.ZipFile(file) as archive:
            check_unpacked(file, sum(member.file_size for member in archive.infolist()))
    try:
        # Namespaces of training arguments are in many published checkpoints and hold no code.
        with torch.serialization.safe_globals([argparse.Namespace]):
            return torch.load(file, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        what = re.search(r"(?:GLOBAL|Unsupported (?:global|class|operand)\S*) (\S+)", str(error))
        named = f" ({what[1]})" if what else ""
        raise UserError(
            f"{file} was not loaded: it is damaged or holds more than tensors{named}, and loading it could "
            f"run code; if you trust it, open it yourself and save only its state dict"
        ) from None
    except Exception as error:  # torch.load fails in many ways on bytes that are no checkpoint
        raise _damaged(file, error) from None


def _pick(checkpoint: Any, file: Path, entry: str | None) -> tuple[dict[str, Tensor], str | None]:
    """The state dict in a checkpoint, and the key it was found under."""
    if not isinstance(checkpoint, Mapping):
        raise UserError(f"{file} holds a {type(checkpoint).__name__}, not a state dict")
    states = {key: value for key, value in checkpoint.items() if _is_state(value)}
    if entry is not None:
        if entry not in states:
            raise UserError(f"{file} has no weights under '{entry}'; it has: {', '.join(map(str, states))}")
        return _tensors(states[entry]), entry
    present = [key for key in ENTRIES if key in states]
    if present:
        if len(present) > 1:
            warnings.warn(f"{file} has weights under {', '.join(present)}; took '{present[0]}' (choose with entry=)")
        return _tensors(states[present[0]]), present[0]
    if not _is_state(checkpoint):
        raise UserError(f"{file} holds no weights; its keys are: {shorten(map(str, checkpoint))}")
    return _tensors(checkpoint), None


def _is_state(value: Any) -> bool:
    return isinstance(value, Mapping) and any(isinstance(item, Tensor) for item in value.values())


def _tensors(state: Mapping[str, Any]) -> dict[str, Tensor]:
    tensors = {str(key): value for key, value in state.items() if isinstance(value, Tensor)}
    for key, tensor in tensors.items():  # strides of 0 let one number stand for billions
        if tensor.layout is torch.strided and tensor.nbytes > tensor.untyped_storage().nbytes():
            raise UserError(f"the tensor '{shorten([key])}' says {tuple(tensor.shape)}, more than its file stores")
    return tensors


def shorten(keys: Iterable[str], limit: int = 8) -> str:
    names = list(keys)
    more = f", … and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more


def _damaged(file: Path, error: Exception) -> UserError:
    reason = " ".join(str(error).split())[:160]
    return UserError(
        f"{file} cannot be read: damaged, cut off or no weights file ({reason}); copy it again, or name another"
    )
