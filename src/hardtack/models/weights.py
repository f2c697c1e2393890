"""Weights in and out: safetensors with metadata and a checksum; other people's checkpoints in.

Nothing here can execute code: safetensors cannot, and `.pt` files are read with `weights_only=True`.
A file that does not fit says which tensors are missing, which are too many and which have another shape,
and changes nothing.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import pickle
import re
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor, nn

from hardtack import config
from hardtack.errors import UserError, did_you_mean
from hardtack.models.classifier import Classifier

# Where training scripts put the weights in a checkpoint; averaged weights first, as timm does.
ENTRIES = (
    "state_dict_ema", "model_ema", "ema_state_dict", "ema_model", "ema",
    "state_dict", "model_state_dict", "model", "net", "weights", "params",
)  # fmt: skip
METADATA_KEY = "hardtack"


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """What arrived: the last three are empty unless `strict=False` let a partial fit pass."""

    path: Path
    sha256: str
    entry: str | None = None
    missing: list[str] = field(default_factory=list)
    unexpected: list[str] = field(default_factory=list)
    wrong_shape: dict[str, str] = field(default_factory=dict)  # name to "found, wanted"


# ---------------------------------------------------------------- out


def save_weights(path: str | Path, model: nn.Module, *, metadata: Mapping[str, Any] | None = None) -> str:
    """Write the model's state to `path` (.safetensors) whole or not at all; its sha256 goes beside it.

    The architecture of a `Classifier` is added to the metadata, so that `rebuild` needs the file alone.
    Equal weights and metadata make equal files.
    """
    path = Path(path)
    if path.suffix != ".safetensors":
        raise UserError(f"weights are saved as .safetensors, found '{path.name}'")
    bare = _bare(model)
    known = {"architecture": bare.architecture} if isinstance(bare, Classifier) else {}
    # One key only: safetensors writes its metadata map in random order.
    text = json.dumps(config.plain({**known, **(metadata or {})}), sort_keys=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        safetensors.torch.save_file(_separate(bare.state_dict()), temporary, metadata={METADATA_KEY: text})
        digest = _sha256(temporary)
        # Without a side file nothing is checked: a crash between the renames leaves a file that loads.
        _side_file(path).unlink(missing_ok=True)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    temporary.write_text(f"{digest}  {path.name}\n")
    os.replace(temporary, _side_file(path))
    return digest


def _separate(state: Mapping[str, Any]) -> dict[str, Tensor]:
    """CPU copies that share no storage (safetensors refuses tied tensors), under clean names."""
    tensors, seen = {}, set()
    for key, value in state.items():
        if not isinstance(value, Tensor):
            continue  # extra state of exotic modules: cannot be stored without pickle
        tensor = value.detach().cpu().contiguous()
        storage = tensor.untyped_storage().data_ptr()
        tensors[_clean(key)] = tensor.clone() if storage in seen else tensor
        seen.add(storage)
    return tensors


# ---------------------------------------------------------------- in


def load_weights(
    model: nn.Module, path: str | Path, *, strict: bool = True, entry: str | None = None
) -> Loaded:
    """Copy the weights in a file into `model`, in place.

    `path` is a .safetensors file, a `torch.save`d checkpoint (.pt, .pth, …) or a run folder. `entry` names
    the part of a checkpoint to take. Prefixes that wrappers leave (`module.`, `_orig_mod.`, `model.`) are
    fitted to the model. With `strict=False` what fits is loaded, the rest is warned of and returned.
    """
    file = find_weights(path)
    digest = _check_sum(file)
    if file.suffix == ".safetensors":
        found, taken = _read_safetensors(file), None
        _same_normalisation(model, file)
    else:
        found, taken = _pick(_read_pickle(file), file, entry)
    wanted = _bare(model).state_dict()
    found = _fit(found, wanted)
    loaded = _compare(found, wanted, file, digest, taken)
    if loaded.missing or loaded.unexpected or loaded.wrong_shape:
        if strict:
            raise UserError(f"{file} does not fit the model: {_differences(loaded)}")
        warnings.warn(f"{file} fits the model only in part: {_differences(loaded)}", stacklevel=2)
    skip = {*loaded.unexpected, *loaded.wrong_shape}
    _bare(model).load_state_dict({k: v for k, v in found.items() if k not in skip}, strict=False)
    return loaded


def read_metadata(path: str | Path) -> dict[str, Any]:
    """What `save_weights` wrote beside the tensors; empty for files that came from elsewhere."""
    file = find_weights(path)
    if file.suffix != ".safetensors":
        return {}
    try:
        with safetensors.safe_open(file, framework="pt") as opened:
            return json.loads((opened.metadata() or {}).get(METADATA_KEY, "{}"))
    except (safetensors.SafetensorError, json.JSONDecodeError, OSError) as error:
        raise _damaged(file, error) from None


def find_weights(path: str | Path, *, checkpoint: str = "best") -> Path:
    """The weights file itself, or the one of that name in a run folder (`best` falls back to `last`)."""
    path = Path(path).expanduser()
    if path.is_file():
        return path
    if not path.is_dir():
        near = did_you_mean(
            path.name, [p.name for p in path.parent.iterdir()] if path.parent.is_dir() else []
        )
        raise UserError(f"there is no weights file or run folder {path}{near}")
    folder = path / "checkpoints" if (path / "checkpoints").is_dir() else path
    names = [checkpoint, "last"] if checkpoint == "best" else [checkpoint]
    for name in names:
        if (folder / f"{name}.safetensors").is_file():
            return folder / f"{name}.safetensors"
    held = sorted(file.stem for file in folder.glob("*.safetensors"))
    raise UserError(f"{folder} holds no checkpoint '{checkpoint}'; it holds: {', '.join(held) or 'none'}")


def _read_safetensors(file: Path) -> dict[str, Tensor]:
    try:
        return safetensors.torch.load_file(file)
    except (safetensors.SafetensorError, OSError) as error:
        raise _damaged(file, error) from None


def _read_pickle(file: Path) -> Any:
    try:
        # Namespaces of training arguments are in many published checkpoints and hold no code.
        with torch.serialization.safe_globals([argparse.Namespace]):
            return torch.load(file, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        what = re.search(r"(?:GLOBAL|Unsupported (?:global|class|operand)\S*) (\S+)", str(error))
        named = f" ({what[1]})" if what else ""
        raise UserError(
            f"{file} was refused: it is damaged or holds more than tensors{named}, and loading that could "
            f"run code; where you trust it, open it yourself and save its state dict alone"
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
            warnings.warn(
                f"{file} has weights under {', '.join(present)}; took '{present[0]}' (choose with entry=)"
            )
        return _tensors(states[present[0]]), present[0]
    if not _is_state(checkpoint):
        raise UserError(f"{file} holds no weights; its keys are: {_shorten(map(str, checkpoint))}")
    return _tensors(checkpoint), None


def _is_state(value: Any) -> bool:
    return isinstance(value, Mapping) and any(isinstance(item, Tensor) for item in value.values())


def _tensors(state: Mapping[str, Any]) -> dict[str, Tensor]:
    return {str(key): value for key, value in state.items() if isinstance(value, Tensor)}


# ---------------------------------------------------------------- names


def _fit(found: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Rename the tensors found so that most names are wanted ones: drop or add one leading word."""
    clean = {_clean(key): value for key, value in found.items()}
    heads = {"", *(key.split(".", 1)[0] + "." for key in clean if "." in key)}
    renamings = [(head, new) for head in sorted(heads) for new in ("", "body.")]

    def rename(key: str, head: str, new: str) -> str:
        return new + key.removeprefix(head) if key.startswith(head) else key

    def score(renaming: tuple[str, str]) -> int:
        return len({rename(key, *renaming) for key in clean} & wanted.keys())

    best = max(renamings, key=score)  # the first, least intrusive one wins a tie
    renamed: dict[str, Tensor] = {}
    for key, value in clean.items():
        new = rename(key, *best)
        renamed[key if new in renamed or new not in wanted else new] = value
    return renamed


def _clean(key: str) -> str:
    """Without the words that torch.compile and (distributed) data parallel put into names."""
    key = key.replace("_orig_mod.", "")
    while key.startswith("module."):
        key = key.removeprefix("module.")
    return key


def _compare(
    found: Mapping[str, Tensor], wanted: Mapping[str, Tensor], file: Path, digest: str, entry: str | None
) -> Loaded:
    arrived = {wanted[key].data_ptr() for key in found if key in wanted and wanted[key].numel()}
    return Loaded(
        path=file,
        sha256=digest,
        entry=entry,
        # a tied tensor arrives under any of its names
        missing=[key for key in wanted if key not in found and wanted[key].data_ptr() not in arrived],
        unexpected=[key for key in found if key not in wanted],
        wrong_shape={
            key: f"{tuple(found[key].shape)} in the file, {tuple(wanted[key].shape)} in the model"
            for key in found
            if key in wanted and found[key].shape != wanted[key].shape
        },
    )


def _differences(loaded: Loaded) -> str:
    shapes = [f"{key} ({text})" for key, text in loaded.wrong_shape.items()]
    parts = {"missing": loaded.missing, "unexpected": loaded.unexpected, "of another shape": shapes}
    return "; ".join(f"{len(keys)} {word}: {_shorten(keys)}" for word, keys in parts.items() if keys)


def _shorten(keys: Iterable[str], limit: int = 8) -> str:
    names = list(keys)
    more = f", … and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more


def _bare(model: nn.Module) -> nn.Module:
    """The model inside torch.compile's and data parallel's wrappers."""
    while True:
        inner = getattr(model, "_orig_mod", None)
        if isinstance(model, nn.DataParallel | nn.parallel.DistributedDataParallel):
            inner = model.module
        if not isinstance(inner, nn.Module):
            return model
        model = inner


# ---------------------------------------------------------------- checks


def _same_normalisation(model: nn.Module, file: Path) -> None:
    written = read_metadata(file).get("architecture", {})
    bare = _bare(model)
    if not isinstance(bare, Classifier):
        return
    for key in ("mean", "std"):
        ours, theirs = bare.architecture[key], written.get(key, bare.architecture[key])
        if any(abs(a - b) > 1e-6 for a, b in zip(ours, theirs, strict=True)):
            raise UserError(
                f"{file} was trained with {key} {theirs}, the model has {ours}; leave mean and std unset"
            )


def _check_sum(file: Path) -> str:
    digest = _sha256(file)
    side = _side_file(file)
    if side.is_file() and (side.read_text().split() or [""])[0] != digest:
        raise UserError(
            f"{file} does not match its checksum in {side.name}; fetch it again, or delete {side.name}"
        )
    return digest


def _side_file(file: Path) -> Path:
    return file.with_name(file.name + ".sha256")


def _sha256(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def _damaged(file: Path, error: Exception) -> UserError:
    reason = " ".join(str(error).split())[:160]
    return UserError(f"{file} cannot be read: damaged, cut off or no weights file ({reason})")
