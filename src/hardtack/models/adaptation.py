"""Trained weights for a network of another size: tensors are kept where they fit, tables resized, a new head is new.

Every tensor of a state dict is adapted separately. Tables of positions are resized like images (bicubic, antialiased).
Kernels that cut patches are resized so that a resized patch gives the same token as before, in the least-squares sense
that FlexiViT (Beyer et al. 2023) calls pseudo-inverse resizing; here a patch of one colour keeps its token exactly. A
tensor that fits in none of these ways is an error that names it: nothing is dropped silently.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hardtack.base.errors import UserError
from hardtack.models.files import shorten
from hardtack.models.zoo.layers import PatchConvolution

TOKENS = ("cls_token", "dist_token")
"""Learned tokens beside those of the image: a network may gain or lose one."""
HEADS = ("head", "head_dist", "fc", "classifier")
"""Names of the last layers, ours and those of timm; only distilled networks have `head_dist`."""
TABLES = ("att_mask",)
"""Tables that a network can do without; where they are added, they may start new."""
CHANGES_NOTHING = ("drop_path", "eta", "layer_scale", "initial_std", "head_scale", "attention_dropout", "dropout")
"""Options for initialisation and training that do not change what the network computes."""


@dataclass(frozen=True, kw_only=True)
class Adaptation:
    """What happened to every tensor, by its name in the model; `resized` has "old → new" for each."""

    kept: tuple[str, ...] = ()
    resized: Mapping[str, str] = field(default_factory=dict)
    fresh: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def summary(self) -> str:
        """One line: "152 tensors kept; resized: pos_embed 14×14 → 8×8; new: head.weight, head.bias"."""
        lists = {
            "resized": _grouped(self.resized),
            "new": [_short(name) for name in self.fresh],
            "dropped": [_short(name) for name in self.dropped],
        }
        changes = [f"{word}: {shorten(names)}" for word, names in lists.items() if names]
        count = len(self.kept)
        return "; ".join([f"{count} tensor{'s' * (count != 1)} kept", *changes, *self.notes])


def _grouped(resized: Mapping[str, str]) -> list[str]:
    """Blocks alike are said once: "blocks.*.attn.relative_bias 13×13 → 7×7 (12 of them)"."""
    groups: dict[tuple[str, str], list[str]] = {}
    for name, change in resized.items():
        groups.setdefault((re.sub("[0-9]+", "*", _short(name)), change), []).append(_short(name))
    return [
        f"{names[0]} {change}" if len(names) == 1 else f"{pattern} {change} ({len(names)} of them)"
        for (pattern, change), names in groups.items()
    ]


@dataclass(frozen=True, kw_only=True)
class SpatialTensors:
    """What a network says of its entries beyond their shapes, by name.

    `patches`: kernels of convolutions that cut their input into squares. `computed`: buffers, never trained.
    """

    patches: Collection[str] = ()
    computed: Collection[str] = ()
    num_classes: int | None = None


def spatial_tensors(model: nn.Module) -> SpatialTensors:
    patches = {
        f"{name}.weight" if name else "weight"
        for name, module in model.named_modules()
        if isinstance(module, nn.Conv2d) and _cuts(name, module)
    }
    buffers = {name for name, _ in model.named_buffers()}
    return SpatialTensors(patches=patches, computed=buffers, num_classes=getattr(model, "num_classes", None))


def _cuts(name: str, convolution: nn.Conv2d) -> bool:
    if isinstance(convolution, PatchConvolution) or name.endswith("patch_embed.proj"):  # ours, timm's
        return convolution.kernel_size == convolution.stride
    # of the others a 1×1 kernel cuts nothing: it mixes channels
    plain = convolution.groups == 1 and convolution.padding in ((0, 0), 0)
    return plain and convolution.kernel_size == convolution.stride and convolution.stride[0] > 1


# ---------------------------------------------------------------- all entries


def adapt_tensors(
    stored: Mapping[str, Tensor], wanted: Mapping[str, Tensor], spatial: SpatialTensors
) -> tuple[dict[str, Tensor], Adaptation]:
    """The entries to load into a model with the state `wanted`, and the account of them; names must match already.

    Entries that are not returned stay as the model has them.
    """
    state: dict[str, Tensor] = {}
    resized, notes, strange = dict[str, str](), list[str](), list[str]()
    kept, fresh, missing = list[str](), list[str](), list[str]()
    arrived = {wanted[key].data_ptr() for key in stored if key in wanted}
    for key, own in wanted.items():
        theirs = stored.get(key)
        if theirs is None:
            if own.data_ptr() not in arrived:  # a tied tensor arrives under any of its names
                (fresh if _is_optional(key) or _may_be_new(key) else missing).append(key)
        elif theirs.shape == own.shape:
            state[key] = theirs
            kept.append(key)
        elif _is_new_head(key, theirs, own, spatial.num_classes):
            fresh.append(key)
        elif (change := _resize(key, theirs, own, spatial)) is not None:
            state[key] = change.tensor
            resized[key] = change.text
            notes += [change.note] if change.note else []
        else:
            strange.append(f"{_short(key)} ({_shape(theirs)} there, {_shape(own)} in the model)")
    left = [key for key in stored if key not in wanted]
    unexpected = [key for key in left if not _is_optional(key)]
    if missing or unexpected or strange:
        raise UserError(_misfit(stored, kept, resized, missing, unexpected, strange))
    dropped = tuple(key for key in left if _is_optional(key))
    return state, Adaptation(kept=tuple(kept), resized=resized, fresh=tuple(fresh), dropped=dropped, notes=tuple(notes))


def _is_optional(key: str) -> bool:
    words = _short(key).split(".")
    return words[-1] in TOKENS or words[0] == "head_dist"


def _may_be_new(key: str) -> bool:
    return key.rpartition(".")[2] in TABLES


def _is_new_head(key: str, theirs: Tensor, own: Tensor, num_classes: int | None) -> bool:
    """Whether only the number of classes sets them apart, in the last layer: linear, or a 1×1 convolution."""
    last = num_classes is None or own.shape[0] == num_classes
    alike = theirs.shape[1:] == own.shape[1:] and all(edge == 1 for edge in theirs.shape[2:])
    return last and alike and _short(key).split(".")[0] in HEADS


def _misfit(
    stored: Mapping[str, Tensor],
    kept: list[str],
    resized: Mapping[str, str],
    missing: list[str],
    unexpected: list[str],
    strange: list[str],
) -> str:
    lists = {"missing": missing, "unexpected": unexpected, "of a shape that cannot be resized": strange}
    problems = [f"{len(keys)} {word}: {shorten(map(_short, keys))}" for word, keys in lists.items() if keys]
    fitting = len(kept) + len(resized)
    if 2 * fitting < len(stored):
        problems.append(f"only {fitting} of {len(stored)} tensors have a place here, so this is another architecture")
    return "; ".join(problems)


# ---------------------------------------------------------------- one entry


@dataclass(frozen=True)
class Change:
    tensor: Tensor
    text: str
    note: str = ""


def _resize(key: str, theirs: Tensor, own: Tensor, spatial: SpatialTensors) -> Change | None:
    """`theirs` in the shape of `own`; None where that has no meaning."""
    if key in spatial.patches:
        return _resize_kernel(theirs, own)
    by_name = _RESIZERS.get(key.rpartition(".")[2])
    change = None if by_name is None or theirs.ndim != own.ndim else by_name(theirs, own)
    if change is not None and key in spatial.computed:  # sinusoids: the model has made its own
        return Change(own, f"{change.text} (computed)")
    return change


def _resize_kernel(theirs: Tensor, own: Tensor) -> Change | None:
    if theirs.ndim != 4 or theirs.shape[:2] != own.shape[:2]:
        return None
    old, new = tuple(theirs.shape[2:]), tuple(own.shape[2:])
    return Change(resize_kernel(theirs, (new[0], new[1])), f"{_by(*old)} → {_by(*new)}")


def _resize_positions(theirs: Tensor, own: Tensor) -> Change | None:
    """1×T×width, the entries of class and distillation tokens first."""
    if theirs.ndim != 3 or theirs.shape[::2] != own.shape[::2]:
        return None
    before, after = _grid_and_prefix(theirs.shape[1]), _grid_and_prefix(own.shape[1])
    if before is None or after is None:
        return None
    (old, had), (new, has) = before, after
    common = min(had, has)
    prefix = torch.cat([theirs[:, :common], own[:, common:has].to(theirs)], dim=1)
    grid = theirs[:, had:].unflatten(1, (old, old)).permute(0, 3, 1, 2)
    places = resize_map(grid, (new, new)).permute(0, 2, 3, 1).flatten(1, 2)
    note = ""
    if had != has:
        note = f"the position of the class token is {'new' if has > had else 'dropped'}"
    return Change(torch.cat([prefix, places], dim=1), f"{_by(old, old)} → {_by(new, new)}", note)


def _grid_and_prefix(tokens: int) -> tuple[int, int] | None:
    """(side, tokens before the grid); no count of tokens allows two readings."""
    for prefix in (0, 1, 2):
        side = math.isqrt(max(tokens - prefix, 0))
        if side and side**2 == tokens - prefix:
            return side, prefix
    return None


def _resize_offsets(theirs: Tensor, own: Tensor) -> Change | None:
    """(2·side−1)² or (2·side−1)²×heads: one row for each offset between two places, in reading order."""
    old, new = math.isqrt(theirs.shape[0]), math.isqrt(own.shape[0])
    square = old**2 == theirs.shape[0] and new**2 == own.shape[0]
    if not square or theirs.shape[1:] != own.shape[1:] or theirs.ndim > 2:
        return None
    table = theirs.reshape(old, old, -1).permute(2, 0, 1)
    resized = resize_map(table[None], (new, new))[0].permute(1, 2, 0).reshape(own.shape)
    return Change(resized, f"{_by(old, old)} → {_by(new, new)}")


def _resize_distances(theirs: Tensor, own: Tensor) -> Change | None:
    """heads×side²: offsets without their signs, as LeViT has them; mirrored for the time of resizing."""
    old, new = math.isqrt(theirs.shape[-1]), math.isqrt(own.shape[-1])
    square = old**2 == theirs.shape[-1] and new**2 == own.shape[-1]
    if theirs.ndim != 2 or not square or theirs.shape[0] != own.shape[0]:
        return None
    table = theirs.unflatten(1, (old, old))
    table = torch.cat([table.flip(1)[:, :-1], table], dim=1)
    table = torch.cat([table.flip(2)[:, :, :-1], table], dim=2)
    resized = resize_map(table[None], (2 * new - 1, 2 * new - 1))[0]
    return Change(resized[:, new - 1 :, new - 1 :].flatten(1), f"{_by(old, old)} → {_by(new, new)}")


def _resize_line(theirs: Tensor, own: Tensor) -> Change | None:
    """length×width or heads×length×width: one entry for each row, column or distance, as BoTNet has them."""
    if theirs.ndim not in (2, 3) or theirs.shape[-1] != own.shape[-1] or theirs.shape[:-2] != own.shape[:-2]:
        return None
    old, new = theirs.shape[-2], own.shape[-2]
    line = theirs.transpose(-2, -1).reshape(1, -1, 1, old)
    resized = resize_map(line, (1, new)).reshape(*theirs.shape[:-2], theirs.shape[-1], new).transpose(-2, -1)
    return Change(resized, f"{old} → {new}")


def _resize_pairs(theirs: Tensor, own: Tensor) -> Change | None:
    """heads×T×T over pairs of tokens, as RVT-plus has them: queries are resized as a grid, then keys."""
    old, new = math.isqrt(theirs.shape[-1]), math.isqrt(own.shape[-1])
    fits = theirs.ndim == 3 and theirs.shape[0] == own.shape[0] and theirs.shape[1] == theirs.shape[2]
    if not fits or old**2 != theirs.shape[-1] or new**2 != own.shape[-1]:
        return None
    of_queries = resize_map(theirs.transpose(1, 2).unflatten(2, (old, old)), (new, new)).flatten(2)
    table = resize_map(of_queries.transpose(1, 2).unflatten(2, (old, old)), (new, new)).flatten(2)
    return Change(table, f"{_by(old, old)} → {_by(new, new)}")


_RESIZERS: dict[str, Callable[[Tensor, Tensor], Change | None]] = {
    "pos_embed": _resize_positions,
    "relative_position_bias_table": _resize_offsets,
    "relative_bias": _resize_offsets,
    "attention_biases": _resize_distances,
    "rows": _resize_line,
    "columns": _resize_line,
    "att_mask": _resize_pairs,
}


# ---------------------------------------------------------------- the mathematics


def resize_map(maps: Tensor, size: tuple[int, int]) -> Tensor:
    """N×C×h×w to N×C×size: bicubic, antialiased; the same size comes back to the bit."""
    if tuple(maps.shape[-2:]) == size:
        return maps
    return F.interpolate(maps.float(), size=size, mode="bicubic", antialias=True).to(maps.dtype)


def resize_kernel(kernel: Tensor, size: tuple[int, int]) -> Tensor:
    """The kernel outputs×inputs×size that sees in a resized patch what `kernel` saw in the patch.

    With B the matrix that resizes patches and w the kernel, it is the w' of least ‖Bᵀw' − w‖² among those whose sum is
    w's, so that a patch of one colour keeps its token. Enlarged patches keep theirs whatever they show.
    """
    height, width = kernel.shape[2:]
    every_pixel = torch.eye(height * width, dtype=torch.float64).unflatten(1, (1, height, width))
    resizing = F.interpolate(every_pixel, size=size, mode="bicubic", antialias=True).flatten(1)  # Bᵀ: old×new
    weights = kernel.detach().to("cpu", torch.float64).flatten(2)
    fitted = weights @ torch.linalg.pinv(resizing).T
    # the cheapest way to change the sum, in terms of the squares above
    way = torch.linalg.pinv(resizing.T @ resizing).sum(1)
    fitted = fitted + (weights.sum(-1) - fitted.sum(-1))[..., None] * (way / way.sum())
    return fitted.unflatten(2, size).to(kernel)


# ---------------------------------------------------------------- what the shapes do not show


def compare(before: Mapping[str, Any], after: Mapping[str, Any], fitted: Adaptation) -> tuple[str, ...]:
    """What changed between two architectures (as weights files describe them) that no tensor's shape says."""
    notes = []
    old, new = before.get("image_size"), after.get("image_size")
    if old and new and old != new:
        notes.append(f"trained at {old} pixels, now {new}")
    theirs, ours = before.get("options", {}), after.get("options", {})
    cut, cuts = theirs.get("patch_size", _stem(ours)), ours.get("patch_size")
    kernels = [name for name in fitted.resized if name.endswith("weight")]
    if cut and cuts and cut != cuts and not kernels:
        notes.append(f"the stem's strides changed, its weights did not: patches of {cut} → {cuts} pixels")
    said = {"patch_size", "class_token", *CHANGES_NOTHING}
    differing = [key for key in theirs if key in ours and key not in said and _plain(theirs[key]) != _plain(ours[key])]
    notes += [f"{key} {_said(key, theirs[key])} → {_said(key, ours[key])}" for key in differing]
    return tuple(notes)


def _stem(options: Mapping[str, Any]) -> int | None:
    """The patch size an XCiT stem was trained with, for files that do not say."""
    stem = options.get("stem")
    return stem if isinstance(stem, int) else None


def _said(key: str, value: Any) -> Any:
    return "as published" if key == "activation" and value is None else value


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _short(key: str) -> str:
    return key.removeprefix("body.")


def _shape(tensor: Tensor) -> str:
    return "×".join(map(str, tensor.shape)) or "a number"


def _by(height: int, width: int) -> str:
    return f"{height}×{width}"
