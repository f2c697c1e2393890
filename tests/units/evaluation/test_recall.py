"""`evaluate` recalls only results that agree with their evidence; others are named in one line and measured again."""

import shutil

import numpy as np
import pytest
import torch

import hardtack as ht
from forgeries import FORGERIES, broken_rows, change, lines_of, renumber, reseal, set_robust, verdicts_of, write_columns
from hardtack.results import read_results
from tiny_runs import Linear, images

X = images(20)
X[:10] = (X[:10] + (Linear().head.weight[torch.arange(10) % 4].view(10, 3, 8, 8) > 0)).clamp(0, 1)  # robust images
Y = Linear()(X).argmax(dim=1)


class Counting(Linear):
    shown = 0

    def forward(self, x):
        Counting.shown += len(x)
        return super().forward(x)


def measure(folder):
    Counting.shown = 0
    return ht.evaluate(
        Counting(), (X, Y), suite="attacks", threat="linf:0.1", quiet=True, folder=folder, chunk_size=8, examples=3,
        attacks=[{"name": "apgd_ce", "steps": 5}, {"name": "square", "steps": 20}],
    )  # fmt: skip


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    folder = tmp_path_factory.mktemp("recall") / "run"
    measured = measure(folder)
    assert 0 < measured.robust.sum() < len(X)
    return folder, measured


@pytest.fixture
def run(original, tmp_path):
    return shutil.copytree(original[0], tmp_path / "run"), original[1]


def test_a_genuine_result_is_recalled(run, capsys):
    folder, measured = run
    again = measure(folder)
    assert Counting.shown == 0 and again.robust_accuracy == measured.robust_accuracy
    assert capsys.readouterr().err == ""


def test_a_forged_value_is_not_repeated(run, capsys):
    folder, measured = run
    change(folder, value=0.99)
    again = measure(folder)
    error = capsys.readouterr().err
    assert again.robust_accuracy == measured.robust_accuracy and Counting.shown > 0
    assert error.count("\n") == 1 and "robust_accuracy linf:0.1: value: stored 0.99, expected" in error
    assert "evaluated again" in error and f"expected {measured.robust_accuracy:.2g}" in error
    assert [r.value for r in read_results(folder)] == [r.value for r in measured.results], "the forged line is replaced"
    assert measure(folder).id == again.id and Counting.shown == 0, "now it agrees, and is recalled"


def test_verdicts_that_stored_images_contradict_are_measured_again(run, capsys):
    folder, measured = run
    columns = verdicts_of(folder, measured.id)
    set_robust(columns, broken_rows(columns))
    write_columns(folder, measured.id, columns)
    renumber(folder, measured.id)
    reseal(folder, measured.id)
    again = measure(folder)
    assert again.robust_accuracy == measured.robust_accuracy and "adversarial image" in capsys.readouterr().err
    assert np.array_equal(again.robust, measured.robust)


# forgeries that need the data, or the model's word, and change no number or file that is compared here
WITH_THE_MODEL_ONLY = {
    "clean_predictions_set_correct", "labels_changed", "certainties_changed", "sizes_of_perturbations_changed",
    "adversarial_predictions_changed", "images_changed_without_reseal", "images_outside_the_threat", "images_removed",
    "examples_changed", "rows_of_other_images", "hard_images_left_out",
}  # fmt: skip
# what it was called is not repeated to the user of this call, who has named the model, the data and the attack himself
NAMES_ONLY = {
    "attack_renamed", "more_steps_claimed", "words_claim_more_steps", "model_renamed_and_resealed",
    "digest_of_weights_changed", "checkpoint_renamed", "precision_changed", "flag_added", "parameters_changed",
    "field_added", "audit_removed", "audit_of_more_images_claimed", "audit_by_square_claimed",
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(set(FORGERIES) - WITH_THE_MODEL_ONLY - NAMES_ONLY))
def test_a_forgery_of_numbers_is_measured_again(run, capsys, name):
    folder, measured = run
    if name == "classes_changed" and "per_class" not in lines_of(folder)[0]["extra"]:
        pytest.skip("tensors have no class names")
    FORGERIES[name][0](folder, measured.id)
    again = measure(folder)
    assert again.robust_accuracy == measured.robust_accuracy and np.array_equal(again.robust, measured.robust)
    stored = [(r.metric, r.threat, r.value) for r in read_results(folder) if r.evaluation == measured.id]
    assert sorted(stored, key=str) == sorted([(r.metric, r.threat, r.value) for r in measured.results], key=str)
