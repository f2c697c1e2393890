"""Weights close to zero, by component: known shares, norms and densities."""

import numpy as np
import pytest
import torch
from torch import nn

import hardtack as ht
from hardtack.analysis.sparsity.analysis import components, spectral_norm, weight_tensors
from hardtack.base.errors import UserError
from hardtack.base.runtime import Runtime

CPU = Runtime(device="cpu")


def look(model, **settings):
    return ht.analyze(model, None, "sparsity", runtime=CPU, quiet=True, **settings)


def two_layers():
    model = nn.Sequential(nn.Linear(4, 2), nn.ReLU(), nn.Linear(2, 2))
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor([[1.0, 0.005, 0.5, -0.009], [0.3, 0.011, -0.2, 0.1]]))
        model[2].weight.copy_(torch.tensor([[0.1, 0.0005], [0.002, -0.05]]))
    return model


def test_shares_below_the_largest_of_all_and_of_each():
    found = look(two_layers())
    assert found.of("sparsity", "global").value == pytest.approx(4 / 12)  # below 0.01: two, and two of the second
    assert found.of("sparsity", "own").value == pytest.approx(3 / 12)  # the second's own bound is 0.001
    assert look(two_layers(), threshold=0.25).of("sparsity", "global").value == pytest.approx(9 / 12)
    assert found.facts["weights"] == 12 and found.facts["largest"] == 1


def test_norms_are_those_of_the_matrices():
    model = nn.Sequential(nn.Conv2d(3, 5, 3), nn.Flatten(), nn.LazyLinear(4))
    model(torch.zeros(1, 3, 8, 8))
    found = look(model)
    for row, (_, weight) in enumerate(weight_tensors(model)):
        matrix = weight.detach().flatten(1).double()
        assert found.arrays["spectral"][row] == pytest.approx(float(torch.linalg.matrix_norm(matrix, 2)), rel=1e-9)
        assert found.arrays["l1"][row] == pytest.approx(float(matrix.abs().sum()), rel=1e-9)
    every = torch.cat([weight.detach().flatten() for _, weight in weight_tensors(model)])
    assert found.of("weight_l2").value == pytest.approx(float(every.norm()), rel=1e-5)
    assert spectral_norm(torch.diag(torch.tensor([3.0, -7.0, 1.0]))) == pytest.approx(7)


def test_densities_are_of_all_weights():
    torch.manual_seed(0)
    model = nn.Linear(300, 300)
    nn.init.normal_(model.weight, std=0.1)
    found = look(model, bins=101)
    edges, density = found.arrays["edges"], found.arrays["density all"]
    assert len(edges) == 102 and edges[-1] == 0.5  # a thousandth of a normal distribution lies beyond 3.3 deviations
    inside = density.sum() * (edges[1] - edges[0])
    assert inside == pytest.approx(1 - found.facts["outside"], abs=1e-9) and inside > 0.999
    middle = density[50]
    assert middle == pytest.approx(1 / (0.1 * np.sqrt(2 * np.pi)), rel=0.1)


@pytest.mark.parametrize("name", ["coatnet_0_32", "timm:vit_tiny_patch16_224"])
def test_components_of_networks_of_ours_and_of_others(name):
    model = ht.load_model(name, num_classes=10)
    names = [name for name, _ in weight_tensors(model)]
    kinds = dict(zip(names, components(model, names), strict=True))
    assert {kind for name, kind in kinds.items() if ".attn.qkv." in name} == {"qkv"}
    assert {kind for name, kind in kinds.items() if ".mlp.fc" in name} == {"feed-forward"}
    assert {kind for name, kind in kinds.items() if name.startswith("body.head")} == {"other"}
    assert {"convolution", "qkv", "feed-forward", "other"} == set(kinds.values())


def test_an_attention_of_torch_and_a_convolution_have_components():
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 1)
    names = [name for name, _ in weight_tensors(model)]
    kinds = dict(zip(names, components(model, names), strict=True))
    assert kinds["layers.0.self_attn.in_proj_weight"] == "qkv" and kinds["layers.0.linear1.weight"] == "feed-forward"
    found = look(ht.load_model("timm:resnet18", num_classes=10))
    assert found.of("sparsity", "convolution global") and not found.of("sparsity", "qkv global")


def test_a_model_without_weights_is_refused():
    with pytest.raises(UserError, match="no linear or convolutional layers"):
        look(nn.Sequential(nn.Flatten(), nn.ReLU()))
    with pytest.raises(UserError, match="threshold"):
        look(two_layers(), threshold=2)
