"""Heads: what the model does to its logits before it returns them."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hardtack.base.registry import mechanisms
from hardtack.evaluation.gauntlet.mechanism import Core, Defence, Draw


class Rounded(nn.Module):
    """Logits rounded to multiples of `unit`: the gradient is zero, and ties are frequent."""

    def __init__(self, unit: float) -> None:
        super().__init__()
        self.unit = unit

    def forward(self, logits: Tensor) -> Tensor:
        return torch.round(logits / self.unit) * self.unit


class RoundedWithGradient(nn.Module):
    """Logits rounded in value; the gradient is the one before rounding."""

    def __init__(self, unit: float) -> None:
        super().__init__()
        self.rounded = Rounded(unit)

    def forward(self, logits: Tensor) -> Tensor:
        return logits + (self.rounded(logits) - logits).detach()


@mechanisms.register("rounded_quarter", help="logits rounded to 0.25: no gradient, and ties")
def rounded_quarter(core: Core, draw: Draw) -> Defence:
    return Defence(model=nn.Sequential(core.model, Rounded(0.25)))


@mechanisms.register("rounded_straight", help="logits rounded to a drawn unit, with the gradient before rounding")
def rounded_straight(core: Core, draw: Draw) -> Defence:
    return Defence(model=nn.Sequential(core.model, RoundedWithGradient(draw.uniform("unit", 0.2, 2.0))))


@mechanisms.register("rounded", help="logits rounded to a drawn unit: no gradient, many ties")
def rounded(core: Core, draw: Draw) -> Defence:
    return Defence(model=nn.Sequential(core.model, Rounded(draw.uniform("unit", 0.1, 2.0))))


class RoundedWithSlope(nn.Module):
    """Logits rounded to 1, plus a tiny linear function of the pixels: a gradient that has nothing to do with them."""

    weight: Tensor

    def __init__(self, core: nn.Module, weight: Tensor) -> None:
        super().__init__()
        self.core = core
        self.register_buffer("weight", weight)

    def forward(self, x: Tensor) -> Tensor:
        return torch.round(self.core(x)).detach() + x.flatten(1) @ self.weight.to(x.dtype)


@mechanisms.register("rounded_sloped", help="logits rounded to 1, with a tiny random slope over the pixels")
def rounded_sloped(core: Core, draw: Draw) -> Defence:
    pixels = core.x[0].numel()
    weight = 1e-3 * draw.normal(pixels, core.classes) / pixels**0.5
    return Defence(model=RoundedWithSlope(core.model, weight))


class HardTanh(nn.Module):
    """Logits over `scale`, clipped to [−1, 1]: most gradients are zero, and large logits are equal."""

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.scale = scale

    def forward(self, logits: Tensor) -> Tensor:
        return F.hardtanh(logits / self.scale)


@mechanisms.register("hard_tanh", help="logits through a hard tanh, which few clean images' second logit saturates")
def hard_tanh(core: Core, draw: Draw) -> Defence:
    with torch.no_grad():
        second = core.model(core.train_x[:200]).topk(2, dim=1).values[:, 1]
    return Defence(model=nn.Sequential(core.model, HardTanh(float(second.quantile(0.9).clamp_min(0.1)))))


class Capped(nn.Module):
    """No logit exceeds the runner-up by more than `cap`; beyond that the gradient of the margin is zero."""

    def __init__(self, cap: float) -> None:
        super().__init__()
        self.cap = cap

    def forward(self, logits: Tensor) -> Tensor:
        top = logits.topk(2, dim=1).values
        ceiling = top[:, 1:] + self.cap
        return torch.minimum(logits, ceiling)


@mechanisms.register("capped", help="the margin over the runner-up is capped at a drawn value")
def capped(core: Core, draw: Draw) -> Defence:
    return Defence(model=nn.Sequential(core.model, Capped(draw.log_uniform("cap", 0.01, 1.0))))


class TopOne(nn.Module):
    """1 for the predicted class and 0 for the others, as logits: only the decision is shown."""

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.scale = scale

    def forward(self, logits: Tensor) -> Tensor:
        return self.scale * F.one_hot(logits.argmax(dim=1), logits.shape[1]).to(logits.dtype) + 0 * logits


@mechanisms.register("top_one", help="only the decision is shown: a drawn logit for the predicted class, 0 elsewhere")
def top_one(core: Core, draw: Draw) -> Defence:
    return Defence(model=nn.Sequential(core.model, TopOne(draw.uniform("scale", 2, 20))))


class LogProbabilities(nn.Module):
    """Logarithms of the softmax at a low temperature, no lower than `floor`."""

    def __init__(self, scale: float, floor: float) -> None:
        super().__init__()
        self.scale, self.floor = scale, floor

    def forward(self, logits: Tensor) -> Tensor:
        return (self.scale * logits).log_softmax(dim=1).clamp_min(self.floor)


@mechanisms.register("log_softmax", help="log-probabilities of sharpened logits, cut off below a drawn value")
def log_softmax(core: Core, draw: Draw) -> Defence:
    head = LogProbabilities(draw.uniform("scale", 5, 50), draw.uniform("floor", -30, -5))
    return Defence(model=nn.Sequential(core.model, head))


class Codewords(nn.Module):
    """Error-correcting output codes (Verma and Swami 2019): saturated bits, correlated with the classes' codewords.

    The bits are a fixed linear function of the core's logits, scaled and passed through tanh.
    """

    codes: Tensor

    def __init__(self, codes: Tensor, scale: float) -> None:
        super().__init__()
        self.scale = scale
        self.register_buffer("codes", codes)

    def forward(self, logits: Tensor) -> Tensor:
        codes = self.codes.to(logits.dtype)
        centred = logits - logits.mean(dim=1, keepdim=True)
        bits = torch.tanh(self.scale * (centred @ codes))
        return bits @ codes.T


@mechanisms.register("ecoc", help="error-correcting output codes with saturated bits")
def ecoc(core: Core, draw: Draw) -> Defence:
    bits = draw.integer("bits", 24, 48)
    head = Codewords(draw.signs(core.classes, bits), draw.log_uniform("scale", 1, 10))
    return Defence(model=nn.Sequential(core.model, head))
