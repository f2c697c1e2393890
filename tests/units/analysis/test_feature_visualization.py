"""Feature visualizations climb: towards their class, in their ball, from the same noise whatever else is asked for."""

import numpy as np
import pytest
import torch
from torch import nn

import hardtack as ht
from hardtack.analysis import AnalysisContext
from hardtack.analysis.feature_visualization.analysis import FeatureVisualization, _Units
from hardtack.base.errors import UserError
from hardtack.base.runtime import Runtime
from hardtack.models import tap

CPU = Runtime(device="cpu")


def images(n=4, side=32):
    return torch.rand(n, 3, side, side, generator=torch.Generator().manual_seed(0)), torch.arange(n) % 10


@pytest.fixture(scope="module")
def vit():
    return ht.load_model("vit_digits", num_classes=10, seed=0)


def look(model, data, **settings):
    return ht.analyze(model, data, "feature_visualization", runtime=CPU, quiet=True, **{"steps": 4, **settings})


class Linear(nn.Module):
    def __init__(self, side=8):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 3 * side * side, generator=torch.Generator().manual_seed(1)))

    def forward(self, x):
        return x.flatten(1) @ self.weight.T


def test_from_noise_every_class_is_reached_inside_the_ball():
    found = look(Linear(), images(2, 8), threat="l2:2")
    assert found.arrays["goal"].tolist() == [0, 1, 2, 3] and found.facts["goals"] == ["0", "1", "2", "3"]
    assert (found.arrays["after"] > found.arrays["before"]).all()
    assert (found.arrays["size"] <= 2 * (1 + 1e-5)).all() and (found.arrays["size"] > 1).all()
    assert found.of("vision_success").value == 1 and found.of("vision_success").threat == "l2:2"
    assert found.of("vision_success").interval == "wilson 95%" and found.of("vision_success").low < 1


def test_the_change_in_a_linear_model_is_the_template_of_the_class():
    """One step from the middle of the box towards class 2 is along what its weights are above the others'."""
    model = Linear()
    x = torch.full((1, 3, 8, 8), 0.5)
    found = look(model, (x, torch.tensor([0])), start="image", classes=["2"], threat="l2:0.1", steps=1)
    with torch.no_grad():
        away = model.weight[2] - model(x).softmax(dim=1)[0] @ model.weight
    change = found.arrays["change"][0].transpose(2, 0, 1).ravel().astype(float) - 127.5
    assert np.corrcoef(change, away.numpy())[0, 1] > 0.999


def test_steps_are_as_many_as_asked_for_and_together_longer_than_the_radius():
    """From the middle of the box, where nothing is cut off, they reach the end of the ball."""
    model, calls = Linear(), []
    x = torch.full((1, 3, 8, 8), 0.5)
    ways = {"start": "image", "classes": ["2"], "threat": "l2:0.1"}
    model.register_full_backward_hook(lambda *_: calls.append(1))
    sizes = [look(model, (x, torch.tensor([0])), steps=steps, **ways).arrays["size"][0] for steps in (3, 30)]
    assert len(calls) == 33 and sizes == pytest.approx([0.1, 0.1], rel=1e-4)
    climb = (
        FeatureVisualization(steps=30, **ways)
        .begin(AnalysisContext(model=model, data=(x, torch.tensor([0])), runtime=CPU))
        .attack
    )
    assert climb.relative_step * climb.steps == pytest.approx(1.5)


def test_from_images_each_goes_to_another_class(vit):
    x, y = images()
    found = look(vit, (x, y), start="image")
    assert (found.arrays["goal"] != y.numpy()).all() and found.arrays["label"].tolist() == y.tolist()
    assert found.arrays["start"] == pytest.approx((255 * x).round().permute(0, 2, 3, 1).numpy())
    fixed = look(vit, (x, y), start="image", classes=[3, 5])
    assert fixed.arrays["goal"].tolist() == [3, 5, 3, 5]


def test_units_climb_by_their_mean_activation(vit):
    x, _ = images()
    found = look(vit, images(), block=2, channels=[3, 5])
    assert found.facts["goals"] == ["channel 3", "channel 5"] and found.facts["block"] == "blocks.2"
    assert (found.arrays["after"] > found.arrays["before"] + 0.1).all()
    with tap(vit.eval()) as taps, torch.no_grad():
        vit(x)
    units = _Units(vit, x, "blocks.2")
    with torch.no_grad():
        assert torch.allclose(units(x), taps.features[2][:, taps.prefixes[2] :].mean(dim=1), atol=1e-6)


def test_convolutions_have_units_too():
    model = ht.load_model("timm:resnet18", num_classes=10, seed=0)
    found = look(model, images(1), block=-1, channels=7, steps=2)
    assert found.facts["block"] == "layer4.1" and found.arrays["after"][0] > found.arrays["before"][0]


def test_nothing_depends_on_the_batch_or_on_the_other_classes(vit):
    one, many, alone = (look(vit, images(), **more) for more in ({"batch_size": 1}, {}, {"classes": ["3"]}))
    for name, values in one.arrays.items():
        assert np.allclose(values, many.arrays[name], atol=2 if values.dtype == np.uint8 else 1e-3), name
    assert np.allclose(alone.arrays["vision"][0], many.arrays["vision"][3], atol=2)


@pytest.mark.parametrize(
    "settings, said",
    [
        ({"channels": [1]}, "give block=NAME too"),
        ({"classes": ["1"], "block": 0}, "not both"),
        ({"block": "blocks.9"}, "there is no block 'blocks.9'.*did you mean"),
        ({"block": 9}, "the model has 4: blocks.0 to blocks.3"),
        ({"block": 0, "channels": 64}, "channels 0 to 63, found 64"),
        ({"classes": "frog"}, "there is no class 'frog'; classes are numbered from 0 to 9"),
        ({"steps": 0}, "steps"),
    ],
)
def test_what_cannot_be_meant_is_refused(vit, settings, said):
    with pytest.raises(UserError, match=said):
        look(vit, images(), **settings)


def test_names_of_classes_are_known(vit):
    data = ht.load_data("digits", "test")
    assert look(vit, data, n=2, classes=["4"]).facts["goals"] == ["4"]
    assert FeatureVisualization(classes=4).classes == ("4",)


def test_a_model_without_a_gradient_sees_nothing():
    model = Linear()
    with torch.no_grad():
        model.weight.zero_()
    found = look(model, images(2, 8))
    assert "4 of 4 images did not change" in found.notes[0]
    assert not look(Linear(), images(2, 8)).notes


def test_answers_that_are_no_numbers_are_no_success():
    class Fragile(Linear):
        """Answers NaN where the image is dark, which noise is now and then, and the images shown are not."""

        def forward(self, x):
            return super().forward(x) + torch.where(x.flatten(1).amin(dim=1) < 0.2, torch.nan, 0.0)[:, None]

    bright = (0.5 + 0.5 * torch.rand(2, 3, 8, 8), torch.tensor([0, 1]))
    with pytest.raises(UserError, match="returns NaN or infinity"):
        look(Fragile(), bright)


def test_the_name_of_version_0_1_0_gives_the_same_pictures_under_its_own_id(vit):
    x = torch.rand(1, 3, 8, 8, generator=torch.Generator().manual_seed(0)).repeat(2, 1, 4, 4)
    data = (x, torch.tensor([0, 1]))
    new = look(vit, data, n=2, steps=1)
    old = ht.analyze(vit, data, "visions", runtime=CPU, quiet=True, n=2, steps=1)
    assert new.id.startswith("feature_visualization-") and old.id.startswith("visions-")
    assert all((new.arrays[name] == old.arrays[name]).all() for name in new.arrays)


def test_other_models_classify_the_pictures():
    """A copy of the model agrees with it; one whose classes are turned round sees the opposite ones."""
    model = Linear()
    turned = Linear()
    turned.weight.data = model.weight.data.flip(0)
    found = look(model, images(2, 8), threat="l2:2", others={"copy": Linear(), "turned": turned})
    assert found.of("vision_accuracy", "copy").value == found.of("vision_success").value == 1
    assert found.of("vision_accuracy", "turned").value == 0
    assert found.arrays["seen_by_others"].tolist() == [[goal, 3 - goal] for goal in range(4)]
    with pytest.raises(UserError, match="others classify images of classes"):
        FeatureVisualization(others={"copy": model}, block=0)


def test_an_id_is_as_it_was_without_other_models():
    model, data = Linear(), images(2, 8)
    plain, other = (look(model, data, threat="l2:2", **more) for more in ({}, {"others": {"copy": Linear()}}))
    assert plain.id != other.id and FeatureVisualization.later_settings == ("others",)
