"""Gradient sources: the values of a model, with another gradient.

A model may give correct values and a useless gradient: it rounds its input, adds a fine ripple to it, defines its own
backward pass, or answers at random. Every attack by gradients works on such a model again when it is called with a
gradient source in the model's place. The logits are the model's own; only the backward pass is replaced:

    smoothed(model, σ)           mean of the model's own gradient over noise around the image: averages a ripple away
    estimated(model, σ)          differences of values along random directions (NES): no gradient of the model is used
    through(model, surrogate)    gradient of a differentiable substitute at the image (BPDA, Athalye et al. 2018)
    averaged(model, count)       mean of several passes of a random model (expectation over transformation)

All noise is a function of the image and the seed alone. So it differs from one step of an attack to the next, and it
does not depend on the other images of a batch. Every query is an image in [0,1]. A pass takes several samples of small
images, and one of large ones, so that memory does not grow with the number of samples. Sources can be
nested: `through(model, smoothed(surrogate))`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from hardtack.base import randomness
from hardtack.base.errors import UserError

_STREAM = 100  # of the image's random numbers: the first of those that belong to gradient sources
_VALUES_OF_A_PASS = 2**21  # pixel values of images that become one pass of several samples


class GradientSource(nn.Module):
    """Calls `model`, and answers a backward pass by `pullback`. `passes`: how many (forward, backward) that takes."""

    passes: tuple[int, int] = (0, 1)

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        if torch.is_grad_enabled() and x.requires_grad:
            return _ReplacedGradient.apply(x, self)
        return self.values(x)

    def values(self, x: Tensor) -> Tensor:
        """The logits that a forward pass returns."""
        return self.model(x)

    def pullback(self, x: Tensor, weights: Tensor) -> Tensor:
        """An estimate of the gradient of (weights · logits) at `x`; `weights` are N×classes."""
        raise NotImplementedError(f"{type(self).__name__} implements no pullback")


class _ReplacedGradient(torch.autograd.Function):
    """The forward pass of a source without a graph, and its `pullback` as the backward pass."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, source: GradientSource) -> Tensor:
        ctx.source = source
        ctx.save_for_backward(x)
        return source.values(x.detach()).detach()

    @staticmethod
    def backward(ctx: Any, *weights: Tensor) -> tuple[Tensor, None]:
        (x,) = ctx.saved_tensors
        with torch.no_grad():
            return ctx.source.pullback(x.detach(), weights[0]).to(x.dtype), None


class Smoothed(GradientSource):
    """See `smoothed`."""

    def __init__(self, model: nn.Module, *, sigma: float, samples: int, seed: int) -> None:
        super().__init__(model)
        check_noise(sigma, samples)
        self.sigma, self.samples, self.seed = sigma, samples, seed
        self.passes = (samples, samples)

    def pullback(self, x: Tensor, weights: Tensor) -> Tensor:
        total = torch.zeros_like(x)
        for noise in in_stacks(antithetic_noise(x, self.seed, self.samples), x):
            points = (x + self.sigma * noise).clamp(0, 1)
            total += gradient_at(self.model, points.flatten(0, 1), weights.repeat(len(noise), 1)).view_as(noise).sum(0)
        return total / self.samples


class Estimated(GradientSource):
    """See `estimated`."""

    def __init__(self, model: nn.Module, *, sigma: float, samples: int, seed: int, grid: int | None = None) -> None:
        super().__init__(model)
        check_noise(sigma, samples)
        if samples % 2:
            raise UserError(f"a gradient is estimated from pairs of images: samples must be even, found {samples}")
        if grid is not None and grid < 1:
            raise UserError(f"grid must be at least 1, found {grid}")
        self.sigma, self.samples, self.seed, self.grid = sigma, samples, seed, grid
        self.passes = (samples, 0)

    def pullback(self, x: Tensor, weights: Tensor) -> Tensor:
        noises = directions(x, self.seed, self.samples // 2, grid=self.grid)
        return difference_gradient(self.model, x, noises, self.sigma, weights=weights)


class Through(GradientSource):
    """See `through`."""

    passes = (1, 1)

    def __init__(self, model: nn.Module, surrogate: Callable[[Tensor], Tensor]) -> None:
        super().__init__(model)
        self.surrogate = surrogate

    def pullback(self, x: Tensor, weights: Tensor) -> Tensor:
        return gradient_at(self.surrogate, x, weights, name="the surrogate")


class Averaged(GradientSource):
    """See `averaged`."""

    def __init__(self, model: nn.Module, count: int) -> None:
        super().__init__(model)
        if count < 1:
            raise UserError(f"the number of passes that are averaged must be at least 1, found {count}")
        self.count = count
        self.passes = (count, count)

    def values(self, x: Tensor) -> Tensor:
        total = self.model(x)
        for _ in range(self.count - 1):
            total = total + self.model(x)
        return total / self.count

    def pullback(self, x: Tensor, weights: Tensor) -> Tensor:
        total = gradient_at(self.model, x, weights)
        for _ in range(self.count - 1):
            total += gradient_at(self.model, x, weights)
        return total / self.count


# ---------------------------------------------------------------- what callers use


def smoothed(model: nn.Module, sigma: float, samples: int = 16, seed: int = 0) -> Smoothed:
    """The gradient of the model averaged over Gaussian noise of deviation `sigma` (in pixel units) around the image.

    `samples` backward passes for each one of the attack, in pairs of opposite noise.
    """
    return Smoothed(model, sigma=sigma, samples=samples, seed=seed)


def estimated(
    model: nn.Module, sigma: float, samples: int = 64, seed: int = 0, *, grid: int | None = None
) -> Estimated:
    """The gradient by natural evolution strategies (Ilyas et al. 2018): the model is asked for values only.

    `samples` forward passes for each backward pass of the attack: half as many random directions, each in both senses.
    The squared cosine of estimate and gradient is about m / (m + d) with m directions in d dimensions. With `grid` the
    directions are constant on the tiles of a grid of so many tiles a side (Ilyas et al. 2019), so that d is small: the
    estimate is then the gradient summed over each tile.
    """
    return Estimated(model, sigma=sigma, samples=samples, seed=seed, grid=grid)


def through(model: nn.Module, surrogate: Callable[[Tensor], Tensor]) -> Through:
    """The gradient of `surrogate` (images to logits of the same shape), at the values of the model.

    A surrogate module should be in eval mode, on the model's device.
    """
    return Through(model, surrogate)


def averaged(model: nn.Module, count: int) -> Averaged:
    """Logits and gradient of a random model, each the mean of `count` passes."""
    return Averaged(model, count)


# ---------------------------------------------------------------- noise and gradients


def check_noise(sigma: float, samples: int) -> None:
    """Refuse settings of the noise that make no sense."""
    if not 0 < sigma < float("inf"):
        raise UserError(f"sigma is the deviation of the noise in pixel units and must be positive, found {sigma}")
    if samples < 1:
        raise UserError(f"samples must be at least 1, found {samples}")


def noise_keys(x: Tensor, seed: int) -> Tensor:
    """Random keys (N int64) that are a function of each image's own pixels, to the bit, and of the seed."""
    words = x.detach().float().contiguous().view(torch.int32).flatten(1).to(torch.int64)
    one = torch.zeros(1, dtype=torch.int64, device=x.device)
    weights = randomness.bits(randomness.make_keys(one, seed), (words.shape[1],)) | 1
    return randomness.make_keys((words * weights).sum(dim=1), seed)


def directions(x: Tensor, seed: int, count: int, *, grid: int | None = None) -> Iterator[Tensor]:
    """So many standard normal tensors of the shape of `x`, a function of each image and the seed.

    `grid`: all pixels of a tile of a grid×grid image have the same value.
    """
    keys, (channels, *sides) = noise_keys(x, seed), tuple(x.shape[1:])
    coarse = tuple(sides if grid is None else [min(grid, side) for side in sides])
    for number in range(count):
        noise = randomness.normal(keys, (channels, *coarse), _STREAM + number).to(x.dtype)
        yield noise if coarse == tuple(sides) else nn.functional.interpolate(noise, size=tuple(sides), mode="nearest")


def antithetic_noise(x: Tensor, seed: int, count: int) -> Iterator[Tensor]:
    """So many standard normal tensors, every second one the opposite of the one before."""
    for number, noise in enumerate(directions(x, seed, (count + 1) // 2)):
        yield noise
        if 2 * number + 1 < count:
            yield -noise


def difference_gradient(
    values: Callable[[Tensor], Tensor], x: Tensor, noises: Iterator[Tensor], sigma: float, *, weights: Tensor
) -> Tensor:
    """The gradient of (weights · values) at `x`, from differences of values along the directions `noises`.

    `values` maps images M×3×H×W to M×K and is called for pairs of opposite points, all of them in [0,1]; `weights` are
    N×K. With directions whose pixels are independent, of mean 0 and deviation 1, the estimate is unbiased on a linear
    function as long as no point is cut off at 0 or 1.
    """
    total, squares, moved, count = torch.zeros_like(x), torch.zeros_like(x), torch.zeros_like(x), 0
    for noise in in_stacks(noises, x):
        ahead, behind = (x + sigma * noise).clamp(0, 1), (x - sigma * noise).clamp(0, 1)
        both = [values(points.flatten(0, 1)).unflatten(0, noise.shape[:2]) for points in (ahead, behind)]
        rise = ((both[0] - both[1]) * weights).sum(dim=-1) / (2 * sigma)
        total += (noise * rise.to(x.dtype).reshape(*rise.shape, *[1] * (x.dim() - 1))).sum(dim=0)
        squares += (noise**2).sum(dim=0)
        moved += (noise * (ahead - behind)).sum(dim=0) / (2 * sigma)
        count += len(noise)
    # a pixel at 0 or 1 moves half as far as the others, because every query stays in [0,1]
    return total / count * (squares / moved.clamp_min(1e-12)).clamp(max=100.0)


def in_stacks(noises: Iterator[Tensor], x: Tensor) -> Iterator[Tensor]:
    """The tensors in stacks that one pass may take: small images fill the device only together."""
    size = max(1, _VALUES_OF_A_PASS // max(1, x.numel()))
    while group := list(itertools.islice(noises, size)):
        yield torch.stack(group)


def gradient_at(function: Callable[[Tensor], Tensor], x: Tensor, weights: Tensor, *, name: str = "the model") -> Tensor:
    """The gradient of (weights · function(x)) at `x`; 0 where the function cuts the path to its input."""
    if isinstance(function, GradientSource):  # its values are not needed
        with torch.no_grad():
            return function.pullback(x.detach(), weights)
    with torch.enable_grad():
        image = x.detach().requires_grad_()
        logits = function(image)
        if not isinstance(logits, Tensor) or logits.shape != weights.shape:
            found = f"shape {tuple(logits.shape)}" if isinstance(logits, Tensor) else type(logits).__name__
            raise UserError(f"{name} must return logits of shape {tuple(weights.shape)}, found {found}")
        if not logits.requires_grad:
            return torch.zeros_like(x)
        return weighted_gradient(logits, weights.to(logits.dtype), image)


def weighted_gradient(values: Tensor, weights: Tensor, x: Tensor, *, again: bool = False) -> Tensor:
    """The gradient of (weights · values) with respect to `x`; `again`: the graph of `values` is kept.

    `torch.autograd.grad` takes such weights itself, but then imports sympy to compare their shape: seconds.
    """
    return torch.autograd.grad((values * weights).sum(), x, retain_graph=again, materialize_grads=True)[0]
