"""Which parameters a word means: a kind (`conv`, `qkv`, `head`, …) or a pattern of names (`blocks.[0-3]`, `*.norm1`).

`not WORD` means all others. Names are those of the network without the wrapper around it: `blocks.0.attn.qkv.weight`.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Iterable
from typing import Annotated

from pydantic import Field
from torch import nn

from hardtack.base.errors import UserError, did_you_mean
from hardtack.models.blocks import find_blocks

NORMS = (nn.modules.batchnorm._NormBase, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm)
_CONVOLUTIONS = (nn.modules.conv._ConvNd,)
_QKV = re.compile(r"(to_)?((q|k|v|qk|kv|qkv|query|key|value)(_proj)?|in_proj)(_weight)?")
_MLP = re.compile(r"mlp\w*|ffn|feed_forward|linear[12]")
_HEAD = re.compile(r"heads?|classifier|fc|head_drop")

Named = dict[str, nn.Parameter]
Word = Annotated[str, Field(coerce_numbers_to_str=True)]  # the parts of an nn.Sequential are called 0, 1, …


def chosen(model: nn.Module, words: Iterable[str]) -> Named:
    """The parameters that any of the words means, by name and in order of definition."""
    parameters, names = dict(model.named_parameters()), set[str]()
    for word in words:
        bare = word.removeprefix("not ").strip()
        meant = (KINDS[bare](model) if bare in KINDS else set()) or _matching(parameters, bare)
        if not meant:
            parts = dict.fromkeys(kind for kind, of in KINDS.items() if of(model))
            parts |= dict.fromkeys(short_name(name).split(".")[0] for name in parameters)
            raise UserError(
                f"'{bare}' is not a part of this model{did_you_mean(bare, parts)}; parts: {', '.join(parts)}"
            )
        names |= set(parameters) - meant if bare != word else meant
    return {name: parameter for name, parameter in parameters.items() if name in names}


def depths(model: nn.Module) -> tuple[dict[str, int], int]:
    """How deep each parameter lies: embeddings 0, the first block 1, …, all after the last block at the depth returned.

    What stands between two blocks belongs to the one that follows.
    """
    blocks, names = find_blocks(model), [name for name, _ in model.named_parameters()]
    within = {name: number for number, block in enumerate(blocks, start=1) for name in _below(model, block.name)}
    if not within:
        raise UserError(
            "the blocks of this model are not known, so its layers have no depth; leave optimiser.layer_decay at 1"
        )
    result, following = {}, len(blocks) + 1
    for name in reversed(names):
        result[name] = following = within.get(name, following)
    for name in names:
        if name in within:
            break
        result[name] = 0
    return result, len(blocks) + 1


def head(model: nn.Module) -> set[str]:
    """Names of the classifying layers: the last that gives a number per class, and what shares a `head` with it."""
    classes = next((inner.num_classes for inner in model.modules() if hasattr(inner, "num_classes")), None)
    layers = [
        name
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear | nn.modules.conv._ConvNd) and classes in (None, len(module.weight))
    ]
    if not layers:
        return set()
    parts = layers[-1].split(".")
    cut = next((at for at, part in enumerate(parts) if _HEAD.fullmatch(part)), len(parts) - 1)
    return _below(model, ".".join(parts[: cut + 1]))


def _below(model: nn.Module, place: str) -> set[str]:
    return {name for name, _ in model.named_parameters() if name.startswith(f"{place}.")}


def _of_modules(model: nn.Module, kinds: tuple[type[nn.Module], ...]) -> set[str]:
    return {
        f"{place}.{name}"
        for place, module in model.named_modules()
        if isinstance(module, kinds)
        for name, _ in module.named_parameters(recurse=False)
    }


def _with_part(model: nn.Module, pattern: re.Pattern[str]) -> set[str]:
    """Inside of blocks, parameters with such a word in their name."""
    inside = _blocks(model)
    return {name for name in inside if any(pattern.fullmatch(part) for part in name.split("."))}


def _blocks(model: nn.Module) -> set[str]:
    return {name for block in find_blocks(model) for name in _below(model, block.name)}


def _embedding(model: nn.Module) -> set[str]:
    return {name for name, depth in depths(model)[0].items() if depth == 0} if _blocks(model) else set()


def _attention(model: nn.Module) -> set[str]:
    places = [attending.name for block in find_blocks(model) for attending in block.attending]
    return {name for place in places for name in _below(model, place)}


KINDS: dict[str, Callable[[nn.Module], set[str]]] = {
    "all": lambda model: {name for name, _ in model.named_parameters()},
    "conv": lambda model: _of_modules(model, _CONVOLUTIONS),
    "norm": lambda model: _of_modules(model, NORMS),
    "attention": _attention,
    "qkv": lambda model: _with_part(model, _QKV),
    "mlp": lambda model: _with_part(model, _MLP),
    "embedding": _embedding,
    "blocks": _blocks,
    "head": head,
}


def _matching(parameters: Named, pattern: str) -> set[str]:
    """A pattern stands for a parameter, or for a module and all that is in it."""
    return {
        name for name in parameters if any(fnmatch.fnmatchcase(short_name(name), p) for p in (pattern, f"{pattern}.*"))
    }


def short_name(name: str) -> str:
    """What a part is called in the network itself, without what is wrapped around it."""
    return name.removeprefix("model.").removeprefix("body.")
