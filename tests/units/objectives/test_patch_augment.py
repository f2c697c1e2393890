"""Patch-wise augmentation: each patch by itself, as often and as far as stated, and its loss counts."""

import pytest
import torch
import torch.nn.functional as F
from torchvision.transforms.v2.functional import resized_crop

from hardtack.base.errors import UserError
from hardtack.objectives.patch_augment import augment_patches
from rspc_toys import build, cross_entropy, shown
from tiny_runs import images, labels


def cut(x, size):
    """N×patches×3×size×size."""
    return x.unfold(2, size, size).unfold(3, size, size).permute(0, 2, 3, 1, 4, 5).flatten(1, 2)


def test_patches_stay_in_their_place_and_most_stay_as_they_are():
    x = images(64, side=32)
    out = augment_patches(x, torch.arange(64), patch_size=8)
    same = (cut(out, 8) == cut(x, 8)).flatten(2).all(dim=2).float().mean().item()
    assert same == pytest.approx(0.9**3, abs=0.03)
    assert out.min() >= 0 and out.max() <= 1


def test_a_tenth_is_mirrored_a_tenth_gets_faint_noise_a_tenth_is_cropped():
    x = images(64, side=32)
    patches, before = cut(augment_patches(x, torch.arange(64), patch_size=8), 8), cut(x, 8)
    mirrored = (patches == before.flip(-1)).flatten(2).all(dim=2)
    assert mirrored.float().mean().item() == pytest.approx(0.1 * 0.9**2, abs=0.02)
    apart = (patches - before).flatten(2)
    noisy = (apart.abs().amax(dim=2) < 0.06) & (apart.abs().amax(dim=2) > 0)
    assert noisy.float().mean().item() == pytest.approx(0.1 * 0.9**2, abs=0.02)
    assert apart[noisy].std().item() == pytest.approx(0.01, rel=0.05)


def test_a_crop_of_at_least_85_percent_enlarged():
    """On a ramp every crop is a ramp again: its slope is the side of what was cropped, its start where."""
    ramp = ((torch.arange(16) + 0.5) / 16).expand(512, 3, 16, 16).contiguous()
    out = augment_patches(ramp, torch.arange(512), patch_size=16)
    middle = out[:, 0, 8]
    slope = (middle[:, 10] - middle[:, 5]) / (5 / 16)
    cropped = (slope > 0) & ((slope - 1).abs() > 1e-3) & ((middle.diff(dim=1)[:, 3:12].std(dim=1)) < 1e-4)
    assert 20 < cropped.sum() < 60
    assert slope[cropped].min() >= 0.85**0.5 - 1e-3 and slope[cropped].max() < 1
    assert slope[cropped].square().mean().item() == pytest.approx(0.925, abs=0.02)


def test_whole_pixels_agree_with_torchvision():
    from hardtack.data.geometry import resized_crop as ours

    x = images(1, side=16)
    box = [torch.tensor([value]) for value in (1.0, 0.0, 15.0, 15.0)]
    assert torch.allclose(ours(x, *box), resized_crop(x, 1, 0, 15, 15, [16, 16], antialias=False), atol=1e-5)


def test_what_happens_to_an_image_does_not_depend_on_its_batch():
    x, keys = images(12, side=16), torch.arange(30, 42)
    whole = augment_patches(x, keys, patch_size=4)
    assert torch.equal(augment_patches(x[5:7], keys[5:7], patch_size=4), whole[5:7])
    assert not torch.equal(augment_patches(x, keys + 1, patch_size=4), whole)


def test_patches_must_fit():
    with pytest.raises(UserError, match="cannot be divided"):
        augment_patches(images(1), torch.arange(1), patch_size=3)


def test_its_loss_counts_as_much_as_that_of_the_images_themselves():
    x, y = images(), labels()
    objective = build(patch_augment=True, weight=0.3, choose="random")
    damaged, clean, out = shown(objective, x, y)
    changed = clean[12:]
    assert torch.equal(clean[:12], x) and not torch.equal(changed, x) and len(damaged) == 24
    assert not torch.equal((damaged[:12] != x), (damaged[12:] != changed)), "masks of their own"
    model, losses = objective.model, []
    for half, shift in ((clean[:12], damaged[:12]), (changed, damaged[12:])):
        blocks = [(0.5 + model.body.first.b), (0.5 + model.body.first.b) * (0.5 + model.body.second.b)]
        apart = sum(F.mse_loss(b * model.normalise(half), b * model.normalise(shift)) for b in blocks) / 2
        losses.append(cross_entropy(model, half, y) + 0.3 * apart)
    expected = sum(losses) / 2
    assert out["loss"].item() == pytest.approx(expected.item(), rel=1e-5)
    ours, theirs = (torch.autograd.grad(loss, model.body.head.head.weight)[0] for loss in (out["loss"], expected))
    assert torch.allclose(ours, theirs, rtol=1e-4, atol=1e-6)
    assert out["accuracy"].item() == pytest.approx((model(x).argmax(1) == y).float().mean().item())
