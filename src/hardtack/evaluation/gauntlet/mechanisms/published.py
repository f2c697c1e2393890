"""Small forms of published defences that attacks which knew them have broken.

From "Obfuscated gradients give a false sense of security" (Athalye et al. 2018): thermometer codes, stochastic
activation pruning, PixelDefend, Defense-GAN, quilting. From "On adaptive attacks to adversarial example defenses"
(Tramèr et al. 2020): sparse Fourier, mixup inference, ME-Net, EMPIR, noise tests; error-correcting codes and
k-winners-take-all are in heads.py and activations.py. From "Indicators of attack failure" (Pintor et al. 2022):
distillation (temperature_high in vanishing.py), RBF heads as in deep neural rejection, votes of a diverse ensemble.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hardtack.base.registry import mechanisms
from hardtack.evaluation.gauntlet.fitted import FittedNet, smooth_insider
from hardtack.evaluation.gauntlet.gradients import StraightThrough, Surrogate
from hardtack.evaluation.gauntlet.mechanism import Core, Defence, Draw
from hardtack.evaluation.gauntlet.mechanisms.inputs import BitDepth


class Projection(nn.Module):
    """A projection that withholds its gradient: a zero gradient reaches the input. Subclasses write `project`."""

    def project(self, x: Tensor) -> Tensor:
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            projected = self.project(x)
        return projected + 0 * x


class WithGradient(nn.Module):
    """A projection with the gradient that it withholds."""

    def __init__(self, projection: Projection) -> None:
        super().__init__()
        self.projection = projection

    def forward(self, x: Tensor) -> Tensor:
        return self.projection.project(x)


def _projected(core: Core, projection: Projection, *, smooth: bool = False, random: bool = False) -> Defence:
    """The core behind a projection; an insider differentiates as if the projection were the identity (BPDA).

    `smooth`: an insider can also differentiate the projection itself.
    """
    insiders: tuple[nn.Module, ...] = (nn.Sequential(StraightThrough(projection), core.model),)
    if smooth:
        insiders = (nn.Sequential(WithGradient(projection), core.model), *insiders)
    return Defence(model=nn.Sequential(projection, core.model), insiders=insiders, random=random)


class ThermometerCode(nn.Module):
    """Each channel as `levels` channels of ones and zeros: whether the pixel exceeds each threshold."""

    thresholds: Tensor

    def __init__(self, levels: int, *, soft: bool = False) -> None:
        super().__init__()
        self.levels, self.soft = levels, soft
        self.register_buffer("thresholds", (torch.arange(levels) + 0.5) / levels)

    def forward(self, x: Tensor) -> Tensor:
        above = x[:, :, None] - self.thresholds.to(x)[None, None, :, None, None]
        code = (above * self.levels + 0.5).clamp(0, 1) if self.soft else (above > 0).to(x.dtype) + 0 * above
        return code.flatten(1, 2)


@mechanisms.register("thermometer", help="thermometer code of a drawn number of levels (Buckman et al. 2018)")
def thermometer(core: Core, draw: Draw) -> Defence:
    levels = draw.integer("levels", 4, 10)
    net = FittedNet(core, draw, activation=nn.ReLU(), code=ThermometerCode(levels))
    return Defence(model=net, insiders=(smooth_insider(net, code=ThermometerCode(levels, soft=True)),))


class Pruned(nn.Module):
    """Stochastic activation pruning: activations are drawn in proportion to their size and rescaled (Dhillon 2018)."""

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share = share

    def forward(self, features: Tensor) -> Tensor:
        size = features.detach().abs()
        chance = size / size.sum(dim=1, keepdim=True).clamp_min(1e-12)
        kept = 1 - (1 - chance).clamp_min(1e-6) ** (self.share * features.shape[1])
        drawn = (torch.rand_like(kept) < kept).to(features.dtype)
        return features * drawn / kept.clamp_min(1e-6)


@mechanisms.register("activation_pruning", help="stochastic activation pruning (Dhillon et al. 2018)")
def activation_pruning(core: Core, draw: Draw) -> Defence:
    net = FittedNet(core, draw, activation=nn.ReLU(), after=Pruned(draw.uniform("share", 1.0, 3.0)))
    return Defence(model=net, insiders=(net, smooth_insider(net)), random=True)


class PixelProjection(Projection):
    """PixelDefend in small: each pixel moves, by at most `reach`, to what its neighbours predict; no gradient.

    The prediction is linear in the eight neighbours, and fitted on the training images.
    """

    weight: Tensor

    def __init__(self, core: Core, reach: float, sweeps: int) -> None:
        super().__init__()
        self.reach, self.sweeps = reach, sweeps
        windows = F.unfold(core.train_x[:200], 3).unflatten(1, (3, 9)).movedim(2, -1).reshape(-1, 9).cpu().double()
        others = windows[:, [0, 1, 2, 3, 5, 6, 7, 8]]
        gram = others.T @ others + 1e-3 * len(others) * torch.eye(8, dtype=others.dtype)
        fitted = torch.linalg.solve(gram, others.T @ windows[:, 4])
        kernel = torch.cat([fitted[:4], fitted.new_zeros(1), fitted[4:]]).float()
        self.register_buffer("weight", kernel.view(1, 1, 3, 3).repeat(3, 1, 1, 1))

    def project(self, x: Tensor) -> Tensor:
        z = x
        for _ in range(self.sweeps):
            predicted = F.conv2d(F.pad(z, (1, 1, 1, 1), mode="replicate"), self.weight.to(z), groups=3)
            z = x + (predicted - x).clamp(-self.reach, self.reach)
        return z.clamp(0, 1)


@mechanisms.register("pixel_defend", help="pixels move to what their neighbours predict (Song et al. 2018, in small)")
def pixel_defend(core: Core, draw: Draw) -> Defence:
    return _projected(
        core, PixelProjection(core, draw.uniform("reach", 0.03, 0.12), draw.integer("sweeps", 2, 4)), smooth=True
    )


class GenerativeProjection(Projection):
    """Defense-GAN in small: the nearest image of a linear generator (principal components); no gradient."""

    mean: Tensor
    components: Tensor

    def __init__(self, core: Core, components: int) -> None:
        super().__init__()
        rows = core.train_x[:500].flatten(1)
        mean = rows.mean(dim=0)
        values = torch.linalg.svd((rows - mean).cpu().double(), full_matrices=False)
        self.register_buffer("mean", mean)
        self.register_buffer("components", values.Vh[:components].float().to(rows.device))

    def project(self, x: Tensor) -> Tensor:
        centred = x.flatten(1) - self.mean.to(x)
        return (
            (self.mean.to(x) + centred @ self.components.to(x).T @ self.components.to(x)).clamp(0, 1).reshape(x.shape)
        )


@mechanisms.register("defense_gan", help="the nearest image of a linear generator (Samangouei et al. 2018, in small)")
def defense_gan(core: Core, draw: Draw) -> Defence:
    return _projected(core, GenerativeProjection(core, draw.integer("components", 40, 120)), smooth=True)


class Quilting(Projection):
    """Every 4×4 patch is replaced by its nearest neighbour in a dictionary of training patches; no gradient."""

    patches: Tensor

    def __init__(self, core: Core, draw: Draw, size: int) -> None:
        super().__init__()
        rows = torch.randperm(len(core.train_x), generator=draw.generator)[:400].to(core.train_x.device)
        patches = F.unfold(core.train_x[rows], 4, stride=4).transpose(1, 2).flatten(0, 1)
        order = torch.randperm(len(patches), generator=draw.generator)[:size].to(patches.device)
        self.register_buffer("patches", patches[order])

    def project(self, x: Tensor) -> Tensor:
        own = F.unfold(x, 4, stride=4).transpose(1, 2)
        patches = self.patches.to(x)
        nearest = torch.cdist(own.flatten(0, 1), patches).argmin(dim=1)
        chosen = patches[nearest].view(own.shape).transpose(1, 2)
        return F.fold(chosen, tuple(x.shape[-2:]), 4, stride=4)


@mechanisms.register("quilting", help="patches replaced by the nearest training patches (Guo et al. 2018)")
def quilting(core: Core, draw: Draw) -> Defence:
    return _projected(core, Quilting(core, draw, draw.choice("patches", (1000, 2000, 4000))))


class SparseFourier(nn.Module):
    """Only the largest Fourier coefficients of each channel are kept (Bafna et al. 2018)."""

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share = share

    def forward(self, x: Tensor) -> Tensor:
        spectrum = torch.fft.fft2(x.float())
        size = spectrum.abs().flatten(2)
        kept = size.topk(max(1, round(self.share * size.shape[2])), dim=2).values[..., -1:]
        return torch.fft.ifft2(spectrum * (size >= kept).view(spectrum.shape)).real.to(x.dtype)


@mechanisms.register("sparse_fourier", help="the largest Fourier coefficients only (Bafna et al. 2018)")
def sparse_fourier(core: Core, draw: Draw) -> Defence:
    squeeze = SparseFourier(draw.uniform("share", 0.08, 0.25))
    model = nn.Sequential(squeeze, core.model)
    return Defence(model=model, insiders=(nn.Sequential(StraightThrough(squeeze), core.model), model))


class MixupInference(nn.Module):
    """The mean probability over mixtures with random training images (Pang et al. 2020)."""

    others: Tensor

    def __init__(self, core: Core, share: float, mixtures: int) -> None:
        super().__init__()
        self.core, self.share, self.mixtures = core.model, share, mixtures
        self.register_buffer("others", core.train_x[:200].clone())

    def forward(self, x: Tensor) -> Tensor:
        total = torch.zeros((), device=x.device)
        for _ in range(self.mixtures):
            other = self.others[torch.randint(len(self.others), (len(x),), device=x.device)].to(x.dtype)
            total = total + self.core(self.share * x + (1 - self.share) * other).softmax(dim=1)
        return (total / self.mixtures).clamp_min(1e-12).log()


@mechanisms.register("mixup_inference", help="the mean over mixtures with training images (Pang et al. 2020)")
def mixup_inference(core: Core, draw: Draw) -> Defence:
    model = MixupInference(core, draw.uniform("share", 0.75, 0.9), draw.integer("mixtures", 3, 8))
    return Defence(model=model, insiders=(model,), random=True)


class MatrixEstimation(Projection):
    """ME-Net in small: random pixels are dropped, then each channel becomes a matrix of low rank; no gradient."""

    def __init__(self, kept: float, rank: int) -> None:
        super().__init__()
        self.kept, self.rank = kept, rank

    def project(self, x: Tensor) -> Tensor:
        mask = (torch.rand_like(x[:, :1]) < self.kept).to(x.dtype)
        left, size, right = torch.linalg.svd((x * mask / self.kept).float(), full_matrices=False)
        size = size * (torch.arange(size.shape[-1], device=x.device) < self.rank)
        return ((left * size[..., None, :]) @ right).clamp(0, 1).to(x.dtype)


@mechanisms.register("me_net", help="dropped pixels and matrices of low rank (Yang et al. 2019, in small)")
def me_net(core: Core, draw: Draw) -> Defence:
    projection = MatrixEstimation(draw.uniform("kept", 0.9, 0.97), draw.integer("rank", 6, 12))
    return _projected(core, projection, random=True)


class MixedPrecisionVotes(nn.Module):
    """EMPIR in small: the same network at several bit depths of its input votes; ties go to full precision."""

    def __init__(self, core: nn.Module, bits: tuple[int, ...]) -> None:
        super().__init__()
        self.core, self.squeezes = core, nn.ModuleList(BitDepth(number) for number in bits)

    def forward(self, x: Tensor) -> Tensor:
        full = self.core(x)
        votes = F.one_hot(full.argmax(dim=1), full.shape[1]).to(full.dtype)
        for squeeze in self.squeezes:
            votes = votes + F.one_hot(self.core(squeeze(x)).argmax(dim=1), full.shape[1]).to(full.dtype)
        return votes + 1e-3 * full.softmax(dim=1)


@mechanisms.register("empir", help="votes of the network at several bit depths (Sen et al. 2020, in small)")
def empir(core: Core, draw: Draw) -> Defence:
    bits = (draw.integer("bits_1", 2, 3), draw.integer("bits_2", 3, 5))
    return Defence(model=MixedPrecisionVotes(core.model, bits))


class RadialHead(nn.Module):
    """Radial basis functions around each class's mean logits (deep neural rejection): flat far from all of them."""

    centres: Tensor

    def __init__(self, core: Core, sharpness: float) -> None:
        super().__init__()
        with torch.no_grad():
            logits = core.model(core.train_x[:1000])
            labels = core.train_y[:1000]
            means = [logits[labels == label].mean(dim=0) for label in range(core.classes)]
            centres = torch.stack([mean.nan_to_num() for mean in means])
            spread = torch.stack([(logits[labels == label] - centres[label]).norm(dim=1).mean().nan_to_num(1.0)
                                  for label in range(core.classes)]).mean()  # fmt: skip
        self.gamma = sharpness / float(spread) ** 2
        self.register_buffer("centres", centres)

    def forward(self, logits: Tensor) -> Tensor:
        distance = (logits[:, None] - self.centres.to(logits)[None]).square().sum(dim=2)
        return torch.exp(-self.gamma * distance)


@mechanisms.register("radial_head", help="radial basis functions around class means (deep neural rejection, in small)")
def radial_head(core: Core, draw: Draw) -> Defence:
    return Defence(model=nn.Sequential(core.model, RadialHead(core, draw.log_uniform("sharpness", 0.5, 4))))


class NoiseTest(nn.Module):
    """If fixed noise changes the decision, the votes under the noise decide ("The odds are odd", in small)."""

    noise: Tensor

    def __init__(self, core: nn.Module, noise: Tensor) -> None:
        super().__init__()
        self.core = core
        self.register_buffer("noise", noise)

    def forward(self, x: Tensor) -> Tensor:
        logits = self.core(x)
        with torch.no_grad():
            votes = torch.zeros_like(logits)
            for pattern in self.noise.to(x):
                votes += F.one_hot(self.core(x + pattern).argmax(dim=1), logits.shape[1]).to(logits.dtype)
            stable = votes.gather(1, logits.argmax(dim=1, keepdim=True)) == len(self.noise)
        return torch.where(stable, logits, 5 * votes)


@mechanisms.register("noise_test", help="decisions that fixed noise changes are put to the vote (Roth et al. 2019)")
def noise_test(core: Core, draw: Draw) -> Defence:
    noise = draw.uniform("sigma", 0.05, 0.15) * draw.normal(draw.integer("patterns", 3, 6), *core.shape)
    return Defence(model=NoiseTest(core.model, noise))


class DiverseVotes(nn.Module):
    """The votes of members with fixed random gains and masks: the values change in steps only."""

    masks: Tensor

    def __init__(self, core: nn.Module, masks: Tensor) -> None:
        super().__init__()
        self.core = core
        self.register_buffer("masks", masks)

    def forward(self, x: Tensor) -> Tensor:
        votes = torch.zeros((), device=x.device)
        for mask in self.masks.to(x):
            logits = self.core(x * mask)
            votes = votes + F.one_hot(logits.argmax(dim=1), logits.shape[1]).to(logits.dtype)
        return votes + 0 * x.flatten(1).sum(dim=1, keepdim=True)


@mechanisms.register("diverse_votes", help="votes of members that each see other pixels: no gradient, many ties")
def diverse_votes(core: Core, draw: Draw) -> Defence:
    members, share = draw.integer("members", 3, 7), draw.uniform("share", 0.9, 0.97)
    masks = draw.mask(share, members, 1, *core.shape[1:])
    votes = DiverseVotes(core.model, masks)
    return Defence(model=votes, insiders=(Surrogate(votes, core.model),))
