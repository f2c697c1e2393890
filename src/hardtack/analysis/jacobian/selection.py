"""The pieces of a network that the analysis measures, checks that they have a Jacobian, and the batch size."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hardtack.analysis.analysis import AnalysisContext
from hardtack.analysis.jacobian.block_parts import (
    BlockLayer,
    Piece,
    block_piece,
    branch_pieces,
    features_piece,
    network_piece,
    stretch_piece,
    survey,
)
from hardtack.analysis.jacobian.lanczos import SingularValues
from hardtack.analysis.jacobian.products import Jacobian
from hardtack.analysis.jacobian.rows import MOST_NUMBERS
from hardtack.base import randomness
from hardtack.base.errors import UserError
from hardtack.models.blocks import class_name


def layers_of(context: AnalysisContext, images: Tensor) -> list[BlockLayer]:
    layers = survey(context.model, images)
    if not layers:
        raise UserError(
            f"no blocks are known in {class_name(context.model)}; jacobian.of=network measures it as a whole"
        )
    return layers


def pieces_of(
    of: tuple[str, ...],
    stretch: tuple[int, int] | None,
    context: AnalysisContext,
    layers: list[BlockLayer],
    images: Tensor,
) -> Iterator[Piece]:
    wanted, model = set(of), context.model
    if wanted & {"block", "residual"}:
        yield from (block_piece(model, layer) for layer in layers if "block" in wanted or layer.square)
    if wanted == {"residual"} and not any(layer.square for layer in layers):
        raise UserError("every block changes the size of its feature: there are no residual blocks; use of=block")
    if kinds := wanted & {"branch", "attention", "mlp", "convolution"}:
        branches = [piece for layer in layers for piece in branch_pieces(model, layer)]
        taken = [branch for branch in branches if "branch" in kinds or kinds & set(branch.kind.split("+"))]
        if not taken:
            available = ", ".join(dict.fromkeys(piece.kind for piece in branches))
            hint = (
                f"; known: {available}" if available else ": its blocks' branches are not known; of=block measures them"
            )
            raise UserError(f"no block of {_named(context)} has a branch of kind {', '.join(sorted(kinds))}{hint}")
        yield from taken
    if "stretch" in wanted:
        yield stretch_piece(model, layers, *_stretch(stretch, len(layers)))
    if "features" in wanted:
        yield features_piece(model, context.shape, layers)
    if "network" in wanted:
        with torch.no_grad():
            yield network_piece(model, context.shape, model(images[:1]).shape[-1])


def _stretch(blocks: tuple[int, int] | None, count: int) -> tuple[int, int]:
    first, last = blocks or (0, count - 1)
    if not 0 <= first <= last < count:
        raise UserError(f"stretch={first},{last} is not within blocks 0 to {count - 1}")
    return first, last


def _named(context: AnalysisContext) -> str:
    return context.name or class_name(context.model)


def require_small(pieces: list[Piece]) -> None:
    large = max(pieces, key=lambda piece: piece.inputs * piece.outputs)
    if large.inputs * large.outputs > MOST_NUMBERS:
        raise UserError(
            f"method=dense would decompose a matrix of {large.outputs} × {large.inputs} for {large.name} and every "
            "image; method=lanczos finds the largest singular values without the matrix"
        )


def require_apart(context: AnalysisContext, images: Tensor) -> None:
    """Refuse a model whose output for one image depends on the other images: products J v are computed per image."""
    if len(images) < 2:
        return
    x = images.detach().requires_grad_()
    first = context.model(x)[0].sum()
    if not first.requires_grad:
        raise UserError("this model passes no gradient to its input (no_grad, or detach): it has no Jacobian")
    (gradient,) = torch.autograd.grad(first, x, materialize_grads=True)
    if bool(gradient[1].abs().max() > 0):
        raise UserError("this model mixes the images of a batch: there is no Jacobian of a single image")


def find_spectrum(
    find: Callable[..., SingularValues],
    piece: Piece,
    x: Tensor,
    index: Tensor,
    words: tuple[int, str],
    *,
    bare: bool,
    **how: Any,
) -> SingularValues:
    """The spectrum of a piece at every image by `find` (lanczos, power). `words`: the seed and a text for the keys."""
    seed, word = words
    keys = randomness.make_keys(index, seed, zlib.crc32(f"{word}/{piece.name}".encode()))
    try:
        spectrum = find(Jacobian(piece.trace, x, name=piece.name, bare=bare), keys, **how)
    except torch.OutOfMemoryError:
        raise UserError(
            f"{len(x)} images at once do not fit into memory; give batch_size={max(1, len(x) // 2)}"
        ) from None
    wrong = index.cpu().numpy()[~np.isfinite(spectrum.sigma[:, 0])]
    if len(wrong):
        raise UserError(f"the Jacobian of {piece.name} has values that are not finite, for example at image {wrong[0]}")
    return spectrum


def images_at_once(context: AnalysisContext, pieces: list[Piece], layers: list[BlockLayer], most: int) -> int:
    """How many images fit into memory, with the bases of Lanczos and the autograd graph of a piece."""
    largest = max(max(piece.inputs, piece.outputs) for piece in pieces)
    through = 60 * sum(torch.Size(layer.outputs).numel() for layer in layers)
    whole = any(piece.kind in ("stretch", "features", "network") for piece in pieces)
    each = 4 * ((most + 120) * largest + (through if whole else 0))
    cuda = context.device.type == "cuda"
    return max(1, min(128 if cuda else 16, (16 if cuda else 1) * 2**30 // each))
