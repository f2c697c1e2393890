"""Growth of perturbations, its limits from the spectra, and the error of the Euler step."""

import numpy as np
import pytest
import torch
from torch import nn

import hardtack as ht
from hardtack.analysis.growth.analysis import PERTURBED
from hardtack.analysis.jacobian.chain import find_chain, stations
from hardtack.analysis.jacobian.euler import euler_errors
from hardtack.base.errors import UserError
from hardtack.base.runtime import Runtime
from hardtack.commands.cli import main
from hardtack.models import load_model, wrap

CPU = Runtime(device="cpu")
LIMITS = ("first order", "one plus", "exponential")


class Residual(nn.Module):
    """x ↦ x + W x."""

    def __init__(self, weight):
        super().__init__()
        self.norm, self.attn = nn.Identity(), nn.Linear(len(weight), len(weight), bias=False)
        self.attn.weight.data.copy_(weight)

    def forward(self, x):
        return x + self.attn(self.norm(x))


WEIGHTS = torch.randn(2, 6, 6, generator=torch.Generator().manual_seed(0)) * 0.4


def linear():
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Flatten(), nn.Linear(48, 6), *(Residual(w) for w in WEIGHTS), nn.Linear(6, 3))
    x = 0.2 + 0.6 * torch.rand(4, 3, 4, 4, generator=torch.Generator().manual_seed(1))
    return wrap(layers), (x, torch.tensor([0, 1, 2, 0]))


def tiny_vit():
    model = load_model("vit_digits", num_classes=10, image_size=8, seed=0, depth=3, width=16, heads=2)
    return model, (torch.rand(4, 3, 8, 8, generator=torch.Generator().manual_seed(2)), torch.arange(4))


def analyze(target, **settings):
    return ht.analyze(*target, "growth", runtime=CPU, quiet=True, **settings)


def test_linear_networks_grow_perturbations_by_their_matrices():
    found = analyze(linear(), tolerance=1e-5)
    step = torch.eye(6) + WEIGHTS
    largest, bare = (torch.linalg.matrix_norm(matrices, 2).double().numpy() for matrices in (step, WEIGHTS))
    exact = {
        "first order": np.log10(largest).sum(),
        "one plus": np.log10(1 + bare).sum(),
        "exponential": bare.sum() / np.log(10),
    }
    for name, value in exact.items():
        assert found.of("log10_growth", name).value == pytest.approx(value, rel=1e-4)
    whole = np.log10(torch.linalg.matrix_norm(step[1] @ step[0], 2).item())
    for name in PERTURBED:
        assert (found.arrays[f"log10_{name}"][:, -1] <= whole + 1e-5).all()
    sizes = found.arrays["size_adversarial"]
    assert found.of("amplification", "2").value == pytest.approx((sizes[:, 1] / sizes[:, 0]).mean())
    assert found.facts["above_limit"] == 0.0 and 0 < found.facts["used"] <= 1
    assert found.facts["steps"] == ["2", "3"]


def test_random_perturbations_are_as_long_as_adversarial_ones():
    found = analyze(linear(), threat="l2:0.1")
    assert found.arrays["pixels_random"] == pytest.approx(found.arrays["pixels_adversarial"], rel=1e-3)
    assert found.arrays["pixels_adversarial"] == pytest.approx(0.1, rel=1e-3)
    assert found.of("log10_growth", "adversarial").threat == "l2:0.1"


def test_small_perturbations_stay_below_the_limits_of_a_vit():
    found = analyze(tiny_vit(), threat="linf:1/2550")
    grown = [found.arrays[f"log10_{name}"] for name in LIMITS]
    assert (grown[0] <= grown[1] + 1e-3).all() and (grown[1] <= grown[2] + 1e-6).all()
    for name in ("adversarial", "random"):
        assert (found.arrays[f"log10_{name}"] <= grown[0] + 0.01).all()
    assert (found.arrays["log10_adversarial"][:, -1] > found.arrays["log10_random"][:, -1]).all()
    assert all((values[:, 0] == 0).all() for values in grown)


@pytest.mark.parametrize("substeps", [2, 8])
def test_the_error_of_a_step_is_known_for_linear_blocks(substeps):
    model, (x, _) = linear()
    model.eval()
    chain = find_chain(model, x)
    errors, drifts = euler_errors(model, chain, x, substeps)
    here, fine = stations(model, chain, x)[0], stations(model, chain, x)[0]
    for number, weight in enumerate(WEIGHTS):
        many = torch.linalg.matrix_power(torch.eye(6) + weight / substeps, substeps)
        one = here @ (torch.eye(6) + weight).T
        away = (here @ many.T - one).norm(dim=1) / (here @ weight.T).norm(dim=1)
        assert torch.allclose(errors[:, number], away, rtol=1e-3)
        here, fine = one, fine @ many.T
        assert torch.allclose(drifts[:, number], (fine - here).norm(dim=1) / here.norm(dim=1), rtol=1e-3)


def test_batch_size_does_not_matter():
    one, all_ = (analyze(tiny_vit(), batch_size=size) for size in (1, 4))
    for name in ("size_adversarial", "size_random", "size_corrupted", "sigma_block", "sigma_residual", "euler_error"):
        assert one.arrays[name] == pytest.approx(all_.arrays[name], rel=2e-3), name


def test_stages_are_joined_by_steps_of_their_own():
    model = load_model("pvtv2_b0_32", num_classes=5, seed=0).eval().requires_grad_(False)
    x = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(3))
    chain = find_chain(model, x)
    kinds = [piece.kind for piece in chain.steps]
    assert kinds.count("between") == 3 and kinds.count("block") == 8
    features = stations(model, chain, x)
    assert len(features) == len(chain.steps) + 1
    for piece, before, after in zip(chain.steps, features, features[1:], strict=False):
        start, end = piece.trace(x)
        assert torch.allclose(start.flatten(1), before, atol=1e-5) and torch.allclose(end.flatten(1), after, atol=1e-4)


def test_a_chain_ends_where_another_feature_takes_over():
    model = load_model("cait_s12_patch4_32", num_classes=5, seed=0, depth=2)
    data = (torch.rand(1, 3, 32, 32), torch.zeros(1, dtype=torch.int64))
    found = analyze((model, data), substeps=0, most=6, attack="fgsm")
    assert found.facts["depth"] == 2 and any("chain ends before" in note for note in found.notes)
    assert found.of("euler_error") is None


def test_images_that_the_attack_leaves_as_they_are_are_counted():
    model, data = linear()
    nn.init.zeros_(model.body[-1].weight)  # no gradient reaches the image
    found = analyze((model, data), attack="fgsm")
    assert any("did not change 4 images" in note for note in found.notes)
    assert found.of("log10_growth", "adversarial").value == 0
    assert not any("did not change" in note for note in analyze(linear()).notes)


def test_networks_that_are_not_chains_are_refused():
    model = wrap(nn.Sequential(nn.Flatten(), nn.Linear(48, 3)))
    with pytest.raises(UserError, match="no blocks are known in Sequential"):
        analyze((model, linear()[1]))
    again, data = linear()
    again.body[3] = again.body[2]  # one block, twice
    with pytest.raises(UserError, match="is called several times"):
        analyze((again, data))


@pytest.mark.parametrize(
    "word, said",
    [
        ("growth.type=gausian_noise", "gaussian_noise"),
        ("growth.type=common", "one corruption"),
        ("growth.substeps=1", "2 or more"),
        ("growth.attack=pdg", "did you mean 'pgd'"),
        ("growth.threat=8/255", "growth.threat"),
        ("growth.stepsize=2", "unknown key"),
    ],
)
def test_mistakes_are_one_line_each(word, said, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["analyze", "model=vit_digits", "data=digits", "growth", word]) == 2
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1
