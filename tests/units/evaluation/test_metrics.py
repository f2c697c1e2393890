"""Top-5, calibration, classes and areas against numbers worked out by hand."""

import numpy as np
import pytest
import torch
from torch import nn

import hardtack as ht
from hardtack.evaluation.scores import per_class
from hardtack.results import per_image
from hardtack.results.calibration import calibration_error, reliability
from hardtack.results.metrics import area_under


class Says(nn.Module):
    """The logits that are written in the first pixels of an image."""

    def __init__(self, classes):
        super().__init__()
        self.num_classes = classes

    def forward(self, x):
        return 8 * x.flatten(1)[:, : self.num_classes] - 4


def images(logits):
    x = torch.full((len(logits), 3, 8, 8), 0.5)
    x.flatten(1)[:, : logits.shape[1]] = (logits + 4) / 8
    return x


def test_top_5_counts_the_images_whose_class_is_among_the_first_five():
    logits = torch.linspace(-3, 3, 12).repeat(12, 1)  # class 11 first, class 0 last
    found = ht.evaluate(Says(12), (images(logits), torch.arange(12)), suite="clean", quiet=True)
    values = {result.metric: result.value for result in found.results}
    assert values["clean_accuracy"] == pytest.approx(1 / 12) and values["top5_accuracy"] == pytest.approx(5 / 12)
    assert found.verdicts["clean_rank"].tolist() == list(range(11, -1, -1))


def test_few_classes_have_no_top_5():
    found = ht.evaluate(Says(4), (images(2 * torch.eye(4)), torch.arange(4)), suite="clean", quiet=True)
    assert [result.metric for result in found.results] == ["clean_accuracy", "expected_calibration_error"]


def test_of_equal_logits_the_first_counts_as_predicted():
    found = ht.evaluate(Says(4), (images(torch.zeros(4, 4)), torch.arange(4)), suite="clean", quiet=True)
    assert found.verdicts["clean_rank"].tolist() == [0, 1, 2, 3]
    assert found.verdicts["clean_correct"].tolist() == [True, False, False, False]


def test_calibration_by_hand():
    certainty = np.array([0.95, 0.95, 0.95, 0.95, 0.62, 0.62])
    correct = np.array([True, True, True, False, True, False])
    # four images in one bin: 0.95 against 3/4; two in another: 0.62 against 1/2
    assert calibration_error(certainty, correct) == pytest.approx((4 * 0.2 + 2 * 0.12) / 6)
    bins = reliability(certainty, correct)
    assert [row[2] for row in bins] == [2, 4]
    assert bins[1][3:] == pytest.approx([0.95, 0.75]) and bins[1][0] < 0.95 <= bins[1][1]


def test_a_certain_model_that_is_always_right_is_calibrated_and_one_that_is_wrong_is_not():
    ones = np.ones(50)
    assert calibration_error(ones, ones > 0) == 0.0
    assert calibration_error(ones, ones < 0) == 1.0
    assert calibration_error(np.full(50, 1 / 15), ones > 0) == pytest.approx(14 / 15)  # on the edge of the first bin


def test_the_record_of_calibration_has_its_bins_and_an_interval():
    logits = torch.randn(60, 5, generator=torch.Generator().manual_seed(0))
    found = ht.evaluate(Says(5), (images(logits.clamp(-4, 4)), torch.arange(60) % 5), suite="clean", quiet=True)
    result = found.results[-1]
    assert result.metric == "expected_calibration_error" and result.low <= result.value <= result.high
    assert sum(row[2] for row in result.extra["bins"]) == 60
    certainty, right = found.verdicts["clean_certainty"], found.verdicts["clean_correct"]
    assert result.value == pytest.approx(calibration_error(certainty, right))


def test_classes_are_counted_one_by_one():
    table = per_class(np.array([True, False, True, True]), np.array([0, 0, 2, 2]), ("a", "b", "c"))
    assert table == {"classes": ["a", "b", "c"], "n": [2, 0, 2], "right": [1, 0, 2]}


def test_the_area_under_a_curve_by_hand():
    columns = {
        "clean_correct": np.array([True, True, False]),
        "robust@linf:0.1": np.array([True, False, False]),
        "robust@linf:0.4": np.array([False, False, False]),
    }
    # radii 0, 0.1, 0.4: the first stands to 0.1 and falls towards 0.4, the second falls towards 0.1
    assert area_under(columns) == pytest.approx([(0.1 + 0.15) / 0.4, 0.05 / 0.4, 0.0])


def test_a_sweep_ends_with_the_area_under_its_curve():
    data = ht.load_data("digits", "test").first(12)
    model = ht.load_model("vit_digits", num_classes=10, seed=0)
    found = ht.evaluate(model, data, suite="sweep", attack={"steps": 2}, sweep=("1/2", "1"), quiet=True)
    points, area = [r for r in found.results if r.metric == "robust_accuracy"], found.results[-1]
    heights = [found.clean_accuracy, *(point.value for point in points)]
    assert area.metric == "robustness_area" and area.threat == points[-1].threat
    assert area.value == pytest.approx((heights[0] + 2 * heights[1] + heights[2]) / 4)


def test_every_mean_is_the_mean_of_its_vector():
    data = ht.load_data("digits", "test").first(12)
    model = ht.load_model("vit_digits", num_classes=10, seed=0)
    for words in ({"suite": "pgd", "attack": {"steps": 2}}, {"suite": "corruptions", "types": ("fog", "contrast")}):
        found = ht.evaluate(model, data, quiet=True, **words)
        for result in found.results:
            vector = per_image(result, found.verdicts)
            assert vector is not None and vector.mean() == pytest.approx(result.value), result.metric


def test_mce_and_mfr_are_means_of_vectors_too():
    x = torch.rand(6, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    model = ht.load_model("resnet8_cifar", num_classes=10, seed=0)
    y = torch.arange(6)
    corrupted = ht.evaluate(model, (x, y), suite="corruptions", constants="imagenet", quiet=True)
    flipped = ht.evaluate(model, (x, y), suite="perturbations", constants="imagenet", quiet=True)
    found = {}
    for measured in (corrupted, flipped):
        for result in measured.results:
            if result.metric in ("mean_corruption_error", "relative_corruption_error", "mean_flip_rate"):
                vector = per_image(result, measured.verdicts)
                assert vector.mean() == pytest.approx(result.value), result.attack
                found[result.metric] = result
    assert len(found) == 3
    with pytest.raises(ht.UserError, match="attacked nothing"):
        corrupted.robust  # noqa: B018
