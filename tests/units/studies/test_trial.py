"""A study's time on this machine: trainings and columns of a planted cost, and the study that comes with its data."""

import re
from types import SimpleNamespace

import pytest

from fake_instruments import FakeInstruments
from hardtack.commands.cli import main
from hardtack.studies import trial
from hardtack.studies.trial import PAGE_S, WITHSTAND, try_study
from hardtack.studies.unit import Unit


def unit(row, seed=0, **settings):
    settings = {"data": {"name": "digits"}, "runtime": {"seed": seed}, **settings}
    return Unit(study="toy", scale="smoke", row=row, training="model", seed=seed, settings=settings)


def cost(work, per_image=1.0):
    return SimpleNamespace(training=work, per_image=per_image)


@pytest.fixture
def planted(monkeypatch):
    """A training takes 3 s beside its steps and 2 s a unit of work, and trying it 25 s; a column 1 s and 4 to 14 s."""
    clock, tried = FakeInstruments(), []

    def planned(one):
        tried.append((one.row, one.seed))
        clock.pass_time(25.0)
        work = {"small": 1.0, "large": 10.0}[one.row.split()[0]]
        return SimpleNamespace(total_s=3 + 2 * work, training_s=2 * work, memory_mb=100 * work)

    monkeypatch.setattr(trial, "_planned", planned)
    monkeypatch.setattr(trial, "_columns", lambda *_: ([trial._Part(1.0, 4.0, 14.0)], ("mce",)))
    return clock, tried


def test_seeds_are_tried_once_and_columns_grow_with_the_network(planted):
    clock, tried = planted
    units = [unit("small"), unit("large", model="m"), unit("small", 1), unit("large", 1, model="m")]
    costs = [cost(1.0), cost(10.0, per_image=3.0), cost(1.0), cost(10.0, per_image=3.0)]
    found = try_study(units, costs, lambda unit: [], n=None, instruments=clock)
    assert tried == [("small", 0), ("large", 0)] and (found.tried, found.runs) == (4, 4)
    trainings, fixed, shares = 2 * (5 + 23), 4 * 1, 1 + 3 + 1 + 3
    assert found.low_s == pytest.approx(trainings + fixed + 4 * shares + PAGE_S)
    assert found.high_s == pytest.approx(trainings + fixed + 14 * shares + PAGE_S)
    assert found.seconds == pytest.approx(found.low_s + WITHSTAND * 10 * shares)
    assert found.memory_mb == 1000 and found.not_tried == ("mce",)


def test_after_a_minute_the_rest_is_computed_from_its_work(planted):
    clock, tried = planted
    units = [unit(f"small {number}", model=str(number)) for number in range(3)]
    units += [unit("large", model="m"), unit("large too", model="n")]
    costs = [*[cost(1.0)] * 3, cost(10.0), cost(10.0)]
    found = try_study(units, costs, lambda unit: [], n=None, instruments=clock)
    assert [row for row, _ in tried] == ["small 0", "small 1", "small 2"] and found.tried == 3
    assert found.low_s == pytest.approx(3 * 5 + 2 * 23 + 5 * (1 + 4) + PAGE_S)


def test_the_plan_of_a_study_gives_time_and_memory_here(capsys):
    """Eight trainings and their page take some seconds; by multiply-adds alone it would be a tenth of one."""
    assert main(["plan", "study", "cauchy/table1", "scale=smoke", "rows=vit_t1,covit_t1"]) == 0
    said = capsys.readouterr().out
    assert "2 trainings" in said and "tried for this: steps of 2 of 2 trainings" in said
    found = re.search(r"this machine \(cpu\): ([\d.]+) (s|min) \(", said)
    assert found and (found[2] == "min" or float(found[1]) > 2), said
