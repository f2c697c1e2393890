"""Patch-Fool: which patches it chooses, what it changes, how well it climbs, and what it says where it cannot."""

import dataclasses
import functools
import itertools
import warnings

import pytest
import torch
from linear_models import SHAPE, Linear, best_gain, gain, images, labels
from torch import nn
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode

from hardtack.attacks import Occlusion, PatchFool, patch_fool
from hardtack.attacks.patches import Tokens, log_attention, token_weights
from hardtack.base import config
from hardtack.base.errors import UserError
from hardtack.base.registry import attacks
from hardtack.models import load_model, tap
from hardtack.threats import balls

SMALL = {"image_size": 32, "patch_size": 4, "depth": 3}
SWIN = {"image_size": 64, "window_size": 4, "embed_dim": 24, "depths": (2, 2), "num_heads": (2, 4)}
VIT = load_model("vit_digits", seed=0)  # 16 patches of 8 pixels, four blocks
X = torch.rand(12, 3, 32, 32, generator=torch.Generator().manual_seed(0))
with torch.no_grad():
    Y = VIT(X).argmax(1)  # every image starts out correct


@functools.cache
def loaded(name, **options):
    return load_model(name, num_classes=7, seed=3, **options)


def outcome(model=VIT, x=X, y=Y, keys=None, **settings):
    return PatchFool(**{"steps": 10, **settings}).run(model, x, y, keys=keys)


def changed_patches(x_adv, x=X, size=8):
    """N×rows×columns: the patches in which an image differs."""
    differs = (x_adv != x).any(dim=1)
    return differs.unfold(1, size, size).unfold(2, size, size).flatten(3).any(dim=3)


@torch.no_grad()
def most_attended(model, x, block, prefix=0):
    with tap(model) as taps:
        model(x)
    return taps.attention[block].mean(dim=(1, 2))[:, prefix:].argmax(dim=1)


# ---------------------------------------------------------------- which patches


@pytest.mark.parametrize("block, read", [(0, 0), (2, 2), (-1, 3), (-4, 0), (None, 3)])
def test_the_patch_that_receives_most_attention_is_chosen(block, read):
    changed = changed_patches(outcome(block=block, steps=2).x_adv).flatten(1)
    assert (changed.sum(1) == 1).all()
    assert torch.equal(changed.float().argmax(1), most_attended(VIT, X, read))


@pytest.mark.parametrize("block", [4, 99, -5])
def test_a_block_that_is_not_there_is_an_error(block):
    with pytest.raises(UserError, match=f"block={block}.*4 blocks of this model, 0 to 3 or -4 to -1"):
        outcome(block=block)
    with pytest.raises(UserError, match=f"block={block}"):
        PatchFool(block=block).settle(VIT, X)
    assert outcome(block=block, choose="saliency", steps=1).x_adv.shape == X.shape, "no block is read"


def test_what_is_settled_is_what_is_done():
    """With what the model decides written out the attack is the same, and says what may change."""
    settled, note = PatchFool(steps=3, patches=2).settle(VIT, X)
    assert (settled.patch_size, settled.choose, note) == (8, "attention", "")
    assert settled.limits == "2 patches of 8×8, chosen by attention"
    assert torch.equal(settled(VIT, X, Y), outcome(steps=3, patches=2).x_adv)
    assert PatchFool(patches=None, pixels=1).settle(VIT, X)[0].limits == "1 pixel"
    assert (
        PatchFool(pixels=5, choose="random").settle(VIT, X)[0].limits == "5 pixels of 1 patch of 8×8, chosen at random"
    )


def test_saliency_chooses_the_patch_of_the_largest_gradient():
    x = X.clone().requires_grad_()
    (slope,) = torch.autograd.grad(nn.functional.cross_entropy(VIT(x), Y, reduction="sum"), x)
    expected = slope.abs().sum(1).unfold(1, 8, 8).unfold(2, 8, 8).flatten(3).sum(3).flatten(1).argmax(1)
    changed = changed_patches(outcome(choose="saliency", steps=2).x_adv).flatten(1)
    assert torch.equal(changed.float().argmax(1), expected)


def test_a_random_choice_belongs_to_the_image_and_the_seed():
    def chosen(**settings):
        return changed_patches(outcome(choose="random", steps=1, **settings).x_adv)

    assert torch.equal(chosen(), chosen(y=(Y + 1) % 10)), "the label plays no part"
    assert not torch.equal(chosen(), chosen(seed=1)) and not torch.equal(chosen(), chosen(keys=torch.arange(12) + 12))
    assert len(chosen().flatten(1).float().argmax(1).unique()) > 4


@pytest.mark.parametrize("patches", [1, 3, 16])
@pytest.mark.parametrize("choose", ["attention", "saliency", "random"])
def test_exactly_so_many_patches_change(patches, choose):
    found = outcome(patches=patches, choose=choose, steps=2)
    assert (changed_patches(found.x_adv).flatten(1).sum(1) == patches).all()
    attack = PatchFool(patches=patches)
    assert attack.allows(found.x_adv, X).all() and attack.allows(found.x_adv, X, VIT).all()


def test_patches_of_another_size_than_the_tokens():
    for size in (4, 16, 12):  # 12 does not divide 32: patches at the edge are cut off
        attack = PatchFool(patch_size=size, steps=2)
        found = attack.run(VIT, X, Y)
        assert attack.allows(found.x_adv, X).all()
        assert ((found.x_adv != X).any(1).flatten(1).sum(1) <= size**2).all()


def test_what_is_allowed():
    x_adv = X.clone()
    x_adv[0, :, :8, :8] = 0.5  # the first patch
    x_adv[1, 0, 7:9, 3] = 0.5  # two pixels on either side of a border
    x_adv[2] = 0.5
    allowed = PatchFool(patch_size=8).allows(x_adv[:4], X[:4])
    assert allowed.tolist() == [True, False, False, True]
    assert PatchFool().allows(x_adv[:4], X[:4], VIT).tolist() == [True, False, False, True]
    assert PatchFool().allows(x_adv[:4], X[:4]).tolist() == [True, True, False, True], "on a grid of 16 pixels"
    assert PatchFool(patch_size=8, patches=2).allows(x_adv[:4], X[:4]).tolist() == [True, True, False, True]
    assert PatchFool(patches=None, pixels=2).allows(x_adv[:4], X[:4]).tolist() == [False, True, False, True]


# ---------------------------------------------------------------- how well it climbs


def test_it_beats_random_noise_on_a_patch():
    found = outcome(steps=40)
    noise = Occlusion(patches=1, tries=41).run(VIT, X, Y)
    assert found.fooled.all() and noise.fooled.sum() <= 9
    assert (found.best_loss > 1.2 * nn.functional.cross_entropy(VIT(noise.x_adv), Y, reduction="none")).all()


@pytest.mark.parametrize("threat, share", [("linf:1", 0.999), ("linf:0.1", 0.999), ("l2:0.5", 0.99), ("l1:2", 0.9)])
def test_it_reaches_the_optimum_of_a_linear_model(threat, share):
    """In closed form: within its patch it climbs as far as ball and box allow."""
    model, x, y = Linear(), images(), labels()
    attack = PatchFool(patch_size=2, choose="random", attention_weight=0, threat=threat)
    x_adv = attack(model, x, y)
    free = cover_of(attack, model, x, y)
    slope = model.slope(y) * free
    reached = gain(slope, x, x_adv) / best_gain(slope, x, attack.threat.radius, attack.threat.norm)
    assert (reached > share).all() and (reached < 1 + 1e-5).all()
    assert torch.equal(torch.where(free, x, x_adv), x) and attack.threat.contains(x_adv, x).all()


def cover_of(attack, model, x, y):
    keys = patch_fool.randomness.make_keys(torch.arange(len(x)), attack.seed)
    return attack._territory(model, x, y, keys)[0]


class Sure(nn.Module):
    """So sure of class 0 that the cross-entropy is 0 in fp32 and its gradient below 1e-9."""

    def forward(self, x):
        return 8 * LINEAR(x) + torch.tensor([30.0, 0.0])


LINEAR = Linear()


def test_a_sure_model_moves_it_all_the_same():
    y = labels() * 0
    found = outcome(Sure(), images(), y, patches=4, patch_size=2, choose="random", attention_weight=0, steps=60)
    assert (found.first_loss < 1e-7).sum() > 8 and not found.zero_gradient.any() and found.fooled.sum() > 8


def test_more_steps_lose_nothing():
    fewer, more = outcome(steps=3), outcome(steps=12)
    assert (more.fooled | ~fewer.fooled).all() and more.fooled.sum() > fewer.fooled.sum()
    assert torch.equal(more.broken_at[fewer.fooled], fewer.broken_at[fewer.fooled])
    same = more.fooled == fewer.fooled
    assert (more.best_loss >= fewer.best_loss)[same].all()


@pytest.mark.parametrize("settings", [{}, {"target": "runner_up"}, {"pixels": 16}, {"threat": "linf:0.1"}])
def test_fooled_is_what_a_fresh_look_at_the_images_says(settings):
    found = outcome(**settings)
    with torch.no_grad():
        clean, logits = VIT(X), VIT(found.x_adv)
    goal = clean.topk(2).indices[:, 1]
    assert torch.equal(found.fooled, logits.argmax(1) == goal if "target" in settings else logits.argmax(1) != Y)
    assert found.fooled.any() and torch.equal(found.fooled, found.broken_at >= 0)
    sign, label = (-1, goal) if "target" in settings else (1, Y)
    loss = sign * nn.functional.cross_entropy(logits, label, reduction="none")
    assert torch.allclose(found.best_loss, loss, atol=1e-4)


def test_a_target_may_be_given():
    target = VIT(X).topk(2).indices[:, 1]
    attack = PatchFool(steps=10)
    given = attack.run(VIT, X, Y, target=target)
    assert torch.equal(given.x_adv, outcome(target="runner_up").x_adv)
    soft = nn.functional.one_hot(Y, 10).float()
    assert torch.equal(attack(VIT, X, soft), attack(VIT, X, Y)), "probabilities mean their largest"


# ---------------------------------------------------------------- mild and sparse


@pytest.mark.parametrize("threat", ["linf:8/255", "l2:0.5", "l1:3", "linf:0"])
@pytest.mark.parametrize("pixels", [None, 9])
def test_mild_attacks_stay_in_the_ball(threat, pixels):
    attack = PatchFool(threat=threat, steps=10, pixels=pixels)
    found = attack.run(VIT, X, Y)
    assert attack.threat.contains(found.x_adv, X).all() and attack.allows(found.x_adv, X, VIT).all()
    if attack.threat.eps == 0:
        assert torch.equal(found.x_adv, X)
    else:
        assert (attack.threat.size(found.x_adv - X) > 0.5 * attack.threat.radius).all(), "and use it"


def pixel_counts(x_adv):
    return (x_adv != X).any(dim=1).flatten(1).sum(dim=1)


def test_sparse_attacks_change_so_many_pixels():
    inside, anywhere = outcome(pixels=5), outcome(pixels=5, patches=None)
    for found in (inside, anywhere):
        assert (pixel_counts(found.x_adv) <= 5).all() and (pixel_counts(found.x_adv) >= 4).all()
    assert (changed_patches(inside.x_adv).flatten(1).sum(1) == 1).all()
    assert (changed_patches(anywhere.x_adv).flatten(1).sum(1) > 1).any()
    assert torch.equal(outcome(pixels=10**6).x_adv, outcome().x_adv), "more pixels than a patch has"


def test_a_sparse_attack_learns_where_its_pixels_belong(monkeypatch):
    """A linear model again: of 20 pixels it finds nearly the best five."""
    model, x, y = Linear(), images(), labels()
    slope = model.slope(y)
    best = (slope.abs() * torch.where(slope > 0, 1 - x, x)).sum(1).flatten(1).double().topk(5).values.sum(1)
    attack = PatchFool(patches=None, pixels=5)
    assert (gain(slope, x, attack(model, x, y)) / best).mean() > 0.97
    whole = patch_fool._adam
    monkeypatch.setattr(patch_fool, "_adam", lambda *given, shared: whole(*given))
    assert (gain(slope, x, attack(model, x, y)) / best).mean() < 0.7, "Adam as it is lifts all pixels alike"
    monkeypatch.setattr(patch_fool, "_PIXEL_RATE", 0.0)
    assert (gain(slope, x, attack(model, x, y)) / best).mean() < 0.7


def test_pixels_settle_for_the_last_fifth(monkeypatch):
    seen = []
    whole = PatchFool._image
    monkeypatch.setattr(
        PatchFool, "_image", lambda self, *given: seen.append(whole(self, *given)[1]) or whole(self, *given)
    )
    outcome(pixels=8, steps=30)
    moves = [(a ^ b).any().item() for a, b in itertools.pairwise(seen)]
    assert any(moves[:24]) and not any(moves[24:])


# ---------------------------------------------------------------- attention


class Deaf(nn.Module):
    """Its answers do not depend on the image, and each is worse than the one before: the last image is kept."""

    def __init__(self, body=VIT.body):
        super().__init__()
        self.body = body
        self.register_buffer("passes", torch.zeros(()))

    def forward(self, x):
        self.passes = self.passes + 1
        self.body(x)
        return torch.stack([-self.passes.expand(len(x)), self.passes.expand(len(x))], dim=1)


@pytest.mark.parametrize("patches", [1, 2])
def test_attention_is_drawn_to_the_patch(patches):
    model, y = Deaf(), torch.zeros(len(X), dtype=torch.int64)
    attack = PatchFool(steps=25, patches=patches)
    drawn, start = attack(model, X, y), dataclasses.replace(attack, steps=25, lr=1e-9)(model, X, y)
    chosen = changed_patches(drawn)
    assert torch.equal(chosen, changed_patches(start))

    @torch.no_grad()
    def received(x):
        with tap(model) as taps:
            model(x)
        return (taps.attention[1].mean(dim=(1, 2)) * chosen.flatten(1)).sum(1)

    assert (received(drawn) > 1.05 * received(start)).all()
    assert attack.run(model, X, y).zero_gradient.all(), "the loss itself has no gradient here"


def test_log_attention_is_the_papers():
    """Heads averaged, then the logarithm, then the mean over queries, of the one column of the patch."""
    weights = torch.rand(2, 3, 17, 17).softmax(-1)
    free = torch.zeros(2, 1, 32, 32, dtype=torch.bool)
    free[:, :, 8:16, 16:24] = True  # second row, third column of patches of 8 pixels: token 6, after one prefix
    shares = token_weights(free, Tokens(0, 1, 8))
    assert torch.allclose(log_attention(weights, shares), weights.mean(1)[:, :, 7].log().mean(1))


def test_conflicting_gradients_are_projected():
    slope = torch.randn(6, 3, 4, 4, generator=torch.Generator().manual_seed(0))
    pull = torch.randn(6, 3, 4, 4, generator=torch.Generator().manual_seed(1))
    pull[0], pull[1] = slope[0], -slope[1]
    before = (pull * slope).sum((1, 2, 3))
    clean = patch_fool._without_conflict(pull, slope)
    after = (clean * slope).sum((1, 2, 3))
    assert (before < 0).any() and (after >= -1e-4).all()
    assert torch.equal(clean[before > 0], pull[before > 0]) and clean[1].abs().max() < 1e-6
    assert torch.allclose(after[before < 0], torch.zeros(()), atol=1e-4), "no more is taken away than conflicts"


@pytest.mark.parametrize("pcgrad, passes", [("sum", 2), ("block", 3)])
def test_backward_passes_per_step(monkeypatch, pcgrad, passes):
    model = loaded("vit_digits", depth=6)  # its blocks 1 and 2 are drawn
    count = []
    gradient_of = patch_fool._gradient_of
    monkeypatch.setattr(patch_fool, "_gradient_of", lambda *given: count.append(1) or gradient_of(*given))
    PatchFool(steps=4, pcgrad=pcgrad)(model, X[:2], Y[:2] % 7)
    assert len(count) == 4 * passes
    count.clear()
    PatchFool(steps=4, pcgrad=pcgrad, attention_weight=0)(model, X[:2], Y[:2] % 7)
    assert len(count) == 4


# ---------------------------------------------------------------- a pure function that leaves no trace


@pytest.mark.parametrize("settings", [{}, {"pixels": 6}, {"choose": "random", "target": "random"}, {"threat": "l2:1"}])
def test_neither_batch_nor_order_matters(settings):
    attack = PatchFool(steps=3, **settings)
    keys = torch.tensor([10, 3, 77, 5, 2**40, 0])
    whole = attack(VIT, X[:6], Y[:6], keys=keys)
    parts = [attack(VIT, X[r], Y[r], keys=keys[r]) for r in (slice(0, 1), slice(1, 4), slice(4, 6))]
    assert torch.allclose(torch.cat(parts), whole, atol=2e-5)
    order = torch.tensor([4, 2, 0, 5, 1, 3])
    assert torch.allclose(attack(VIT, X[order], Y[order], keys=keys[order]), whole[order], atol=2e-5)
    assert not torch.allclose(attack(VIT, X[:6], Y[:6], keys=keys + 1), whole, atol=2e-5), "the keys do matter"


def everything(model):
    state = [torch.get_rng_state(), torch.is_grad_enabled()]
    for module in model.modules():
        state += [module.training, len(module._forward_hooks), len(module._forward_pre_hooks)]
    for tensor in (*model.parameters(), *model.buffers()):
        state += [tensor.detach().clone(), tensor.requires_grad, tensor.grad is None]
        state += [] if tensor.grad is None else [tensor.grad.clone()]
    return state


@pytest.mark.parametrize("settings", [{}, {"choose": "saliency"}, {"pixels": 4}])
def test_nothing_else_is_touched(settings):
    model = load_model("vit_digits", seed=1, drop_path=0.2)
    model(X).sum().backward()
    model.train()
    model.body.blocks[1].eval()
    model.body.head.weight.requires_grad_(False)
    x, y, before = X.clone(), Y.clone(), everything(model)
    for mode in ("eval", "train"):
        with torch.no_grad():
            x_adv = PatchFool(steps=2, mode=mode, **settings)(model, x, y)
        after = everything(model)
        assert all(
            torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b for a, b in zip(before, after, strict=True)
        )
        assert torch.equal(x, X) and torch.equal(y, Y) and x_adv.data_ptr() != x.data_ptr()
        assert not x_adv.requires_grad and x_adv.isfinite().all()
    with torch.inference_mode():
        x_adv = PatchFool(steps=2, **settings)(model, X.clone(), Y.clone())
    assert torch.equal(x_adv, PatchFool(steps=2, **settings)(model, X, Y))


@pytest.mark.parametrize("settings", [{}, {"pixels": 6}, {"choose": "saliency", "threat": "l2:1", "target": "random"}])
def test_the_loop_never_waits_for_the_device(settings, monkeypatch):
    """Fake tensors have shapes and no numbers: whoever asks for one fails."""
    monkeypatch.setattr(balls, "can_look", lambda x: False)  # as on a GPU
    with FakeTensorMode(allow_non_fake_inputs=True) as fake:
        x, y = fake.from_tensor(X), fake.from_tensor(Y)
        assert PatchFool(steps=3, **settings).search(VIT, x, y).x_adv.shape == X.shape
        with pytest.raises(DataDependentOutputException):
            x.sum().item()


class Cut(nn.Module):
    def forward(self, x):
        return VIT(x.detach())


class Broken(nn.Module):
    def forward(self, x):
        return VIT(x) * torch.nan


def test_models_without_gradients_or_numbers_are_reported():
    plain = {"patch_size": 8, "choose": "random", "attention_weight": 0}
    assert outcome(Cut(), **plain).zero_gradient.all()
    found = outcome(Broken(), **plain)
    assert found.not_finite.all() and not found.fooled.any() and found.x_adv.isfinite().all()
    assert not outcome().zero_gradient.any()


# ---------------------------------------------------------------- other architectures


@pytest.mark.parametrize(
    "name, options, prefix",
    [
        ("deit_tiny_patch16_224", SMALL, 1),
        ("deit_tiny_distilled_patch16_224", SMALL, 2),
        ("eva02_tiny_patch14_224", SMALL, 1),
        ("cait_xxs24_224", {**SMALL, "depth": 2}, 0),
    ],
)
def test_transformers_of_timm(name, options, prefix):
    model = loaded(f"timm:{name}", **options)
    x = X[:3]
    y = model(x).argmax(1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = PatchFool(steps=3, block=1).run(model, x, y)
    changed = changed_patches(found.x_adv, x, size=4).flatten(1)
    assert (changed.sum(1) == 1).all()
    assert torch.equal(changed.float().argmax(1), most_attended(model, x, 1, prefix))
    if not name.startswith("cait"):  # whose blocks weigh 1e-5 before training
        assert (found.best_loss > found.first_loss).all()


@pytest.mark.parametrize(
    "name, options",
    [
        ("rvt_tiny_32", {"widths": (16, 32), "depths": (2, 1), "heads": (2, 2)}),
        ("fan_tiny_hybrid_32", {"width": 16, "depth": 2, "heads": 2, "stem_depths": (1, 1)}),
    ],
)
@pytest.mark.parametrize("block", [0, 1])
def test_the_transformers_of_rspc(name, options, block):
    """RVT's attention masks and FAN's token mixer are read like any attention: 64 patches of 4 pixels."""
    model = loaded(name, image_size=32, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = outcome(model, X[:4], model(X[:4]).argmax(1), block=block, steps=3)
    changed = changed_patches(found.x_adv, X[:4], size=4).flatten(1)
    assert (changed.sum(1) == 1).all()
    assert torch.equal(changed.float().argmax(1), most_attended(model, X[:4], block))


def test_torchs_own_attention_and_images_that_are_not_square():
    class Encoder(nn.Module):
        """Patches of 4 pixels with a class token, which nothing announces."""

        def __init__(self):
            super().__init__()
            self.embed = nn.Conv2d(3, 16, 4, stride=4)
            layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
            self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
            self.head = nn.Linear(16, 5)

        def forward(self, x):
            tokens = self.embed(x).flatten(2).transpose(1, 2)
            return self.head(self.encoder(torch.cat([tokens[:, :1] * 0, tokens], dim=1))[:, 0])

    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = Encoder().eval()
    x = X[:3, :, :, :20]
    found = PatchFool(steps=3, choose="attention").run(model, x, model(x).argmax(1))
    changed = changed_patches(found.x_adv, x, size=4).flatten(1)
    assert torch.equal(changed.float().argmax(1), most_attended(model, x, 1, 1)) and (changed.sum(1) == 1).all()


UNREADABLE = [
    ("timm:resnet18", {"image_size": 32}, "has no attention"),
    ("timm:swin_tiny_patch4_window7_224", SWIN, "per window"),
    ("timm:xcit_nano_12_p8_224", {"image_size": 32, "depth": 2}, "not between patches"),
]


@pytest.mark.parametrize("name, options, words", UNREADABLE)
def test_models_whose_attention_cannot_be_read(name, options, words):
    model = loaded(name, **options)
    x = torch.rand(2, 3, model.image_size or 32, model.image_size or 32, generator=torch.Generator().manual_seed(0))
    y = torch.zeros(2, dtype=torch.int64)
    with pytest.raises(UserError, match=f"{words}.*use choose=saliency"):
        PatchFool(choose="attention", patch_size=8, steps=2)(model, x, y)
    with pytest.warns(UserWarning, match=f"{words}.*chosen by saliency"):
        fallen_back = PatchFool(patch_size=8, steps=2)(model, x, y)
    settled, note = PatchFool(patch_size=8, steps=2).settle(model, x)
    assert words in note and settled.limits == "1 patch of 8×8, chosen by saliency"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.equal(settled(model, x, y), fallen_back), "what was said once is not said for every batch"
        asked_for = PatchFool(patch_size=8, steps=2, choose="saliency", attention_weight=0)(model, x, y)
    assert torch.equal(fallen_back, asked_for) and (changed_patches(asked_for, x).flatten(1).sum(1) == 1).all()


def test_the_size_of_a_patch_must_come_from_somewhere():
    for side, fits in ((32, 4), (64, 8), (128, 16)):
        with pytest.raises(UserError, match=f"patch_size={fits}$"):
            outcome(loaded("timm:resnet18", image_size=side), x=torch.rand(2, 3, side, side), y=Y[:2] % 7)
    xcit = loaded("timm:xcit_nano_12_p8_224", image_size=32, depth=2)  # tokens of 8 pixels, no readable maps
    found = PatchFool(steps=1, choose="random", attention_weight=0).run(xcit, X, Y % 7)
    assert (changed_patches(found.x_adv).flatten(1).sum(1) == 1).all()
    assert PatchFool(patches=None, pixels=3, steps=2)(loaded("timm:resnet18", image_size=32), X, Y % 7).shape == X.shape


# ---------------------------------------------------------------- settings


@pytest.mark.parametrize(
    "settings, words",
    [
        ({"steps": 0}, "steps must be at least 1"),
        ({"patches": 0}, "patches must be at least 1"),
        ({"patch_size": 0}, "patch_size must be at least 1"),
        ({"pixels": -1}, "pixels must be at least 1"),
        ({"decay_every": 0}, "decay_every must be at least 1"),
        ({"lr": 0}, "lr must be positive"),
        ({"lr": float("nan")}, "lr.: input should be a finite number"),
        ({"decay": 1.5}, "decay at most 1"),
        ({"attention_weight": -1}, "attention_weight"),
        ({"patches": None}, "give patches, pixels or both"),
        ({"patches": None, "pixels": 3, "choose": "random"}, "none to choose"),
        ({"choose": "attn"}, "choose'.*'attention'"),
        ({"pcgrad": "none"}, "pcgrad'"),
        ({"target": "any"}, "target'"),
        ({"threat": "linf:8"}, "did you mean 'linf:8/255'"),
        ({"stps": 3}, r"did you mean 'attack\.steps'"),
    ],
)
def test_impossible_settings_are_refused(settings, words):
    with pytest.raises(UserError, match=words):
        config.choose(attacks, {"name": "patch_fool", **settings}, path="attack")


def test_settings_that_do_not_fit_the_image():
    with pytest.raises(UserError, match="only 16 patches of 8 pixels"):
        outcome(patches=17)
    with pytest.raises(UserError, match="patch_size is 64 pixels, but the images are 32×32"):
        outcome(patch_size=64)
    with pytest.raises(UserError, match="images are 4×5"):
        PatchFool(patch_size=5, choose="random", attention_weight=0)(Linear(), torch.rand(2, *SHAPE), labels(2))


def test_an_attack_is_written_and_read_back():
    attack = PatchFool(pixels=5, patches=2, threat="l2:0.5", choose="saliency")
    assert config.choose(attacks, config.plain(attack)) == attack and hash(attack) == hash(dataclasses.replace(attack))
    assert config.choose(attacks, "patch_fool") == PatchFool() and str(PatchFool().threat) == "linf:1"
