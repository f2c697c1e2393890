"""Loss around the weights: directions as long as the filters, the same surface for networks that compute the same."""

import copy

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import hardtack as ht
from hardtack.analysis.landscape import analysis, directions
from hardtack.analysis.landscape.directions import filter_direction
from hardtack.base.errors import UserError
from hardtack.base.runtime import Runtime
from tiny_runs import Linear, images, labels

CPU = Runtime(device="cpu")


def look(model, data=None, **settings):
    data = data or (images(10), labels(10))
    return ht.analyze(model, data, "landscape", runtime=CPU, quiet=True, **{"points": 3, **settings})


def relu_net(seed=0):
    torch.manual_seed(seed)
    layers = [nn.Flatten(), nn.Linear(192, 20), nn.ReLU(), nn.Linear(20, 16), nn.ReLU(), nn.Linear(16, 4)]
    return nn.Sequential(*layers).eval()


def rescaled(model, factor=7.0):
    """Computes the same: what one layer is larger, the next is smaller."""
    model = copy.deepcopy(model)
    with torch.no_grad():
        model[1].weight.mul_(factor)
        model[1].bias.mul_(factor)
        model[3].weight.div_(factor)
    return model


def test_every_filter_of_a_direction_is_as_long_as_the_trained_one():
    model = ht.load_model("vit_digits", num_classes=4, image_size=8, seed=0)
    direction = filter_direction(model, seed=0, number=0)
    for name, weight in model.named_parameters():
        if name in direction:
            lengths = direction[name].flatten(1).norm(dim=1)
            assert torch.allclose(lengths, weight.detach().flatten(1).norm(dim=1), rtol=1e-5), name
    still = {name for name, _ in model.named_parameters()} - set(direction)
    assert still and all(name.endswith("bias") or "norm" in name for name in still)
    again, other = (filter_direction(model, seed=0, number=number) for number in (0, 1))
    assert all(torch.equal(again[name], direction[name]) for name in direction)
    assert not any(torch.equal(other[name], direction[name]) for name in direction if direction[name].any())


def test_scales_of_any_shape_do_not_move():
    model = nn.Conv2d(3, 4, 3)
    model.scale = nn.Parameter(torch.ones(4, 1, 1))
    assert set(filter_direction(model, seed=0, number=0)) == {"weight"}


def test_networks_that_compute_the_same_have_the_same_landscape(monkeypatch):
    model = relu_net()
    one, other = look(model), look(rescaled(model))
    assert np.ptp(one.arrays["loss"]) > 0.1
    assert other.arrays["loss"] == pytest.approx(one.arrays["loss"], rel=1e-4)
    monkeypatch.setattr(directions, "_part", lambda name, w, *words: directions.gaussian(name, w.shape, *words))
    one, other = look(model), look(rescaled(model))  # without the rescaling of filters they do not
    assert other.arrays["loss"] != pytest.approx(one.arrays["loss"], rel=0.05)


def test_values_are_losses_at_moved_weights_and_the_model_stays():
    model, (x, y) = relu_net(), (images(10), labels(10))
    before = copy.deepcopy(model.state_dict())
    found = look(model, (x, y), points=5, reach=0.5)
    assert found.arrays["loss"].shape == (25,) and list(found.arrays["axis"]) == [-0.5, -0.25, 0, 0.25, 0.5]
    first, second = (filter_direction(model, seed=0, number=number) for number in (0, 1))
    moved = copy.deepcopy(model)
    with torch.no_grad():
        for name, weight in moved.named_parameters():
            if name in first:
                weight += -0.25 * first[name] + 0.5 * second[name]
    expected = F.cross_entropy(moved(x), y)
    assert found.arrays["loss"].reshape(5, 5)[1, 4] == pytest.approx(expected.item(), rel=1e-5)
    assert found.of("loss_at_weights").value == pytest.approx(F.cross_entropy(model(x), y).item(), rel=1e-5)
    assert found.arrays["loss"][12] == pytest.approx(found.of("loss_at_weights").value, rel=1e-12)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_a_line_is_the_middle_of_the_surface_and_batches_do_not_matter():
    line, surface = look(relu_net(), dims=1), look(relu_net())
    assert line.arrays["loss"] == pytest.approx(surface.arrays["loss"].reshape(3, 3)[:, 1])
    assert look(relu_net(), batch_size=3).arrays["loss"] == pytest.approx(surface.arrays["loss"], rel=1e-6)


def test_the_attacked_loss_is_that_of_the_worst_images():
    model, (x, y) = Linear(), (images(10) * 0.5 + 0.25, labels(10))
    threat = {"threat": "linf:8/255", "attack": "fgsm"}
    clean, attacked = look(model, (x, y), dims=1), look(model, (x, y), dims=1, **threat)
    once = look(model, (x, y), dims=1, craft="once", **threat)
    assert np.all(attacked.arrays["loss"] > clean.arrays["loss"])
    assert attacked.arrays["loss"][1] == once.arrays["loss"][1]
    assert np.all(attacked.arrays["loss"] >= once.arrays["loss"] - 1e-9), "made for these weights it is stronger"
    assert attacked.arrays["loss"][0] > once.arrays["loss"][0]
    assert attacked.of("loss_at_weights").threat == "linf:8/255"


def test_statistics_of_batch_norm_are_the_trained_ones_unless_told():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 4)).eval()
    data = (images(10), labels(10))
    trained, estimated = (look(model, data, dims=1, statistics=kind) for kind in ("trained", "estimated"))
    model[1].train()
    model[1].momentum = None
    model(data[0])
    model.eval()
    assert estimated.arrays["loss"][1] == pytest.approx(F.cross_entropy(model(data[0]), data[1]).item(), rel=1e-5)
    assert abs(estimated.arrays["loss"][1] - trained.arrays["loss"][1]) > 1e-3
    with pytest.raises(UserError, match="no batch norm"):
        look(relu_net(), statistics="estimated")


def test_a_killed_grid_goes_on(tmp_path, monkeypatch):
    model, data = relu_net(), (images(10), labels(10))
    whole, computed, at = look(model, data), [], analysis._Landscape._at

    def dying(self, row):
        computed.append(row)
        if len(computed) == 5:
            raise KeyboardInterrupt
        return at(self, row)

    monkeypatch.setattr(analysis._Landscape, "_at", dying)
    with pytest.raises(KeyboardInterrupt):
        look(model, data, folder=tmp_path)
    found = look(model, data, folder=tmp_path)
    assert computed == [0, 1, 2, 3, 4, 4, 5, 6, 7, 8]
    assert np.array_equal(found.arrays["loss"], whole.arrays["loss"])


def test_mistakes_are_refused():
    for settings, said in [
        ({"points": 4}, "odd"),
        ({"attack": "pgd"}, "needs its threat"),
        ({"threat": "linf:8/255", "attack": {"name": "pgdd"}}, "did you mean 'pgd'"),
        ({"reach": 0}, "reach"),
    ]:
        with pytest.raises(UserError, match=said):
            look(relu_net(), **settings)
    with pytest.raises(UserError, match="label 3 has no logit"):
        look(Linear(classes=2))
    broken = relu_net()
    nn.init.constant_(broken[-1].weight, 3e38)
    with pytest.raises(UserError, match="NaN"):
        look(broken)
