"""suite=corruptions: every view judged, the benchmarks' sums by hand, and the same numbers whatever the chunks."""

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import hardtack as ht
from hardtack.base.errors import UserError
from hardtack.data.corruptions import COMMON, NOISE, corrupt
from hardtack.data.corruptions.choose import chosen_types
from hardtack.data.corruptions.jpeg import compress
from hardtack.data.official.marker import mark_regenerated
from hardtack.evaluation.suites.corruptions import (
    ALEXNET_CLEAN_ERROR,
    ALEXNET_ERROR,
    corruption_views,
    mean_corruption_error,
)
from hardtack.results import bootstrap, comparable, per_image


class Bright(nn.Module):
    """Class 1 where the mean is above a half: brightness turns dark images into bright ones."""

    num_classes = 2

    def forward(self, x):
        margin = 20 * (x.mean(dim=(1, 2, 3)) - 0.5)
        return torch.stack([-margin, margin], dim=1)


X = (
    torch.rand(40, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    * torch.linspace(0.5, 1, 40)[:, None, None, None]
)
Y = (X.mean(dim=(1, 2, 3)) > 0.5).long()
FEW = {"suite": "corruptions", "types": ("brightness", "contrast"), "severities": (1, 5), "quiet": True}


def test_every_view_is_judged_on_the_images_it_shows():
    found = ht.evaluate(Bright(), (X, Y), **FEW)
    assert found.clean_accuracy == 1.0
    for name in ("brightness", "contrast"):
        for severity in (1, 5):
            seen = corrupt(X, torch.arange(40), name, severity, constants="cifar")
            right = (Bright()(seen).argmax(dim=1) == Y).numpy()
            assert np.array_equal(found.verdicts[f"correct@{name}/{severity}"], right)
            (result,) = [r for r in found.results if r.attack == f"{name}/{severity}"]
            assert result.value == right.mean() and result.extra["source"] == "regenerated"
    mean = found.results[-1]
    assert mean.metric == "mean_corrupted_accuracy" and mean.low <= mean.value <= mean.high
    views = [r.value for r in found.results if r.metric == "corrupted_accuracy"]
    assert mean.value == pytest.approx(np.mean(views)) and len(views) == 4
    (error,) = [r for r in found.results if r.metric == "mean_corrupted_error"]
    assert error.value == pytest.approx(1 - mean.value) and error.attack == mean.attack
    assert np.allclose(per_image(error, found.verdicts), 1 - per_image(mean, found.verdicts))
    assert "brightness" in str(found) and "mean corrupted accuracy" in str(found)


def test_chunks_order_and_resuming_change_nothing(tmp_path):
    whole = ht.evaluate(Bright(), (X, Y), **FEW)
    pieces = ht.evaluate(Bright(), (X, Y), chunk_size=7, batch_size=3, folder=tmp_path, **FEW)
    again = ht.evaluate(Bright(), (X, Y), chunk_size=11, folder=tmp_path, **FEW)
    for other in (pieces, again):
        assert all(
            np.array_equal(whole.verdicts[name], other.verdicts[name]) for name in whole.verdicts if "@" not in name
        )
        same = [
            np.array_equal(whole.verdicts[n], other.verdicts[n]) for n in whole.verdicts if n.startswith("correct@")
        ]
        assert all(same) and len(same) == 4
    assert [r.value for r in again.results] == [r.value for r in pieces.results]


def test_mce_is_in_units_of_alexnet():
    assert mean_corruption_error(ALEXNET_ERROR) == pytest.approx(1.0)
    half = {name: error / 2 for name, error in ALEXNET_ERROR.items()}
    assert mean_corruption_error(half) == pytest.approx(0.5)
    only_noise = {name: (0.0 if name in NOISE else error) for name, error in ALEXNET_ERROR.items()}
    assert mean_corruption_error(only_noise) == pytest.approx(12 / 15)
    assert mean_corruption_error(only_noise, [n for n in COMMON if n not in NOISE]) == pytest.approx(1.0)


def test_relative_mce_counts_what_corruption_adds():
    assert mean_corruption_error(ALEXNET_ERROR, clean=ALEXNET_CLEAN_ERROR) == pytest.approx(1.0)
    unmoved = dict.fromkeys(COMMON, 0.2)
    assert mean_corruption_error(unmoved, clean=0.2) == 0.0
    # the errors of ResNet-50 from the authors' table of CEs (in whole per cent), and its error on clean images
    table = np.array([80, 82, 83, 75, 89, 78, 80, 78, 75, 66, 57, 71, 85, 77, 77]) / 100
    errors = {name: quotient * ALEXNET_ERROR[name] for name, quotient in zip(COMMON, table, strict=True)}
    assert mean_corruption_error(errors, clean=0.2385) == pytest.approx(1.05, abs=0.006)


def test_the_interval_of_a_mean_over_images():
    assert bootstrap(np.full(50, 0.3)) == pytest.approx((0.3, 0.3))
    values = np.random.default_rng(1).random(400)
    low, high = bootstrap(values)
    half = 1.96 * values.std() / 20
    assert low == pytest.approx(values.mean() - half, abs=0.005) and high == pytest.approx(
        values.mean() + half, abs=0.005
    )
    assert bootstrap(values) == (low, high)


def test_types_by_name_and_by_group():
    assert chosen_types(("common",)) == list(COMMON)
    assert chosen_types(("fog", "noise", "fog")) == [*NOISE, "fog"]
    with pytest.raises(UserError, match="did you mean 'fog'"):
        chosen_types(("fgo",))


@pytest.mark.parametrize(
    "settings, words",
    [
        ({"types": ("snwo",)}, "did you mean 'snow'"),
        ({"severities": (6,)}, "less than or equal to 5"),
        ({"constants": "mnist"}, "constants"),
        ({"tier": "fast"}, "'tier' is a setting of suite=autoattack"),
        ({"threat": "l2:1"}, "'threat' is a setting of suite=attacks or autoattack"),
        ({"files": "somewhere", "frost": "ice"}, "frost is for regenerated images"),
        ({"files": "somewhere", "constants": "cifar"}, "constants is for regenerated images"),
    ],
)
def test_mistakes(settings, words):
    with pytest.raises(UserError, match=words):
        ht.evaluate(Bright(), (X, Y), suite="corruptions", quiet=True, **settings)


def test_imagenets_constants_and_all_types_give_mce():
    found = ht.evaluate(Bright(), (X[:4], Y[:4]), suite="corruptions", constants="imagenet", quiet=True)
    errors = {
        name: 1 - np.mean([found.verdicts[f"correct@{name}/{severity}"].mean() for severity in range(1, 6)])
        for name in COMMON
    }
    whole, quiet = [result for result in found.results if result.metric == "mean_corruption_error"]
    relative = found.results[-1]
    assert relative.metric == "relative_corruption_error"
    assert relative.value == pytest.approx(mean_corruption_error(errors, clean=1 - found.clean_accuracy))
    assert whole.attack == "15 common types × 5 severities, frost drawn"
    assert quiet.attack.startswith("12 common types without noise")
    assert whole.value == pytest.approx(mean_corruption_error(errors))
    assert quiet.value == pytest.approx(mean_corruption_error(errors, [name for name in COMMON if name not in NOISE]))
    assert whole.low <= whole.value <= whole.high


def test_images_may_go_through_jpeg_as_those_of_imagenet_c_did():
    plain = ht.evaluate(Bright(), (X, Y), **FEW)
    stored = ht.evaluate(Bright(), (X, Y), jpeg=85, **FEW)
    assert stored.results[-1].attack_settings["jpeg"] == 85 and "jpeg" not in plain.results[-1].attack_settings
    (view,) = corruption_views(("contrast",), (5,), "cifar", seed=0, frost=None, jpeg=85)
    wanted = compress(corrupt(X, torch.arange(40), "contrast", 5, constants="cifar"), 85)
    assert torch.equal(view.show(X, torch.arange(40)), wanted)
    confidence = [one.verdicts["confidence@contrast/5"] for one in (plain, stored)]
    assert not np.array_equal(*confidence)
    with pytest.raises(UserError, match="jpeg is for regenerated images"):
        ht.evaluate(Bright(), (X, Y), suite="corruptions", files="somewhere", jpeg=85, quiet=True)


def test_means_under_other_overlays_of_frost_do_not_compare(tmp_path):
    for number in range(1, 6):
        Image.fromarray(np.full((40, 40, 3), 40 * number, dtype=np.uint8)).save(tmp_path / f"frost{number}.png")
    few = {"suite": "corruptions", "types": ("frost", "fog"), "severities": (1,), "quiet": True}
    drawn, other = (ht.evaluate(Bright(), (X[:4], Y[:4]), frost=frost, **few) for frost in (None, str(tmp_path)))
    assert comparable(drawn.results[-1]) != comparable(other.results[-1])
    assert other.results[-1].attack_settings["overlays"] == "other overlays"


def test_other_files_are_another_evaluation(tmp_path):
    """Of the same layout, in another folder, or made anew with another seed in the same."""

    def write(folder, value, seed):
        folder.mkdir(exist_ok=True)
        np.save(folder / "fog.npy", np.full((20, 32, 32, 3), value, dtype=np.uint8))
        np.save(folder / "labels.npy", np.tile(np.arange(4) % 2, 5))
        mark_regenerated(folder, seed=seed)
        x, y = torch.zeros(4, 3, 32, 32), torch.arange(4) % 2
        few = {"suite": "corruptions", "types": ("fog",), "severities": (1,), "quiet": True}
        return ht.evaluate(Bright(), (x, y), files=str(folder), folder=tmp_path / "run", **few)

    dark, bright = write(tmp_path / "a", 0, seed=0), write(tmp_path / "b", 255, seed=0)
    again = write(tmp_path / "a", 255, seed=1)
    assert len({dark.id, bright.id, again.id}) == 3
    assert [one.verdicts["correct@fog/1"].tolist() for one in (dark, bright, again)] == [
        [True, False, True, False], [False, True, False, True], [False, True, False, True]
    ]  # fmt: skip
    assert comparable(dark.results[-1]) == comparable(bright.results[-1])
    assert dark.results[-1].attack_settings["files"] == "cifar10c"


@pytest.mark.parametrize(
    "settings",
    [
        {"suite": "corruptions", "types": ("contrast",), "severities": (5,)},
        {"suite": "perturbations", "types": ("brightness",)},
        {"suite": "patches", "patches": {"kinds": ("drop",), "masks": 1, "share": 1.0}},
    ],
)
def test_nan_is_no_answer(settings):
    """Of NaN the largest is the first: class 0 would be right."""

    class Breaks(Bright):
        def forward(self, x):
            return super().forward(x).masked_fill(x.amax(dim=(1, 2, 3))[:, None] < 0.99, float("nan"))

    x = X[:4].clone()
    x[:, :, 0, 0] = 1
    with pytest.raises(UserError, match="NaN or infinite logits on images under"):
        ht.evaluate(Breaks(), (x, torch.zeros(4, dtype=torch.int64)), quiet=True, **settings)
