"""Honest controls: models that hide nothing. A red flag on one of them is a false alarm."""

from __future__ import annotations

from torch import Tensor, nn

from hardtack.base.registry import mechanisms
from hardtack.evaluation.gauntlet.fitted import FittedNet
from hardtack.evaluation.gauntlet.mechanism import Core, Defence, Draw


def _honest(model: nn.Module) -> Defence:
    return Defence(model=model, insiders=(model,), honest=True)


@mechanisms.register("undefended", help="the core itself")
def undefended(core: Core, draw: Draw) -> Defence:
    return Defence(model=core.model, insiders=(core.model,), honest=True, same_values=True)


@mechanisms.register("adversarial", help="the adversarially trained core itself")
def adversarial(core: Core, draw: Draw) -> Defence:
    return _honest(core.robust_model())


@mechanisms.register("relu_net", help="a fitted network with ReLU and average pooling")
def relu_net(core: Core, draw: Draw) -> Defence:
    return _honest(FittedNet(core, draw, activation=nn.ReLU()))


@mechanisms.register("gelu_net", help="a fitted network with GELU")
def gelu_net(core: Core, draw: Draw) -> Defence:
    return _honest(FittedNet(core, draw, activation=nn.GELU()))


@mechanisms.register("tanh_net", help="a fitted network with tanh")
def tanh_net(core: Core, draw: Draw) -> Defence:
    return _honest(FittedNet(core, draw, activation=nn.Tanh()))


@mechanisms.register("max_pool_net", help="a fitted network with ReLU and max-pooling")
def max_pool_net(core: Core, draw: Draw) -> Defence:
    return _honest(FittedNet(core, draw, activation=nn.ReLU(), pool=nn.AdaptiveMaxPool2d(4)))


@mechanisms.register("batch_norm_net", help="a fitted network with batch norm, in evaluation mode")
def batch_norm_net(core: Core, draw: Draw) -> Defence:
    width = 64
    return _honest(FittedNet(core, draw, activation=nn.ReLU(), norm=nn.BatchNorm2d(width), width=width))


class MeanProbability(nn.Module):
    """The logarithm of the members' mean probability."""

    def __init__(self, *members: nn.Module) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)

    def forward(self, x: Tensor) -> Tensor:
        total = sum(member(x).softmax(dim=1) for member in self.members)
        return (total / len(self.members)).clamp_min(1e-12).log()


@mechanisms.register("ensemble", help="the mean probability of the core and a fitted network")
def ensemble(core: Core, draw: Draw) -> Defence:
    return _honest(MeanProbability(core.model, FittedNet(core, draw, activation=nn.ReLU())))
