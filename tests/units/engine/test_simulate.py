"""The schedule under a virtual clock, against times that can be computed by hand."""

import math

import pytest

from hardtack.base.errors import UserError
from hardtack.engine.pieces import Span
from hardtack.engine.schedule import ATTEMPTS, Schedule
from hardtack.engine.simulate import Fleet, simulate

PATIENT = 10**6  # losses that a schedule bears


def spans(count):
    return [Span(row, row + 1) for row in range(count)]


def run(seconds, workers, *, expected=None, needs=None, seed=0, attempts=ATTEMPTS, **fleet):
    """Pieces of these seconds; they are expected to take as long as they do, unless said otherwise."""

    def actual(span):
        return seconds[span.start]

    made = Schedule(
        spans(len(seconds)), expected=expected or actual, attempts=attempts,
        needs=(lambda span: needs.get(span.start, ())) if needs else lambda span: (),
    )  # fmt: skip
    return simulate(made, actual, Fleet(workers=workers, **fleet), seed=seed)


@pytest.mark.parametrize("count, workers", [(1, 1), (7, 1), (7, 2), (8, 4), (9, 4), (3, 8), (1000, 64)])
def test_equal_pieces(count, workers):
    found = run([3.0] * count, workers)
    assert found.wall_s == 3.0 * math.ceil(count / workers)
    assert found.busy_s == found.ideal_s == 3.0 * count and found.lost_s == found.lost_pieces == 0
    assert found.held_s == workers * found.wall_s
    assert found.efficiency == pytest.approx(count / (workers * math.ceil(count / workers)))


def test_one_long_piece_bounds_the_time():
    assert run([1.0] * 20 + [50.0], 4).wall_s == 50.0
    assert run([1.0] * 20 + [50.0], 1000).wall_s == 50.0


def test_start_up_comes_once_for_each_worker():
    assert run([3.0] * 8, 4, startup_s=10.0).wall_s == 10.0 + 6.0


LONG_LAST = [1.0] * 6 + [3.0]  # on two workers: 3 + 3 in plain order, 5 if the long piece comes first


def test_longest_first_beats_the_plain_order():
    assert run(LONG_LAST, 2).wall_s == 5.0
    assert run(LONG_LAST, 2, expected=lambda span: 0.0).wall_s == 6.0
    assert run(LONG_LAST, 2, expected=lambda span: -LONG_LAST[span.start]).wall_s == 6.0, "shortest first"


def test_shortest_first_would_be_noticed(monkeypatch):
    """The simulation drives the real schedule: a schedule with the wrong order gives another time."""
    take = Schedule.take

    def wrong(self):
        self._waiting.reverse()
        try:
            return take(self)
        finally:
            self._waiting.reverse()

    monkeypatch.setattr(Schedule, "take", wrong)
    with pytest.raises(AssertionError):
        test_longest_first_beats_the_plain_order()


def test_needs_are_waited_for():
    """A chain takes the sum of its pieces whatever the number of workers; the others run beside it."""
    chain = {1: (0,), 2: (1,)}
    found = run([4.0, 5.0, 6.0, 1.0, 1.0], 8, needs=chain)
    assert found.wall_s == 15.0 and found.busy_s == 17.0


def test_a_slow_worker():
    """Of two workers one takes twice as long: it computes one of three pieces in the time of two."""
    found = run([3.0] * 3, 2, slow_share=0.5, slow_factor=2.0)
    assert found.wall_s == 6.0 and found.busy_s == 3 * 3.0 + 3.0 and found.ideal_s == 9.0
    assert found.efficiency == pytest.approx(9 / 12)
    assert run([3.0] * 3, 1, slow_share=1.0, slow_factor=4.0).wall_s == 36.0
    assert run([3.0] * 3, 2, slow_share=0.2, slow_factor=4.0).wall_s == 6.0, "a fifth of two workers is none"


@pytest.mark.parametrize("kept_every_s", [None, 60.0])
def test_lost_work_is_counted(kept_every_s):
    """One worker is never idle: the time is all start-ups, all pieces, and what was computed twice."""
    seconds = [200.0 + row for row in range(50)]
    found = run(seconds, 1, startup_s=7.0, failures_per_hour=8.0, kept_every_s=kept_every_s, attempts=PATIENT)
    assert found.lost_pieces > 10 and found.lost_s > 0
    assert found.ideal_s == sum(seconds)
    assert found.busy_s == pytest.approx(found.ideal_s + found.lost_s)
    assert found.wall_s == pytest.approx(7.0 * (1 + found.lost_pieces) + found.busy_s)
    if kept_every_s:
        assert found.lost_s < 60.0 * found.lost_pieces
        assert found.lost_s < run(seconds, 1, failures_per_hour=8.0, attempts=PATIENT).lost_s


def test_lost_work_on_a_slow_worker():
    """Checkpoints are written by the clock; what is kept counts as much as the slow worker computed."""
    fleet = {"slow_share": 1.0, "slow_factor": 2.0, "failures_per_hour": 6.0, "kept_every_s": 30.0}
    found = run([300.0] * 40, 1, attempts=PATIENT, **fleet)
    assert found.lost_pieces > 10
    assert found.busy_s == pytest.approx(2 * found.ideal_s + found.lost_s)


def test_the_expected_time_with_failures():
    """A piece of t seconds that begins again at each failure takes (exp(rate t) - 1) / rate on average."""
    rate, piece = 1 / 300, 200.0
    found = run([piece] * 4000, 1, failures_per_hour=3600 * rate, attempts=PATIENT)
    assert found.busy_s / 4000 == pytest.approx((math.exp(rate * piece) - 1) / rate, rel=0.05)


def test_workers_that_fail_while_they_wait():
    """Seven of eight workers have nothing to do for a day; they are replaced, and no piece is lost by them."""
    found = run([86400.0, 1.0, 1.0], 8, needs={1: (0,), 2: (0,)}, failures_per_hour=1e-9)
    assert found.wall_s == 86401.0
    busy = run([10.0] + [1.0] * 9, 8, needs=dict.fromkeys(range(1, 10), (0,)), failures_per_hour=90.0, startup_s=5.0,
               attempts=PATIENT, seed=3)  # fmt: skip
    assert busy.busy_s == pytest.approx(19.0 + busy.lost_s)


def test_a_piece_that_is_lost_too_often_stops_the_job():
    with pytest.raises(UserError, match=f"lost {ATTEMPTS} times"):
        run([3600.0], 1, failures_per_hour=100.0)


def test_the_seed_decides():
    def once(seed):
        return run([30.0] * 200, 16, failures_per_hour=4.0, slow_share=0.1, slow_factor=3.0, seed=seed, startup_s=9.0)

    assert once(1) == once(1) != once(2)


@pytest.mark.parametrize("wrong", [{"workers": 0}, {"slow_share": 2.0}, {"slow_factor": 0.5}, {"startup_s": -1.0}])
def test_fleets_that_cannot_be(wrong):
    with pytest.raises(UserError, match=next(iter(wrong))):
        Fleet(**{"workers": 1, **wrong})
