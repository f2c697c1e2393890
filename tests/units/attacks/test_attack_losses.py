"""Attack losses against values worked out by hand."""

import math

import pytest
import torch

from hardtack.attacks import LOSSES, get_loss
from hardtack.base.errors import UserError

LOGITS = torch.tensor([[2.0, 1.0, 0.0, -1.0], [0.0, 3.0, 1.0, 2.0]])
Y = torch.tensor([0, 2])


def test_cross_entropy():
    by_hand = [math.log(sum(math.exp(v - row[y]) for v in row)) for row, y in zip(LOGITS.tolist(), Y, strict=True)]
    assert torch.allclose(LOSSES["ce"](LOGITS, Y, None), torch.tensor(by_hand))


def test_margin_is_positive_exactly_when_the_answer_is_wrong():
    assert LOSSES["margin"](LOGITS, Y, None).tolist() == [-1.0, 2.0]
    logits = torch.randn(500, 5, generator=torch.Generator().manual_seed(0)) - 10  # all negative: masks must not be 0
    y = torch.arange(500) % 5
    assert torch.equal(LOSSES["margin"](logits, y, None) > 0, logits.argmax(1) != y)


def test_dlr_is_the_margin_over_the_first_less_the_third():
    assert torch.allclose(LOSSES["dlr"](LOGITS, Y, None), torch.tensor([-1 / 2, 2 / 2]))
    moved = LOSSES["dlr"](LOGITS * 1000 + 7, Y, None)
    assert torch.allclose(moved, LOSSES["dlr"](LOGITS, Y, None)), "blind to scale and shift"


def test_dlr_on_two_classes_is_the_margin():
    two = LOGITS[:, :2]
    assert torch.equal(LOSSES["dlr"](two, Y * 0, None), LOSSES["margin"](two, Y * 0, None))


def test_the_probability_margin_is_a_difference_of_probabilities():
    p = LOGITS.double().softmax(1)
    by_hand = torch.stack([p[0, 1] - p[0, 0], p[1, 1] - p[1, 2]])
    assert torch.allclose(LOSSES["pm"](LOGITS, Y, None).double(), by_hand, atol=1e-6)
    assert torch.allclose(LOSSES["pm"](LOGITS - 50, Y, None), LOSSES["pm"](LOGITS, Y, None)), "all negative or not"
    logits = torch.randn(500, 1000, generator=torch.Generator().manual_seed(0))
    y = torch.arange(500)
    value = LOSSES["pm"](logits, y, None)
    assert torch.equal(value > 0, logits.argmax(1) != y) and value.abs().max() <= 1
    assert LOSSES["pm"](logits.bfloat16(), y, None).dtype == torch.float32
    two = LOGITS[:, :2]
    assert torch.allclose(LOSSES["pm"](two, Y * 0, None), two.softmax(1)[:, 1] - two.softmax(1)[:, 0])


def test_kl_is_from_the_clean_to_the_attacked():
    clean, attacked = LOGITS.double(), LOGITS.double().flip(1)
    p, q = clean.softmax(1), attacked.softmax(1)
    by_hand = (p * (p / q).log()).sum(1)
    assert torch.allclose(LOSSES["kl"](attacked, Y, clean), by_hand)
    lopsided = torch.tensor([[4.0, 0.0, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0]])
    assert not torch.allclose(LOSSES["kl"](lopsided, Y, LOGITS), LOSSES["kl"](LOGITS, Y, lopsided)), "not symmetric"
    assert LOSSES["kl"](LOGITS, Y, LOGITS).abs().max() < 1e-6
    assert torch.equal(LOSSES["kl"](LOGITS, Y, lopsided), LOSSES["kl"](LOGITS, Y * 0, lopsided)), "knows no label"


@pytest.mark.parametrize("name", LOSSES)
def test_gradients_are_finite_where_logits_are_extreme(name):
    for scale in (1e-6, 1.0, 1e4):
        logits = (LOGITS * scale).requires_grad_()
        value = LOSSES[name](logits, Y, LOGITS.flip(1) * scale)
        assert value.shape == (2,) and value.isfinite().all()
        assert torch.autograd.grad(value.sum(), logits)[0].isfinite().all()


@pytest.mark.parametrize("name", ["ce", "margin", "dlr", "pm"])
def test_gradients_push_the_label_down(name):
    logits = LOGITS.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(LOSSES[name](logits, Y, None).sum(), logits)
    assert (gradient[torch.arange(2), Y] <= 0).all() and gradient[0, 0] < 0


def test_the_margin_does_not_change_its_logits():
    before = LOGITS.clone()
    for name in LOSSES:
        LOSSES[name](LOGITS, Y, LOGITS)
    assert torch.equal(LOGITS, before)


def test_unknown_losses():
    assert get_loss("ce") is LOSSES["ce"]
    with pytest.raises(UserError, match=r"no attack loss 'margn' \(did you mean 'margin'\?\)"):
        get_loss("margn")
