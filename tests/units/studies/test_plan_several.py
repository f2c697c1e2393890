"""Several studies are planned as one job: what they share counts once."""

import pytest

from hardtack.base.errors import UserError
from hardtack.commands.plan import plan_command
from hardtack.studies.plan_several import StudyPlans

WORDS = ["study", "cauchy/table1", "cauchy/figure3", "scale=short"]


@pytest.fixture(scope="module")
def plans():
    found = plan_command(WORDS)
    assert isinstance(found, StudyPlans)
    return found


def test_shared_trainings_count_once(plans):
    table, figure = plans.plans
    assert [len(plan.runs) for plan in plans.plans] == [8, 8] and [*map(len, plans.own)] == [8, 0]
    assert plans.training_hours == pytest.approx(sum(run.training_hours for run in table.runs))
    assert plans.gpu_hours == pytest.approx(table.gpu_hours + sum(run.evaluation_hours for run in figure.runs))
    assert 0 < plans.total_s < table.total_s + figure.total_s


def test_the_order_decides_which_study_trains(plans):
    other = plan_command(["study", "cauchy/figure3", "cauchy/table1", "scale=short"])
    assert [*map(len, other.own)] == [8, 0]
    assert other.gpu_hours == pytest.approx(plans.gpu_hours)


def test_what_is_printed(tmp_path):
    text = str(plan_command([*WORDS, f"data.root={tmp_path}"]))
    assert text.startswith("plan: 2 studies at scale short, 1 seed: 8 trainings")
    assert "cauchy/figure3" in text and "GPU-hours" in text and "data not here: parquet:cifar10" in text


def test_a_paper_is_planned_by_its_folder():
    words = ["scale=smoke"]
    by_verb, by_setting = plan_command(["study", "cauchy", *words]), plan_command(["study=cauchy", *words])
    assert [plan.request.name for plan in by_verb.plans] == [plan.request.name for plan in by_setting.plans]
    assert len(by_verb.plans) > 2


def test_one_of_a_pattern_is_planned_as_by_its_name():
    assert str(plan_command(["study", "cauchy/tabl*1", "scale=short"])).startswith("plan: study cauchy/table1")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([*WORDS, "rows=vit_t1"], "rows names rows of one study"),
        ([*WORDS, "workers=2"], "several studies are planned for this process"),
        (["study=cauchy", "workers=2"], "several studies are planned for this process"),
        (["study", "cauchy/table1", "cauchy/figur3"], r"there is no study 'cauchy/figur3' \(did you mean 'cauchy/f"),
        (["study", "nothing/*"], "no study is called like"),
    ],
)
def test_what_cannot_be_planned(words, message):
    with pytest.raises(UserError, match=message):
        plan_command(words)
