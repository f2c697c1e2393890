"""The rule for catastrophic overfitting, and what a run does when it holds."""

import json

import pytest

import hardtack as ht
from hardtack.base.config import choose
from hardtack.base.registry import objectives
from hardtack.data import load_data
from hardtack.models import load_model, read_metadata
from hardtack.objectives import StandardConfig
from hardtack.training import Trainer, read_recipe, validation_attack
from hardtack.training.overfitting import first_overfit, one_step_attack
from tiny_runs import tiny_recipe, write_data


def history(*pairs):
    return [{"robust_accuracy": pgd, "fgsm_accuracy": fgsm} for pgd, fgsm in pairs]


@pytest.mark.parametrize(
    "pairs, found",
    [
        ([], None),
        ([(0.3, 0.4), (0.35, 0.45), (0.4, 0.5)], None),
        ([(0.3, 0.4), (0.4, 0.5), (0.02, 0.8)], 2),
        ([(0.3, 0.4), (0.4, 0.5), (0.36, 0.6), (0.34, 0.6)], 3),  # four points are not enough, six are
        ([(0.4, 0.5), (0.3, 0.4)], None),  # both fall: something else is wrong
        ([(0.4, 0.5), (0.3, 0.5)], None),  # FGSM must rise
        ([(0.2, 0.9), (0.4, 0.5), (0.3, 0.6)], 2),  # compared with the best epoch, not with the first
        ([(0.4, 0.5), (0.0, 0.9), (0.4, 0.5), (0.0, 0.9)], 1),  # the first time counts
    ],
)
def test_pgd_falls_while_fgsm_rises(pairs, found):
    assert first_overfit(history(*pairs)) == found


def test_judgements_without_both_numbers_are_passed_over():
    assert first_overfit([{"score": 0.9}, {}, *history((0.4, 0.5)), {"score": 0.1}, *history((0.1, 0.6))]) == 4


@pytest.mark.parametrize(
    "objective, watched",
    [
        ({"name": "adversarial", "attack": {"name": "fgsm", "threat": "linf:0.1"}}, True),
        ({"name": "trades", "attack": {"name": "pgd", "threat": "linf:0.1", "steps": 2}}, True),
        ({"name": "adversarial", "attack": {"name": "pgd", "threat": "linf:0.1", "steps": 7}}, False),
        ({"name": "free", "threat": "linf:0.1"}, True),
        ({"name": "standard"}, False),
    ],
)
def test_only_few_steps_are_watched(objective, watched):
    recipe = read_recipe(None, objective=objective)
    quick = one_step_attack(recipe.objective, validation_attack(recipe))
    assert (quick is not None) == watched
    if quick is not None:
        assert str(quick.threat) == "linf:0.1" and (quick.steps, quick.relative_step, quick.start) == (1, 1.0, "clean")


def test_a_judge_that_is_itself_fgsm_tells_nothing():
    fgsm = choose(objectives, {"name": "adversarial", "attack": {"name": "fgsm", "threat": "linf:0.1"}})
    assert one_step_attack(fgsm, fgsm.attack) is None and one_step_attack(StandardConfig(), None) is None


# ---------------------------------------------------------------- in a run


def lines(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


SCORES = [(0.3, 0.4), (0.4, 0.5), (0.1, 0.7), (0.0, 0.8)]


def trainer(tmp_path, data, epochs=4, first=0):
    scores = iter(SCORES[first:])

    def validate(model):
        pgd, fgsm = next(scores)
        return {"robust_accuracy": pgd, "fgsm_accuracy": fgsm, "score": pgd}

    recipe = tiny_recipe(tmp_path / "run", data, train={"epochs": 4, "batch_size": 16})
    split = load_data(recipe.data, "train")
    model = load_model(recipe.model, num_classes=4, image_size=8, seed=3)
    return Trainer(recipe, model, split, validate=validate)


def test_a_run_warns_once_and_keeps_the_best(tmp_path, capsys):
    trainer(tmp_path, write_data(tmp_path / "data.npz")).fit()
    warnings = [line for line in lines(tmp_path / "run") if line["kind"] == "warning"]
    assert [(line["epoch"], line["warning"]) for line in warnings] == [(3, "catastrophic_overfitting")]
    said = " ".join(capsys.readouterr().err.split())
    assert said.count("overfits to its training attack") == 1
    assert read_metadata(tmp_path / "run" / "checkpoints" / "best.safetensors")["epoch"] == 2


def test_a_continued_run_remembers_what_it_was_judged_by(tmp_path):
    """Stopped after the best epoch: the fall is measured from it, though another process saw it."""
    data = write_data(tmp_path / "data.npz")
    first = trainer(tmp_path, data)
    finish = first._finish_epoch

    def twice(epoch, log):
        finish(epoch, log)
        if epoch == 2:
            raise KeyboardInterrupt

    first._finish_epoch = twice
    with pytest.raises(KeyboardInterrupt):
        first.fit()
    trainer(tmp_path, data, first=2).fit()
    assert [line["epoch"] for line in lines(tmp_path / "run") if line["kind"] == "warning"] == [3]


def test_validation_measures_fgsm_beside_pgd(tmp_path):
    objective = {"name": "adversarial", "attack": {"name": "rfgsm", "threat": "linf:0.1"}}
    data = write_data(tmp_path / "data.npz")
    sections = {"objective": objective, "train": {"epochs": 1, "batch_size": 16}}
    folder = ht.train(tiny_recipe(tmp_path / "run", data, **sections), quiet=True)
    (scores,) = [line for line in lines(folder) if line["kind"] == "validation"]
    words = {"threat": "linf:0.1", "attack": "fgsm", "output": str(tmp_path / "elsewhere"), "runtime.seed": 3}
    (measured,) = ht.evaluate_run(folder, checkpoint="last", split="validation", suite="pgd", quiet=True, **words)
    assert scores["fgsm_accuracy"] == measured.robust_accuracy and scores["score"] == scores["robust_accuracy"]
