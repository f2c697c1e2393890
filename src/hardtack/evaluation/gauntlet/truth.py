"""The truth about a defended model: its best known robust accuracy, image by image.

Attacks that know the mechanism craft on the undefended core and on the insiders that the mechanism declares (the
defence with a straight-through gradient, with a smooth activation, one random branch of it …). Every step is verified
on the deployed model itself: inside the ball, inside the box, misclassified in fp32 with gradients off. The truth is
thus an upper bound that holds whatever the model's gradients say. Images that evaluators find and that pass the same
verification lower it further.

A random model classifies an image correctly with some probability. Its truth is the mean of that probability at the
worst image found, estimated with draws that had no part in finding it (EOT).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from hardtack.attacks import APGD, Square, get_loss, preserve_state
from hardtack.base.randomness import make_keys
from hardtack.base.runtime import Runtime
from hardtack.evaluation.gauntlet.mechanism import Core, Defence
from hardtack.threats import Threat

STEPS = 40
RESTARTS = 2
SHORTER = 0.97  # part of the attempts stay off the boundary of the ball, where some defences expect attacks
DRAWS, FRESH_DRAWS = 8, 64  # of a random model: while searching, and for the final estimate
EOT = 4  # gradients of a random insider that are averaged
BATCH = 256  # images in one pass
QUERIES = 1000  # of Square on the deployed model, for images that nothing else broke


@dataclass
class Truth:
    """Per image: the share of draws in which it is classified correctly (0 or 1 for a deterministic model).

    clean     on the clean image
    robust    on the worst image known
    x_adv     that image
    """

    clean: Tensor
    robust: Tensor
    x_adv: Tensor

    @property
    def clean_accuracy(self) -> float:
        return self.clean.mean().item()

    @property
    def robust_accuracy(self) -> float:
        return self.robust.mean().item()


@torch.no_grad()
def share_correct(model: nn.Module, x: Tensor, y: Tensor, *, draws: int = 1) -> Tensor:
    """Per image: the share of `draws` passes that classify it correctly, gradients off."""
    with Runtime(device=str(x.device)).arithmetic("fp32"):
        counts = [(_predictions(model, x) == y).float() for _ in range(draws)]
    return torch.stack(counts).mean(dim=0)


def _predictions(model: nn.Module, x: Tensor) -> Tensor:
    return torch.cat([model(part).argmax(dim=1) for part in x.split(BATCH)])


def find_truth(core: Core, defence: Defence, *, seed: int = 0, steps: int = STEPS, thorough: bool = True) -> Truth:
    """The union of the attacks of an insider, verified on the deployed model.

    `thorough`: images that the ascents leave are attacked by targeted APGD on every surrogate and by Square.
    """
    model, draws = defence.target, DRAWS if defence.random else 1
    with preserve_state(model), torch.random.fork_rng(devices=_devices(core.x)):
        torch.manual_seed(seed)
        clean = share_correct(model, core.x, core.y, draws=FRESH_DRAWS if defence.random else 1)
        truth = Truth(clean, clean.clone(), core.x.clone())
        for candidates, rows in _candidates(core, defence, truth, seed, steps, thorough and not defence.random):
            lower_truth(truth, model, core, candidates, rows=rows, draws=draws)
        if defence.random:  # the least of many noisy estimates is too low
            truth.robust = share_correct(model, truth.x_adv, core.y, draws=FRESH_DRAWS)
    return truth


def lower_truth(
    truth: Truth, model: nn.Module, core: Core, candidates: Tensor, *, rows: Tensor | None = None, draws: int = 1
) -> None:
    """Take over the candidates (one for each of `rows`) that are inside the ball and worse than what is known."""
    rows = torch.arange(len(core.x), device=core.x.device) if rows is None else rows
    x, y = core.x[rows], core.y[rows]
    share = share_correct(model, candidates, y, draws=draws)
    better = core.threat.contains(candidates, x) & (share < truth.robust[rows])
    truth.robust[rows[better]] = share[better]
    truth.x_adv[rows[better]] = candidates[better]


def _candidates(
    core: Core, defence: Defence, truth: Truth, seed: int, steps: int, thorough: bool
) -> Iterator[tuple[Tensor, Tensor]]:
    """Images to verify and their rows. The search goes on only for images that are still classified correctly."""
    surrogates = list(dict.fromkeys((*defence.insiders, core.model)))
    eot = EOT if defence.random else 1
    for attempt in range(1 if defence.random else RESTARTS):
        for loss in ("margin", "ce"):
            for number, surrogate in enumerate(surrogates):
                rows = truth.robust.nonzero().flatten()
                if not len(rows):
                    return
                key = 100 * attempt + number
                threat = core.threat if attempt == 0 else _scaled(core.threat, SHORTER)
                points = _ascent(surrogate, core.x[rows], core.y[rows], threat, loss, seed + key, steps, eot)
                for step, point in enumerate(points):
                    if not defence.random or step % 5 == 4:
                        yield point, rows
    if not thorough:
        return
    for surrogate in surrogates:
        search = APGD(threat=core.threat, loss="margin", targets=9, seed=seed)
        yield from _called(search, surrogate, core, truth)
    yield from _called(Square(threat=core.threat, steps=QUERIES, rescale=True, seed=seed), defence.target, core, truth)


def _called(attack: APGD | Square, model: nn.Module, core: Core, truth: Truth) -> Iterator[tuple[Tensor, Tensor]]:
    rows = truth.robust.nonzero().flatten()
    if len(rows):
        yield attack(model, core.x[rows], core.y[rows]), rows


def _ascent(
    surrogate: nn.Module, x: Tensor, y: Tensor, threat: Threat, loss: str, seed: int, steps: int, eot: int
) -> Iterator[Tensor]:
    """Projected gradient ascent on a surrogate that never stops early; yields every point."""
    keys = make_keys(torch.arange(len(x), device=x.device), seed)
    point = threat.random_point(x, keys)
    for step in range(steps):
        gradient = _gradient(surrogate, point, y, loss, eot)
        length = threat.radius * (1 - step / steps) + 0.01 * threat.radius
        point = threat.project(point + threat.ball.steepest_step(gradient, point, length), x)
        yield point


def _gradient(surrogate: nn.Module, point: Tensor, y: Tensor, loss: str, eot: int) -> Tensor:
    """Of the loss, summed over `eot` passes; zero where the surrogate has none."""
    objective = get_loss(loss)
    total = torch.zeros_like(point)
    with torch.enable_grad():
        leaf = point.detach().requires_grad_()
        for _ in range(eot):
            value = objective(surrogate(leaf).float(), y, None).sum()
            gradient = torch.autograd.grad(value, leaf, allow_unused=True)[0] if value.requires_grad else None
            total += 0 if gradient is None else gradient.nan_to_num()
    return total


def _scaled(threat: Threat, factor: float) -> Threat:
    return Threat(threat.norm, float(threat.eps) * factor)  # type: ignore[arg-type]


def _devices(x: Tensor) -> list[torch.device]:
    return [x.device] if x.device.type == "cuda" else []
