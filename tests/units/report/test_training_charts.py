"""Training as the report shows it: every part in its chart, the gap to validation, warnings, best against last."""

from dataclasses import replace
from pathlib import Path

import pytest

from hardtack.report import history
from hardtack.report.charts.training import training_charts
from hardtack.report.view import view
from hardtack.results import Run


def train(step, epoch, **values):
    return {"kind": "train", "step": step, "epoch": epoch, **values}


def judged(step, epoch, clean, robust, **more):
    scores = {"clean_accuracy": clean, "robust_accuracy": robust, "score": robust}
    return {"kind": "validation", "step": step, "epoch": epoch, **scores, **more}


LINES = [
    train(8, 0.8, loss=2.0, kl=0.1, robust_accuracy=0.2, accuracy=0.4, lr=0.1, images_per_s=100.0, eps=4 / 255),
    train(10, 1.0, loss=1.0, kl=0.2, robust_accuracy=0.7, accuracy=0.9, lr=0.2, images_per_s=110.0, eps=8 / 255),
    judged(10, 1, 0.5, 0.3),
    train(18, 1.8, loss=0.9, kl=0.3, robust_accuracy=0.6, accuracy=0.8, lr=0.1, images_per_s=90.0, eps=8 / 255),
    train(20, 2.0, loss=0.8, kl=0.2, robust_accuracy=0.6, accuracy=0.8, lr=0.0, images_per_s=90.0, eps=8 / 255),
    judged(20, 2, 0.6, 0.1),
    {"kind": "warning", "step": 20, "epoch": 2, "warning": "catastrophic_overfitting"},
]
RUN = Run(
    path=Path("fast"),
    label="fast",
    config={"objective": {"name": "adversarial", "attack": {"name": "pgd", "threat": "linf:8/255"}}},
    metrics=LINES,
)


def chart(name, *runs):
    found = {one["id"]: one for one in training_charts(runs or [RUN])}
    return found[f"training-{name}"]


def test_every_part_of_the_loss_has_a_small_chart_of_its_own():
    ids = [one["id"].removeprefix("training-") for one in training_charts([RUN])]
    small = ["kl", "eps-linf-255", "lr", "images-per-s"]
    assert ids == ["validation", "overfitting", "gap", "loss", *small]
    assert chart("kl")["small"] and not chart("loss")["small"]
    assert chart("kl")["series"][0]["points"] == [[0.8, 0.1], [1.0, 0.2], [1.8, 0.3], [2.0, 0.2]]
    radius = chart("eps-linf-255")
    assert radius["title"] == "Attack's radius, ℓ∞, in 1/255"
    assert radius["series"][0]["points"][0] == [0.8, pytest.approx(4)]


def test_a_part_of_an_objective_nobody_knows_is_shown_under_its_own_name():
    lines = [train(1, 1.0, loss=1.0, my_term=3.0, note="text", broken=float("nan"))]
    ids = [one["id"] for one in training_charts([replace(RUN, metrics=lines)])]
    assert ids == ["training-loss", "training-my-term"]
    assert chart("my-term", replace(RUN, metrics=lines))["title"] == "My term"


def test_radii_of_different_norms_never_share_a_chart():
    other = replace(RUN, label="l2", config={"objective": {"attack": {"threat": "l2:0.5"}}})
    several = replace(RUN, label="both", config={}, metrics=[train(1, 1.0, eps_share=0.5)])
    found = [one for one in training_charts([RUN, other, several]) if "-eps" in one["id"]]
    assert [one["title"] for one in found] == [
        "Attack's radius, ℓ∞, in 1/255", "Attack's radius, ℓ₂", "Share of the attack's radius",
    ]  # fmt: skip
    assert [[line["name"] for line in one["series"]] for one in found] == [["fast"], ["l2"], ["both"]]
    assert found[2]["y"]["kind"] == "percent"


def test_the_gap_is_the_mean_of_the_epochs_steps_minus_validation():
    first, last = history.epochs_of(RUN)
    assert first.seen_robust == pytest.approx(0.8 * 0.2 + 0.2 * 0.7), "eight steps and two"
    gap = {one["name"]: one["points"] for one in chart("gap")["series"]}
    assert gap["fast, robust"] == [[1.0, pytest.approx(0.3 - 0.3)], [2.0, pytest.approx(0.6 - 0.1)]]
    assert gap["fast, clean"] == [[1.0, pytest.approx(0.5 - 0.5)], [2.0, pytest.approx(0.8 - 0.6)]]
    assert chart("gap")["numbers"][0]["rows"] == [["fast", "+20.0", "+50.0"]]
    both = {one["name"]: one["points"][-1] for one in chart("overfitting")["series"]}
    assert both == {"fast, training": [2.0, pytest.approx(0.6)], "fast, validation": [2.0, pytest.approx(0.1)]}
    assert (last.score, last.robust) == (0.1, 0.1)


def test_a_run_without_robust_accuracy_in_training_has_a_clean_gap_only():
    lines = [train(1, 1.0, loss=1.0, accuracy=0.9), judged(1, 1, 0.8, 0.2)]
    plain = replace(RUN, metrics=lines)
    assert [one["name"] for one in chart("gap", plain)["series"]] == ["fast, clean"]
    assert "training-overfitting" not in [one["id"] for one in training_charts([plain])]


def test_a_warning_is_marked_once_on_the_robust_curve_and_listed():
    validation = chart("validation")
    marks = {one["name"]: one["warned"] for one in validation["series"]}
    words = history.WARNINGS["catastrophic_overfitting"]
    assert marks == {"fast, clean": [], "fast, robust": [[2.0, 0.1, words]]}
    assert "▲ warned" in validation["caption"]
    (warning,) = view([RUN], Path("report.html"))["warnings"]
    assert (warning["level"], warning["code"]) == ("yellow", "catastrophic-overfitting")
    assert warning["concerns"] == [{"run": 0, "name": "fast", "about": "training, epoch 2"}]
    assert "▲" not in chart("validation", replace(RUN, metrics=LINES[:-1]))["caption"]


def test_the_table_behind_validation_has_the_best_and_the_last_epoch():
    (table,) = chart("validation")["numbers"]
    assert table["rows"] == [["fast", "1", "50.0%", "30.0%", "2", "60.0%", "10.0%"]]


def test_lines_without_epochs_are_drawn_by_step_and_have_no_gap():
    old = replace(RUN, metrics=[{key: value for key, value in line.items() if key != "epoch"} for line in LINES])
    found = {one["id"]: one for one in training_charts([old])}
    assert found["training-loss"]["x"]["label"] == "step" and found["training-loss"]["series"][0]["points"][0][0] == 8
    assert "training-gap" not in found
    assert [one["warned"] for one in found["training-validation"]["series"]][1][0][:2] == [20.0, 0.1]
