"""Which parameters a word means, and what follows from it: rates by depth, frozen parts, an l1 penalty."""

import pytest
import torch
from torch import nn

from hardtack.base.errors import UserError
from hardtack.data import batches, load_data
from hardtack.models import load_model, wrap
from hardtack.models.parts import chosen, depths
from hardtack.training import Trainer
from hardtack.training.optimise import OptimiserConfig, rate_scales, set_rates
from hardtack.training.penalty import PenaltyConfig
from tiny_runs import MODEL, Linear, tiny_recipe, write_data


def vit(**options):
    return load_model("vit_digits", num_classes=4, image_size=8, seed=0, **{**MODEL["options"], "depth": 3, **options})


def short(names):
    return {name.removeprefix("body.") for name in names}


def test_words_mean_parts_of_a_transformer():
    model = vit()
    every = short(name for name, _ in model.named_parameters())
    assert short(chosen(model, ["all"])) == every
    assert {name for name in short(chosen(model, ["qkv"])) if name.endswith("weight")} == {
        f"blocks.{block}.attn.qkv.weight" for block in range(3)
    }
    assert {name.split(".")[2] for name in short(chosen(model, ["mlp"]))} == {"mlp"}
    assert {name.split(".")[2] for name in short(chosen(model, ["attention"]))} == {"attn"}
    assert short(chosen(model, ["conv"])) == {"patch_embed.proj.weight", "patch_embed.proj.bias"}
    assert short(chosen(model, ["head"])) == {"head.weight", "head.bias"}
    assert short(chosen(model, ["embedding"])) == {name for name in every if name.startswith(("pos_", "patch_"))}
    assert short(chosen(model, ["not head"])) == every - {"head.weight", "head.bias"}
    assert short(chosen(model, ["blocks.[01]", "norm.weight"])) == {
        name for name in every if name.startswith(("blocks.0.", "blocks.1.")) or name == "norm.weight"
    }


@pytest.mark.parametrize("name", ["coatnet.arg", "xcit_nano_12_patch16_224", "pvtv2.arg"])
def test_words_mean_something_in_hybrids_too(name):
    model = load_model(name, num_classes=10, seed=0)
    sizes = {word: sum(p.numel() for p in chosen(model, [word]).values()) for word in ("conv", "qkv", "mlp", "all")}
    assert all(0 < sizes[word] < sizes["all"] for word in ("conv", "qkv", "mlp")), sizes
    overlap = set(chosen(model, ["qkv"])) & set(chosen(model, ["mlp"]))
    assert not overlap


def test_a_head_of_two_layers_is_a_head():
    assert short(chosen(load_model("vit.arg", num_classes=10, seed=0), ["head"])) == {
        f"head.{layer}.{kind}" for layer in (0, 2) for kind in ("weight", "bias")
    }


def test_a_word_that_means_nothing_is_refused():
    with pytest.raises(UserError, match=r"'bloks' is not a part.*did you mean 'blocks'"):
        chosen(vit(), ["bloks"])


def test_a_word_that_means_nothing_here_is_not_offered_again():
    """One convolution: no blocks, so no embedding, and no layer that gives a number per class."""
    bare = wrap(nn.Sequential(nn.Conv2d(3, 5, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten()), num_classes=4)
    for word in ("head", "embedding"):
        with pytest.raises(UserError) as told:
            chosen(bare, [word])
        assert str(told.value) == f"'{word}' is not a part of this model; parts: all, conv, 0"


def test_a_module_that_is_called_like_a_kind_is_found_by_its_name():
    class Sum(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = nn.Conv2d(3, 5, 8)

        def forward(self, x):
            return self.head(x).flatten(1)[:, :4]

    assert short(chosen(wrap(Sum(), num_classes=4), ["head"])) == {"head.weight", "head.bias"}


# ---------------------------------------------------------------- rates by depth


def test_rates_fall_with_depth_from_the_head_to_the_embeddings():
    model = vit(class_token=True)
    scales = {name.removeprefix("body."): scale for name, scale in rate_scales(model, layer_decay=0.5).items()}
    assert scales["head.weight"] == scales["norm.weight"] == 1
    assert [scales[f"blocks.{block}.attn.qkv.weight"] for block in range(3)] == [0.125, 0.25, 0.5]
    assert scales["pos_embed"] == scales["cls_token"] == scales["patch_embed.proj.bias"] == 0.0625


def test_what_stands_between_blocks_moves_with_the_next():
    found, top = depths(load_model("pvtv2.arg", num_classes=10, seed=0))
    assert top == 9 and found["body.head.weight"] == 9 and found["body.patch_embed.proj.weight"] == 0
    first = found["body.stages.1.blocks.0.norm1.weight"]
    assert found["body.stages.1.downsample.proj.weight"] == first == found["body.stages.0.norm.weight"] == 3


def test_set_rates_reaches_every_group_by_its_scale():
    model = vit()
    optimiser = OptimiserConfig(lr=0.1, layer_decay=0.5, head_lr=3, eps=1e-6).build(model)
    set_rates(optimiser, 0.2, None)
    assert sum(len(group["params"]) for group in optimiser.param_groups) == len(list(model.parameters()))
    rates = {id(p): group["lr"] for group in optimiser.param_groups for p in group["params"]}
    decays = {id(p): group["weight_decay"] for group in optimiser.param_groups for p in group["params"]}
    body = model.body
    assert rates[id(body.head.weight)] == pytest.approx(0.6)
    assert rates[id(body.norm.weight)] == pytest.approx(0.2)
    assert rates[id(body.blocks[0].mlp.fc1.weight)] == pytest.approx(0.2 / 8)
    assert decays[id(body.blocks[0].mlp.fc1.weight)] == 0.05 and decays[id(body.blocks[0].mlp.fc1.bias)] == 0
    assert optimiser.param_groups[0]["eps"] == 1e-6


def test_a_model_without_blocks_has_no_depths():
    with pytest.raises(UserError, match="layer_decay"):
        OptimiserConfig(layer_decay=0.75).build(wrap(Linear(), num_classes=4))


# ---------------------------------------------------------------- frozen parts, penalty


@pytest.fixture
def data(tmp_path):
    return write_data(tmp_path / "data.npz")


def trainer(tmp_path, data, model=None, **sections):
    recipe = tiny_recipe(tmp_path / "run", data, **{"augment": {}, "schedule": {"name": "constant"}, **sections})
    return Trainer(recipe, model or vit(), load_data(recipe.data, "train"), quiet=True)


def step(job):
    return job.step(next(batches(job.data, job.config.batch_size, device="cpu", shuffle_seed=3, drop_last=True)))


def test_frozen_parts_do_not_move_and_the_rest_does(tmp_path, data):
    train = {"batch_size": 8, "freeze": ["embedding", "blocks.0"], "ema": 0.5}
    job = trainer(tmp_path, data, train=train)
    before = {name: p.detach().clone() for name, p in job.model.named_parameters()}
    step(job)
    still = {name for name, p in job.model.named_parameters() if torch.equal(p, before[name])}
    assert still == set(chosen(job.model, ["embedding", "blocks.0"]))


class Normed(nn.Module):
    def __init__(self):
        super().__init__()
        self.early, self.late, self.linear = nn.BatchNorm2d(3), nn.BatchNorm2d(3), Linear()

    def forward(self, x):
        return self.linear(self.late(self.early(x)))


def test_batch_norms_of_frozen_parts_keep_their_statistics(tmp_path, data):
    train = {"batch_size": 8, "freeze": ["early"]}
    job = trainer(tmp_path, data, wrap(Normed(), num_classes=4), train=train)
    step(job)
    body = job.model.body
    assert body.early.num_batches_tracked == 0 and body.late.num_batches_tracked == 1
    assert torch.equal(body.early.running_mean, torch.zeros(3))


class Plain(nn.Module):
    """Batch norms without scale and shift: after a frozen layer, inside of a frozen part, and after what is trained."""

    def __init__(self):
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3, affine=False)
        self.second = nn.Conv2d(3, 3, 1)
        self.third = nn.Sequential(nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3, affine=False))
        self.last, self.linear = nn.BatchNorm2d(3, affine=False), Linear()

    def forward(self, x):
        return self.linear(self.last(self.third(self.second(self.norm(self.first(x))))))


@pytest.mark.parametrize(
    "words, still",
    [
        (["first", "third"], [True, True, False]),
        (["not linear"], [True, True, True]),
        (["second"], [False, False, False]),
        ([], [False, False, False]),
    ],
)
def test_batch_norms_without_parameters_lie_where_what_is_around_them_lies(tmp_path, data, words, still):
    job = trainer(tmp_path, data, wrap(Plain(), num_classes=4), train={"batch_size": 8, "freeze": words})
    step(job)
    body = job.model.body
    assert [norm.num_batches_tracked == 0 for norm in (body.norm, body.third[1], body.last)] == still


def test_freezing_everything_is_refused(tmp_path, data):
    with pytest.raises(UserError, match=r"no parameter is left.*train\.freeze"):
        trainer(tmp_path, data, train={"batch_size": 8, "freeze": ["all"]})


def test_the_penalty_pulls_by_the_sign_and_says_its_value(tmp_path, data):
    moved, value = {}, {}
    optimiser = {"name": "sgd", "lr": 0.1, "momentum": 0.0, "weight_decay": 0.0}
    for strength in (0.0, 0.01):
        model = wrap(Linear(), num_classes=4)
        with torch.no_grad():
            model.body.head.weight[0, :5] = 0.0
        before, bias = model.body.head.weight.detach().clone(), model.body.head.bias
        job = trainer(
            tmp_path, data, model, objective="standard", optimiser=optimiser, train={"batch_size": 8},
            penalty={"l1": strength},
        )  # fmt: skip
        value[strength] = step(job).get("penalty")
        moved[strength] = model.body.head.weight.detach() - before, bias.detach().clone()
    assert value[0.0] is None
    assert value[0.01].item() == pytest.approx(0.01 * before.abs().sum().item(), rel=1e-5)
    assert torch.allclose(moved[0.01][0] - moved[0.0][0], -0.1 * 0.01 * before.sign(), atol=1e-6)
    assert torch.equal(moved[0.01][1], moved[0.0][1]), "biases pay nothing"


def test_parts_are_named_by_a_word_or_several(tmp_path, data):
    one, several = {"batch_size": 8, "freeze": "head"}, {"batch_size": 8, "freeze": "[blocks.[0-1], head]"}
    assert trainer(tmp_path, data, train=one).config.freeze == ("head",)
    layers = wrap(nn.Sequential(nn.Conv2d(3, 3, 1), Linear()), num_classes=4)
    job = trainer(tmp_path, data, layers, train={"batch_size": 8, "freeze": 0}, penalty={"l1": 1, "of": 1})
    assert job.config.freeze == ("0",) and job.penalty.names == ["body.1.head.weight"]
    assert trainer(tmp_path, data, train=several).config.freeze == ("blocks.[0-1]", "head")
    assert (
        PenaltyConfig(l1=1, of="qkv,mlp").build(vit()).names
        == PenaltyConfig(l1=1, of=("qkv", "mlp")).build(vit()).names
    )


def test_the_penalty_is_of_the_parts_named():
    model = vit()
    penalty = PenaltyConfig(l1=0.5, of="qkv").build(model)
    total = penalty.add()
    assert total.item() == pytest.approx(0.5 * sum(b.attn.qkv.weight.abs().sum().item() for b in model.body.blocks))
    pulled = {name for name, p in model.named_parameters() if p.grad is not None}
    assert short(pulled) == {f"blocks.{block}.attn.qkv.weight" for block in range(3)}
    with pytest.raises(UserError, match="no matrix"):
        PenaltyConfig(l1=0.5, of="norm.bias").build(model)
