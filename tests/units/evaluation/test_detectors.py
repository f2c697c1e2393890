"""Detectors: closed-form answers on linear models, and a flag for every kind of false gradient."""

import pytest
import torch
from torch import nn

from hardtack.base.runtime import Runtime
from hardtack.evaluation.detectors import Findings, examine
from hardtack.threats import Threat

LINF = Threat.parse("linf:0.1")


class Linear(nn.Module):
    def __init__(self):
        super().__init__()
        weight = torch.randn(1, 3 * 8 * 8, generator=torch.Generator().manual_seed(3))
        self.weight = nn.Parameter(torch.cat([weight, -weight]))

    def forward(self, x):
        return (x.flatten(1) - 0.5) @ self.weight.T


class Replaced(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, change):
        ctx.change = change
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return ctx.change(gradient), None


class Changed(nn.Module):
    """The linear model with another gradient, or with another function of its input before it."""

    def __init__(self, *, gradient=None, before=None):
        super().__init__()
        self.core, self.gradient, self.before = Linear(), gradient, before

    def forward(self, x):
        x = x if self.before is None else self.before(x)
        return self.core(x if self.gradient is None else Replaced.apply(x, self.gradient))


def pixels(count=16):
    """Away from 0 and 1, so that no step is cut off, and away from the decision boundary."""
    noise = torch.rand(count, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    sides = torch.where(torch.arange(count) % 2 == 0, 1.0, -1.0).reshape(-1, 1, 1, 1)
    return 0.45 + 0.1 * noise + 0.06 * sides * Linear().weight[0].detach().sign().reshape(1, 3, 8, 8)


def look(model, threat=LINF):
    x = pixels()
    y = model(x).argmax(dim=1).detach()
    return examine(model, x, y, torch.arange(len(x)), threat=threat, runtime=Runtime())


@pytest.mark.parametrize("threat", ["linf:0.02", "l2:0.2", "l1:2"])
def test_a_linear_model_changes_exactly_as_its_gradient_predicts(threat):
    found = look(Linear(), Threat.parse(threat))
    assert found.agreement > 0.9999 and found.descent == 1 and found.unconstrained == 1 and found.stability == 1
    assert found.flags(Threat.parse(threat)) == []


SIGNS = torch.where(torch.rand(3, 8, 8, generator=torch.Generator().manual_seed(1)) < 0.5, -1.0, 1.0)
FALSE = {
    "reversed": {"gradient": lambda g: -g},
    "zero": {"gradient": lambda g: 0 * g},
    "not a number": {"gradient": lambda g: g * torch.nan},
    "scrambled": {"gradient": lambda g: g * SIGNS},
    "most pixels masked": {"gradient": lambda g: g * (torch.arange(64).view(8, 8) % 16 == 0)},
    "ripple": {"before": lambda x: x + 0.01 * torch.sin(700 * x)},
    "detached": {"before": lambda x: x.detach()},
    "staircase": {"before": lambda x: (x * 7).round() / 7 + 0.001 * SIGNS * x},
}


@pytest.mark.parametrize("kind", FALSE)
def test_a_false_gradient_raises_a_red_flag(kind):
    flags = look(Changed(**FALSE[kind])).flags(LINF)
    assert "gradient_mismatch" in [flag["code"] for flag in flags] and {flag["level"] for flag in flags} == {"red"}
    assert "linf:0.1" in flags[0]["message"] and "docs/trust.md" in flags[0]["message"]


def test_the_opposite_gradient_has_the_opposite_agreement():
    honest, opposite = look(Linear()), look(Changed(**FALSE["reversed"]))
    assert honest.agreement > 0.9 and opposite.agreement < -0.9 and opposite.unconstrained < 0.2


def test_a_gradient_of_another_size_does_not_agree():
    """The direction is right, and yet the loss does not move as predicted: a steep head, or a tiny slope."""
    for factor in (1e-3, 30.0):
        assert look(Changed(gradient=lambda g, f=factor: f * g)).agreement < 0.1


def test_an_image_that_random_points_misclassify_is_unstable():
    threat = Threat.parse("linf:0.3")

    class Band(nn.Module):
        """The label 0 only very near to one of the clean images."""

        def forward(self, x):
            away = torch.cdist(x.flatten(1), pixels().flatten(1), p=1).amin(dim=1) / x[0].numel()
            return torch.stack([torch.full_like(away, 0.01), away], dim=1)

    found = examine(
        Band(), pixels(), torch.zeros(16, dtype=torch.int64), torch.arange(16), threat=threat, runtime=Runtime()
    )
    assert found.stability == 0
    assert "unstable_predictions" in [flag["code"] for flag in found.flags(threat)]


def test_a_constant_model_is_not_blamed_because_nothing_breaks_it():
    """Of a model that gives every image the same class, its gradient is no evidence."""

    class Constant(nn.Module):
        def forward(self, x):
            return torch.stack([x.mean(dim=(1, 2, 3)) + 5, x.mean(dim=(1, 2, 3))], dim=1)

    found = examine(
        Constant(), pixels(), torch.zeros(16, dtype=torch.int64), torch.arange(16), threat=LINF, runtime=Runtime()
    )
    assert found.unconstrained == 1
    assert "unconstrained_failure" not in [flag["code"] for flag in found.flags(LINF)]


@pytest.mark.parametrize("name", ["agreement", "descent", "unconstrained", "stability"])
def test_each_finding_has_its_own_flag(name):
    honest = {"agreement": 0.9, "descent": 1.0, "unconstrained": 1.0, "stability": 1.0}
    assert Findings(images=8, **honest).flags(LINF) == []
    assert len(Findings(images=8, **{**honest, name: 0.1}).flags(LINF)) == 1


@pytest.mark.parametrize("size", [1, 5, 8])
def test_the_findings_do_not_depend_on_the_batch_size(size):
    model, x = Changed(**FALSE["ripple"]), pixels()
    y, keys = model(x).argmax(dim=1).detach(), torch.arange(16)
    parts, whole = (examine(model, x, y, keys, threat=LINF, runtime=Runtime(), batch_size=n) for n in (size, 16))
    assert parts.agreement == pytest.approx(whole.agreement, abs=1e-4) and parts.stability == whole.stability
    assert parts.descent == whole.descent and parts.unconstrained == whole.unconstrained


def test_too_little_memory_makes_the_batches_smaller():
    class Small(Linear):
        def forward(self, x):
            if len(x) > 5:
                raise torch.OutOfMemoryError("CUDA out of memory (not really)")
            return super().forward(x)

    x = pixels()
    y = Linear()(x).argmax(dim=1).detach()
    found = examine(Small(), x, y, torch.arange(16), threat=LINF, runtime=Runtime())
    assert found.agreement == pytest.approx(look(Linear()).agreement, abs=1e-5)
