"""The pool: whatever the slots, the order, the claims and the interruptions, every image gets its own verdict.

A scripted search succeeds exactly when a table says so, so that what must come out can be written down; APGD, FAB
and Square on a small network then show that real searches inherit it. The network sums row by row: its numbers do
not depend on the batch they are computed in, and equal means equal to the last bit.
"""

import dataclasses
import math

import numpy as np
import pytest
import torch
from torch import nn

from hardtack.attacks import APGD, FAB, Attack, Square
from hardtack.attacks.autoattack import fast
from hardtack.attacks.pool.attempts import AttackInputs, AttemptRecord
from hardtack.attacks.pool.pool import Pool
from hardtack.attacks.pool.queue import Round
from hardtack.attacks.pool.search import Cost, PlannedAttempt, common_entries, observe, success_margin
from hardtack.attacks.pool.verifier import Verifier
from hardtack.attacks.targets import ranking
from hardtack.base.errors import UserError
from hardtack.base.runtime import Runtime
from hardtack.threats import Threat
from row_models import Rows, row_pair

CPU = Runtime(device="cpu", compile=False)
SIZES = (1, 3, 7, 64)
NEVER = 10_000


# ---------------------------------------------------------------- a search that does what a table says


class Pixel(nn.Module):
    """Right while the first pixel is below a half. The second pixel only says which image this is."""

    def __init__(self):
        super().__init__()
        self.rows = 0

    def forward(self, x):
        self.rows += len(x)
        level = x[:, 0, 0, 0]
        return torch.stack([0.5 - level, level - 0.5, -torch.ones_like(level)], dim=1)


class Scripted(Attack):
    """Attempt k of image i succeeds at pass `table[i, k]`, with an image that tells which attempt made it."""

    threat = Threat("linf", 1)

    def __init__(self, table, length=12, ends=None):
        self.table, self.span, self.ends = torch.as_tensor(table), length, ends
        self.begun = []  # (image, try), in the order of their seats

    def attempts(self, classes):
        return [PlannedAttempt(-1, restart, self.span) for restart in range(self.table.shape[1])]

    def length(self, steps):
        return steps

    def cost(self, classes):
        return Cost(1, 0)

    def begin(self, items):
        image = (items.x[:, 0, 0, 1] * 255).round().long()
        self.begun += list(zip(image.tolist(), items.restart.tolist(), strict=True))
        return common_entries(items) | {"wait": self.table[image, items.restart], "attempt": items.restart}

    def advance(self, model, state):
        point = state["x"].clone()
        there = state["t"] >= state["wait"]
        point[:, 0, 0, 0] = torch.where(there, 0.6 + 0.01 * state["attempt"], 0.1 + 0.001 * state["t"])
        entries = observe(state, point, model(point), reach=False)
        over = state["t"] + 1 >= (self.span if self.ends is None else self.ends)
        return entries | {"done": over | state["done"]}


def scripted_images(count):
    x = torch.zeros(count, 3, 2, 2)
    x[:, 0, 0, 1] = torch.arange(count) / 255
    y = torch.zeros(count, dtype=torch.int64)
    return AttackInputs(x, y, torch.arange(count), Pixel()(x))


def pool(model, size, every=2, verifier=None, **settings):
    return Pool(model, CPU, size, verifier or Verifier(model, CPU), every=every, **settings)


def expected(table, length, every):
    """(try, step, passes) of each image, by hand."""
    found = []
    for row in np.asarray(table):
        passes = 0
        for number, wait in enumerate(row):
            if wait < length:
                passes += min(math.ceil((wait + 1) / every) * every, length)
                found.append((number, wait, passes))
                break
            passes += length
        else:
            found.append((-1, -1, passes))
    return found


def random_table(count=25, tries=4, seed=0):
    generator = np.random.default_rng(seed)
    table = generator.integers(0, 12, (count, tries))
    return np.where(generator.random(table.shape) < 0.7, NEVER, table)


def outcome(attempts):
    return list(
        zip(
            attempts.successful.tolist(), attempts.found_at_step.tolist(), attempts.total_passes().tolist(), strict=True
        )
    )


@pytest.mark.parametrize("every", [1, 5])
@pytest.mark.parametrize("size", SIZES)
def test_each_image_gets_what_its_own_row_of_the_table_says(size, every):
    table = random_table()
    attempts = pool(Pixel(), size, every).run(Scripted(table), scripted_images(25))
    assert outcome(attempts) == expected(table, 12, every)
    tries = np.where(attempts.successful >= 0, 0.6 + 0.01 * attempts.successful, 0.111)
    assert attempts.x_adv[:, 0, 0, 0].numpy() == pytest.approx(tries, abs=1e-6), "of a survivor, the closest it came"
    assert (attempts.successful == -1).any() and len(np.unique(attempts.successful)) == 5, (
        "the table must have every case"
    )


@pytest.mark.parametrize("size", SIZES)
def test_the_first_success_in_order_counts_whichever_comes_first(size):
    """Try 0 fails slowly, try 1 succeeds late, try 2 fails, try 3 succeeds at once."""
    table = np.array([[NEVER, 9, NEVER, 0], [NEVER, NEVER, 11, 0], [10, 1, 0, 0], [NEVER, NEVER, NEVER, 3]])
    attempts = pool(Pixel(), size, every=1).run(Scripted(table), scripted_images(4))
    assert attempts.successful.tolist() == [1, 2, 0, 3] and attempts.found_at_step.tolist() == [9, 11, 10, 3]
    assert attempts.x_adv[:, 0, 0, 0].tolist() == pytest.approx([0.61, 0.62, 0.60, 0.63])
    assert attempts.total_passes().tolist() == [12 + 10, 24 + 12, 11, 36 + 4]


def test_later_tries_are_not_made_once_an_earlier_one_succeeded():
    search = Scripted(np.zeros((30, 6), dtype=int))
    model = Pixel()
    attempts = pool(model, 30, every=1).run(search, scripted_images(30))
    assert search.begun == [(image, 0) for image in range(30)]
    assert model.rows == 30 + 30, "one pass, one confirmation"
    assert (attempts.passes[:, 1:] == -1).all()


def test_tries_side_by_side_stop_when_an_earlier_one_succeeds():
    """One image in 64 slots: eight tries run together, the second succeeds, and those after it are cleared away."""
    table = np.full((1, 8), NEVER)
    table[0, 1] = 3
    model = Pixel()
    p = pool(model, 64, every=1)
    attempts = p.run(Scripted(table), scripted_images(1))
    assert outcome(attempts) == [(1, 3, 12 + 4)]
    assert (attempts.passes[0] == [12, 4, -1, -1, -1, -1, -1, -1]).all()
    assert p.spent.forwards == 8 * 4 + 8, "eight tries for four passes, then only the first, which may still win"


@pytest.mark.parametrize("size", [7, 16])
def test_slots_are_refilled(size):
    """Items of very different lengths: in batches that wait for their slowest image half of the slots would idle."""
    generator = np.random.default_rng(1)
    table = np.where(generator.random((200, 1)) < 0.5, 0, generator.integers(0, 40, (200, 1)))
    p = pool(Pixel(), size, every=1)
    search = Scripted(table, length=40)
    p.run(search, scripted_images(200))
    assert p.spent.forwards == sum(passes for _, _, passes in expected(table, 40, 1))
    assert p.spent.forwards / p.slot_passes >= 0.8
    waiting = [table[start : start + size].max() + 1 for start in range(0, 200, size)]
    assert p.spent.forwards / (np.array(waiting).sum() * size) < 0.8, "a pool without refilling must fail this test"


def test_every_image_meets_its_first_try_before_any_meets_its_second():
    search = Scripted(np.full((20, 3), NEVER), length=4)
    pool(Pixel(), 6).run(search, scripted_images(20))
    assert [number for _, number in search.begun] == sorted(number for _, number in search.begun)
    assert len(search.begun) == 60


@pytest.mark.parametrize("size", SIZES)
def test_a_search_that_says_it_is_done_ends_before_its_length(size):
    table = np.full((9, 2), NEVER)
    p = pool(Pixel(), size, every=2)
    attempts = p.run(Scripted(table, length=1000, ends=5), scripted_images(9))
    assert (attempts.passes == 6).all() and p.spent.forwards == 9 * 2 * 6, "seen at the next look"


# ---------------------------------------------------------------- claims


class Biased(nn.Module):
    """What a search in low precision might see: the truth, moved a little in favour of the wrong class."""

    def __init__(self, model, bias):
        super().__init__()
        self.model, self.bias = model, bias

    def forward(self, x):
        return self.model(x) + self.bias


class Climbing(Scripted):
    """The first pixel rises by 0.05 a pass from 0.1 to 0.7 (or to a lower `top`), so that it is wrong from 0.5 on."""

    def __init__(self, count, top=0.7, length=16):
        super().__init__(np.zeros((count, 1), dtype=int), length)
        self.top = torch.as_tensor(top).expand(count)

    def advance(self, model, state):
        point = state["x"].clone()
        image = (point[:, 0, 0, 1] * 255).round().long()
        point[:, 0, 0, 0] = torch.minimum(0.1 + 0.05 * state["t"], self.top[image])
        entries = observe(state, point, model(point), reach=False)
        return entries | {"done": state["t"] + 1 >= self.span}


@pytest.mark.parametrize("size", SIZES)
def test_a_claim_that_the_judge_does_not_share_lets_the_search_go_on(size):
    """The search sees a success from 0.3 on, the verifier from 0.5 on; half of the images never get that far."""
    model, top = Pixel(), torch.where(torch.arange(8) % 2 == 0, 0.7, 0.45)
    seen = Biased(model, torch.tensor([0.0, 0.4, 0.0]))
    attempts = pool(seen, size, every=1, verifier=Verifier(model, CPU)).run(Climbing(8, top), scripted_images(8))
    assert attempts.broken.tolist() == [True, False] * 4
    assert (attempts.found_at_step[::2] == 9).all() and (attempts.x_adv[::2, 0, 0, 0] > 0.5).all()
    assert attempts.unverified.all()
    assert (model(attempts.x_adv).argmax(dim=1).bool().numpy() == attempts.broken).all(), "no verdict is false"


def test_a_claim_outside_the_ball_is_refused():
    search = Climbing(4)
    search.threat = Threat("linf", "0.3")
    attempts = pool(Pixel(), 4, every=1).run(search, scripted_images(4))
    assert not attempts.broken.any() and attempts.unverified.all()


class Faulty(Pixel):
    """NaN (or infinite) as soon as the first pixel passes 0.3."""

    def __init__(self, value):
        super().__init__()
        self.value = value

    def forward(self, x):
        return torch.where(x[:, :1, 0, 0] > 0.3, self.value, super().forward(x))


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_logits_that_are_not_numbers_never_count(value):
    attempts = pool(Faulty(value), 3).run(Climbing(6), scripted_images(6))
    assert not attempts.broken.any() and attempts.not_finite.all()
    assert (attempts.x_adv[:, 0, 0, 0] <= 0.3 + 1e-6).all()


def test_a_judge_that_answers_nan_confirms_nothing():
    p = pool(Pixel(), 3, verifier=Verifier(Faulty(torch.nan), CPU))
    assert not p.run(Climbing(6), scripted_images(6)).broken.any()


# ---------------------------------------------------------------- real searches, row by row


def row_images(model, count=24):
    x, y = row_pair(model, count)
    return AttackInputs(x, y, torch.arange(count) + 100, model(x))


SEARCHES = {
    "apgd_t": APGD(threat="linf:0.03", loss="dlr", targets=3, steps=8),
    "apgd_l2": APGD(threat="l2:0.12", loss="ce", restarts=3, steps=8),
    "apgd_l1": APGD(threat="l1:0.6", loss="margin", restarts=2, steps=10, widened=True),
    "fab_t": FAB(threat="linf:0.03", targets=3, steps=6),
    "fab": FAB(threat="l2:0.12", restarts=2, steps=6),
    "square": Square(threat="linf:0.03", steps=25, restarts=2),
}
ROUNDS = [
    Round((PlannedAttempt(-1, 0, 6),)),
    Round(tuple(PlannedAttempt(rank, 1, 6) for rank in range(3)), closest_first=True),
    Round(tuple(PlannedAttempt(rank, 2, 12) for rank in (-1, 0, 1)), near=0.5, closest_first=True),
]
IN_ROUNDS = APGD(threat="linf:0.03", loss="margin", schedule="cosine", steps=12, plans=(6, 12))


def run(name, size, images, model=None, every=2, **settings):
    attack, rounds = (IN_ROUNDS, ROUNDS) if name == "rounds" else (SEARCHES[name], None)
    return pool(model or Rows(), size, every).run(attack, images, rounds, **settings)


def same(a, b, rows=slice(None)):
    for name in ("successful", "found_at_step", "target"):
        assert (getattr(a, name)[rows] == getattr(b, name)).all(), name
    assert (a.total_passes()[rows] == b.total_passes()).all()
    for name in ("x_adv", "margin", "logits"):
        assert torch.equal(getattr(a, name)[rows], getattr(b, name)), name


@pytest.mark.parametrize("name", [*SEARCHES, "rounds"])
def test_slots_do_not_show_in_the_result(name):
    images = row_images(Rows())
    reference = run(name, 24, images)
    assert 0 < reference.broken.sum() < 24, "a test that breaks nothing or everything tells nothing"
    for size in (1, 3, 7, 64) if name == "rounds" else (3, 64):
        same(reference, run(name, size, images))


@pytest.mark.parametrize("name", [*SEARCHES, "rounds"])
def test_nor_does_the_order_of_the_images(name):
    images = row_images(Rows())
    order = torch.randperm(24, generator=torch.Generator().manual_seed(0))
    same(run(name, 7, images), run(name, 7, images.of(order)), order.numpy())


@pytest.mark.parametrize("size", [1, 24, 64])
def test_what_a_survivor_showed_does_not_depend_on_the_slots(size):
    """Signs of trouble decide who meets Square: of the images that stand they are the same whatever ran beside them."""
    images = row_images(Rows(rough=0.3), count=12)
    one, other = (run("apgd_l2", s, images, Rows(rough=0.3)) for s in (5, size))
    assert (~one.broken).sum() > 3
    stand = torch.as_tensor(~one.broken)
    for name in ("first_loss", "top_loss", "zero_gradient", "not_finite"):
        assert torch.equal(getattr(one, name)[stand], getattr(other, name)[stand]), name
    assert (one.top_loss > one.first_loss).all()


class Half(Pixel):
    """Try 0 has a loss that rises, try 1 one that stands still: together the image was not flat."""


@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize("which", [0, 1])
def test_one_try_whose_loss_rose_is_enough(size, which):
    class Uneven(Scripted):
        def advance(self, model, state):
            loss = torch.where(state["attempt"] == which, state["t"].float(), 1.0)
            entries = observe(state, state["x"], model(state["x"]), reach=False, loss=loss)
            return entries | {"done": state["t"] + 1 >= self.span}

    attempts = pool(Half(), size, every=1).run(Uneven(np.full((1, 2), NEVER)), scripted_images(1))
    assert (attempts.top_loss > attempts.first_loss).all()


# ---------------------------------------------------------------- rounds


def test_only_near_images_enter_a_round_for_near_images(monkeypatch):
    table = np.full((12, 3), NEVER)
    table[::3, 1] = 2
    search = Scripted(table, length=4)
    seen = []

    def is_near(record, images, rows, share):
        seen.append((sorted(rows.tolist()), share))
        return rows % 2 == 0

    monkeypatch.setattr(AttemptRecord, "is_near", is_near)
    rounds = [
        Round((PlannedAttempt(-1, 0, 4),)),
        Round((PlannedAttempt(-1, 1, 4),), near=0.4),
        Round((PlannedAttempt(-1, 2, 4),)),
    ]
    attempts = pool(Pixel(), 12).run(search, scripted_images(12), rounds)
    assert seen == [(list(range(12)), 0.4)]
    assert sorted(image for image, number in search.begun if number == 1) == [0, 2, 4, 6, 8, 10]
    assert attempts.broken.nonzero()[0].tolist() == [0, 6], "image 3 and 9 never came to the try that breaks them"
    assert sorted(image for image, number in search.begun if number == 2) == [2, 4, 8, 10], "nor to any after it"


def test_near_counts_what_is_left_of_the_clean_margin():
    images = scripted_images(4)  # clean margin 1 each
    attempts = AttemptRecord(images, 1)
    attempts.margin = torch.tensor([-0.2, -0.3, -0.9, -torch.inf])
    assert attempts.is_near(images, np.arange(4), 0.25).tolist() == [True, False, False, False]
    assert attempts.is_near(images, np.array([1, 2]), 0.3).tolist() == [True, False]


def test_targets_are_ranked_at_the_closest_point():
    """The clean image likes class 1 best; where the first try came closest, class 2 is ahead."""

    class Turning(nn.Module):
        def forward(self, x):
            level = x[:, 0, 0, 0]
            return torch.stack([1 + 0 * level, 0.5 + 0 * level, 0.2 + level, -level], dim=1)

    class Step(Scripted):
        def advance(self, model, state):
            point = state["x"].clone()
            point[:, 0, 0, 0] = 0.6
            targets.append(state["target"].tolist())
            return observe(state, point, model(point), reach=False) | {"done": state["t"] + 1 >= self.span}

    x = torch.zeros(2, 3, 2, 2)
    images = AttackInputs(x, torch.zeros(2, dtype=torch.int64), torch.arange(2), Turning()(x))
    for closest, order in ((True, [2, 1, 3]), (False, [1, 2, 3])):
        targets = []
        second = Round(tuple(PlannedAttempt(rank, 1, 1) for rank in range(3)), closest_first=closest)
        search = Step(np.full((2, 3), NEVER), length=1)
        pool(Turning(), 2, every=1).run(search, images, [Round((PlannedAttempt(-1, 0, 1),)), second])
        assert targets == [[-1, -1], *([target] * 2 for target in order)]


def test_ranking_is_likeliest_first_without_the_label():
    logits = torch.tensor([[3.0, 1.0, 2.0, 0.0], [0.0, 5.0, 5.0, 1.0]])
    assert ranking(logits, torch.tensor([0, 3])).tolist() == [[2, 1, 3], [1, 2, 0]]


def test_fast_rounds_spend_long_searches_on_near_images_only():
    search, _, _ = fast(Threat("linf", "0.03"))
    images = row_images(Rows(rough=0.3))
    attempts = pool(Rows(rough=0.3), 24).run(search.attack, images, list(search.rounds))
    clean = -success_margin(images.clean, images.y, images.y, reach=False)
    last = search.rounds[-1]
    tried = (attempts.passes[:, -len(last.attempts) :] >= 0).any(axis=1)
    far = ~attempts.broken & (-attempts.margin > last.near * clean).numpy()
    assert far.any() and not tried[far].any()


# ---------------------------------------------------------------- interruptions


class Stop(Exception):
    pass


def copied(attempts):
    return {name: np.array(value) for name, value in attempts.arrays().items()}


class Impatient:
    """A clock on which every look is worth telling."""

    def __init__(self):
        self.now = 0.0

    def monotonic(self):
        self.now += 1.0
        return self.now


@pytest.fixture
def tells(monkeypatch):
    monkeypatch.setattr("hardtack.attacks.pool.pool.time", Impatient())


def interrupted(start, images, moment, sizes):
    """A run that is stopped at its `moment`-th note and taken up from it, with other slots. None: it ended before."""
    notes = []

    def tell(progress):
        notes.append(copied(progress.record))
        if len(notes) == moment:
            raise Stop

    try:
        start(sizes[0], tell=tell)
    except Stop:
        pass
    else:
        return None
    attempts = AttemptRecord(images, notes[-1]["passes"].shape[1])
    attempts.restore(notes[-1])
    return start(sizes[1], record=attempts)


@pytest.mark.parametrize("name", ["apgd_t", "fab_t", "rounds"])
@pytest.mark.parametrize("sizes", [(5, 5), (64, 7), (7, 64)])
def test_a_ledger_taken_up_ends_as_if_nothing_had_happened(tells, name, sizes):
    images = row_images(Rows())
    whole = run(name, 24, images)
    stopped = 0
    for moment in (1, 3, 5, 8, 13, 21):
        again = interrupted(lambda size, **s: run(name, size, images, **s), images, moment, sizes)
        if again is None:
            break
        same(whole, again)
        stopped += 1
    assert stopped >= 2


@pytest.mark.parametrize("seed", range(3))
def test_an_image_that_fell_to_a_late_try_is_still_owed_its_earlier_ones(tells, seed):
    """Stopped when try 3 had succeeded and try 1 was under way: try 1 succeeds as it would have."""
    table = random_table(12, 5, seed)
    images = scripted_images(12)

    def start(size, **settings):
        return pool(Pixel(), size, 1).run(Scripted(table), images, **settings)

    for moment in range(1, 12):
        again = interrupted(start, images, moment, (64, 64))
        if again is not None:
            assert outcome(again) == expected(table, 12, 1)


# ---------------------------------------------------------------- memory


class Small(nn.Module):
    """Has memory for `most` images."""

    def __init__(self, model, most):
        super().__init__()
        self.model, self.most, self.refused = model, most, 0

    def forward(self, x):
        if len(x) > self.most:
            self.refused += 1
            raise torch.OutOfMemoryError("CUDA out of memory (not really)")
        return self.model(x)


@pytest.mark.parametrize("most", [2, 13])
@pytest.mark.parametrize("name", ["apgd_t", "rounds"])
def test_too_little_memory_halves_the_slots_and_changes_nothing_else(name, most):
    images = row_images(Rows())
    model = Small(Rows(), most)
    attack, rounds = (IN_ROUNDS, ROUNDS) if name == "rounds" else (SEARCHES[name], None)
    p = pool(model, 24, verifier=Verifier(Rows(), CPU))
    same(run(name, 24, images), p.run(attack, images, rounds))
    assert model.refused and p.batch_size <= most < 2 * p.batch_size + 1


def test_a_judge_with_too_little_memory_asks_in_parts():
    images = row_images(Rows())
    verifier = Verifier(Small(Rows(), 3), CPU, batch_size=64)
    assert torch.equal(verifier.logits(images.x), Rows()(images.x)) and verifier.batch_size <= 3


def test_not_even_one_image_fits():
    with pytest.raises(UserError, match="single image"):
        pool(Small(Rows(), 0), 8, verifier=Verifier(Rows(), CPU)).run(SEARCHES["apgd_t"], row_images(Rows()))


def test_memory_that_ends_while_items_are_seated_loses_none_of_them():
    class Greedy(Scripted):
        def begin(self, items):
            if len(items.x) > 4:
                raise torch.OutOfMemoryError("CUDA out of memory (not really)")
            return super().begin(items)

    table = random_table()
    attempts = pool(Pixel(), 16).run(Greedy(table), scripted_images(25))
    assert outcome(attempts) == expected(table, 12, 2)


def test_memory_that_ends_between_two_successes_of_an_image():
    """Try 3 has succeeded, try 1 is under way and has to begin again: it still comes first."""

    class Once(Pixel):
        def forward(self, x):
            self.rows += 0
            if self.calls == 6:
                self.calls += 1
                raise torch.OutOfMemoryError("CUDA out of memory (not really)")
            self.calls += 1
            return super().forward(x)

        calls = 0

    table = np.array([[NEVER, 9, NEVER, 0]])
    p = pool(Once(), 8, every=1, verifier=Verifier(Pixel(), CPU))
    attempts = p.run(Scripted(table), scripted_images(1))
    assert p.batch_size == 4 and outcome(attempts) == [(1, 9, 12 + 10)]


# ---------------------------------------------------------------- by itself


def test_a_search_called_by_itself_agrees_with_the_pool():
    images = row_images(Rows())
    attack = SEARCHES["apgd_t"]
    found = attack.run(Rows(), images.x, images.y, keys=images.keys)
    attempts = pool(Rows(), 7, every=1).run(attack, images)
    assert torch.equal(found.x_adv, attempts.x_adv) and (found.fooled.numpy() == attempts.broken).all()
    assert (found.broken_at.numpy() == attempts.found_at_step).all()


def test_only_the_target_counts_where_one_is_to_be_reached():
    model = Rows()
    images = row_images(model)
    target, elsewhere = ranking(images.clean, images.y)[:, -1], 0
    for name in ("apgd_t", "apgd_l2", "fab_t", "square"):
        attack = dataclasses.replace(SEARCHES[name], threat=SEARCHES[name].threat.scaled(2))
        found = attack.run(model, images.x, images.y, target=target)
        predicted = model(found.x_adv).argmax(dim=1)
        assert torch.equal(found.fooled, predicted == target), name
        assert found.fooled.any() or name == "square"
        elsewhere += int(((predicted != images.y) & ~found.fooled).sum())
    assert elsewhere, "another wrong class was met on the way, and was not counted"
