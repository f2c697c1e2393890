"""The attention maps of any model in one format, and the positions of their tokens in the image."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor, nn

from hardtack.analysis.attention.measures import distances
from hardtack.analysis.attention.padding import find_inside, without_padding
from hardtack.base.errors import UserError
from hardtack.models import tap
from hardtack.models.blocks import find_blocks
from hardtack.models.parts import short_name
from hardtack.models.taps import Taps
from hardtack.models.tokens import Grid, find_grid

Kind = Literal["token", "class", "channel"]
_HEARD_AS = {"token": ("token", "reduced", "window"), "class": ("class",)}


@dataclass(frozen=True, kw_only=True)
class TokenGrid:
    """The positions of a layer's queries and keys (in each window); `queries` is None for a class token."""

    queries: Grid | None
    keys: Grid
    windows: int
    size: tuple[float, float]  # height and width of the area they cover, in units of the image's longer side

    def apart(self) -> Tensor | None:
        if self.queries is None:
            return None
        return distances(self.queries[1:], self.keys[1:], self.size)


@dataclass(frozen=True, kw_only=True)
class AttentionLayer:
    """The map of one attention module. `place` is None for channel attention, and where positions are not known.

    If windows extend beyond the image, `padded` is true, and `inside` marks the positions inside the image
    (windows×queries); `inside` is None if they are not known.
    """

    name: str
    kind: str
    heads: int
    tokens: tuple[int, int]  # queries and keys
    size: int  # number of values in one image's map
    place: TokenGrid | None
    padded: bool = False
    inside: Tensor | None = field(default=None, compare=False)


def listen(model: nn.Module, x: Tensor, kind: Kind, layers: Sequence[AttentionLayer] = ()) -> list[Tensor]:
    """The maps of this kind in the order of computation, each N×heads×windows×queries×keys.

    Without `layers` the maps are as the model computes them; with `layers` padding is removed.
    """
    with tap(model, features=False) as taps, torch.no_grad():
        model(x)
    maps = [_by_image(weights, len(x)) for _, _, weights in _chosen(taps, kind)]
    for at, layer in enumerate(layers):
        if layer.inside is not None:
            maps[at] = without_padding(maps[at], layer.inside)
    return maps


def find_layers(model: nn.Module, x: Tensor, kind: Kind) -> list[AttentionLayer]:
    """The attention layers of this kind, from one forward pass; a UserError if the model has none."""
    with tap(model) as taps, torch.no_grad():
        model(x)
    maps = _chosen(taps, kind)
    if not maps:
        raise UserError(_refusal(model, taps, kind))
    in_windows = {
        b.name: attention.module for b in find_blocks(model) for attention in b.attending if attention.kind == "window"
    }
    counts = {name: feature.shape[1] for name, feature in zip(taps.feature_names, taps.features, strict=True)}
    names, layers = [name for name, _, _ in maps], []
    for at, (name, map_kind, weights) in enumerate(maps):
        again = f" ({names[:at].count(name) + 1})" if names.count(name) > 1 else ""
        whole = map_ = _by_image(weights, len(x))
        places, inside = map_.shape[2] * map_.shape[3], None
        tokens = min(counts.get(name, places), places)
        padded = name in in_windows and tokens < places
        covers = find_grid(tokens, 0, (x.shape[2], x.shape[3])) if name in in_windows else None
        if padded and (inside := _inside(map_, tokens, covers, in_windows[name])) is not None:
            map_ = without_padding(map_, inside)
        place = None
        if kind != "channel" and (inside is not None or not padded):
            place = _place(map_, taps.prefix_tokens, x, map_kind, covers)
        layers.append(
            AttentionLayer(
                name=short_name(name) + again, kind=map_kind, heads=map_.shape[1],
                tokens=(map_.shape[-2], map_.shape[-1]), size=whole[0].numel(), place=place, padded=padded,
                inside=inside,
            )
        )  # fmt: skip
    return layers


def _inside(weights: Tensor, tokens: int, covers: Grid | None, module: nn.Module) -> Tensor | None:
    windows, queries, keys = weights.shape[2:]
    side = math.isqrt(queries)
    covers = Grid(0, 1, 1) if tokens == 1 else covers
    if covers is None or covers.prefix or not side**2 == queries == keys:
        return None
    return find_inside(module, side, windows, covers[1:])


def _chosen(taps: Taps, kind: Kind) -> list[tuple[str, str, Tensor]]:
    if kind == "channel":
        between = zip(taps.channel_attention_names, taps.channel_attention, strict=True)
        return [(name, "channel", weights) for name, weights in between]
    heard = zip(taps.attention_names, taps.attention_kinds, taps.attention, strict=True)
    return [(name, map_kind, weights) for name, map_kind, weights in heard if map_kind in _HEARD_AS[kind]]


def _by_image(weights: Tensor, images: int) -> Tensor:
    """Reshape (N·windows)×heads×… or N×heads×…×queries×keys to N×heads×windows×queries×keys."""
    if len(weights) != images:
        weights = weights.unflatten(0, (images, -1)).transpose(1, 2)
    return weights.reshape(*weights.shape[:2], -1, *weights.shape[-2:])


def _place(weights: Tensor, prefix: int, x: Tensor, map_kind: str, cut: Grid | None) -> TokenGrid | None:
    """The positions of the tokens; `cut` is the grid that is divided into windows, if it is."""
    height, width = x.shape[2:]
    size = (height / max(height, width), width / max(height, width))
    windows, queries, keys = weights.shape[2:]
    if windows > 1:
        side = math.isqrt(queries)
        if cut is None or cut.prefix or not side**2 == queries == keys:
            return None  # the positions are not known: tokens at equal positions of many patches, for example
        grid, reach = Grid(0, side, side), (size[0] * side / cut.rows, size[1] * side / cut.columns)
        return TokenGrid(queries=grid, keys=grid, windows=windows, size=reach)
    looked_at = find_grid(keys, prefix, (height, width))
    looking = None if map_kind == "class" else find_grid(queries, prefix, (height, width))
    if looked_at is None or (looking is None and map_kind != "class"):
        return None
    return TokenGrid(queries=looking, keys=looked_at, windows=1, size=size)


def _refusal(model: nn.Module, taps: Taps, kind: Kind) -> str:
    name = network_name(model)
    words = {"token": "attention between tokens", "class": "class attention", "channel": "channel attention"}
    others = [other for other in words if other != kind and _chosen(taps, other)]  # type: ignore[arg-type]
    if not others:
        heard = taps.note.removesuffix(": features only") or f"{name} has no attention"
        return f"{heard}; saliency, perturbations and jacobian.of=network work with any network"
    offers = ", ".join(f"its {words[other]} is attention.kind={other}" for other in others)
    return f"{name} has no {words[kind]}; {offers}"


def network_name(model: nn.Module) -> str:
    """The class name of the network inside its wrappers."""
    inner = getattr(model, "model", model)
    return type(getattr(inner, "body", inner)).__name__
