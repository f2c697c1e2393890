"""suite=patches: the same masks for every kind of damage, numbers known in closed form, and whatever the chunks."""

import numpy as np
import pytest
import torch
from torch import nn

import hardtack as ht
from hardtack.attacks.pool.attack_run import counted
from hardtack.attacks.pool.verifier import Verifier
from hardtack.base import randomness
from hardtack.base.errors import UserError
from hardtack.base.runtime import Runtime
from hardtack.evaluation.masks import PatchConfig, patch_views
from hardtack.evaluation.plan import plan_evaluation
from hardtack.evaluation.suites.patches import distributions
from hardtack.models import Occluder, load_model, save_occluder
from hardtack.results import per_image
from row_models import Rows, row_pair

ALL = ("occlude", "noise", "drop", "pgd")
CPU = Runtime(device="cpu")


class Spot(nn.Module):
    """Class 1 where one pixel is bright, and nothing else matters."""

    num_classes = 2

    def forward(self, x):
        margin = 10 * (x[:, 0, 5, 6] - 0.5)
        return torch.stack([-margin, margin], dim=1)


class Plane(nn.Module):
    """Two classes on either side of a plane: raising the loss means one fixed direction for every pixel."""

    num_classes = 2

    def __init__(self, side):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, side, side, generator=torch.Generator().manual_seed(1)))

    def forward(self, x):
        margin = ((x - 0.5) * self.weight).sum(dim=(1, 2, 3)) / 10
        return torch.stack([-margin, margin], dim=1)


def images(count, side=16):
    return torch.rand(count, 3, side, side, generator=torch.Generator().manual_seed(0))


def views(model, x, seed=0, **settings):
    return {one.name: one for one in patch_views(PatchConfig(**settings), model, x.shape[1:], seed)}


def measure(model, pair, folder=None, **settings):
    patches = {name: settings.pop(name) for name in list(settings) if name not in ("chunk_size", "batch_size")}
    return ht.evaluate(
        model, pair, suite="patches", patches=patches, runtime=CPU, folder=folder, quiet=True, **settings
    )


def value(found, metric, kind):
    (result,) = [r for r in found.results if r.metric == metric and r.attack_settings["kind"] == kind]
    return result


def test_a_model_that_looks_at_one_pixel_errs_where_a_mask_covers_it():
    x = torch.ones(150, 3, 16, 16)
    found = measure(Spot(), (x, torch.ones(150, dtype=torch.int64)), kinds=("drop",), masks=40, patch_size=4)
    view, index = views(Spot(), x, kinds=("drop",), masks=40, patch_size=4)["drop"], torch.arange(150)
    covered = [view.masks.pixels(x, randomness.make_keys(index, 0, k))[:, 0, 5, 6].numpy() for k in range(40)]
    for number in range(40):
        assert np.array_equal(found.verdicts[f"right@drop/{number}"], ~covered[number])
    mean, worst = value(found, "patch_accuracy", "drop"), value(found, "worst_mask_accuracy", "drop")
    assert mean.value == pytest.approx(1 - 2 / 16, abs=3 * (2 / 16 * 14 / 16 / 6000) ** 0.5)
    assert worst.value == pytest.approx((14 / 16) ** 40, abs=0.03)
    assert worst.low <= worst.value <= worst.high and mean.low < mean.value < mean.high
    deviation = value(found, "mask_deviation", "drop")
    assert deviation.value == pytest.approx(np.std(covered, axis=0).mean()) and 0 < deviation.value < 0.5
    sure, unsure = 1 / (1 + np.exp(-10)), 1 / (1 + np.exp(10))
    confidence = value(found, "patch_confidence", "drop")
    assert confidence.value == pytest.approx(mean.value * sure + (1 - mean.value) * unsure, abs=1e-6)
    assert confidence.extra["clean_confidence"] == pytest.approx(sure, abs=1e-6)
    assert np.allclose(found.verdicts["least_confidence@drop"], np.where(np.any(covered, axis=0), unsure, sure))


def test_results_say_what_was_covered():
    model = load_model("vit_digits", depth=1, num_classes=4, seed=0)  # states patches of 8
    found = measure(model, (images(5, 32), torch.zeros(5, dtype=torch.int64)), kinds=ALL, masks=3, share=0.25)
    wanted = ["patch_accuracy", "worst_mask_accuracy", "mask_deviation", "patch_confidence"]
    assert [r.metric for r in found.results[-4:]] == wanted
    for kind, own in {"occlude": {}, "noise": {"noise": 0.38}, "drop": {"fill": "zero"}, "pgd": {"steps": 5}}.items():
        result = value(found, "patch_accuracy", kind)
        assert result.attack == f"{kind} 4 of 16 patches of 8×8, 3 masks" and result.extra["source"] == "regenerated"
        wanted = {"kind": kind, "share": 0.25, "patches": 4, "patch_size": 8, "masks": 3, "choose": "random", **own}
        assert wanted.items() <= result.attack_settings.items()
        assert result.threat == ("linf:8/255" if kind == "pgd" else None)
        assert len(result.extra["distribution"]) == 3 and sum(result.extra["image_distribution"]) == 5
        assert np.mean(result.extra["distribution"]) == pytest.approx(result.value)
        assert value(found, "worst_mask_accuracy", kind).value <= min(result.extra["distribution"])
        assert f"patch accuracy {kind}" in str(found)
    assert str(found).startswith("4 of 16 patches of 8×8, 3 masks on tensors")
    for result in found.results:
        assert per_image(result, found.verdicts).mean() == pytest.approx(result.value, abs=1e-6)


def test_every_kind_damages_the_same_pixels_and_no_others():
    x, index = images(6), torch.arange(6) + 40
    y, verifier = torch.zeros(6, dtype=torch.int64), Verifier(Plane(16), CPU)
    made = views(Plane(16), x, kinds=ALL, patch_size=4, share=0.2, noise=0.2)
    masks = []
    for number in (0, 1, 7):
        shown = {kind: view.show(verifier, x, y, index, number) for kind, view in made.items()}
        changed = {kind: (image != x).any(dim=1) for kind, image in shown.items()}
        assert changed["drop"].flatten(1).sum(dim=1).tolist() == [16 * 4] * 6  # floor(0.2·15)+1 patches of 16 pixels
        for kind, image in shown.items():
            assert torch.equal(changed[kind], changed["drop"]) and image.amin() >= 0 and image.amax() <= 1
        assert (shown["pgd"] - x).abs().max() <= 8 / 255 + 1e-6
        masks.append(changed["drop"])
    assert not torch.equal(masks[0], masks[1]) and not torch.equal(masks[0][0], masks[0][1])
    other = views(Plane(16), x, seed=1, kinds=("drop",), patch_size=4, share=0.2)["drop"]
    assert not torch.equal((other.show(verifier, x, y, index, 0) != x).any(dim=1), masks[0])


def test_what_is_put_behind_a_mask():
    x, index, y = images(40), torch.arange(40), torch.zeros(40, dtype=torch.int64)
    verifier = Verifier(Plane(16), CPU)

    def behind(kind, **settings):
        shown = views(Plane(16), x, kinds=(kind,), share=1, patch_size=4, **settings)[kind]
        return shown.show(verifier, x, y, index, 0)

    assert behind("drop").abs().max() == 0
    assert torch.allclose(behind("drop", fill="mean"), x.mean(dim=(2, 3), keepdim=True).expand_as(x))
    noise = behind("occlude")
    assert noise.mean().item() == pytest.approx(0.5, abs=0.01) and noise.var().item() == pytest.approx(1 / 12, abs=2e-3)
    assert abs(np.corrcoef(noise.flatten(), x.flatten())[0, 1]) < 0.02
    added = behind("noise", noise=0.02) - x
    inside = (x > 0.1) & (x < 0.9)  # clamped nowhere
    assert added[inside].std().item() == pytest.approx(0.02, rel=0.02) and abs(added[inside].mean()) < 5e-4


def test_the_worst_mask_is_the_occlusion_attack():
    """Masks and noise are those of attack=occlusion, try by try."""
    model = Rows(rough=0.3)
    pair = row_pair(model, 60)
    found = measure(model, pair, kinds=("occlude",), masks=4, patch_size=2, share=0.1)
    attacked = ht.evaluate(
        model, pair, suite="pgd", runtime=CPU, quiet=True,
        attack={"name": "occlusion", "tries": 4, "patch_size": 2, "share": 0.1},
    )  # fmt: skip
    assert 0 < attacked.robust_accuracy < 1
    right = np.stack([found.verdicts[f"right@occlude/{number}"] for number in range(4)])
    assert np.array_equal(right.all(axis=0), attacked.robust)
    assert value(found, "worst_mask_accuracy", "occlude").value == attacked.robust_accuracy


@pytest.mark.parametrize("steps", [4, 5])
def test_pgd_on_a_plane_reaches_the_corner_behind_the_mask(steps):
    model, x, index = Plane(16), images(30), torch.arange(30)
    y, verifier = model(x).argmax(dim=1), Verifier(model, CPU, batch_size=7)
    made = views(model, x, kinds=ALL, patch_size=4, share=0.3, threat="linf:1", steps=steps, masks=3)
    corner = (model.weight.detach().sign() * (1 - 2 * y)[:, None, None, None] > 0).float()
    for number in range(3):
        covered = made["pgd"].masks.pixels(x, randomness.make_keys(index, 0, number))
        assert torch.equal(made["pgd"].show(verifier, x, y, index, number), torch.where(covered, corner, x))
    worst, *others = (
        made[kind].columns(verifier, x, y, index)[f"confidence@{kind}"] for kind in ("pgd", "occlude", "noise", "drop")
    )
    assert all((worst < other).all() for other in others)


@pytest.mark.parametrize("threat", ["linf:0.1", "l2:0.5", "l1:2"])
def test_pgd_stays_behind_the_mask_and_in_its_ball(threat):
    model = Rows()
    (x, y), index = row_pair(model, 40), torch.arange(40)
    view, verifier = (
        views(model, x, kinds=("pgd",), patch_size=2, share=0.5, threat=threat)["pgd"],
        Verifier(model, CPU),
    )
    covered = view.masks.pixels(x, randomness.make_keys(index, 0, 0)).expand_as(x)
    shown = view.show(verifier, x, y, index, 0)
    assert torch.equal(shown[~covered], x[~covered])
    assert view.config.threat.contains(shown, x).all()
    gone = model(x).log_softmax(1).gather(1, y[:, None]) - model(shown).log_softmax(1).gather(1, y[:, None])
    assert (gone > 0).float().mean() > 0.9


def test_chunks_batches_and_resuming_change_nothing(tmp_path):
    model = Rows()
    pair, how = row_pair(model, 23), {"kinds": ALL, "masks": 3, "patch_size": 2}
    whole = measure(model, pair, **how)
    pieces = measure(model, pair, tmp_path, chunk_size=7, batch_size=3, **how)
    again = measure(model, pair, tmp_path, chunk_size=11, **how)
    for name, column in whole.verdicts.items():
        assert np.array_equal(column, pieces.verdicts[name]) and np.array_equal(column, again.verdicts[name]), name
    assert [r.value for r in whole.results] == [r.value for r in pieces.results] == [r.value for r in again.results]


def test_more_masks_begin_with_the_same_ones():
    model = Rows()
    few, many = (measure(model, row_pair(model), kinds=("occlude",), masks=n, patch_size=2) for n in (2, 5))
    for number in range(2):
        name = f"right@occlude/{number}"
        assert np.array_equal(few.verdicts[name], many.verdicts[name])


def test_what_it_costs_is_known_beforehand():
    model = Rows()
    (x, y), index = row_pair(model, 5), torch.arange(5)
    for view in views(model, x, kinds=ALL, masks=3, patch_size=2, steps=4).values():
        with counted(model) as spent:
            view.columns(Verifier(model, CPU), x, y, index)
        assert tuple(spent) == tuple(cost * 5 for cost in view.cost), view.name
        one, times = view.sample()
        assert one.cost.times(times) == view.cost and times == 3
    plan = plan_evaluation(model, (x, y), runtime=CPU, suite="patches", patches={"masks": 3, "steps": 4, "kinds": ALL})
    assert (plan.most.forwards, plan.most.backwards) == (5 * (1 + 3 * (3 + 6)), 5 * 3 * 4) and plan.most.seconds > 0


def test_distributions_over_masks_and_over_images():
    right = np.zeros((4, 10), dtype=bool)
    right[1, :3] = right[2, :] = True
    right[3, :] = [1, 1, 1, 0, 0, 0, 0, 0, 0, 1]
    found = distributions(right)
    assert found["distribution"] == [0.75, 0.75, 0.75, 0.25, 0.25, 0.25, 0.25, 0.25, 0.25, 0.5]
    assert found["image_distribution"] == [1, 0, 0, 1, 1, 0, 0, 0, 0, 0, 1]
    assert distributions(right[:, :3])["image_distribution"] == [1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3]


def test_an_occluder_chooses(tmp_path):
    torch.manual_seed(0)
    occluder, file = Occluder(16, 4, 0.2), tmp_path / "occluder.safetensors"
    save_occluder(file, occluder)
    x, model = images(12), Plane(16)
    y = model(x).argmax(dim=1)
    view = views(model, x, kinds=("drop",), choose="occluder", occluder=str(file))["drop"]
    shown = view.show(Verifier(model, CPU), x, y, torch.arange(12), 0)
    gone = occluder(x).repeat_interleave(4, dim=1).repeat_interleave(4, dim=2)[:, None]
    assert torch.equal(shown, x * (1 - gone))
    found = measure(model, (x, y), kinds=("drop",), choose="occluder", occluder=str(file))
    result = value(found, "patch_accuracy", "drop")
    assert result.attack == "drop 4 of 16 patches of 4×4, chosen by an occluder"
    assert 0 < result.value < 1
    assert np.array_equal(found.verdicts["right@drop/0"], model(shown).argmax(dim=1) == y)
    assert {"share": 0.2, "masks": 1, "choose": "occluder"}.items() <= result.attack_settings.items()
    digest = result.attack_settings["occluder"]
    save_occluder(file, Occluder(16, 4, 0.2))
    assert views(model, x, choose="occluder", occluder=str(file))["drop"].settings["occluder"] != digest
    with pytest.raises(UserError, match="made for images of 16×16, found 32×32"):
        views(model, images(2, 32), choose="occluder", occluder=str(file))


@pytest.mark.parametrize(
    "settings, words",
    [
        ({"kinds": ("occlud",)}, "occlude"),
        ({"share": 0}, "share must lie above 0"),
        ({"masks": 0}, "greater than or equal to 1"),
        ({"noise": 0}, "noise must be positive"),
        ({"choose": "occluder"}, "go together"),
        ({"occluder": "x.safetensors"}, "go together"),
        ({"choose": "occluder", "occluder": "x.safetensors", "masks": 5}, "leave out masks"),
        ({"choose": "occluder", "occluder": "x.safetensors"}, "there is no weights file"),
        ({"patch_size": 99}, "patch_size is 99 pixels"),
        ({"mask": 3}, r"did you mean 'patches\.masks'"),
    ],
)
def test_mistakes(settings, words):
    with pytest.raises(UserError, match=words):
        measure(Plane(16), (images(2), torch.zeros(2, dtype=torch.int64)), **settings)


def test_other_suites_do_not_take_its_settings():
    with pytest.raises(UserError, match="'patches' is a setting of suite=patches"):
        ht.evaluate(Plane(16), (images(2), torch.zeros(2, dtype=torch.int64)), suite="pgd", patches={"masks": 3})
