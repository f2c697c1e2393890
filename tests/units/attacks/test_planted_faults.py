"""Planted faults: each row breaks one thing on purpose, and names the check that must notice it.

A check passes on the code as it is, and must fail with the fault. A fault that no check notices is a gap in the tests.
"""

import dataclasses

import numpy as np
import pytest
import torch

from hardtack.attacks import APGD, Ascent, Attack, pooled_ascent
from hardtack.attacks.autoattack import Stage
from hardtack.attacks.pool import queue as queue_module
from hardtack.attacks.pool.attack_run import AttackRun
from hardtack.attacks.pool.attempts import AttackInputs, AttemptRecord
from hardtack.attacks.pool.pool import Pool
from hardtack.attacks.pool.queue import Queue, Round
from hardtack.attacks.pool.search import PlannedAttempt, common_entries, observe
from hardtack.attacks.pool.verdicts import VerdictTable
from hardtack.attacks.pool.verifier import Verifier
from hardtack.base.runtime import Runtime
from hardtack.threats import Threat
from row_models import Rows, row_pair

CPU = Runtime(device="cpu", compile=False)
NEVER = 99


def inputs_for(model, x, y):
    return AttackInputs(x, y, torch.arange(len(y)), model(x))


def same_as_the_loop(**settings):
    """Pooled PGD breaks the images that the loop breaks, at the same step."""
    (x, y), attack = row_pair(Rows(), 400), Ascent(threat="linf:0.02", **{"steps": 4, **settings})
    loop = attack.search(Rows(), x, y, keys=torch.arange(400), verdict=True)
    record = Pool(Rows(), CPU, 400, Verifier(Rows(), CPU), every=2).run(attack, inputs_for(Rows(), x, y))
    assert record.broken.tolist() == loop.fooled.tolist()
    assert record.found_at_step.tolist() == loop.broken_at.tolist()


class Scripted(Attack):
    """Attempt k on image i claims a success at pass `table[i][k]`: the first pixel is then above one half."""

    threat, pooled = Threat("linf", 1), True

    def __init__(self, table, point=0.7):
        self.table, self.point = torch.tensor(table), point

    def attempts(self, classes):
        return [PlannedAttempt(-1, restart, 6) for restart in range(self.table.shape[1])]

    def length(self, steps):
        return steps

    def begin(self, items):
        return common_entries(items) | {"wait": self.table[items.image_keys, items.restart]}

    def advance(self, model, state):
        point = state["x"].clone()
        point[:, 0, 0, 0] = torch.where(state["t"] >= state["wait"], self.point, 0.1)
        entries = observe(state, point, torch.stack([0.5 - point[:, 0, 0, 0], point[:, 0, 0, 0] - 0.5], 1), reach=False)
        return entries | {"done": state["t"] + 1 >= 6}


class Bright(torch.nn.Module):
    """Class 1 where the first pixel is above one half."""

    def forward(self, x):
        return torch.stack([0.5 - x[:, 0, 0, 0], x[:, 0, 0, 0] - 0.5], dim=1)


class Never(Bright):
    def forward(self, x):
        return super().forward(x) * 0 + torch.tensor([1.0, 0.0])


def scripted(attack, *, verified_on=None, count=1, size=8):
    x, y = torch.zeros(count, 3, 2, 2), torch.zeros(count, dtype=torch.int64)
    verifier = Verifier(verified_on or Bright(), CPU)
    return Pool(Bright(), CPU, size, verifier, every=1).run(attack, inputs_for(Bright(), x, y))


def last_attempt_counts():
    assert scripted(Scripted([[NEVER, NEVER, 2]])).successful.tolist() == [2]


def first_success_in_order_counts():
    assert scripted(Scripted([[4, 0, NEVER]])).successful.tolist() == [0]


def only_verified_successes_count():
    record = scripted(Scripted([[2]]), verified_on=Never())
    assert not record.broken.any() and record.unverified.all()


def points_outside_the_box_do_not_count():
    attack = Scripted([[0]], point=1.5)
    attack.threat = Threat("l2", 5)
    assert not scripted(attack).broken.any()


def points_outside_the_ball_do_not_count():
    attack = Scripted([[0]])
    attack.threat = Threat("linf", "0.3")
    assert not scripted(attack).broken.any()


def the_attacks_own_limits_count():
    class Limited(Scripted):
        def allows(self, x_adv, x, model=None):
            return (x_adv == x).flatten(1).all(dim=1)

    assert not scripted(Limited([[0]])).broken.any()


def targets_are_ranked_at_the_closest_image():
    """On the clean image class 1 is the runner-up; at the closest image of the first round it is class 2."""
    targets = []

    class Turning(torch.nn.Module):
        def forward(self, x):
            level = x[:, 0, 0, 0]
            return torch.stack([1 + 0 * level, 0.5 + 0 * level, 0.2 + level, -level], dim=1)

    class Step(Scripted):
        def advance(self, model, state):
            point = state["x"].clone()
            point[:, 0, 0, 0] = 0.6
            targets.append(state["target"].tolist())
            return observe(state, point, model(point), reach=False) | {"done": state["t"] >= 0}

    rounds = [Round((PlannedAttempt(-1, 0, 1),)), Round((PlannedAttempt(0, 1, 1),), closest_first=True)]
    x, y = torch.zeros(1, 3, 2, 2), torch.zeros(1, dtype=torch.int64)
    pool = Pool(Turning(), CPU, 4, Verifier(Turning(), CPU), every=1)
    pool.run(Step([[NEVER, NEVER]]), inputs_for(Turning(), x, y), rounds)
    assert targets == [[-1], [2]]


def two_trials():
    """Image 0 is broken in both trials, image 1 only in the second, image 2 in none, image 3 only in the first."""
    x, y = torch.zeros(4, 3, 2, 2), torch.zeros(4, dtype=torch.int64)
    table, verifier = VerdictTable(inputs_for(Bright(), x, y), trials=2), Verifier(Bright(), CPU)
    for trial, plan in enumerate(([[1], [NEVER], [NEVER], [0]], [[3], [2], [NEVER], [NEVER]])):
        table.begin_trial(trial)
        stages = [Stage(Scripted([[NEVER]] * 4)), Stage(Scripted(plan))]
        AttackRun(table, stages, trial=trial).run(Bright(), Pool(Bright(), CPU, 8, verifier, every=1), verifier)
        table.finish_trial(trial, Threat("linf", 1))
    return table


def the_first_trial_gives_the_reason_and_all_trials_the_verdict():
    table = two_trials()
    columns = table.columns([["a", "b"], ["c", "d"]])
    assert columns["broken_by"].tolist() == ["b", "d", None, "b"]
    assert columns["robust"].tolist() == [False, False, True, False]
    assert columns["broken_at_step"].tolist() == [1, 2, -1, 0]
    assert columns["forwards"].tolist() == [6 + 2 + 6 + 4, 12 + 6 + 3, 24, 6 + 1 + 12]
    assert table.evidence(1)[0].tolist() == [0, 1]


def progress_counts_all_images_still_correct():
    """The second stage attacks one image of three; the other two are still correct."""
    counts = []
    x, y = torch.zeros(3, 3, 2, 2), torch.zeros(3, dtype=torch.int64)
    table, verifier = VerdictTable(inputs_for(Bright(), x, y)), Verifier(Bright(), CPU)
    table.begin_trial(0)
    table.zero_gradient[0, 0] = True
    run = AttackRun(table, [Stage(Scripted([[2], [NEVER], [NEVER]]), suspects=True)])
    pool = Pool(Bright(), CPU, 8, verifier, every=1)
    run.run(Bright(), pool, verifier, lambda progress: counts.append(progress.remaining))
    assert counts[-1] == 2 == int(table.robust.sum())


def an_interrupted_attempt_is_made_again():
    inputs = inputs_for(Bright(), torch.zeros(1, 3, 2, 2), torch.zeros(1, dtype=torch.int64))
    kept = AttemptRecord(inputs, 2)
    kept.passes[0, 0] = 6
    record = AttemptRecord(inputs, 2)
    record.restore(kept.arrays())
    pool = Pool(Bright(), CPU, 4, Verifier(Bright(), CPU), every=1)
    assert pool.run(Scripted([[NEVER, 3]]), inputs, record=record).successful.tolist() == [1]


# ---------------------------------------------------------------- the faults


def skip_the_last_step(patch):
    patch.setattr(Ascent, "length", lambda self, steps: steps)


def same_start_for_every_restart(patch):
    honest = Ascent.begin
    patch.setattr(Ascent, "begin", lambda self, items: honest(self, items._replace(restart=items.restart * 0)))


def start_by_position_in_the_batch(patch):
    honest = Ascent.begin
    moved = {"image_keys": torch.arange(5000, 9000)}
    patch.setattr(
        Ascent,
        "begin",
        lambda self, items: honest(self, items._replace(image_keys=moved["image_keys"][: len(items.y)])),
    )


def ignore_momentum(patch):
    honest = Ascent.advance

    def advance(self, model, state):
        return honest(self, model, state | {"velocity": torch.zeros_like(state["x"])})

    patch.setattr(Ascent, "advance", advance)


def report_the_step_within_the_restart(patch):
    honest = pooled_ascent._observe
    patch.setattr(
        pooled_ascent, "_observe", lambda self, state, at: honest(self, state | {"restart": state["restart"] * 0}, at)
    )


def keep_the_best_instead_of_the_first_success(patch):
    def late(self, state, at):
        entries = observe(state, state["point"], at.logits, reach=False, loss=at.value)
        return entries | {"done": state["t"] >= state["steps"]}

    patch.setattr(pooled_ascent, "_observe", late)


def fewer_steps(patch):
    patch.setattr(Ascent, "attempts", lambda self, classes: [PlannedAttempt(-1, 0, self.steps // 2)])


def drop_the_last_attempt(patch):
    honest = Queue._enter_round

    def enter(self, rows, number):
        honest(self, rows, number)
        self.waiting = [item for item in self.waiting if item.number != len(self.planned) - 1]

    patch.setattr(Queue, "_enter_round", enter)


def keep_the_success_that_came_first_in_time(patch):
    honest = AttemptRecord.add_successes

    def add(self, rows, numbers, targets, slots, state):
        if not self.broken[rows].any():
            honest(self, rows, numbers, targets, slots, state)

    patch.setattr(AttemptRecord, "add_successes", add)


def count_without_verification(patch):
    patch.setattr(Pool, "_verify", lambda self, attack, queue, slots, claimed: claimed)


def ignore_the_box(patch):
    patch.setattr(Threat, "contains", lambda self, x_adv, x: self.size(x_adv - x) <= self.radius * (1 + 1e-6))


def ignore_the_ball(patch):
    patch.setattr(
        Threat, "contains", lambda self, x_adv, x: (x_adv.flatten(1).amax(1) <= 1) & (x_adv.flatten(1).amin(1) >= 0)
    )


def ignore_the_attacks_limits(patch):
    honest = Verifier._once
    patch.setattr(
        Verifier, "_once", lambda self, x_adv, x, y, attack, target: honest(self, x_adv, x, y, _open(attack), target)
    )


def _open(attack):
    return APGD(threat=attack.threat)


def rank_targets_once(patch):
    honest = queue_module.ranking
    patch.setattr(queue_module, "ranking", lambda logits, y: honest(torch.tensor([[1.0, 0.5, 0.2, 0.0]]), y))


def let_the_last_trial_give_the_reason(patch):
    def last(self):
        broken = self.attacked & ~self.remaining
        trial = (len(broken) - 1 - broken.flip(0).int().argmax(dim=0)).where(broken.any(dim=0), -1)
        return trial, self.broken_by_stage.gather(0, trial.clamp(min=0)[None])[0]

    patch.setattr(VerdictTable, "first_breaking", last)


def forget_earlier_trials(patch):
    patch.setattr(VerdictTable, "_broken", lambda self, trials=None: (self.attacked & ~self.remaining)[-1])


def count_only_the_images_of_the_stage(patch):
    def progress(self, stage, done, record=None):
        rows = self._rows(self.stages[min(stage, len(self.stages) - 1)])
        return honest(self, stage, done, record).__class__("", stage, len(rows), 0.0)

    honest = AttackRun._progress
    patch.setattr(AttackRun, "_progress", progress)


def take_interrupted_attempts_for_finished(patch):
    honest = AttemptRecord.restore

    def restore(self, arrays):
        honest(self, arrays | {"passes": np.maximum(arrays["passes"], 0)})

    patch.setattr(AttemptRecord, "restore", restore)


PGD, RESTARTS, MOMENTUM = (
    {"relative_step": 0.3},
    {"restarts": 4, "steps": 1, "relative_step": 0.2},
    {"momentum": 1.0, "steps": 8},
)
FAULTS = [
    (skip_the_last_step, same_as_the_loop, PGD),
    (fewer_steps, same_as_the_loop, PGD),
    (same_start_for_every_restart, same_as_the_loop, RESTARTS),
    (start_by_position_in_the_batch, same_as_the_loop, RESTARTS),
    (report_the_step_within_the_restart, same_as_the_loop, RESTARTS),
    (ignore_momentum, same_as_the_loop, MOMENTUM),
    (keep_the_best_instead_of_the_first_success, same_as_the_loop, {"steps": 10}),
    (drop_the_last_attempt, last_attempt_counts, {}),
    (keep_the_success_that_came_first_in_time, first_success_in_order_counts, {}),
    (count_without_verification, only_verified_successes_count, {}),
    (count_without_verification, points_outside_the_ball_do_not_count, {}),
    (ignore_the_box, points_outside_the_box_do_not_count, {}),
    (ignore_the_ball, points_outside_the_ball_do_not_count, {}),
    (ignore_the_attacks_limits, the_attacks_own_limits_count, {}),
    (rank_targets_once, targets_are_ranked_at_the_closest_image, {}),
    (let_the_last_trial_give_the_reason, the_first_trial_gives_the_reason_and_all_trials_the_verdict, {}),
    (forget_earlier_trials, the_first_trial_gives_the_reason_and_all_trials_the_verdict, {}),
    (count_only_the_images_of_the_stage, progress_counts_all_images_still_correct, {}),
    (take_interrupted_attempts_for_finished, an_interrupted_attempt_is_made_again, {}),
]


@pytest.mark.parametrize(("fault", "check", "settings"), FAULTS, ids=lambda part: getattr(part, "__name__", ""))
def test_the_check_notices_the_fault(fault, check, settings, monkeypatch):
    check(**settings)
    fault(monkeypatch)
    with pytest.raises(AssertionError):
        check(**settings)


def test_the_seed_changes_the_starts():
    x, y = row_pair(Rows(), 8)
    attack = Ascent(threat="linf:0.1", steps=1)
    other = dataclasses.replace(attack, seed=1)
    assert not torch.equal(attack(Rows(), x, y), other(Rows(), x, y))
