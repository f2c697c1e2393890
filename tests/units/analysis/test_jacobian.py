"""The analysis `jacobian`: spectra of networks, the paper's bound, and what it refuses."""

import re

import numpy as np
import pytest
import timm
import torch
from torch import nn

import hardtack as ht
from hardtack.analysis.jacobian import rows as rows_file
from hardtack.analysis.jacobian.analysis import Spectra
from hardtack.analysis.jacobian.block_parts import block_piece, survey
from hardtack.analysis.jacobian.chart import jacobian_charts
from hardtack.analysis.jacobian.rows import bound, dense_jacobian
from hardtack.analysis.jacobian.scalar_attention import printed_jacobian, scalar_attention, scalar_attention_jacobian
from hardtack.base.config import plain
from hardtack.base.errors import UserError
from hardtack.base.randomness import make_keys
from hardtack.base.runtime import Runtime
from hardtack.commands.cli import main
from hardtack.models import wrap
from hardtack.results import read_run

CPU = Runtime(device="cpu")


@pytest.fixture(scope="module")
def vit():
    model = ht.load_model("vit_digits", num_classes=10, image_size=8, seed=0, depth=2, width=16, heads=2)
    x = torch.rand(5, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    return model, (x, torch.arange(5))


def analyze(target, **settings):
    model, data = target
    return ht.analyze(model, data, "jacobian", runtime=CPU, quiet=True, **settings)


def test_lanczos_power_and_the_dense_matrix_agree_on_every_piece(vit):
    of = ("block", "residual", "attention", "mlp", "stretch", "features", "network")
    found = {
        method: analyze(vit, of=of, top=2, method=method, tolerance=1e-4, most=2000, n=3)
        for method in ("lanczos", "power", "dense")
    }
    for kind in of:
        exact = found["dense"].arrays[f"sigma_{kind}"]
        for method in ("lanczos", "power"):
            assert found[method].arrays[f"sigma_{kind}"] == pytest.approx(exact, rel=1e-4), (method, kind)
            assert found[method].facts["converged"][kind] == 1.0
    assert found["dense"].arrays["sigma_network"].shape == (3, 1, 2)
    assert found["dense"].facts["layers"]["attention"] == ["blocks.0", "blocks.1"]


def test_scores_are_means_with_intervals_by_layer(vit):
    found = analyze(vit)
    sigma = found.arrays["sigma_block"][:, :, 0]
    mean, first = found.of("sigma_max", "block"), found.of("sigma_max", "block blocks.0")
    assert mean.value == pytest.approx(sigma.mean()) and first.value == pytest.approx(sigma[:, 0].mean())
    assert mean.low < mean.value < mean.high and mean.n == 5
    assert found.facts["spread"]["block"] == pytest.approx({"mean": sigma.mean(), "std": sigma.std()})
    assert found.facts["products"]["block"]["most"] <= 100
    assert list(found.arrays["index"]) == [0, 1, 2, 3, 4]


def test_batch_size_does_not_matter(vit):
    one, all_ = (analyze(vit, batch_size=size) for size in (1, 5))
    for kind in ("block", "residual"):
        assert one.arrays[f"sigma_{kind}"] == pytest.approx(all_.arrays[f"sigma_{kind}"], rel=1e-4)
        assert np.array_equal(one.arrays[f"products_{kind}"], all_.arrays[f"products_{kind}"])


def test_singular_vectors_are_kept_on_request(vit):
    found = analyze(vit, of=("block",), top=2, vectors=True, n=2, tolerance=1e-5, most=400)
    piece = block_piece(vit[0], survey(vit[0], vit[1][0][:2])[1])
    matrix = dense_jacobian(piece, vit[1][0][1]).numpy()
    right, left = found.arrays["right_block_1"][1], found.arrays["left_block_1"][1]
    sigma = found.arrays["sigma_block"][1, 1]
    assert matrix @ right.T == pytest.approx((left * sigma[:, None]).T, abs=1e-3)


class Turn(nn.Module):
    """A block x ↦ x + W x of a known W."""

    def __init__(self, weight):
        super().__init__()
        self.norm, self.attn = nn.Identity(), nn.Linear(len(weight), len(weight), bias=False)
        self.attn.weight.data.copy_(weight)

    def forward(self, x):
        return x + self.attn(self.norm(x))


def linear(weight):
    model = wrap(nn.Sequential(nn.Flatten(), nn.Linear(48, 12), Turn(weight), nn.Linear(12, 3)))
    return model, (torch.rand(2, 3, 4, 4), torch.zeros(2, dtype=torch.int64))


def test_linear_blocks_have_the_singular_values_of_their_matrix():
    weight = torch.randn(12, 12, generator=torch.Generator().manual_seed(1))
    found = analyze(linear(weight), top=2, bound=True)
    with_identity = weight + torch.eye(12)
    for kind, matrix in (("block", with_identity), ("residual", weight)):
        exact = torch.linalg.svdvals(matrix)[:2]
        assert found.arrays[f"sigma_{kind}"][0, 0] == pytest.approx(exact.numpy(), rel=1e-4)
        upper = (matrix.abs().sum(0).max() * matrix.abs().sum(1).max()).sqrt()
        assert found.arrays[f"bound_{kind}"][:, 0] == pytest.approx(float(upper), rel=1e-5)
        assert found.of("looseness", kind).value == pytest.approx(float(upper / exact[0]), rel=1e-3)


def test_orthogonal_blocks_stretch_nothing():
    turn = torch.linalg.qr(torch.randn(12, 12, generator=torch.Generator().manual_seed(2)))[0]
    found = analyze(linear(turn - torch.eye(12)), of=("block",))
    assert found.arrays["sigma_block"] == pytest.approx(1.0, abs=1e-5)


# ---------------------------------------------------------------- the bound


def test_a_killed_bound_goes_on_within_an_image(vit, tmp_path, monkeypatch):
    piece = block_piece(vit[0], survey(vit[0], vit[1][0][:2])[0])
    image, file = vit[1][0][0], tmp_path / "sums.npz"
    whole = bound(piece, image, at_once=4)
    monkeypatch.setattr(rows_file, "_WRITE_S", -1)  # after every chunk
    told, rows = [], rows_file.jacobian_rows

    def dying(*args, begin, **options):
        for first, some in rows(*args, begin=begin, **options):
            if len(told) == 3:
                raise KeyboardInterrupt
            told.append(first)
            yield first, some

    monkeypatch.setattr(rows_file, "jacobian_rows", dying)
    with pytest.raises(KeyboardInterrupt):
        bound(piece, image, at_once=4, file=file)
    assert told == [0, 4, 8]
    told = [None] * 4  # no more dying
    begun = []
    monkeypatch.setattr(
        rows_file, "jacobian_rows", lambda *a, begin, **o: begun.append(begin) or rows(*a, begin=begin, **o)
    )
    assert bound(piece, image, at_once=4, file=file) == pytest.approx(whole, rel=1e-12)
    assert bound(piece, image, at_once=4, file=file) == pytest.approx(whole, rel=1e-12)
    assert begun == [12, piece.outputs]  # what is complete is not begun again
    assert bound(piece, image, at_once=7) == pytest.approx(whole, rel=1e-6)


def test_the_bound_is_above_the_value_and_leaves_nothing_behind(vit, tmp_path):
    found = ht.analyze(*vit, "jacobian", bound=True, n=2, runtime=CPU, quiet=True, folder=tmp_path)
    for kind in ("block", "residual"):
        assert (found.arrays[f"bound_{kind}"] > found.arrays[f"sigma_{kind}"][:, :, 0]).all()
        assert found.of("looseness", kind).value > 1
    assert not list(tmp_path.glob("analysis/.*"))


# ---------------------------------------------------------------- attention in closed form


@pytest.mark.parametrize("a", [0.3, 1.0, -2.0])
def test_the_closed_form_of_scalar_attention_is_its_derivative(a):
    z = torch.randn(6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    exact = torch.autograd.functional.jacobian(lambda z: scalar_attention(z, a), z)
    assert (scalar_attention_jacobian(z, a) - exact).abs().max() < 1e-14
    assert (printed_jacobian(z, a) - exact).abs().max() > 1e-2  # equation 5 as printed is not


# ---------------------------------------------------------------- refusals


class Mixing(nn.Module):
    def forward(self, x):
        return x.flatten(1)[:, :3] - x.mean()


class Detached(nn.Module):
    def forward(self, x):
        return x.flatten(1)[:, :3].detach()


@pytest.mark.parametrize(
    "module, settings, said",
    [
        (Detached(), {"of": ("network",)}, "passes no gradient to its input"),
        (nn.Sequential(nn.Flatten(), nn.Linear(48, 3)), {}, "no blocks are known in Sequential; jacobian.of=network"),
        (Turn(torch.eye(48)), {"of": ("attention",)}, "branches are not known; of=block"),
        (Mixing(), {"of": ("network",)}, "mixes the images of a batch"),
        (Turn(torch.eye(48)), {"of": ("stretch",), "stretch": (0, 3)}, "is not within blocks 0 to 0"),
    ],
)
def test_what_has_no_spectrum_is_refused(module, settings, said):
    model = wrap(nn.Sequential(nn.Flatten(), module) if isinstance(module, Turn) else module)
    data = (torch.rand(2, 3, 4, 4), torch.zeros(2, dtype=torch.int64))
    with pytest.raises(UserError, match=said):
        analyze((model, data), **settings)


@pytest.mark.parametrize("method", ["lanczos", "power", "dense"])
def test_what_is_not_finite_is_said(method):
    weight = torch.eye(12)
    weight[3, 4] = torch.inf
    with pytest.raises(UserError, match="not finite"):
        analyze(linear(weight), method=method, of=("block",))


def test_dense_is_refused_where_the_matrix_is_large():
    model = ht.load_model("vit_tiny_patch4_32", num_classes=10, seed=0, depth=1)
    data = (torch.rand(1, 3, 32, 32), torch.zeros(1, dtype=torch.int64))
    with pytest.raises(UserError, match=r"decompose a matrix of 12288 × 12288.*method=lanczos"):
        analyze((model, data), method="dense")


def test_blocks_that_change_the_size_have_no_residual():
    model = wrap(timm.create_model("resnet18", num_classes=4))
    data = (torch.rand(1, 3, 32, 32), torch.zeros(1, dtype=torch.int64))
    found = analyze((model, data), most=10)
    assert len(found.facts["layers"]["block"]) == 8 and len(found.facts["layers"]["residual"]) == 5
    assert any("layer2.0, layer3.0, layer4.0" in note for note in found.notes)
    assert any("raise jacobian.most" in note for note in found.notes)


@pytest.mark.parametrize(
    "word, said",
    [
        ("jacobian.of=atention", "did you mean 'attention'"),
        ("jacobian.tolerance=0", "greater than or equal to"),
        ("jacobian.tol=1", r"did you mean 'jacobian\.(tolerance|top)'"),
        ("jacobian.stretch=0,1", "of=stretch"),
    ],
)
def test_mistakes_in_settings_are_one_line(word, said, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["analyze", "model=vit_digits", "data=digits", "jacobian", word]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert re.search(said, error), error


def test_spectra_at_attacked_images_are_those_of_the_attacked_images(vit):
    """Measured in one call, or with images that were attacked before: the same numbers, under a name of their own."""
    model, (x, y) = vit
    attack = {"name": "fgsm"}
    ours = analyze(vit, of=("block", "network"), threat="linf:0.1", attack=attack)
    keys = make_keys(torch.arange(len(x)), CPU.seed)
    moved = ht.attack(model, x, y, "fgsm", threat="linf:0.1", keys=keys)
    theirs = analyze((model, (moved, y)), of=("block", "network"))
    assert not torch.equal(moved, x)
    for kind in ("block", "network"):
        assert ours.arrays[f"sigma_{kind}"] == pytest.approx(theirs.arrays[f"sigma_{kind}"], rel=1e-3)
    clean = analyze(vit, of=("block", "network"))
    assert not np.allclose(ours.arrays["sigma_network"], clean.arrays["sigma_network"], rtol=1e-3)
    assert ours.of("sigma_max", "network attacked") is not None and ours.of("sigma_max", "network") is None
    assert ours.id != clean.id


def test_an_attack_without_a_threat_is_refused(vit):
    with pytest.raises(UserError, match=r"an attack needs its threat: jacobian.threat=linf:8/255"):
        analyze(vit, attack="fgsm")


def test_results_at_attacked_images_say_within_which_threat(vit):
    results = analyze(vit, of=("block",), threat="linf:0.1").results
    assert {result.threat for result in results} == {"linf:0.1"}
    assert {result.threat for result in analyze(vit, of=("block",)).results} == {None}


def test_an_id_without_an_attack_is_the_one_from_before_there_were_attacks(vit):
    """Its settings are left out while they are empty, so that stored analyses are found."""
    assert Spectra.later_settings == ("threat", "attack")
    assert not any(plain(Spectra())[name] for name in Spectra.later_settings)


def test_findings_of_different_attacks_have_charts_of_their_own(vit, tmp_path):
    model, data = vit
    for settings in ({}, {"threat": "linf:0.1"}, {"threat": "linf:0.1", "attack": "fgsm"}, {"threat": "linf:0.05"}):
        ht.analyze(model, data, "jacobian", runtime=CPU, quiet=True, folder=tmp_path / "run", of=("block",), **settings)
    charts = [chart for chart in jacobian_charts([read_run(tmp_path / "run")]) if chart["id"].startswith("jacobian-")]
    captions = [str(chart["caption"]) for chart in charts]
    assert len(captions) == 4
    for words in ("by pgd-20 within ℓ∞ ≤ 0.1", "by fgsm", "by pgd-20 within ℓ∞ ≤ 0.05"):
        assert sum(words in caption for caption in captions) == 1, captions
    assert sum("attacked" not in caption for caption in captions) == 1
