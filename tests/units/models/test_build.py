"""Names, recipes and the user's own modules become classifiers."""

from dataclasses import dataclass, field

import numpy as np
import pytest
import torch
from torch import nn

from hardtack.base import config
from hardtack.base.errors import UserError
from hardtack.base.registry import models
from hardtack.models import Classifier, ModelConfig, load_model, read_metadata, rebuild, save_weights, wrap


@dataclass(frozen=True, kw_only=True)
class _Recipe:
    model: ModelConfig = field(default_factory=ModelConfig)


class Own(nn.Module):
    def __init__(self, classes=4):
        super().__init__()
        self.flat = nn.Flatten()
        self.head = nn.Linear(3 * 8 * 8, classes)
        self.drop = nn.Dropout(0.5)

    def forward(self, x):
        return self.head(self.flat(x))


def test_seed_alone_decides_the_weights():
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = load_model("vit_digits", seed=5).state_dict()
    assert torch.equal(before, torch.get_rng_state()), "the global random state moved"
    torch.manual_seed(2)
    second = load_model("vit_digits", seed=5).state_dict()
    other = load_model("vit_digits", seed=6).state_dict()
    assert all(torch.equal(first[key], second[key]) for key in first)
    assert not torch.equal(first["body.head.weight"], other["body.head.weight"])


def test_unknown_names_get_a_hint():
    with pytest.raises(UserError, match="did you mean 'vit_digits'"):
        load_model("vit_digit")
    with pytest.raises(UserError, match="'timm:resnet18'"):
        load_model("resnet18")
    with pytest.raises(UserError, match="did you mean 'vit_small_patch16_224'"):
        load_model("timm:vit_smal_patch16_224")
    with pytest.raises(UserError, match=r"no option 'dept' .did you mean 'depth'"):
        load_model("timm:vit_tiny_patch16_224", dept=2)
    with pytest.raises(UserError, match="weights="):
        load_model("timm:resnet18", checkpoint_path="x.pt")
    with pytest.raises(UserError, match="no published weights"):
        load_model("vit_digits", pretrained=True)


def test_a_size_the_network_cannot_take_is_refused_at_load():
    with pytest.raises(UserError, match="cannot take 8×8 images"):
        load_model("timm:vgg11", image_size=8)


def test_published_weights_offline_is_one_clear_line(monkeypatch):
    import timm

    def offline(*args, **kwargs):
        raise OSError("no route to host")

    monkeypatch.setattr(timm, "create_model", offline)
    with pytest.raises(UserError, match=r"published weights of timm:resnet18.*weights="):
        load_model("timm:resnet18", pretrained=True)


def test_published_normalisation_comes_with_published_weights(monkeypatch):
    import timm

    create = timm.create_model
    monkeypatch.setattr(timm, "create_model", lambda name, pretrained, **rest: create(name, **rest))
    asked = ModelConfig(name="timm:resnet18", pretrained=True)
    model = load_model(asked, mean=0.1, std=0.1)  # the data's statistics do not overrule the weights'
    assert model.architecture["mean"] == [0.485, 0.456, 0.406]
    assert model.image_size == 224


def test_recipe_section():
    short = config.build(_Recipe, {"model": "vit_digits"}).model
    assert short.name == "vit_digits"
    section = {"name": "vit_digits", "mean": [0.5, 0.4, "3/10"], "options": {"depth": 1}}
    asked = config.build(_Recipe, {"model": section}).model
    model = load_model(asked, num_classes=3, image_size=16, mean=0.9, std=0.2, seed=0)
    assert len(model.body.blocks) == 1 and model.image_size == 16
    assert model.architecture["mean"] == [0.5, 0.4, 0.3], "what the recipe states wins"
    assert model.architecture["std"] == [0.2] * 3, "what it leaves open is filled"


def test_weights_bring_their_normalisation(tmp_path):
    file = tmp_path / "a.safetensors"
    model = load_model("vit_digits", mean=0.3, std=0.2, seed=0)
    save_weights(file, model, metadata={"train": {"epochs": 2}})
    assert read_metadata(file)["train"] == {"epochs": 2}
    started = load_model(ModelConfig(name="vit_digits", weights=str(file)), mean=0.5, std=0.5)
    assert started.architecture["mean"] == [0.3] * 3
    x = torch.rand(2, 3, 32, 32)
    assert torch.equal(started(x), model(x))
    with pytest.raises(
        UserError, match=r"was trained with mean .* → .* in the model; leave mean and std unset, or set"
    ):
        load_model("vit_digits", weights=file, mean=0.5)
    adapted = load_model("vit_digits", weights=file, mean=0.5, adapt=True)
    assert adapted.architecture["mean"] == [0.5] * 3 and adapted.architecture["std"] == [0.2] * 3
    assert "mean [0.3, 0.3, 0.3] → [0.5, 0.5, 0.5]" in adapted.fitted.summary()


def test_a_registered_function_of_the_users_is_a_model(tmp_path, monkeypatch):
    monkeypatch.setattr(models, "_entries", dict(models._entries))

    @models.register("own", help="linear", scales=[1.0])
    def own(scales: list[float], *, num_classes: int, bias: bool = True) -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(12, num_classes, bias=bias))

    model = load_model("own", num_classes=3, bias=False)
    assert model.architecture["options"] == {"scales": [1.0], "bias": False}
    save_weights(tmp_path / "a.safetensors", model)
    x = torch.rand(1, 3, 2, 2)
    assert torch.equal(rebuild(tmp_path / "a.safetensors")(x), model(x))


def test_settings_are_not_options():
    with pytest.raises(UserError, match="'image_size' is a separate setting"):
        load_model(ModelConfig(name="vit_digits", options={"image_size": 64}))


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("half", [0.5, (0.5,), [0.5] * 3, np.float32(0.5), np.full(3, 0.5), torch.full((3,), 0.5)])
def test_mean_and_std_as_people_have_them(half, channels):
    x = torch.rand(2, channels, 4, 4)
    model = wrap(nn.Identity(), mean=half, std=half, channels=channels)
    assert torch.equal(model(x), (x - 0.5) / 0.5)


def test_wrap_leaves_the_module_as_it_is():
    module = Own().train()
    module.drop.eval()
    x = torch.rand(2, 3, 8, 8)
    plain = wrap(module, image_size=8)
    assert torch.equal(plain(x), module(x)), "no mean, no std: nothing is normalised"
    assert plain.num_classes == 4 and plain.training and not module.drop.training
    mean, std = (0.1, 0.2, 0.3), (0.5, 0.6, 0.7)
    normalised = wrap(module, mean=mean, std=std)
    by_hand = (x - torch.tensor(mean).view(1, 3, 1, 1)) / torch.tensor(std).view(1, 3, 1, 1)
    assert torch.equal(normalised(x), module(by_hand))
    assert normalised.num_classes is None
    assert list(normalised.state_dict()) == ["body.head.weight", "body.head.bias"]


@pytest.mark.parametrize(
    "make, words",
    [
        (lambda: wrap(wrap(Own())), "already"),
        (lambda: wrap(Own(), std=0.0), "positive"),
        (lambda: wrap(Own(), mean=(123.0, 116.0, 103.0)), "divide by 255"),
        (lambda: wrap(Own(), mean=(0.5, 0.5)), "three"),
        (lambda: wrap(Own(), mean=float("nan")), "finite number"),
        (lambda: wrap(Own(), std=(0.5, float("inf"), 0.5)), "finite number"),
        (lambda: wrap(Own(), mean=True), "finite number"),
        (lambda: wrap("model"), "torch.nn.Module"),
        (lambda: wrap(nn.Identity())(torch.rand(1, 1, 8, 8)), "N×3×H×W, found 1×1×8×8"),
        (lambda: wrap(nn.Identity())(torch.zeros(1, 3, 8, 8, dtype=torch.uint8)), "divide bytes by 255"),
        (lambda: wrap(Own(), image_size=8)(torch.rand(1, 3, 9, 9)), "takes 8×8 images.*another image_size"),
        (lambda: wrap(Own(), image_size=8)(torch.rand(1, 3, 6, 8)), r"not square: data\.image_size=6 cuts"),
        (lambda: wrap(Own(), image_size=8)(torch.rand(1, 3, 9, 12)), r"not square: data\.image_size=8 cuts"),
    ],
)
def test_wrong_use_is_refused(make, words):
    with pytest.raises(UserError, match=words):
        make()


def test_output_records_with_logits_are_understood():
    class Record(nn.Module):
        def forward(self, x):
            return type("Output", (), {"logits": x.mean((2, 3))})()

    assert isinstance(wrap(Record()), Classifier)
    assert wrap(Record())(torch.rand(2, 3, 4, 4)).shape == (2, 3)
