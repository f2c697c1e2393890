"""Weights in and out: safetensors with metadata and a checksum; other people's checkpoints in.

A file that does not fit says which tensors are missing, which are too many and which have another shape,
and changes nothing.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import safetensors.torch
from torch import Tensor, nn

from hardtack.base import config
from hardtack.base.errors import UserError
from hardtack.base.files import atomic, write_text
from hardtack.models.adaptation import Adaptation, SpatialTensors, adapt_tensors, compare, spatial_tensors
from hardtack.models.classifier import Classifier
from hardtack.models.files import (
    METADATA_KEY,
    check_sum,
    find_weights,
    read_metadata,
    read_state,
    shorten,
    side_file,
)


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """What arrived: the three lists are empty unless `strict=False` let a partial fit pass.

    `fitted` says what `adapt` did.
    """

    path: Path
    digest: str
    entry: str | None = None
    missing: list[str] = field(default_factory=list)
    unexpected: list[str] = field(default_factory=list)
    wrong_shape: dict[str, str] = field(default_factory=dict)  # name to "found, wanted"
    fitted: Adaptation | None = None


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
    described = {"architecture": bare.architecture} if isinstance(bare, Classifier) else {}
    # One key only: safetensors writes its metadata map in random order.
    facts = config.plain({**described, **(metadata or {})})
    text = json.dumps(facts, sort_keys=True, default=_plain_number)
    packed = safetensors.torch.save(_separate(bare.state_dict()), metadata={METADATA_KEY: text})
    digest = hashlib.sha256(packed).hexdigest()
    with atomic(path) as file:
        file.write(packed)
        # Without a side file nothing is checked: a crash between the renames leaves a file that loads.
        side_file(path).unlink(missing_ok=True)
    write_text(side_file(path), f"{digest}  {path.name}\n")
    return digest


def _plain_number(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else str(value)  # NumPy's and torch's scalars


def _separate(state: Mapping[str, Any]) -> dict[str, Tensor]:
    """CPU copies that share no storage (safetensors refuses tied tensors), under clean names."""
    tensors, seen = {}, set()
    for key, clean in _clean(state).items():
        value = state[key]
        if not isinstance(value, Tensor):
            continue  # extra state of exotic modules: cannot be stored without pickle
        tensor = value.detach().cpu().contiguous()
        storage = tensor.untyped_storage().data_ptr()
        tensors[clean] = tensor.clone() if storage in seen else tensor
        seen.add(storage)
    return tensors


# ---------------------------------------------------------------- in


def load_weights(
    model: nn.Module, path: str | Path, *, strict: bool = True, entry: str | None = None, adapt: bool = False
) -> Loaded:
    """Copy the weights in a file into `model`, in place.

    `path` is a .safetensors file, a `torch.save`d checkpoint (.pt, .pth, …) or a run folder. `entry` names
    the part of a checkpoint to take. Prefixes that wrappers leave (`module.`, `_orig_mod.`, `model.`) are
    fitted to the model. With `strict=False` what fits is loaded, the rest is warned of and returned. With
    `adapt` weights of a network of another size are resized where that has a meaning (see `adaptation`); what
    has no place even then is an error, strict or not. A model that normalises pixels in another way than the one that
    was trained is an error without `adapt`, and noted with it.
    """
    file = find_weights(path)
    digest = check_sum(file)
    changed = _normalisation_changes(model, file)
    if changed and not adapt:
        raise UserError(
            f"{file} was trained with {'; '.join(changed)} in the model; leave mean and std unset, or set "
            "model.adapt=true to train on with another normalisation"
        )
    state, taken = read_state(file, entry=entry)
    architecture = read_metadata(file).get("architecture", {})
    if adapt:
        fitted = adapt_state(model, state, origin=str(file), architecture=architecture)
        fitted = replace(fitted, notes=(*fitted.notes, *changed))
        return Loaded(path=file, digest=digest, entry=taken, fitted=fitted)
    names, wanted = _named(_bare(model))
    state = _fit(state, wanted)
    loaded = _compare(state, wanted, file, digest, taken)
    if loaded.missing or loaded.unexpected or loaded.wrong_shape:
        if strict:
            way_out = _way_out(_bare(model), state, wanted)
            raise UserError(f"{file} does not fit the model: {_differences(loaded)}{way_out}")
        warnings.warn(f"{file} fits the model only in part: {_differences(loaded)}", stacklevel=2)
    elif strict:
        _same_function(model, architecture, file)
    skip = {*loaded.unexpected, *loaded.wrong_shape}
    _bare(model).load_state_dict({names[k]: v for k, v in state.items() if k not in skip}, strict=False)
    return loaded


def adapt_state(
    model: nn.Module, stored: Mapping[str, Tensor], *, origin: str, architecture: Mapping[str, Any]
) -> Adaptation:
    """Fit tensors of a network of another size to `model` and load them; or say what cannot be, and load nothing.

    `origin` is what messages call them; `architecture` is what is known of the network they come from.
    """
    bare = _bare(model)
    names, wanted = _named(bare)
    try:
        state, fitted = adapt_tensors(_fit(stored, wanted), wanted, _spatial(bare))
    except UserError as error:
        whose = f" (of {architecture['name']})" if "name" in architecture else ""
        raise UserError(f"{origin}{whose} cannot be adapted to the model: {error}") from None
    if isinstance(bare, Classifier):
        fitted = replace(fitted, notes=fitted.notes + compare(architecture, bare.architecture, fitted))
    bare.load_state_dict({names[key]: tensor for key, tensor in state.items()}, strict=False)
    return fitted


def _way_out(bare: nn.Module, stored: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> str:
    """That, and how, weights which do not fit as they are could be adapted."""
    try:
        _, fitted = adapt_tensors(stored, wanted, _spatial(bare))
    except UserError:
        return ""
    return f"; with model.adapt=true (Python: adapt=True) they can be loaded: {fitted.summary()}"


# ---------------------------------------------------------------- names


def _named(bare: nn.Module) -> tuple[dict[str, str], dict[str, Tensor]]:
    """Clean names to the model's own (a part may be compiled or wrapped), and the state under clean names."""
    state = bare.state_dict()
    names = {clean: key for key, clean in _clean(state).items()}
    return names, {clean: state[key] for clean, key in names.items()}


def _spatial(bare: nn.Module) -> SpatialTensors:
    tensors, clean = spatial_tensors(bare), _clean(bare.state_dict())
    patches, computed = ({clean.get(key, key) for key in keys} for keys in (tensors.patches, tensors.computed))
    return replace(tensors, patches=patches, computed=computed)


def _fit(stored: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Rename the tensors found so that most names are wanted ones: drop or add one leading word."""
    names = _clean(stored)
    heads = {"", *(key.split(".", 1)[0] + "." for key in (*stored, *names.values()) if "." in key)}
    renamings = [(head, new) for head in sorted(heads) for new in ("", "body.")]
    candidates = [(clean, *renaming) for renaming in renamings for clean in (names, {key: key for key in stored})]

    def rename(key: str, head: str, new: str) -> str:
        return new + key.removeprefix(head) if key.startswith(head) else key

    def score(candidate: tuple[dict[str, str], str, str]) -> int:
        clean, *renaming = candidate
        return len({rename(key, *renaming) for key in clean.values()} & wanted.keys())

    clean, *best = max(candidates, key=score)  # the first, least intrusive one wins a tie
    renamed: dict[str, Tensor] = {}
    for own, value in stored.items():
        key = clean[own]
        new = rename(key, *best)
        renamed[key if new in renamed or new not in wanted else new] = value
    return renamed


def _clean(keys: Iterable[str]) -> dict[str, str]:
    """Each name without the words that torch.compile and (distributed) data parallel put into names.

    Data parallel puts `module.` before all names; before some of them it is the name of a part.
    """
    clean = {key: key.replace("_orig_mod.", "") for key in keys}
    while clean and all(name.startswith("module.") for name in clean.values()):
        clean = {key: name.removeprefix("module.") for key, name in clean.items()}
    return clean


def _compare(
    stored: Mapping[str, Tensor], wanted: Mapping[str, Tensor], file: Path, digest: str, entry: str | None
) -> Loaded:
    arrived = {wanted[key].data_ptr() for key in stored if key in wanted and wanted[key].numel()}
    return Loaded(
        path=file,
        digest=digest,
        entry=entry,
        # a tied tensor arrives under any of its names
        missing=[key for key in wanted if key not in stored and wanted[key].data_ptr() not in arrived],
        unexpected=[key for key in stored if key not in wanted],
        wrong_shape={
            key: f"{tuple(stored[key].shape)} in the file, {tuple(wanted[key].shape)} in the model"
            for key in stored
            if key in wanted and stored[key].shape != wanted[key].shape
        },
    )


def _differences(loaded: Loaded) -> str:
    shapes = [f"{key} ({text})" for key, text in loaded.wrong_shape.items()]
    parts = {"missing": loaded.missing, "unexpected": loaded.unexpected, "of another shape": shapes}
    return "; ".join(f"{len(keys)} {word}: {shorten(keys)}" for word, keys in parts.items() if keys)


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


def _same_function(model: nn.Module, written: Mapping[str, Any], file: Path) -> None:
    """Refuse weights that have the right shapes and were trained with other knobs: heads, strides, activations."""
    bare = _bare(model)
    if not isinstance(bare, Classifier):
        return
    sizes = {**written, "image_size": None}  # a network that takes any size is the same at all of them
    if notes := compare(sizes, bare.architecture, Adaptation()):
        raise UserError(
            f"{file} has tensors of the right shapes, but of another network: {'; '.join(notes)}; "
            f"with model.adapt=true (Python: adapt=True) they are loaded anyway"
        )


def _normalisation_changes(model: nn.Module, file: Path) -> list[str]:
    """In which way the model normalises pixels differently from the one in the file."""
    written = read_metadata(file).get("architecture", {})
    bare = _bare(model)
    if not isinstance(bare, Classifier):
        return []
    changes = []
    for key in ("mean", "std"):
        ours, theirs = bare.architecture[key], written.get(key, bare.architecture[key])
        if any(abs(a - b) > 1e-6 for a, b in zip(ours, theirs, strict=True)):
            changes.append(f"{key} {theirs} → {ours}")
    return changes
