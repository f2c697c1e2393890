"""Pictures show the very pixels, the perturbation around grey, and the same images for every run."""

import base64
import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from run_folders import draw_digit

from hardtack.report import wording
from hardtack.report.attack_examples import attack_examples, data_uri, magnification, magnified
from hardtack.report.charts.training import MOST_POINTS, training_charts
from hardtack.results import Gallery, Run


def gallery(indices, *, eps=8 / 255, threat="linf:8/255", **about):
    x = np.stack([draw_digit(index) for index in indices])
    count = len(indices)
    numbers = {name: np.zeros(count, int) for name in ("label", "clean_prediction", "adversarial_prediction")}
    x_adv = (x / 255 + eps).astype(np.float32)
    size = np.full(count, eps)
    return Gallery(id="g", threat=threat, x=x, x_adv=x_adv, index=np.array(indices), size=size, **numbers, **about)


def run(label, *galleries):
    return Run(path=Path(label), label=label, galleries=list(galleries))


@pytest.mark.parametrize(("eps", "factor"), [(8 / 255, 16), (4 / 255, 32), (16 / 255, 8), (0.5, 1), (1.0, 1), (0.0, 1)])
def test_the_magnification_fills_the_grey_scale(eps, factor):
    assert magnification([gallery([1, 2], eps=eps)]) == factor


def test_nothing_changed_is_grey():
    delta = np.array([0.0, 1 / 255, -1 / 255, 1.0]).reshape(1, 4, 1).repeat(3, axis=2)
    assert magnified(delta, 16)[0, :, 0].tolist() == [128, 144, 112, 255]


def test_small_pictures_keep_every_pixel_and_large_ones_stay_small():
    pixels = np.random.default_rng(0).integers(0, 256, (32, 32, 3), dtype=np.uint8)
    head, _, body = data_uri(pixels).partition(",")
    decoded = np.asarray(Image.open(io.BytesIO(base64.b64decode(body))))
    assert head == "data:image/png;base64" and (decoded == pixels).all()
    large = np.random.default_rng(0).integers(0, 256, (224, 224, 3), dtype=np.uint8)
    assert len(data_uri(large)) < 120_000


def test_runs_are_shown_on_the_same_images_and_every_run_is_seen():
    (shown,) = attack_examples(
        [run("a", gallery([1, 2, 3])), run("b", gallery([2, 3, 4])), run("c", gallery([7, 8, 9]))]
    )
    held = {example.index: [attempt.run_name for attempt in example.attempts] for example in shown.examples}
    assert held[2] == held[3] == ["a", "b"]
    assert sum("c" in names for names in held.values()) == 3
    assert not shown.shared
    assert attack_examples([run("a", gallery([1, 2])), run("b", gallery([1, 2]))])[0].shared


def test_threats_are_not_mixed():
    shown = attack_examples([run("a", gallery([1]), gallery([1], threat="l2:0.5"))])
    assert [group.threat for group in shown] == ["linf:8/255", "l2:0.5"]


def test_attacks_are_not_mixed_and_what_was_done_twice_is_shown_once():
    few, all_of_them = gallery([1]), gallery([1, 2])
    patches = gallery([1], attack="patch_fool steps=5", limits="1 patch of 8×8")
    larger = gallery([1], attack="patch_fool steps=5", limits="1 patch of 16×16")
    shown = attack_examples([run("a", few, all_of_them, patches, larger)])
    assert [(one.attack, one.limits) for one in shown] == [
        ("", ""), ("patch_fool steps=5", "1 patch of 8×8"), ("patch_fool steps=5", "1 patch of 16×16")
    ]  # fmt: skip
    assert {example.index: len(example.attempts) for example in shown[0].examples} == {1: 1, 2: 1}
    (both,) = attack_examples([run("a", gallery([1], checkpoint="best"), gallery([1], checkpoint="last"))])
    assert [attempt.run_name for attempt in both.examples[0].attempts] == ["a (best)", "a (last)"]


def test_sizes_are_in_the_threats_units():
    assert wording.size(7.93 / 255, "linf:8/255") == "7.9/255"
    assert wording.size(0.4871, "l2:0.5") == "0.487"
    assert wording.size(float("nan"), "l2:0.5") == ""
    assert wording.size(0.1, "linf:0.1") == "0.1"
    assert wording.levels("linf:0", "linf:4/255") == 255 and wording.levels("linf:0.1", None) == 1


def test_long_training_curves_are_thinned_to_means():
    lines = [{"kind": "train", "step": step, "loss": float(step % 2), "lr": 0.1} for step in range(10_000)]
    lines.append({"kind": "train", "step": 10_000, "loss": float("nan")})
    loss, rate = training_charts([Run(path=Path("a"), label="a", metrics=lines)])
    points = loss["series"][0]["points"]
    assert len(points) <= MOST_POINTS and points[-1][0] == 9_999
    assert all(abs(value - 0.5) < 0.05 for _, value in points)
    assert rate["title"] == "Learning rate"
