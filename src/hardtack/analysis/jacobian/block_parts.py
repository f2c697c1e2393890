"""Pieces of a network as functions, evaluated at the features that the images have there.

A piece is extracted while the network runs. At its start the feature is replaced by a leaf of the autograd graph; at
its end the forward pass is stopped. All other arguments of a block (a grid, patch tokens) keep their true values.
Operations between two blocks are part of a stretch of blocks.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from hardtack.analysis.jacobian.products import Trace
from hardtack.base.errors import UserError
from hardtack.models import Block, find_blocks
from hardtack.models.branches import Branch
from hardtack.models.parts import short_name


@dataclass(frozen=True)
class BlockLayer:
    """A block that was called. `carrier` is the position or name of the argument that holds the feature."""

    block: Block
    carrier: int | str
    inputs: tuple[int, ...]  # shapes of the input and output feature of one image
    outputs: tuple[int, ...]
    joined: bool  # whether its input is exactly the output of the previous layer

    @property
    def name(self) -> str:
        return short_name(self.block.name)

    @property
    def square(self) -> bool:
        """Whether input and output have the same shape, so that their difference exists."""
        return self.inputs == self.outputs


@dataclass(frozen=True)
class Piece:
    """A function x ↦ y inside a network: `trace(images)` returns x, a leaf, and y, which is computed from x.

    `kind` is the name of the kind of piece; `bare` is the name of the piece minus the identity ("" if not square).
    """

    name: str
    kind: str
    inputs: int  # number of values in x and in y, for one image
    outputs: int
    trace: Trace
    bare: str = ""


# ---------------------------------------------------------------- layers


@torch.no_grad()
def survey(model: nn.Module, images: Tensor) -> list[BlockLayer]:
    """The blocks of the model in the order in which they are called."""
    if any(hasattr(module, "_orig_mod") or module._compiled_call_impl is not None for module in model.modules()):
        raise UserError(
            "a compiled model cannot be split into blocks; analyze the model that was passed to torch.compile"
        )
    layers: list[BlockLayer] = []
    last: list[Tensor] = []

    def look(block: Block, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        if any(layer.block is block for layer in layers):  # a block that is called twice counts once
            return
        out = first_of(output)
        carrier = _carrier(args, kwargs, out)
        if carrier is None:
            raise UserError(
                f"{block.name} ({type(module).__name__}) takes several features as input: "
                "only the Jacobian of the whole network can be measured (jacobian.of=network)"
            )
        value = args[carrier] if isinstance(carrier, int) else kwargs[carrier]
        joined = bool(last) and last[0].shape == value.shape and torch.equal(last[0], value)
        layers.append(BlockLayer(block, carrier, _one(value, len(images)), _one(out, len(images)), joined))
        last[:] = [out.clone()]

    with contextlib.ExitStack() as hooks:
        for block in find_blocks(model):
            hook = block.module.register_forward_hook(_bind(look, block), with_kwargs=True)
            hooks.callback(hook.remove)
        model(images)
    return layers


def _bind(look: Callable[..., None], block: Block) -> Callable[..., None]:
    return lambda *args: look(block, *args)


def _carrier(args: tuple[Any, ...], kwargs: dict[str, Any], output: Tensor) -> int | str | None:
    """The argument with the shape of the output, else the first tensor. (CaiT's last blocks also take the patches.)"""
    named: list[tuple[int | str, Any]] = [*enumerate(args), *kwargs.items()]
    tensors = [(key, value) for key, value in named if isinstance(value, Tensor) and value.is_floating_point()]
    alike = (key for key, value in tensors if value.shape == output.shape)
    return next(alike, tensors[0][0] if tensors else None)


def first_of(output: Any) -> Tensor:
    return output[0] if isinstance(output, tuple | list) else output


def _one(value: Tensor, images: int) -> tuple[int, ...]:
    """The shape for one image, which may have several rows (MobileViT)."""
    if value.shape[0] == images:
        return tuple(value.shape[1:])
    if value.shape[0] % images:
        raise UserError(
            f"a block works on {value.shape[0]} rows for {images} images: the rows of an image are not known"
        )
    return (value.shape[0] // images, *value.shape[1:])


# ---------------------------------------------------------------- pieces


def block_piece(model: nn.Module, layer: BlockLayer) -> Piece:
    """A whole block with its residual additions. Its `bare` piece is block(x) − x."""
    return Piece(
        layer.name, "block", _size(layer.inputs), _size(layer.outputs),
        lambda images: cut(model, images, layer, layer), bare="residual" if layer.square else "",
    )  # fmt: skip


def stretch_piece(model: nn.Module, layers: list[BlockLayer], first: int, last: int) -> Piece:
    """From the input of one block to the output of another, with everything between them."""
    start, stop = layers[first], layers[last]
    name = f"{start.name} … {stop.name}"
    return Piece(
        name, "stretch", _size(start.inputs), _size(stop.outputs), lambda images: cut(model, images, start, stop)
    )


def between_piece(model: nn.Module, before: BlockLayer, after: BlockLayer) -> Piece:
    """The operations between two blocks, such as the embedding of a stage or patch merging."""
    return Piece(
        f"{before.name} → {after.name}", "between", _size(before.outputs), _size(after.inputs),
        lambda images: cut(model, images, before, after, after=True, before=True),
    )  # fmt: skip


def network_piece(model: nn.Module, image: tuple[int, ...], classes: int) -> Piece:
    """Pixels to logits."""
    return Piece("network", "network", _size(image), classes, lambda images: cut(model, images, None, None))


def features_piece(model: nn.Module, image: tuple[int, ...], layers: list[BlockLayer]) -> Piece:
    """Pixels to the output of the last block."""
    last = layers[-1]
    return Piece(
        f"pixels … {last.name}", "features", _size(image), _size(last.outputs),
        lambda images: cut(model, images, None, last),
    )  # fmt: skip


def branch_pieces(model: nn.Module, layer: BlockLayer) -> Iterator[Piece]:
    """Each residual branch of a block alone, at the feature that enters it."""
    branches = layer.block.branches
    kinds = [branch.kind for branch in branches]
    for number, branch in enumerate(branches):
        name = layer.name if kinds.count(branch.kind) == 1 else f"{layer.name} ({number + 1})"
        inputs = layer.outputs if number else layer.inputs  # only the first branch can change the size of the feature
        trace = _branch_trace(model, layer, branches[:number], branch)
        yield Piece(name, branch.kind, _size(inputs), _size(layer.outputs), trace)


def _branch_trace(model: nn.Module, layer: BlockLayer, before: tuple[Branch, ...], branch: Branch) -> Trace:
    def trace(images: Tensor) -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            x = feature_at(model, images, layer)
            for earlier in before:
                x = earlier(x)
        x = x.detach().requires_grad_()
        with sdpa_kernel(SDPBackend.MATH):
            return x, branch.function(x.clone())

    return trace


@torch.no_grad()
def feature_at(model: nn.Module, images: Tensor, layer: BlockLayer) -> Tensor:
    """The feature that enters a layer."""
    return cut(model, images, layer, layer)[0].detach()


class _Arrived(Exception):
    """The forward pass has reached the end of the piece."""


def cut(
    model: nn.Module,
    images: Tensor,
    start: BlockLayer | None,
    stop: BlockLayer | None,
    *,
    after: bool = False,
    before: bool = False,
) -> tuple[Tensor, Tensor]:
    """x, a leaf that replaces the input of `start` (None: the images), and y, the output of `stop` (None: the logits).

    `after`: x is the output of `start`; `before`: y is the input of `stop`. Attention runs on PyTorch's math backend,
    because fused attention has no second derivative.
    """
    ends: dict[str, Tensor] = {}

    def leaf(value: Tensor) -> Tensor:
        ends["x"] = value.detach().requires_grad_()
        return ends["x"].clone()  # a leaf must not be modified, and some blocks work in place

    def enter(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        assert start is not None
        return replaced(args, kwargs, start.carrier, leaf) if "x" not in ends else None

    def follow(module: nn.Module, args: Any, output: Any) -> Any:
        if "x" in ends:
            return None
        replacement = leaf(first_of(output))
        return type(output)([replacement, *output[1:]]) if isinstance(output, tuple | list) else replacement

    def arrive(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        assert stop is not None
        if "x" in ends:
            ends["y"] = args[stop.carrier] if isinstance(stop.carrier, int) else kwargs[stop.carrier]
            raise _Arrived

    def leave(module: nn.Module, args: Any, output: Any) -> None:
        if "x" in ends:
            ends["y"] = first_of(output)
            raise _Arrived

    with contextlib.ExitStack() as stack:
        stack.enter_context(sdpa_kernel(SDPBackend.MATH))
        if start is None:
            images = leaf(images)
        elif after:
            stack.callback(start.block.module.register_forward_hook(follow).remove)
        else:
            stack.callback(start.block.module.register_forward_pre_hook(enter, with_kwargs=True).remove)
        if stop is not None and before:
            stack.callback(stop.block.module.register_forward_pre_hook(arrive, with_kwargs=True).remove)
        elif stop is not None:
            stack.callback(stop.block.module.register_forward_hook(leave).remove)
        try:
            out = first_of(model(images))
        except _Arrived:
            out = ends["y"]
    return ends["x"], out


def replaced(
    args: tuple[Any, ...], kwargs: dict[str, Any], key: int | str, make: Callable[[Tensor], Tensor]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a block with the feature replaced by `make(feature)`."""
    if isinstance(key, str):
        return args, {**kwargs, key: make(kwargs[key])}
    return (*args[:key], make(args[key]), *args[key + 1 :]), kwargs


def _size(shape: tuple[int, ...]) -> int:
    return torch.Size(shape).numel()
