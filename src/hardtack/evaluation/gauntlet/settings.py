"""The settings of `hardtack gauntlet`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import Field

from hardtack.base.runtime import Runtime
from hardtack.threats import Threat


@dataclass(frozen=True, kw_only=True)
class GauntletConfig:
    """What is compared, on what.

    evaluators   names, in the order of the table's columns
    mechanisms   names or families of defence mechanisms (None: all)
    core         digits, the run folder of an undefended model, or a recipe, which is then trained in `output`
    robust       the run folder or recipe of an adversarially trained model for the same data
    recipe       settings of the recipes that are trained: recipe.data.root=PATH recipe.train.epochs=5
    threat       one under which the undefended core has no robust accuracy (None: linf:0.1 for digits)
    seed         of the mechanisms' drawn parameters, and of the attacks
    n            test images
    output       the folder that keeps rows, truths, cores and tables
    fresh        measure again what is known already; truths are kept
    """

    evaluators: tuple[str, ...] = ("fast", "verified")
    mechanisms: tuple[str, ...] | None = None
    core: str = "digits"
    robust: str | None = None
    recipe: dict[str, Any] = field(default_factory=dict)
    threat: Threat | None = None
    seed: int = 0
    n: Annotated[int, Field(ge=1)] = 100
    output: str = "runs/gauntlet"
    fresh: bool = False
    runtime: Runtime = field(default_factory=Runtime)
