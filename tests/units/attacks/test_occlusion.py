"""Occlusion: what is covered and with what, the worst of several tries, and what it reports."""

import itertools

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from hardtack.attacks import Occlusion
from hardtack.attacks.losses import margin
from hardtack.base import config
from hardtack.base.errors import UserError
from hardtack.base.registry import attacks
from hardtack.models import load_model

VIT = load_model("vit_digits", seed=0)  # 16 patches of 8 pixels
X = 0.1 + 0.8 * torch.rand(12, 3, 32, 32, generator=torch.Generator().manual_seed(0))
with torch.no_grad():
    Y = VIT(X).argmax(1)


class Mean(nn.Module):
    """Two classes by brightness. Counts its passes, and states no patch size."""

    def __init__(self):
        super().__init__()
        self.passes = 0

    def forward(self, x):
        self.passes += 1
        height = x.flatten(1).mean(1)
        return torch.stack([height, 1 - height], dim=1)


def occluded(model=VIT, x=X, y=Y, keys=None, **settings):
    return Occlusion(**settings).run(model, x, y, keys=keys)


def covered(x_adv, x=X, size=8):
    """N×rows×columns: the share of each patch that differs."""
    differs = (x_adv != x).any(dim=1).float()
    return differs.unfold(1, size, size).unfold(2, size, size).flatten(3).mean(dim=3)


# ---------------------------------------------------------------- what is covered


@pytest.mark.parametrize(
    "pixels, size, share, count",
    [(224, 16, None, 20), (32, 4, 0.1, 7), (32, 2, 0.1, 26), (28, 4, 0.1, 5), (32, 8, 0.1, 2), (32, 8, 1.0, 16)],
)
def test_the_share_is_the_papers(pixels, size, share, count):
    x = torch.full((3, 3, pixels, pixels), 0.5)
    attack = Occlusion(share=share, patch_size=size, fill="zero")
    x_adv = attack(Mean(), x, torch.zeros(3, dtype=torch.int64))
    shares = covered(x_adv, x, size).flatten(1)
    assert ((shares == 1).sum(1) == count).all() and ((shares == 0).sum(1) == shares.shape[1] - count).all()
    assert attack.allows(x_adv, x).all()


def test_whole_patches_of_the_models_size_are_covered():
    shares = covered(occluded(patches=3).x_adv).flatten(1)
    assert ((shares == 1).sum(1) == 3).all() and ((shares == 0).sum(1) == 13).all()


@pytest.mark.parametrize("pixels, size", [(32, 4), (64, 8), (128, 16), (224, 16)])
def test_usual_sizes_where_the_model_states_none(pixels, size):
    x = torch.full((2, 3, pixels, pixels), 0.5)
    x_adv = Occlusion(patches=1, fill="zero")(Mean(), x, torch.zeros(2, dtype=torch.int64))
    assert ((x_adv != x).any(1).flatten(1).sum(1) == size**2).all()
    assert (covered(x_adv, x, size).flatten(1).sum(1) == 1).all()


def test_images_that_patches_do_not_tile():
    x = torch.full((40, 3, 10, 7), 0.5)
    attack = Occlusion(patches=1, patch_size=4, fill="zero")
    x_adv = attack(Mean(), x, torch.zeros(40, dtype=torch.int64))
    assert set((x_adv != x).any(1).flatten(1).sum(1).tolist()) == {16, 12, 8, 6}, "the corner too is reached"
    assert attack.allows(x_adv, x).all()


def test_fillings():
    noise, zero, mean = (occluded(patches=4, fill=fill).x_adv for fill in ("noise", "zero", "mean"))
    where = (zero != X).any(dim=1, keepdim=True).expand_as(X)
    assert torch.equal(zero[where], torch.zeros_like(zero[where])), "the same patches, whatever the filling"
    assert torch.equal(mean, torch.where(where, X.mean(dim=(2, 3), keepdim=True), X))
    drawn = noise[where]
    assert abs(drawn.mean() - 0.5) < 0.02 and abs(drawn.std() - 12**-0.5) < 0.01
    assert drawn.min() < 0.01 and drawn.max() > 0.99, "the whole range of a pixel"
    assert torch.equal(noise[~where], X[~where])


def test_each_patch_is_covered_as_often_as_any_other():
    x = torch.full((4000, 3, 8, 8), 0.5)
    x_adv = Occlusion(patches=3, patch_size=2, fill="zero")(Mean(), x, torch.zeros(4000, dtype=torch.int64))
    often = covered(x_adv, x, 2).flatten(1).mean(0)
    assert (often - 3 / 16).abs().max() < 5 * (3 / 16 / 4000) ** 0.5


def test_a_smaller_threat_draws_the_cover_back():
    for threat in ("linf:8/255", "l2:0.5", "l1:3"):
        attack = Occlusion(threat=threat)
        x_adv = attack(VIT, X, Y)
        assert attack.threat.contains(x_adv, X).all() and attack.allows(x_adv, X, VIT).all()
        assert (attack.threat.size(x_adv - X) > 0.9 * attack.threat.radius).all()


def test_what_is_allowed():
    x_adv = X[:3].clone()
    x_adv[0, :, :8, :8] = 0.0
    x_adv[1, 0, 7:9, 3] = 0.0  # two pixels on either side of a border
    for allowed in (
        Occlusion(patches=1, patch_size=8).allows(x_adv, X[:3]),
        Occlusion(patches=1).allows(x_adv, X[:3], VIT),
    ):
        assert allowed.tolist() == [True, False, True]
    assert Occlusion(patches=2, patch_size=8).allows(x_adv, X[:3]).all()
    assert not Occlusion(patches=1).allows(X[:1] * 0, X[:1]).item()


def test_what_is_settled_is_what_is_done():
    for model, size, count in ((VIT, 8, 2), (Mean(), 4, 7)):  # a tenth of 16 and of 64
        settled, note = Occlusion().settle(model, X)
        assert (settled.patch_size, settled.patches, note) == (size, count, "")
        assert settled.limits == f"{count} patches of {size}×{size}, chosen at random"
        assert torch.equal(settled(model, X, Y * 0), Occlusion()(model, X, Y * 0))


# ---------------------------------------------------------------- the worst of several


def test_more_tries_are_never_milder():
    tries = (1, 2, 5, 20)
    found = [occluded(tries=count) for count in tries]
    for count, (fewer, more) in zip(tries, itertools.pairwise(found), strict=False):
        assert (more.best_loss >= fewer.best_loss).all() and (more.fooled | ~fewer.fooled).all()
        assert torch.equal(more.broken_at[fewer.fooled], fewer.broken_at[fewer.fooled])
        assert (more.broken_at[more.fooled & ~fewer.fooled] >= count).all(), "broken_at is the try"
    assert found[-1].fooled.sum() > found[0].fooled.sum()


def test_the_worst_is_the_one_of_lowest_margin():
    worst = occluded(tries=6)
    singles = torch.stack([Occlusion(tries=count).run(VIT, X, Y).best_loss for count in range(1, 7)])
    with torch.no_grad():
        assert torch.allclose(margin(VIT(worst.x_adv), Y), worst.best_loss, atol=1e-5)
    assert torch.equal(singles.amax(0), worst.best_loss)
    assert torch.equal(worst.fooled, worst.best_loss > 0)


def test_one_pass_per_try():
    model = Mean()
    Occlusion(tries=7)(model, X, Y * 0)
    assert model.passes == 7


def test_targets():
    with torch.no_grad():
        target = VIT(X).topk(2).indices[:, 1]
    chosen, given = occluded(target="runner_up", tries=20), Occlusion(tries=20).run(VIT, X, Y, target=target)
    assert torch.equal(chosen.x_adv, given.x_adv)
    with torch.no_grad():
        assert torch.equal(chosen.fooled, VIT(chosen.x_adv).argmax(1) == target) and chosen.fooled.any()
    assert torch.equal(occluded(y=nn.functional.one_hot(Y, 10).float()).x_adv, occluded().x_adv)


def test_nothing_claims_to_have_climbed():
    found = occluded()
    assert not found.zero_gradient.any() and not found.first_loss.isfinite().any()


def test_logits_that_are_not_numbers_are_no_success():
    class Broken(nn.Module):
        def forward(self, x):
            return VIT(x) * torch.nan

    found = occluded(Broken())
    assert found.not_finite.all() and not found.fooled.any() and (found.broken_at == -1).all()


# ---------------------------------------------------------------- a pure function that leaves no trace


@pytest.mark.parametrize("settings", [{"tries": 1}, {"tries": 3, "fill": "zero"}, {"tries": 2, "target": "random"}])
def test_neither_batch_nor_order_matters(settings):
    attack = Occlusion(**settings)
    keys = torch.tensor([10, 3, 77, 5, 2**40, 0])
    whole = attack(VIT, X[:6], Y[:6], keys=keys)
    parts = [attack(VIT, X[r], Y[r], keys=keys[r]) for r in (slice(0, 1), slice(1, 4), slice(4, 6))]
    assert torch.equal(torch.cat(parts), whole)
    order = torch.tensor([4, 2, 0, 5, 1, 3])
    assert torch.equal(attack(VIT, X[order], Y[order], keys=keys[order]), whole[order])
    assert not torch.equal(attack(VIT, X[:6], Y[:6], keys=keys + 1), whole), "the keys do matter"
    assert not torch.equal(Occlusion(seed=1, **settings)(VIT, X[:6], Y[:6], keys=keys), whole)


@pytest.mark.parametrize("mode", ["eval", "train"])
def test_nothing_else_is_touched(mode):
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Dropout(0.5), nn.Flatten(), nn.LazyLinear(10))
    with torch.random.fork_rng():
        model(X).sum().backward()
    model[1].eval()

    def everything():
        tensors = [*model.parameters(), *model.buffers(), *(p.grad for p in model.parameters()), X, Y]
        return [tensor.detach().clone() for tensor in (*tensors, torch.get_rng_state())]

    before, flags = everything(), [module.training for module in model.modules()]
    with torch.inference_mode():
        x_adv = Occlusion(mode=mode, tries=2)(model, X, Y)
    assert all(torch.equal(a, b) for a, b in zip(before, everything(), strict=True))
    assert flags == [module.training for module in model.modules()]
    assert x_adv.data_ptr() != X.data_ptr() and not x_adv.requires_grad and not x_adv.is_inference()


@pytest.mark.parametrize("fill", ["noise", "mean"])
def test_the_tries_never_wait_for_the_device(fill):
    """Fake tensors have shapes and no numbers: whoever asks for one fails."""
    with FakeTensorMode(allow_non_fake_inputs=True) as fake:
        x, y = fake.from_tensor(X), fake.from_tensor(Y)
        assert Occlusion(tries=2, fill=fill, target="random").search(VIT, x, y).x_adv.shape == X.shape


# ---------------------------------------------------------------- settings


@pytest.mark.parametrize(
    "settings, words",
    [
        ({"tries": 0}, "tries must be at least 1"),
        ({"patches": 0}, "patches must be at least 1"),
        ({"patch_size": -4}, "patch_size must be at least 1"),
        ({"share": 0}, "share must lie above 0"),
        ({"share": 1.5}, "share must lie above 0"),
        ({"share": 0.1, "patches": 3}, "not both"),
        ({"fill": "grey"}, "fill'.*'noise'"),
        ({"trys": 3}, r"did you mean 'attack\.tries'"),
        ({"threat": "linf:8"}, "did you mean 'linf:8/255'"),
    ],
)
def test_impossible_settings_are_refused(settings, words):
    with pytest.raises(UserError, match=words):
        config.choose(attacks, {"name": "occlusion", **settings}, path="attack")


def test_settings_that_do_not_fit_the_image():
    with pytest.raises(UserError, match="only 16 patches of 8 pixels"):
        occluded(patches=17)
    with pytest.raises(UserError, match="patch_size is 40 pixels"):
        occluded(patch_size=40)


def test_an_attack_is_written_and_read_back():
    attack = Occlusion(share="1/4", tries=5, fill="mean")
    assert attack.share == 0.25 and config.choose(attacks, config.plain(attack)) == attack
    assert config.choose(attacks, "occlusion") == Occlusion() and str(Occlusion().threat) == "linf:1"
