"""Honest controls: models that hide nothing. A red flag on one of them is a false alarm."""

from __future__ import annotations

from torch import nn

from hardtack.base.registry import mechanisms
from hardtack.evaluation.gauntlet.mechanism import Core, Defence, Draw


@mechanisms.register("undefended", help="the core itself")
def undefended(core: Core, draw: Draw) -> Defence:
    return Defence(model=core.model, insiders=(core.model,), honest=True, same_values=True)


@mechanisms.register("adversarial", help="the adversarially trained core itself")
def adversarial(core: Core, draw: Draw) -> Defence:
    model: nn.Module = core.robust_model()
    return Defence(model=model, insiders=(model,), honest=True)
