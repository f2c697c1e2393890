"""Every adversarial objective as one graph, and its attack step too: the same numbers as without."""

import pytest
import torch
from torch import nn

from hardtack.attacks import ascent_step
from hardtack.base.config import choose
from hardtack.base.registry import objectives
from tiny_runs import Linear, images, labels

PGD = [{"name": "pgd", "threat": threat, "steps": 2} for threat in ("linf:0.1", "l2:1", "l1:6")]
EVERY = {
    "adversarial": {"attack": PGD[0]},
    "mixed": {"name": "adversarial", "attack": PGD[0], "clean_weight": 0.5},
    "separate": {"name": "trades", "attack": PGD[0], "separate_statistics": "clean"},
    "trades": {"attack": PGD[0]},
    "alp": {"attack": PGD[0]},
    "mart": {"attack": PGD[0]},
    "free": {},
    "max": {"name": "trades", "attacks": PGD, "combine": "max"},
    "average": {"name": "mart", "attacks": PGD, "combine": "average"},
    "random": {"name": "adversarial", "attacks": PGD, "combine": "random"},
}


class Normed(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.linear = nn.BatchNorm2d(3), Linear()

    def forward(self, x):
        return self.linear(self.norm(x))


class Eager:
    """A runtime that compiles, without a compiler's minutes."""

    compile, captures = True, False

    def compiled(self, function, **options):
        return torch.compile(function, backend="eager", **options)


@pytest.fixture(autouse=True)
def forget():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.mark.parametrize("words", EVERY.items(), ids=lambda item: item[0])
def test_one_graph_gives_the_same_loss_and_gradient(words):
    config = choose(objectives, {"name": words[0], **words[1]})
    x, y, found = images(), labels(), []
    for compiled in (False, True):
        objective = config.build(Normed().train())
        if compiled:
            objective.accelerate(Eager())
            objective.compile(backend="eager", fullgraph=True, dynamic=False)
        for _ in range(2):
            objective.zero_grad()
            loss = objective(x, y, **objective.prepare(x, y, epoch=1.0))["loss"]
            loss.backward()
            objective.finish_step()
        gradient = objective.model.linear.head.weight.grad.clone()
        found.append((loss.item(), gradient, dict(objective.named_buffers())))
    (plain, slow, before), (fast, quick, after) = found
    assert fast == pytest.approx(plain, rel=1e-5) and torch.allclose(quick, slow, atol=1e-6)
    for name, buffer in before.items():
        assert torch.allclose(after[name].float(), buffer.float(), atol=1e-6), name


def test_the_step_is_what_is_compiled():
    """Against the table above passing because nothing was compiled at all."""
    seen = []

    class Recording(Eager):
        def compiled(self, function, **options):
            seen.append((function, options))
            return super().compiled(function, **options)

    objective = choose(objectives, {"name": "adversarial", "attacks": PGD, "combine": "random"}).build(Linear())
    objective.adversary.accelerate(Recording())
    assert seen == [(ascent_step, {"fullgraph": True, "dynamic": False})]
