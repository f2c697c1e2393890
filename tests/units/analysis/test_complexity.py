"""Rademacher complexity: closed forms, every sign gone through, and a search over the class itself."""

import math

import numpy as np
import pytest
import torch
from torch import nn

import hardtack as ht
from hardtack.analysis.complexity.rademacher import closed_bounds, extra, signs, suprema
from hardtack.analysis.complexity.theorem import block_terms, middle_term, shared_terms
from hardtack.base.errors import UserError
from hardtack.base.runtime import Runtime
from tiny_runs import Linear, images, labels

CPU = Runtime(device="cpu")
NORMS = ("l1", "l2", "linf")


def look(x, y, model=None, **settings):
    return ht.analyze(model or Linear(), (x, y), "complexity", runtime=CPU, quiet=True, **settings)


def alternating(n):
    return torch.arange(n) % 2


def middle_binomial(n):
    """E|σ₁ + … + σₙ| = n·C(n−1, ⌊(n−1)/2⌋)/2^(n−1)."""
    return n * math.comb(n - 1, (n - 1) // 2) / 2 ** (n - 1)


def test_all_signs_are_gone_through_once():
    found = signs(0, 2**5, 5, seed=0)
    assert len({tuple(row) for row in found.tolist()}) == 32 and set(found.flatten().tolist()) == {-1.0, 1.0}
    drawn = signs(0, 400, 50, seed=0)
    assert torch.equal(signs(100, 200, 50, seed=0), drawn[100:200]) and abs(drawn.mean()) < 0.03


@pytest.mark.parametrize("norm, expected", [("l1", 1), ("l2", 3), ("linf", 9)])
def test_orthogonal_images_have_the_same_sum_for_all_signs(norm, expected):
    x = torch.eye(9).reshape(9, 1, 3, 3).repeat(1, 3, 1, 1)
    found = look(x, alternating(9), norms=[norm], sizes=[3], bound=2.0)
    channels = {"l1": 1, "l2": math.sqrt(3), "linf": 3}[norm]
    assert found.of("rademacher_complexity", norm).value == pytest.approx(2 * expected * channels / 9, rel=1e-6)


@pytest.mark.parametrize("n", [7, 12])
def test_one_image_many_times_is_a_random_walk(n):
    x = torch.full((n, 3, 2, 2), 0.5)
    found = look(x, torch.zeros(n, dtype=torch.int64), sizes=[2])
    for norm, length in zip(NORMS, (0.5, 0.5 * math.sqrt(12), 0.5 * 12), strict=True):
        assert found.of("rademacher_complexity", norm).value == pytest.approx(middle_binomial(n) * length / n, rel=1e-6)
    assert found.facts["exact"] and found.of("rademacher_complexity", "l2").low is None


def test_random_signs_agree_with_all_signs():
    x, y = images(12), labels(12)
    exact = look(x, y)
    more = torch.cat([x, torch.zeros(8, 3, 8, 8)])  # images of zeros only change what the sum is divided by
    drawn = look(more, torch.cat([y, y[:8]]), eps=0, draws=2000)
    for norm in NORMS:
        true, found = exact.of("rademacher_complexity", norm).value * 12 / 20, drawn.of("rademacher_complexity", norm)
        assert found.low - 0.01 * true < true < found.high + 0.01 * true
        assert found.high - found.low < 0.2 * true


@pytest.mark.parametrize("norm, p", [("l1", 1), ("l2", 2), ("linf", math.inf)])
def test_the_attacked_supremum_is_that_over_the_class(norm, p):
    """Against many w of Σ σᵢ (yᵢ⟨w, xᵢ⟩ − ε‖w‖₁)."""
    generator = torch.Generator().manual_seed(3)
    x = torch.rand(6, 5, generator=generator)
    for row in signs(5, 9, 6, seed=0):
        u, s, eps = row @ x, row.sum(), 0.3
        _, found = suprema(u[None], s[None], norm=norm, eps=eps)
        best = sum(largest(turned, u, p=p, eps=eps, generator=generator) for turned in (s, -s)) / 2
        assert 0.93 * found - 1e-6 <= best <= found + 1e-5


def largest(s, u, *, p, eps, generator):
    """Of ⟨w, u⟩ − ε s ‖w‖₁ over many w of the class, those that a vertex or a scaled u could be among them."""
    w = torch.randn(4000, 5, generator=generator)
    w = torch.cat([u.sign() * w.abs(), u.sign()[None], u.sign() * torch.eye(5)])
    w = w / torch.linalg.vector_norm(w, p, dim=1, keepdim=True).clamp_min(1e-12)
    return torch.cat([w @ u - eps * s * w.abs().sum(dim=1), torch.zeros(1)]).max()


def test_the_lemma_holds_and_only_l1_forgets_the_dimension():
    x, y = images(14), labels(14)
    found = look(x, y, eps=0.1)
    arrays = found.arrays
    assert list(arrays["dims"]) == [3, 12, 48, 192]
    assert np.all(arrays["attacked"] <= arrays["upper"] + 1e-9) and np.all(arrays["attacked"] >= arrays["clean"] - 1e-9)
    assert np.all(arrays["constant"] > 0) and np.all(arrays["constant"] < 2)
    added = arrays["upper"] - arrays["clean"]
    assert added[-1] / added[0] == pytest.approx([1, math.sqrt(64), 64])
    assert extra("linf", eps=0.1, bound=3, d=192, n=14) == pytest.approx(0.1 * 3 * 192 / math.sqrt(14))
    low, high = arrays["closed"][..., 0], arrays["closed"][..., 1]
    assert np.all(low <= arrays["clean"] + 1e-9) and np.all(arrays["clean"] <= high + 1e-9)


def test_closed_bounds_are_tight_where_they_can_be():
    of_the_identity = np.ones(4)
    assert closed_bounds(of_the_identity, "l2", n=4, bound=1.0)[1] == pytest.approx(math.sqrt(4) / 4)
    assert closed_bounds(of_the_identity, "linf", n=4, bound=1.0)[1] == pytest.approx(1)


@pytest.mark.parametrize("by", ["resize", "subset"])
def test_batches_make_no_difference(by):
    x, y = images(11), labels(11)
    whole, parts = look(x, y, by=by), look(x, y, by=by, batch_size=3)
    for name, values in whole.arrays.items():
        assert parts.arrays[name] == pytest.approx(values, rel=1e-6)
    assert parts.facts["frobenius"] == pytest.approx(float(x.norm()), rel=1e-6)


def test_features_are_what_enters_the_last_layer():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(192, 6), nn.ReLU(), nn.Linear(6, 4)).eval()
    x, y = images(10), labels(10)
    seen = model[2](model[1](x.flatten(1))).detach()
    found = look(x, y, model, of="features", norms=["linf"], sizes=[6, 2], batch_size=3)
    total = torch.stack([(row @ seen).abs().sum() for row in signs(0, 1024, 10, seed=0)]).mean() / 10
    assert list(found.arrays["dims"]) == [2, 6]
    assert found.of("rademacher_complexity", "linf").value == pytest.approx(float(total), rel=1e-5)


def test_norms_of_blocks_are_those_of_their_matrices():
    model = ht.load_model("vit_digits", num_classes=4, image_size=8, seed=0)
    rows = block_terms(model, eps=0.1, n=25, d=192, frobenius=2.0)
    name, weight = next((n, w) for n, w in model.named_parameters() if n.endswith("qkv.weight"))
    assert rows[0]["block"] in name
    assert rows[0]["s1"] == pytest.approx(float(torch.linalg.matrix_norm(weight.detach(), 2)), rel=1e-5)
    assert rows[0]["b1"] == pytest.approx(float(torch.linalg.matrix_norm(weight.detach(), 1)), rel=1e-5)
    assert rows[0]["term"] == pytest.approx(2 * 0.1 * rows[0]["b1"] * rows[0]["b2"] / 5)
    widths = [192, *(side for n, w in model.named_parameters() if "blocks.0" in n and w.ndim == 2 for side in w.shape)]
    assert rows[0]["d_max"] == max(widths)
    found = look(images(5), labels(5), model)
    assert len(found.facts["blocks"]) == len(rows) and "semidefinite" in found.notes[0]
    assert "does not apply" in look(images(5), labels(5)).notes[0]


def test_the_middle_term_by_hand():
    """s₁ = 2, b₁ = 16, s₂ = 3, b₂ = 3: C = (8^(2/3) + 1)^(3/2)·7 = 5^1.5·7, times 60·log 4·log 20/4·6."""
    found = middle_term(s1=2.0, s2=3.0, b1=16.0, b2=3.0, d_max=10, n=4, frobenius=7.0)
    assert found["C"] == pytest.approx(5 * math.sqrt(5) * 7)
    assert (found["log_n"], found["log_2d_max"]) == pytest.approx((1.3862943611, 2.9957322736))
    assert found["middle_term"] == pytest.approx(60 * 1.3862943611 * 2.9957322736 / 4 * 6 * 78.2623792, rel=1e-8)
    assert found["middle_term"] == pytest.approx(29251.65, rel=1e-5)
    assert middle_term(s1=0.0, s2=3.0, b1=0.0, b2=3.0, d_max=10, n=4, frobenius=7.0)["middle_term"] == 0
    shared = shared_terms(n=4, failure=0.05)
    assert shared == pytest.approx({"first_term": 0.5, "confidence_term": 3 * math.sqrt(math.log(40) / 8)})


def test_the_terms_of_theorem_1_are_those_of_the_images_and_the_model():
    """A block of known matrices: q, k, v the identity times 2, an MLP of all halves; images of all ones."""
    model = ht.load_model("vit_digits", num_classes=4, image_size=8, seed=0, depth=1, width=16, heads=2)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith("qkv.weight"):
                weight.copy_(2 * torch.eye(16).repeat(3, 1))
            elif ".mlp." in name and weight.ndim == 2:
                weight.fill_(0.5)
    found = look(torch.ones(9, 3, 8, 8), labels(9), model, eps=0.1, failure=0.1)
    (row,) = found.facts["blocks"]
    s1, b1 = 2 * math.sqrt(3), 6.0  # each input goes to q, k and v
    hidden = next(w for n, w in model.named_parameters() if "fc1.weight" in n).shape[0]
    s2, b2 = 0.5 * math.sqrt(16 * hidden), 0.5 * hidden
    assert (row["s1"], row["b1"], row["s2"], row["b2"]) == pytest.approx((s1, b1, s2, b2), rel=1e-5)
    frobenius = math.sqrt(9 * 192)
    c = ((b1 / s1) ** (2 / 3) + (b2 / s2) ** (2 / 3)) ** 1.5 * frobenius
    expected = 60 * math.log(9) * math.log(2 * 192) / 9 * s1 * s2 * c
    assert row["d_max"] == 192 and row["C"] == pytest.approx(c, rel=1e-5)
    assert row["middle_term"] == pytest.approx(expected, rel=1e-5)
    assert found.of("theorem_1_middle_term").value == pytest.approx(expected, rel=1e-5)
    assert found.of("theorem_1_adversary_term").value == pytest.approx(2 * 0.1 * b1 * b2 / 3, rel=1e-5)
    assert found.facts["confidence_term"] == pytest.approx(3 * math.sqrt(math.log(20) / 18))
    assert look(images(5), labels(5)).of("theorem_1_middle_term") is None


def test_mistakes_are_refused():
    for settings, said in [
        ({"of": "features", "by": "resize"}, "cannot be resized"),
        ({"sizes": [9]}, "only be made smaller"),
        ({"by": "subset", "sizes": [193]}, "192 coordinates"),
        ({"positive": 4}, "no class 4"),
        ({"failure": 1}, "failure"),
        ({"norms": "l2,l3"}, "norms.*'l1', 'l2' or 'linf'"),
    ]:
        with pytest.raises(UserError, match=said):
            look(images(5), labels(5), **settings)
