"""RSPC against formulas written out by hand: the loss, what is hidden, which features are aligned."""

import copy

import pytest
import torch
import torch.nn.functional as F

from hardtack.base.config import choose
from hardtack.base.errors import UserError
from hardtack.base.registry import objectives
from hardtack.models import find_blocks, load_model, tap, wrap
from hardtack.objectives import StandardConfig
from hardtack.objectives.rspc_features import aligned_blocks
from rspc_toys import MEAN, STD, TwoBlocks, build, cross_entropy, features, shown, small_vit, two_blocks
from tiny_runs import CLASSES, Linear, images, labels

# ---------------------------------------------------------------- the loss


@pytest.mark.parametrize("choose", ["learned", "random"])
def test_loss_and_gradient_are_the_papers(choose):
    x, y, objective = images(), labels(), build(choose=choose, weight=0.3)
    damaged, clean, out = shown(objective, x, y)
    assert torch.equal(clean, x) and not torch.equal(damaged, x)
    model, damaged = objective.model, damaged.detach()
    apart = sum(((a - b) ** 2).mean() for a, b in zip(features(model, x), features(model, damaged), strict=True)) / 2
    expected = cross_entropy(model, x, y) + 0.3 * apart
    assert out["alignment"].item() == pytest.approx(apart.item(), rel=1e-5) and apart.item() > 0.1
    assert out["loss"].item() == pytest.approx(expected.item(), rel=1e-5)
    assert out["natural_loss"].item() == pytest.approx(cross_entropy(model, x, y).item(), rel=1e-5)
    out["loss"].backward()
    for found, wanted in zip(
        [p.grad for p in model.parameters()], torch.autograd.grad(expected, list(model.parameters())), strict=True
    ):
        assert torch.allclose(found, wanted, rtol=1e-4, atol=1e-6)


def test_without_weight_it_is_ordinary_training():
    x, y, model = images(), labels(), small_vit()
    ours = build(model, choose="random", weight=0.0, patch_size=4, label_smoothing=0.1)(x, y)["loss"]
    plain = StandardConfig(label_smoothing=0.1).build(model)(x, y)["loss"]
    assert ours.item() == pytest.approx(plain.item(), rel=1e-6)
    pairs = zip(*(torch.autograd.grad(loss, list(model.parameters())) for loss in (ours, plain)), strict=True)
    assert all(torch.allclose(a, b, rtol=1e-4, atol=1e-7) for a, b in pairs)


def test_both_is_the_mean_of_clean_and_damaged():
    x, y, objective = images(), labels(), build(on="both", weight=0.0)
    damaged, _, out = shown(objective, x, y)
    model = objective.model
    expected = (cross_entropy(model, x, y) + cross_entropy(model, damaged, y)) / 2
    assert out["loss"].item() == pytest.approx(expected.item(), rel=1e-6)
    assert out["natural_loss"].item() == pytest.approx(cross_entropy(model, x, y).item(), rel=1e-6)


def test_a_detached_clean_branch_gets_no_gradient_of_the_alignment():
    x, y = images(), labels()
    objective = build(detach_clean=True, weight=0.3, choose="random")
    damaged, _, out = shown(objective, x, y)
    model = objective.model
    still = [feature.detach() for feature in features(model, x)]
    apart = sum(((a - b) ** 2).mean() for a, b in zip(still, features(model, damaged), strict=True)) / 2
    expected = cross_entropy(model, x, y) + 0.3 * apart
    attached = build(model, weight=0.3, choose="random")(x, y)["loss"]
    assert out["loss"].item() == pytest.approx(attached.item(), rel=1e-6), "the value is the same"
    found, wanted, other = (
        torch.autograd.grad(loss, model.body.first.b)[0] for loss in (out["loss"], expected, attached)
    )
    assert found.item() == pytest.approx(wanted.item(), rel=1e-4)
    assert abs(found - other) > 0.01


def test_the_weight_warms_up():
    x, y, objective = images(), labels(), build(weight=0.4, warmup_epochs=4)
    prepared = {epoch: objective.prepare(x, y, epoch=epoch) for epoch in (0.0, 1.0, 9.0)}
    assert [round(p["weight"].item(), 6) for p in prepared.values()] == [0.0, 0.1, 0.4]
    outs = [objective(x, y, **p) for p in prepared.values()]
    grown = [(out["loss"] - out["natural_loss"]).item() for out in outs]
    assert grown == pytest.approx([0.0, 0.1 * outs[1]["alignment"].item(), 0.4 * outs[2]["alignment"].item()], abs=1e-6)


@pytest.mark.parametrize("soft", [False, True])
def test_smoothing_and_soft_labels(soft):
    x, y, objective = images(), labels(), build(choose="random", weight=0.0, label_smoothing=0.2)
    y = torch.eye(CLASSES)[y] * 0.6 + 0.1 if soft else y
    expected = F.cross_entropy(objective.model(x), y, label_smoothing=0.2)
    assert objective(x, y)["loss"].item() == pytest.approx(expected.item(), rel=1e-6)


# ---------------------------------------------------------------- what is hidden


def hidden_patches(damaged, x, size=2):
    """N×rows×columns: whether any pixel of a patch differs."""
    return F.max_pool2d((damaged != x).any(dim=1, keepdim=True).float(), size)[:, 0]


@pytest.mark.parametrize("choose", ["learned", "random"])
@pytest.mark.parametrize("share, count", [(0.25, 4), (0.1, 2), (1.0, 16)])
def test_so_many_patches_are_replaced_by_noise_and_no_other_pixel(choose, share, count):
    x, objective = images(), build(choose=choose, share=share)
    damaged, _, out = shown(objective, x, labels())
    where = hidden_patches(damaged, x)
    assert where.sum(dim=(1, 2)).tolist() == [count] * len(x)
    assert out["hidden_share"].item() == pytest.approx(count / 16)
    noise = damaged[F.interpolate(where[:, None], scale_factor=2).expand_as(x) > 0]
    assert (
        noise.min() >= 0 and noise.max() < 1 and abs(noise.mean() - 0.5) < 0.05 and abs(noise.std() - 12**-0.5) < 0.03
    )


def test_learned_masks_are_the_occluder_s_and_random_ones_the_images_own():
    x, y = images(), labels()
    learned = build()
    damaged, _, _ = shown(learned, x, y)
    assert torch.equal(hidden_patches(damaged, x), learned.opponent.occluder(x).detach())
    masks = [
        hidden_patches(shown(build(choose="random"), x, y, keys=keys)[0], x) for keys in map(torch.arange, (12, 12))
    ]
    assert torch.equal(*masks) and len(masks[0].flatten(1).unique(dim=0)) > 6


def test_variety_tells_one_mask_for_all_from_masks_of_their_own():
    x, y = images(400), labels(400)
    drawn = build(choose="random")(x, y)["mask_variety"].item()
    alike = build()
    with torch.no_grad():  # bright images and no mixing: scores are the places' own
        alike.opponent.occluder.weigh.weight.fill_(1.0)
        alike.opponent.occluder.mix.weight.copy_(torch.diag(torch.arange(1.0, 17)))
    assert drawn == pytest.approx(1.0, abs=0.05)
    assert alike(x * 0.01 + 0.9, y)["mask_variety"].item() == 0


def test_normalised_noise_lies_between_the_mean_and_one_deviation_above():
    x = images() * 0 + 0.99  # outside of it
    damaged, _, _ = shown(build(noise="normalised", share=1.0, choose="random"), x, labels())
    for channel, (mean, std) in enumerate(zip(MEAN, STD, strict=True)):
        values = damaged[:, channel]
        assert mean <= values.min() < mean + 0.02 and mean + std - 0.02 < values.max() <= mean + std


def test_dropped_patches_are_black():
    x = images() * 0.9 + 0.05
    damaged, _, _ = shown(build(damage="drop"), x, labels())
    where = hidden_patches(damaged, x)
    assert where.sum(dim=(1, 2)).tolist() == [4] * 12
    assert torch.equal(damaged, x * (1 - F.interpolate(where[:, None], scale_factor=2)))


def test_dropped_patches_have_the_image_s_mean_colour():
    x = images() * 0.9 + 0.05
    damaged, _, _ = shown(build(damage="drop", fill="mean"), x, labels())
    where = F.interpolate(hidden_patches(damaged, x)[:, None], scale_factor=2)
    assert where.mean(dim=(1, 2, 3)).tolist() == [0.25] * 12
    colours = x.mean(dim=(2, 3), keepdim=True).expand_as(x)
    assert torch.equal(damaged, torch.where(where > 0, colours, x))


@pytest.mark.parametrize(
    "mean, std",
    [
        ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
        ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
        ((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)),
    ],
)
def test_the_published_clamp_changes_no_pixel(mean, std):
    """To the images of 0 and 1 under ImageNet's statistics, of images normalised by the statistics of the recipes."""
    imagenet, deviation = torch.tensor((0.485, 0.456, 0.406)), torch.tensor((0.229, 0.224, 0.225))
    ends = torch.stack([-imagenet / deviation, (1 - imagenet) / deviation]) * torch.tensor(std) + torch.tensor(mean)
    assert (ends[0] <= 1e-6).all() and (ends[1] >= 1 - 1e-6).all()


def test_the_published_noise_is_uniform_in_normalised_units():
    """The network's first layer must see U[0,1] in the hidden patches, whatever the statistics."""
    x, y, objective = images(64), labels(64), build(noise="normalised", share=1.0, choose="random")
    damaged, _, _ = shown(objective, x, y)
    seen = objective.model.normalise(damaged)
    assert -1e-5 < seen.min() < 0.01 and 0.99 < seen.max() < 1 + 1e-5
    assert abs(seen.mean() - 0.5) < 0.01 and abs(seen.std() - 12**-0.5) < 0.01


def test_drop_path_is_independent_for_the_damaged_and_the_clean_half():
    """Black images with dropped patches are equal in both halves: only drop path can move them apart."""
    x, y = torch.zeros(12, 3, 8, 8), labels()
    apart = [
        build(small_vit(drop_path=rate), patch_size=4, damage="drop", choose="random")(x, y)["alignment"].item()
        for rate in (0.0, 0.5)
    ]
    assert apart[0] == 0 < apart[1]


@pytest.mark.parametrize("settings", [{"choose": "random"}, {}, {"occluder_objective": "ce"}, {"patch_augment": True}])
def test_an_image_is_damaged_alike_in_every_batch(settings):
    x, y, keys = images(), labels(), torch.arange(50, 62)
    objective = build(**settings)
    whole = objective(x, y, **objective.prepare(x, y, keys=keys))
    parts = []
    for half in (slice(0, 6), slice(6, 12)):
        parts.append(objective(x[half], y[half], **objective.prepare(x[half], y[half], keys=keys[half])))
    for name in ("loss", "alignment", "damaged_accuracy"):
        assert sum(part[name] for part in parts).item() / 2 == pytest.approx(whole[name].item(), rel=1e-5)
    other = objective(x, y, **objective.prepare(x, y, keys=keys + 1))
    assert other["alignment"].item() != whole["alignment"].item()


def test_the_patches_are_the_model_s_own_unless_told():
    assert build(small_vit(), patch_size=None, share=0.1).opponent.occluder.patch_size == 4
    assert build(small_vit(), patch_size=2).opponent.occluder.side == 4
    assert build(two_blocks(), patch_size=None).opponent.occluder.patch_size == 4, "the usual one for 8 pixels"


@pytest.mark.parametrize(
    "name, options, tokens",
    [
        (
            "pvtv2_b0_32",
            {"widths": (8, 8, 8, 8), "depths": (1, 1, 1, 1), "heads": (1, 1, 1, 1), "mlp_ratios": (2, 2, 2, 2)},
            [256, 64, 16, 4],
        ),
        ("swin_tiny_patch2_window4_32", {"width": 8, "depths": (2, 1, 1), "heads": (1, 1, 1)}, [256, 256, 64, 16]),
    ],
)
def test_a_step_on_pyramids(name, options, tokens):
    """Patches are 4 pixels wide as for the ViTs of this size; blocks of all stages are aligned with equal weight."""
    model = load_model(name, num_classes=CLASSES, image_size=32, seed=0, **options).train()
    objective = build(model, patch_size=None, share=0.1, weight=0.3)
    assert objective.opponent.occluder.patch_size == 4 and objective.opponent.occluder.count == 7
    x, y = images(4, side=32), labels(4)
    damaged, clean, out = shown(objective, x, y)
    with tap(model, attention=False) as taps, torch.no_grad():
        model(torch.cat([damaged, clean]))
    assert [feature.shape[1] for feature in taps.features] == tokens
    apart = [(a - b).square().mean() for a, b in (feature.chunk(2) for feature in taps.features)]
    assert out["alignment"].item() == pytest.approx(torch.stack(apart).mean().item(), rel=1e-4)
    before = [p.clone() for p in objective.opponent.occluder.parameters()]
    out["loss"].backward()
    objective.finish_step()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
    assert any(not torch.equal(a, b) for a, b in zip(before, objective.opponent.occluder.parameters(), strict=True))


def test_patches_are_measured_before_the_loss_where_the_model_takes_any_size():
    model = load_model("pvtv2_b0_32", num_classes=CLASSES, seed=0, widths=(8, 8, 8, 8), heads=(1, 1, 1, 1))
    objective = build(model, patch_size=None, choose="random", share=0.1)
    for side, size in ((32, 4), (64, 8)):
        x, y = images(2, side=side), labels(2)
        assert objective(x, y)["hidden_share"].item() == pytest.approx(7 / 64)
        assert objective.patch_size == size


# ---------------------------------------------------------------- which features


@pytest.mark.parametrize(
    "name, options, count, outside",
    [
        ("rvt_tiny_32", {"widths": (16, 32), "depths": (2, 1), "heads": (2, 2)}, 3, 0),
        ("fan_tiny_hybrid_32", {"width": 16, "depth": 2, "heads": 2, "stem_depths": (1, 1)}, 2, 4),
        ("xcit_nano_12_patch4_32", {"width": 16, "depth": 3, "heads": 2}, 3, 2),
        ("preact_resnet18_cifar", {"width": 4}, 8, 0),
    ],
)
def test_aligned_are_blocks_that_attend_or_all_where_none_does(name, options, count, outside):
    model = load_model(name, num_classes=10, image_size=32, **options)
    blocks = aligned_blocks(model)
    assert len(blocks) == count and len(find_blocks(model)) == count + outside
    kinds = {type(block.module).__name__ for block in blocks}
    assert len(kinds) == 1, "stem and class attention are left out"
    heard = build(model, patch_size=4)
    assert heard(images(2, side=32), labels(2))["alignment"] > 0


def test_hooks_are_silent_outside_the_loss_and_copied_with_the_model_at_no_cost():
    objective = build()
    twin = copy.deepcopy(objective.model)
    before = objective(images(), labels())["alignment"]
    for model in (objective.model, twin):
        model(images(7))
        assert objective.alignment.distances is None
    assert torch.equal(objective(images(), labels())["alignment"], before)


def test_a_model_without_blocks_can_only_be_trained_on_damaged_images():
    model = wrap(Linear(), image_size=8, num_classes=CLASSES)
    with pytest.raises(UserError, match="Linear has no blocks that hardtack recognises"):
        build(model)
    out = build(model, weight=0.0, on="both")(images(), labels())
    assert out["loss"].isfinite() and "alignment" not in out


def test_a_model_that_takes_any_size_needs_one_for_its_occluder():
    model = wrap(TwoBlocks(), num_classes=CLASSES)
    with pytest.raises(UserError, match="choose=random"):
        build(model)
    assert build(model, choose="random")(images(), labels())["loss"].isfinite()


@pytest.mark.parametrize(
    "settings, fault",
    [
        ({"share": 0}, "share"), ({"share": 1.5}, "share"), ({"weight": -1}, "weight"),
        ({"patch_size": 0}, "patch_size"), ({"choose": "attention"}, "choose"),
        ({"occluder": {"lr": -1}}, r"occluder.*lr"),
        ({"occluder": {"momentum": 1}}, "momentum"), ({"occluder": {"norm": 0}}, "norm"), ({"on": "damaged"}, "on"),
    ],
)  # fmt: skip
def test_impossible_settings(settings, fault):
    with pytest.raises(UserError, match=fault):
        choose(objectives, {"name": "rspc", **settings})


def test_patches_that_do_not_fit_the_images():
    with pytest.raises(UserError, match="cannot be cut into patches of 3"):
        build(patch_size=3)
