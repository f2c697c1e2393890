"""Input transforms: bit depth, JPEG, total variation, resize and pad, thermometer, crops, blur, projections."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hardtack.base.registry import mechanisms
from hardtack.evaluation.gauntlet.gradients import Detached, StraightThrough
from hardtack.evaluation.gauntlet.mechanism import Core, Defence, Draw


def _transformed(core: Core, transform: nn.Module, *, random: bool = False) -> Defence:
    """The core behind a transform; an insider differentiates as if the transform were the identity (BPDA)."""
    insider = nn.Sequential(StraightThrough(transform), core.model)
    return Defence(model=nn.Sequential(transform, core.model), insiders=(insider,), random=random)


class BitDepth(nn.Module):
    """Pixels rounded to 2^bits levels (Xu et al. 2018)."""

    def __init__(self, bits: int) -> None:
        super().__init__()
        self.steps = 2**bits - 1

    def forward(self, x: Tensor) -> Tensor:
        return torch.round(x * self.steps) / self.steps


@mechanisms.register("bit_depth", help="pixels rounded to a drawn number of bits")
def bit_depth(core: Core, draw: Draw) -> Defence:
    return _transformed(core, BitDepth(draw.integer("bits", 2, 5)))


class JPEG(nn.Module):
    """The lossy part of JPEG on each channel: an 8×8 cosine transform whose coefficients are rounded."""

    basis: Tensor
    table: Tensor

    # the luminance table of the standard (ITU-T T.81, annex K)
    LUMINANCE = (
        16, 11, 10, 16, 24, 40, 51, 61, 12, 12, 14, 19, 26, 58, 60, 55, 14, 13, 16, 24, 40, 57, 69, 56,
        14, 17, 22, 29, 51, 87, 80, 62, 18, 22, 37, 56, 68, 109, 103, 77, 24, 35, 55, 64, 81, 104, 113, 92,
        49, 64, 78, 87, 103, 121, 120, 101, 72, 92, 95, 98, 112, 100, 103, 99,
    )  # fmt: skip

    def __init__(self, quality: int) -> None:
        super().__init__()
        at = torch.arange(8)
        basis = torch.cos(math.pi * (2 * at[None] + 1) * at[:, None] / 16) * 0.5
        basis[0] *= math.sqrt(0.5)
        scale = 50 / quality if quality < 50 else 2 - quality / 50
        table = (torch.tensor(self.LUMINANCE, dtype=torch.float32).view(8, 8) * scale).round().clamp_min(1)
        self.register_buffer("basis", basis)
        self.register_buffer("table", table)

    def forward(self, x: Tensor) -> Tensor:
        height, width = x.shape[-2:]
        padded = F.pad(x.float() * 255 - 128, (0, -width % 8, 0, -height % 8), mode="replicate")
        blocks = padded.unfold(2, 8, 8).unfold(3, 8, 8)
        basis, table = self.basis.float(), self.table.float()
        coefficients = torch.round(basis @ blocks @ basis.T / table) * table
        restored = (basis.T @ coefficients @ basis).transpose(3, 4).reshape(padded.shape)
        return ((restored[..., :height, :width] + 128) / 255).clamp(0, 1).to(x.dtype)


@mechanisms.register("jpeg", help="JPEG compression of drawn quality")
def jpeg(core: Core, draw: Draw) -> Defence:
    return _transformed(core, JPEG(draw.integer("quality", 40, 90)))


@mechanisms.register("feature_squeezing", help="bit depth and a median filter in turn (Xu et al. 2018)")
def feature_squeezing(core: Core, draw: Draw) -> Defence:
    return _transformed(core, nn.Sequential(BitDepth(draw.integer("bits", 3, 5)), MedianBlur()))


class TotalVariation(nn.Module):
    """Steps of gradient descent on ½‖z − x‖² + weight·TV(z) (Guo et al. 2018); no gradient reaches the input."""

    def __init__(self, weight: float, steps: int, share: float) -> None:
        super().__init__()
        self.weight, self.steps, self.share = weight, steps, share

    def forward(self, x: Tensor) -> Tensor:
        return self._minimised(x.detach()) + 0 * x

    @torch.no_grad()
    def _minimised(self, x: Tensor) -> Tensor:
        keep = 1.0 if self.share == 1 else (torch.rand_like(x[:, :1]) < self.share).to(x.dtype)
        z = x.clone()
        for _ in range(self.steps):
            z = z - 0.2 * (keep * (z - x) + self.weight * _variation_slope(z))
        return z.clamp(0, 1)


def _variation_slope(z: Tensor) -> Tensor:
    """The derivative of a smoothed total variation."""
    down, right = z.diff(dim=2), z.diff(dim=3)
    down, right = down / (down**2 + 1e-3).sqrt(), right / (right**2 + 1e-3).sqrt()
    slope = torch.zeros_like(z)
    slope[:, :, 1:] += down
    slope[:, :, :-1] -= down
    slope[..., 1:] += right
    slope[..., :-1] -= right
    return slope


@mechanisms.register("total_variation", help="total variation minimisation of a drawn weight, without a gradient")
def total_variation(core: Core, draw: Draw) -> Defence:
    return _transformed(core, TotalVariation(draw.uniform("weight", 0.02, 0.08), 15, 1.0))


@mechanisms.register("total_variation_random", help="total variation of an image that lost random pixels (Guo 2018)")
def total_variation_random(core: Core, draw: Draw) -> Defence:
    return _transformed(core, TotalVariation(draw.uniform("weight", 0.02, 0.06), 15, 0.8), random=True)


class MedianBlur(nn.Module):
    """The median of each 3×3 window; its gradient reaches one pixel in nine."""

    def forward(self, x: Tensor) -> Tensor:
        windows = F.pad(x, (1, 1, 1, 1), mode="replicate").unfold(2, 3, 1).unfold(3, 3, 1)
        return windows.flatten(-2).median(dim=-1).values


@mechanisms.register("median_blur", help="the median of each 3×3 window")
def median_blur(core: Core, draw: Draw) -> Defence:
    model = nn.Sequential(MedianBlur(), core.model)
    return Defence(model=model, insiders=(nn.Sequential(StraightThrough(MedianBlur()), core.model), model))


class GaussianBlur(nn.Module):
    """A convolution with a Gaussian: differentiable, and with a correct gradient."""

    kernel: Tensor

    def __init__(self, sigma: float) -> None:
        super().__init__()
        at = torch.arange(-2, 3).float()
        line = torch.exp(-(at**2) / (2 * sigma**2))
        line = line / line.sum()
        self.register_buffer("kernel", (line[:, None] * line[None])[None, None].repeat(3, 1, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        return F.conv2d(F.pad(x, (2, 2, 2, 2), mode="replicate"), self.kernel.to(x.dtype), groups=3)


@mechanisms.register("blur", help="a Gaussian blur of drawn width: honest, as its gradient is right")
def blur(core: Core, draw: Draw) -> Defence:
    model = nn.Sequential(GaussianBlur(draw.uniform("sigma", 0.4, 1.0)), core.model)
    return Defence(model=model, insiders=(model,), honest=True)


@mechanisms.register("blur_detached", help="a Gaussian blur without a gradient")
def blur_detached(core: Core, draw: Draw) -> Defence:
    smooth = GaussianBlur(draw.uniform("sigma", 0.4, 1.0))
    return Defence(model=nn.Sequential(Detached(smooth), core.model), insiders=(nn.Sequential(smooth, core.model),))


class ResizePad(nn.Module):
    """Resized to a random smaller size and padded at a random place (Xie et al. 2018), one draw per pass."""

    def __init__(self, smallest: float) -> None:
        super().__init__()
        self.smallest = smallest

    def forward(self, x: Tensor) -> Tensor:
        side = x.shape[-1]
        least = max(1, round(self.smallest * side))
        new = int(torch.randint(least, side + 1, ()))
        top, left = (int(torch.randint(0, side - new + 1, ())) for _ in range(2))
        small = F.interpolate(x, size=(new, new), mode="nearest")
        return F.pad(small, (left, side - new - left, top, side - new - top))


@mechanisms.register("resize_pad", help="random resize and pad (Xie et al. 2018)")
def resize_pad(core: Core, draw: Draw) -> Defence:
    model = nn.Sequential(ResizePad(draw.uniform("smallest", 0.85, 0.95)), core.model)
    return Defence(model=model, insiders=(model,), random=True)


class Crops(nn.Module):
    """The mean probability over random crops that are resized to the full size (Guo et al. 2018)."""

    def __init__(self, core: nn.Module, crops: int, share: float) -> None:
        super().__init__()
        self.core, self.crops, self.share = core, crops, share

    def forward(self, x: Tensor) -> Tensor:
        side = x.shape[-1]
        new = round(self.share * side)
        total = torch.zeros((), device=x.device)
        for _ in range(self.crops):
            top, left = (int(torch.randint(0, side - new + 1, ())) for _ in range(2))
            part = x[..., top : top + new, left : left + new]
            whole = F.interpolate(part, size=(side, side), mode="bilinear", align_corners=False)
            total = total + self.core(whole).softmax(dim=1)
        return (total / self.crops).clamp_min(1e-12).log()


@mechanisms.register("crops", help="the mean over a drawn number of random crops")
def crops(core: Core, draw: Draw) -> Defence:
    model = Crops(core.model, draw.integer("crops", 2, 6), 0.9)
    return Defence(model=model, insiders=(model,), random=True)
