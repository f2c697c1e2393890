"""Results record their seed, and NaN logits raise a flag."""

import numpy as np
import torch
from torch import nn

from hardtack.base.runtime import Runtime
from hardtack.evaluation import evaluate
from hardtack.models import wrap

X = torch.rand(24, 3, 8, 8, generator=torch.Generator().manual_seed(3))


class Linear(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(192, 4, bias=False)
        nn.init.normal_(self.head.weight, generator=torch.Generator().manual_seed(1))

    def forward(self, x):
        return self.head(x.flatten(1))


class NanOffTheImage(Linear):
    """Right on the images themselves; NaN as soon as a pixel is moved off the 8-bit grid."""

    def forward(self, x):
        off = (x * 255 - (x * 255).round()).abs().amax(dim=(1, 2, 3)) > 1e-3
        return super().forward(x).masked_fill(off[:, None], torch.nan)


class NanGradient(Linear):
    def forward(self, x):
        return super().forward(x) + 0 * torch.sqrt(x - x).sum(dim=(1, 2, 3))[:, None]


def codes(measured):
    return {flag["code"] for flag in measured.flags}


def measure(module, x=X, **settings):
    model = wrap(module, num_classes=4)
    with torch.no_grad():
        y = model(x).argmax(dim=1)
    return evaluate(model, (x, y), threat="linf:0.01", quiet=True, **settings)


def test_the_seed_of_the_runtime_changes_the_attack_and_is_recorded():
    found = {seed: measure(Linear(), runtime=Runtime(device="cpu", seed=seed), attack={"steps": 1}) for seed in (0, 7)}
    assert not np.array_equal(found[0].examples["x_adv"], found[7].examples["x_adv"])
    assert found[7].results[-1].seed == 7
    assert measure(Linear(), attack={"seed": 5}).results[-1].seed == 5


def test_nan_logits_during_the_attack_raise_a_red_flag():
    grid = (X * 255).round() / 255
    measured = measure(NanOffTheImage(), x=grid)
    assert "not_finite" in codes(measured) and measured.verdicts["not_finite"].all()
    assert measured.robust.all()  # NaN is never counted as a success either


def test_a_nan_gradient_counts_as_none():
    assert "zero_gradient" in codes(measure(NanGradient()))


def test_a_masked_gradient_is_flagged_whichever_iterate_is_kept():
    class Detached(Linear):
        def forward(self, x):
            return super().forward(x.detach())

    for keep in ("best", "last"):
        measured = measure(Detached(), attack={"keep": keep})
        assert "zero_gradient" in codes(measured)
    assert (measure(Linear(), attack={"keep": "last", "steps": 5}).verdicts["broken_at_step"] >= -1).all()


def test_an_ordinary_model_raises_no_flag():
    assert codes(measure(Linear())) == set()
