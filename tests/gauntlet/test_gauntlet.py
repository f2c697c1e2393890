"""The gauntlet as a whole: rows, resuming, the truth that evaluators lower, and evaluators that fail."""

import dataclasses
import json

import pytest

from hardtack.base.errors import UserError
from hardtack.base.registry import evaluators
from hardtack.evaluation.gauntlet import Claim, build_defence, find_truth, run_gauntlet
from hardtack.evaluation.gauntlet.gauntlet import select_mechanisms
from hardtack.evaluation.gauntlet.truth import lower_truth
from hardtack.evaluation.sanity import flag

CALLS = []


@pytest.fixture(scope="module", autouse=True)
def test_evaluators():
    """Evaluators that answer without attacking; they are removed again after the tests of this file."""

    @evaluators.register("optimist", help="calls every image robust")
    def optimist(model, x, y, *, threat, runtime):
        CALLS.append("optimist")
        return Claim(robust_accuracy=1.0, seconds=0.5)

    @evaluators.register("warner", help="calls every image robust, with a red flag")
    def warner(model, x, y, *, threat, runtime):
        return Claim(robust_accuracy=1.0, flags=(flag("red", "masked_gradients", "test"),))

    @evaluators.register("crasher", help="fails")
    def crasher(model, x, y, *, threat, runtime):
        raise RuntimeError("no kernel for this model")

    @evaluators.register("not_installed", help="needs a package that nobody has")
    def not_installed(model, x, y, *, threat, runtime):
        raise UserError("this evaluator needs nobody_has_this")

    yield
    for name in ("optimist", "warner", "crasher", "not_installed"):
        del evaluators._entries[name]


def test_an_optimist_is_silently_wrong_a_warner_is_flagged_and_a_crash_does_not_stop_the_others(core, tmp_path):
    names = ["optimist", "warner", "crasher"]
    result = run_gauntlet(core, evaluators=names, mechanisms=["reversed", "undefended"], folder=tmp_path, quiet=True)
    verdicts = {(row.mechanism, row.evaluator): row.verdict for row in result.rows}
    assert verdicts["reversed", "optimist"] == "SILENT" and verdicts["reversed", "warner"] == "flagged"
    assert verdicts["undefended", "warner"] == "FALSE ALARM" and verdicts["undefended", "crasher"] == "failed"
    assert [row.mechanism for row in result.silent] == ["reversed", "undefended"]
    stored = json.loads((tmp_path / "gauntlet.json").read_text())
    assert stored["counts"]["optimist"]["SILENT"] == 2 and len(stored["rows"]) == 6
    assert (
        "SILENT" in (tmp_path / "gauntlet.txt").read_text() and "| reversed |" in (tmp_path / "gauntlet.md").read_text()
    )


def test_known_rows_are_not_measured_again_unless_asked(core, tmp_path):
    settings = {"evaluators": ["optimist"], "folder": tmp_path, "quiet": True}
    CALLS.clear()
    run_gauntlet(core, mechanisms=["reversed"], **settings)
    both = run_gauntlet(core, mechanisms=["reversed", "detached"], **settings)
    assert len(CALLS) == 2 and [row.mechanism for row in both.rows] == ["detached", "reversed"]
    run_gauntlet(core, mechanisms=["reversed"], seed=1, **settings)
    assert len(CALLS) == 3, "another seed is another gauntlet"
    run_gauntlet(core, mechanisms=["reversed"], fresh=True, **settings)
    assert len(CALLS) == 4


def test_a_gauntlet_that_was_stopped_goes_on_where_it_stopped(core, tmp_path, monkeypatch):
    settings = {"mechanisms": ["detached", "reversed"], "folder": tmp_path, "quiet": True}
    with pytest.raises(UserError, match="nobody_has_this"):
        run_gauntlet(core, evaluators=["optimist", "not_installed"], **settings)
    CALLS.clear()
    assert len(run_gauntlet(core, evaluators=["optimist"], **settings).rows) == 2
    assert len(CALLS) == 1, "the first row was on disk"


def test_images_that_an_evaluator_finds_lower_the_truth_only_if_the_deployed_model_confirms_them(core):
    defence = build_defence("undefended", core, seed=0)
    found = find_truth(core, defence, thorough=False)
    assert found.robust_accuracy == 0
    truth = find_truth(core, defence, steps=0, thorough=False)
    assert truth.robust_accuracy == 1
    candidates = found.x_adv.clone()
    candidates[0] = core.x[0]  # not misclassified
    candidates[1] = (core.x[1] + 0.5).clamp(0, 1)  # outside the ball
    lower_truth(truth, core.model, core, candidates)
    assert truth.robust[:2].tolist() == [1, 1] and truth.robust[2:].sum() == 0


def test_mechanisms_are_chosen_by_name_or_family():
    assert select_mechanisms(["heads", "ripple"])[-1] == "ripple"
    assert {"rounded", "top_one"} <= set(select_mechanisms(["heads"]))
    with pytest.raises(UserError, match="did you mean 'ripple'"):
        select_mechanisms(["rippel"])


def test_mechanisms_that_need_a_robust_model_are_left_out_without_one(core):
    alone = dataclasses.replace(core, robust=None)
    result = run_gauntlet(alone, evaluators=["optimist"], mechanisms=["adversarial", "reversed"], quiet=True)
    assert [row.mechanism for row in result.rows] == ["reversed"]
    assert len(result.left_out) == 1 and "adversarial" in result.left_out[0]


# ---------------------------------------------------------------- our tiers

CENTRAL = ["ripple", "ripple_fine", "masked_pixels", "scrambled", "reversed", "staircase_sloped", "rounded_sloped"]
CHEATS = ["cheat_grad_enabled", "cheat_calls", "cheat_batch_size"]


def test_fast_is_right_about_the_honest_core(core):
    (row,) = run_gauntlet(core, evaluators=["fast"], mechanisms=["undefended"], quiet=True).rows
    assert row.verdict == "right" and row.number == 0 and not row.red and row.seconds > 0


@pytest.mark.parametrize("name", [*CENTRAL, *CHEATS])
def test_fast_is_not_silently_wrong(core, name):
    n = 4 if name in CENTRAL else 12  # few, because it escalates; but more than the cheats' batches of 8
    few = dataclasses.replace(core, x=core.x[:n], y=core.y[:n])
    (row,) = run_gauntlet(few, evaluators=["fast"], mechanisms=[name], quiet=True).rows
    assert row.verdict in ("right", "flagged", "refused")


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_no_tier_is_silently_wrong_on_the_whole_gauntlet(core, seed, tmp_path):
    result = run_gauntlet(core, evaluators=["fast", "verified", "exact", "max"], seed=seed, folder=tmp_path)
    assert not result.silent and not result.false_alarms, str(result)
    assert not [row for row in result.rows if row.verdict == "failed"], str(result)
