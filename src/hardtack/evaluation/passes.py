"""How many passes of an image through the model an evaluation makes: they follow exactly from the attacks.

Of an image that no attack breaks every attempt runs to its end; one that is broken at the first check costs the least.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from hardtack.attacks import preserve_state
from hardtack.attacks.autoattack import Stage
from hardtack.attacks.pool.attack_run import counted
from hardtack.attacks.pool.queue import Round
from hardtack.attacks.pool.search import Cost
from hardtack.base.config import build
from hardtack.evaluation.settings import EvaluationConfig, gather_suite_settings
from hardtack.evaluation.suites import SuiteContext, make_suite

# passes of the official implementation for an image that no attack breaks: clean logits again at the start of every
# attack and of every target, the search, and a check at the end
OFFICIAL = {
    "clean": Cost(1, 0),
    "apgd_ce": Cost(1 + 101 + 1, 101),
    "apgd_t": Cost(1 + 9 * (1 + 101) + 1, 9 * 101),
    "fab_t": Cost(1 + 9 * (2 + 2 * 100 + 1) + 1, 9 * 100),
    "square": Cost(1 + 1 + 5000 + 1 + 1, 0),
}


@dataclass(frozen=True, kw_only=True)
class StagePlan:
    """What a stage spends on one image, without the verification of its success."""

    name: str
    attempts: str  # in words: 9 × 101
    most: Cost  # the image is not broken
    least: Cost  # the image is broken at the first check
    rounds: tuple[tuple[Round, Cost], ...] = ()  # the most that each round of a search costs
    only: str = ""  # which images it runs on, if not on all that remain correct
    cost_known: bool = True
    step: Cost = field(default_factory=lambda: Cost(1))  # one pass of the pool, for each image in it
    chain: int = 0  # passes that must follow each other, for an image that is not broken


def passes(
    stages: Sequence[Stage], classes: int, *, every: int = 1, shape: tuple[int, ...] = (3, 8, 8)
) -> list[StagePlan]:
    """The passes of one image through the model, stage by stage. The pool checks every `every` passes."""
    return [
        _pooled(stage, classes, every) if stage.attack.pooled else _called(stage, classes, shape) for stage in stages
    ]


def _pooled(stage: Stage, classes: int, every: int) -> StagePlan:
    attack = stage.attack
    rounds = stage.rounds_for(classes)
    lengths = [[attack.length(attempt.steps) for attempt in part.attempts] for part in rounds]
    each = tuple(
        (part, _sum(attack.attempt_cost(attack.length(a.steps), a.steps, classes) for a in part.attempts))
        for part in rounds
    )
    first = rounds[0].attempts[0].steps
    words = [
        " + ".join(f"{own.count(length)} × {length}" for length in sorted(set(own)))
        + (" if near the boundary" if part.near is not None else "")
        for part, own in zip(rounds, lengths, strict=True)
    ]
    return StagePlan(
        name=stage.name, attempts=" + ".join(words), most=_sum(cost for _, cost in each),
        least=attack.attempt_cost(min(every, lengths[0][0]), first, classes), rounds=each, only=_only(stage),
        step=attack.cost(classes), chain=sum(map(max, lengths)),
    )  # fmt: skip


def _sum(costs: Iterable[Cost]) -> Cost:
    return functools.reduce(Cost.plus, costs, Cost())


def _called(stage: Stage, classes: int, shape: tuple[int, ...]) -> StagePlan:
    """A batch attack; its passes are counted on a small linear model where it does not state them itself."""
    attack, pixels = stage.attack, torch.Size(shape).numel()
    attempts = f"{attack.restarts} × {attack.steps or '?'} steps"
    if (stated := attack.batch_cost(classes, shape)) is not None:
        short = attack.shortened(1) if attack.leaves_when_fooled else None
        least = (short or attack).batch_cost(classes, shape) or stated
        return StagePlan(name=stage.name, attempts=attempts, most=stated, least=least, only=_only(stage))
    model = nn.Sequential(nn.Flatten(), nn.utils.skip_init(nn.Linear, pixels, classes))
    for parameter in model.parameters():
        parameter.data = torch.arange(parameter.numel()).sin().reshape(parameter.shape)
    x = torch.full((1, *shape), 0.5)
    try:
        with preserve_state(model), counted(model) as spent:
            attack.search(model, x, model(x).argmax(dim=1), verdict=True)
        cost, cost_known = Cost(spent[0] - 1, spent[1]), True
    except Exception:  # the attack does not run on the linear model: its cost is not known
        cost, cost_known = Cost(), False
    return StagePlan(
        name=stage.name, attempts=attempts, most=cost, least=cost, only=_only(stage), cost_known=cost_known
    )


def _only(stage: Stage) -> str:
    return "zero gradients only" if stage.suspects else "near the boundary, in fp32" if stage.near is not None else ""


def passes_of_settings(settings: Mapping[str, Any], classes: int, shape: tuple[int, ...] = (3, 32, 32)) -> int:
    """Passes of one image that no attack breaks, forward and backward together, from an evaluation's settings alone."""
    config: EvaluationConfig = build(EvaluationConfig, gather_suite_settings(dict(settings)))
    suite, seed = make_suite(config), 0
    total = 1
    for trial in suite.threat_stages(config, seed):
        for stage in passes(trial.stages, classes, shape=shape):
            total += 1 + stage.most.forwards + stage.most.backwards if not stage.only else 0
    model = nn.Sequential(nn.Flatten(), nn.utils.skip_init(nn.Linear, torch.Size(shape).numel(), classes))
    views = suite.views(config, SuiteContext(model, shape, seed))
    return total + sum(view.cost.forwards + view.cost.backwards for view in views)
