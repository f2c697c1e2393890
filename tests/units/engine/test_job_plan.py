"""Plans of the engine's jobs on a fake clock: rows of a planted cost are tried, then all of them are computed."""

import numpy as np
import pytest
import torch

from fake_instruments import FakeInstruments
from hardtack.base.errors import UserError
from hardtack.base.instruments import Stopwatch
from hardtack.engine import Executor, Job, MemoryStore, PieceResult, run_job
from hardtack.engine.job_plan import JobPlan, rehearse


class Planted(Job):
    """A piece takes `piece_s` and each of its rows `row_s`; the first of all `first_s` more."""

    def __init__(self, clock, *, total=100, at_once=10, row_s=0.1, piece_s=0.05, first_s=3.0, slower=0.0):
        self.clock, self.total, self.at_once = clock, total, at_once
        self.row_s, self.piece_s, self.first_s, self.slower = row_s, piece_s, first_s, slower

    def begin(self):
        self.clock.pass_time(2.0)

    def piece_size(self, most):
        return self.at_once

    def run(self, span, inputs, *, notebook, meter):
        rows = np.arange(*span)
        self.clock.pass_time(self.first_s + self.piece_s + float((self.row_s * (1 + self.slower * rows)).sum()))
        self.clock.use(20.0 * span.rows)
        self.first_s = 0.0
        return PieceResult(arrays={"square": rows**2})

    def finish(self, columns, arrays, *, is_main):
        self.clock.pass_time(0.01 * len(arrays["square"]))
        return arrays["square"]


def planned_and_true(**costs):
    clock = FakeInstruments()
    times = rehearse(Planted(clock, **costs), MemoryStore(), Stopwatch(clock, torch.device("cpu")))
    plan = JobPlan(title="squares", device="cpu", unit="rows", rows=costs.get("total", 100), jobs=(("squares", times),))
    clock = FakeInstruments()
    run_job(Planted(clock, **costs), store=MemoryStore(), executor=Executor(), quiet=True)
    return plan, clock.wall_s, clock.peak


@pytest.mark.parametrize(
    "costs",
    [
        {},
        {"total": 1000, "at_once": 64, "row_s": 0.01},
        {"total": 7, "at_once": 1, "row_s": 0.5},
        {"total": 5, "at_once": 64},
        {"total": 500, "at_once": 100, "row_s": 1.0, "first_s": 30.0},  # a piece is too much to be tried
        {"total": 200, "at_once": 10, "row_s": 0.002, "piece_s": 0.0, "slower": 0.02},  # later rows take longer
    ],
)
def test_a_plan_is_within_a_quarter_of_the_truth(costs):
    plan, seconds, peak_mb = planned_and_true(**costs)
    assert plan.total_s == pytest.approx(seconds, rel=0.25)
    assert plan.memory_mb == pytest.approx(peak_mb, rel=0.25)
    assert "rows tried" in str(plan)


def test_few_rows_are_tried_of_slow_ones():
    clock = FakeInstruments()
    rehearse(Planted(clock, total=1000, at_once=100, row_s=2.0), MemoryStore(), Stopwatch(clock, torch.device("cpu")))
    assert clock.wall_s < 60


def test_an_end_that_needs_all_rows_is_left_out_and_this_is_said():
    class Strict(Planted):
        def finish(self, columns, arrays, *, is_main):
            raise UserError("every row must be there once")

    clock = FakeInstruments()
    times = rehearse(Strict(clock), MemoryStore(), Stopwatch(clock, torch.device("cpu")))
    plan = JobPlan(title="squares", device="cpu", unit="rows", rows=100, jobs=(("squares", times),))
    assert times.finish_s == 0 and "the end needs all rows" in str(plan)
