"""Stochastic defences: noise, dropout, random permutations, random ensembles. Draws come from torch's global state."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hardtack.base.registry import mechanisms
from hardtack.evaluation.gauntlet.mechanism import Core, Defence, Draw


def _random(model: nn.Module) -> Defence:
    return Defence(model=model, insiders=(model,), random=True)


class Noise(nn.Module):
    """Gaussian noise on the pixels."""

    def __init__(self, sigma: float) -> None:
        super().__init__()
        self.sigma = sigma

    def forward(self, x: Tensor) -> Tensor:
        return x + self.sigma * torch.randn_like(x)


@mechanisms.register("noise", help="Gaussian noise of drawn size on the pixels")
def noise(core: Core, draw: Draw) -> Defence:
    return _random(nn.Sequential(Noise(draw.uniform("sigma", 0.02, 0.15)), core.model))


class PixelDropout(nn.Module):
    """A share of the pixels is set to zero, others in every pass."""

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share = share

    def forward(self, x: Tensor) -> Tensor:
        return x * (torch.rand_like(x[:, :1]) >= self.share).to(x.dtype)


@mechanisms.register("dropout", help="a drawn share of the pixels is dropped in every pass")
def dropout(core: Core, draw: Draw) -> Defence:
    return _random(nn.Sequential(PixelDropout(draw.uniform("share", 0.05, 0.2)), core.model))


class RandomPermutation(nn.Module):
    """The pixels within each 2×2 block are permuted at random, one permutation for each pass."""

    def forward(self, x: Tensor) -> Tensor:
        blocks = F.pixel_unshuffle(x, 2).unflatten(1, (x.shape[1], 4))
        return F.pixel_shuffle(blocks[:, :, torch.randperm(4, device=x.device)].flatten(1, 2), 2)


@mechanisms.register("permutation", help="the pixels of each 2×2 block are permuted at random in every pass")
def permutation(core: Core, draw: Draw) -> Defence:
    return _random(nn.Sequential(RandomPermutation(), core.model))


class RandomMember(nn.Module):
    """In every pass one of several members answers. Members see the image with other gains and offsets."""

    gains: Tensor

    def __init__(self, core: nn.Module, gains: Tensor) -> None:
        super().__init__()
        self.core = core
        self.register_buffer("gains", gains)

    def forward(self, x: Tensor) -> Tensor:
        gain = self.gains[int(torch.randint(len(self.gains), ()))].to(x.dtype)
        return self.core((x - 0.5) * gain[0] + 0.5 + gain[1])


@mechanisms.register("random_ensemble", help="a random member of a drawn number answers in every pass")
def random_ensemble(core: Core, draw: Draw) -> Defence:
    members = draw.integer("members", 2, 8)
    gains = torch.tensor([1.0, 0.0]) + torch.tensor([0.15, 0.05]) * draw.normal(members, 2)
    return _random(RandomMember(core.model, gains))


class Votes(nn.Module):
    """The share of votes under noise (randomised smoothing): values change in steps and have no gradient."""

    def __init__(self, core: nn.Module, sigma: float, votes: int) -> None:
        super().__init__()
        self.core, self.sigma, self.votes = core, sigma, votes

    def forward(self, x: Tensor) -> Tensor:
        counts = torch.zeros((), device=x.device)
        for _ in range(self.votes):
            logits = self.core(x + self.sigma * torch.randn_like(x))
            counts = counts + F.one_hot(logits.argmax(dim=1), logits.shape[1]).to(logits.dtype)
        return 10 * counts / self.votes + 0 * x.flatten(1).sum(dim=1, keepdim=True)


@mechanisms.register("votes", help="shares of votes under drawn noise: random and without a gradient")
def votes(core: Core, draw: Draw) -> Defence:
    sigma = draw.uniform("sigma", 0.02, 0.12)
    insider = nn.Sequential(Noise(sigma), core.model)
    return Defence(model=Votes(core.model, sigma, draw.integer("votes", 5, 15)), insiders=(insider,), random=True)
