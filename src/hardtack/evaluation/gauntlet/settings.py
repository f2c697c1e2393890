"""The settings of `hardtack gauntlet`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import Field

from hardtack.base.annotations import Shown
from hardtack.base.runtime import Runtime
from hardtack.threats import Threat

Evaluators = Annotated[tuple[str, ...], Shown("list of evaluators", "hardtack list evaluators")]
Mechanisms = Annotated[tuple[str, ...], Shown("list of mechanisms", "hardtack list mechanisms")]


@dataclass(frozen=True, kw_only=True)
class GauntletConfig:
    """What is compared, on what.

    evaluators   names of evaluators, in the order of the table's columns (hardtack list evaluators)
    mechanisms   names or families of defence mechanisms (hardtack list mechanisms); null: all of them
    core         digits, the run folder of an undefended model, or a recipe, which is then trained in output
    robust       the run folder or recipe of an adversarially trained model for the same data; null: none, except for
                 digits
    recipe       settings of the recipes that are trained: recipe.data.root=PATH recipe.train.epochs=5
    threat       norm and radius under which the undefended core has no robust accuracy; null: linf:0.1 for digits
    seed         of the mechanisms' drawn parameters, and of the attacks
    n            number of test images
    output       the folder that keeps rows, truths, cores and tables
    fresh        measure again what is known already; truths are kept
    runtime      where and how precisely everything is computed (hardtack list settings runtime)
    """

    evaluators: Evaluators = ("fast", "verified")
    mechanisms: Mechanisms | None = None
    core: str = "digits"
    robust: str | None = None
    recipe: dict[str, Any] = field(default_factory=dict)
    threat: Threat | None = None
    seed: int = 0
    n: Annotated[int, Field(ge=1)] = 100
    output: str = "runs/gauntlet"
    fresh: bool = False
    runtime: Runtime = field(default_factory=Runtime)
