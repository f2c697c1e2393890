"""A threat is written and read as text, and knows what lies inside it."""

from fractions import Fraction

import pytest
import torch

from hardtack.base import config
from hardtack.base.errors import UserError
from hardtack.threats import Threat


@pytest.mark.parametrize(
    "text, eps",
    [
        ("linf:8/255", Fraction(8, 255)), ("linf:1/255", Fraction(1, 255)), ("linf:0.2", Fraction(1, 5)),
        ("linf:0", Fraction(0)), ("linf:1", Fraction(1)), ("l2:0.5", Fraction(1, 2)), ("l2:3", Fraction(3)),
        ("l1:12", Fraction(12)), ("l2:1/3", Fraction(1, 3)), ("l2:128/255", Fraction(128, 255)),
        ("linf:1e-3", Fraction(1, 1000)), ("l2:22/7", Fraction(22, 7)), (" linf : 8/255 ", Fraction(8, 255)),
    ],
)  # fmt: skip
def test_text_is_read_exactly_and_written_so_that_it_reads_the_same(text, eps):
    threat = Threat.parse(text)
    assert threat.eps == eps and threat.radius == float(eps)
    assert Threat.parse(str(threat)) == threat
    assert str(Threat.parse(str(threat))) == str(threat)


@pytest.mark.parametrize(
    "threat, text",
    [
        (Threat("linf", Fraction(8, 255)), "linf:8/255"),
        (Threat("linf", Fraction(3, 255)), "linf:3/255"),
        (Threat("linf", Fraction(1, 5)), "linf:0.2"),
        (Threat("l2", Fraction(1, 2)), "l2:0.5"),
        (Threat("l1", Fraction(12)), "l1:12"),
        (Threat("l2", Fraction(1, 7)), "l2:1/7"),
        (Threat("linf", 8 / 255), "linf:8/255"),
        (Threat("l2", 0.1), "l2:0.1"),
        (Threat("l2", 0.30000000000000004), "l2:0.30000000000000004"),
        (Threat("l1", 12), "l1:12"),
        (Threat("linf", "4/255"), "linf:4/255"),
        (Threat("linf", Fraction(8, 255)).scaled(Fraction(1, 2)), "linf:4/255"),
        (Threat("linf", Fraction(8, 255)).scaled(0), "linf:0"),
        (Threat("l2", Fraction(1, 2)).scaled(2), "l2:1"),
    ],
)
def test_eps_is_written_as_a_person_would(threat, text):
    assert str(threat) == text and isinstance(threat.eps, Fraction)
    assert Threat.parse(text) == threat


def test_a_threat_is_a_value():
    assert Threat.parse("linf:8/255") == Threat("linf", 8 / 255)
    assert hash(Threat.parse("linf:8/255")) == hash(Threat("linf", Fraction(16, 510)))
    assert Threat.parse("linf:8/255") != Threat.parse("l2:8/255")
    threat = Threat.parse("l2:1")
    assert Threat.parse(threat) is threat
    with pytest.raises(AttributeError):
        threat.eps = 2


@pytest.mark.parametrize(
    "text, words",
    [
        ("linf:8", r"\[0,1\] pixel units, found 8 \(did you mean 'linf:8/255'\?\)"),
        ("linf:2.5", r"found 2.5 \(did you mean 'linf:2.5/255'\?\)"),
        ("linf:300", r"found 300$"),
        ("lnf:8/255", r"no norm 'lnf' \(did you mean 'linf'\?\)"),
        ("LINF:8/255", r"did you mean 'linf'"),
        ("xyz:1", r"no norm 'xyz'; known: linf, l2, l1"),
        (":1", r"no norm ''"),
        ("linf", r"write it as norm:eps, for example linf:8/255"),
        ("", r"write it as norm:eps"),
        ("linf:", r"eps '' is neither a finite number nor a fraction"),
        ("linf:eight", r"eps 'eight'"),
        ("linf:8/0", r"eps '8/0'"),
        ("linf:nan", r"eps 'nan'"),
        ("l2:inf", r"eps 'inf'"),
        ("l2:1e400", r"eps '1e400'"),
        ("l2:-1", r"must not be negative, found -1"),
        ("linf:8/255:3", r"eps '8/255:3'"),
    ],
)
def test_bad_text_is_refused_with_the_remedy(text, words):
    with pytest.raises(UserError, match=words):
        Threat.parse(text)


@pytest.mark.parametrize("text", ["linf:8", "linf:2.5", "linf:51"])
def test_the_remedy_itself_is_accepted(text):
    with pytest.raises(UserError) as caught:
        Threat.parse(text)
    hint = str(caught.value).split("did you mean '")[1].split("'")[0]
    assert Threat.parse(hint).eps * 255 == Fraction(text.split(":")[1])


def test_configuration_takes_text_and_gives_it_back():
    threat = Threat.parse("linf:8/255")
    assert config.plain({"threat": threat}) == {"threat": "linf:8/255"}


# ---------------------------------------------------------------- contains


@pytest.mark.parametrize("norm, eps", [("linf", "8/255"), ("l2", "0.5"), ("l1", "4")])
def test_the_edge_is_inside_and_just_beyond_is_not(norm, eps):
    threat = Threat.parse(f"{norm}:{eps}")
    x = torch.full((3, 3, 8, 8), 0.5)
    direction = torch.randn(1, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    direction = direction / threat.size(direction)
    reach = torch.tensor([1.0, 1 + 1e-7, 1 + 1e-4]).reshape(-1, 1, 1, 1)
    assert threat.contains(x + direction * threat.radius * reach, x).tolist() == [True, True, False]


def test_outside_the_box_is_outside():
    threat = Threat.parse("linf:0.1")
    x = torch.tensor([0.0, 1.0, 0.5, 0.5]).reshape(-1, 1, 1, 1).expand(4, 3, 2, 2)
    moved = x + torch.tensor([-1e-6, 1e-6, 0.05, float("nan")]).reshape(-1, 1, 1, 1)
    assert threat.contains(moved, x).tolist() == [False, False, True, False]


def test_one_pixel_outside_is_enough():
    threat = Threat.parse("linf:0.1")
    x = torch.full((1, 3, 4, 6), 0.5)
    x_adv = x.clone()
    x_adv[0, 2, 3, 5] += 0.11
    assert not threat.contains(x_adv, x).item()


@pytest.mark.parametrize("norm", ["linf", "l2", "l1"])
def test_sizes_are_norms_of_each_image(norm):
    delta = torch.randn(4, 3, 5, 7)
    order = {"linf": torch.inf, "l2": 2, "l1": 1}[norm]
    assert torch.allclose(Threat(norm, 1).size(delta), delta.flatten(1).norm(p=order, dim=1))
    assert Threat(norm, 1).size(delta[:0]).shape == (0,)


def test_its_own_radius_unless_told_otherwise():
    threat = Threat.parse("linf:0.1")
    x, z = torch.full((2, 3, 2, 2), 0.5), torch.ones(2, 3, 2, 2)
    assert torch.allclose(threat.project(z, x), x + 0.1)
    assert torch.allclose(threat.project(z, x, 0.2), x + 0.2)
    keys = torch.arange(2)
    assert (threat.random_point(x, keys) - x).abs().max() <= 0.1 + 1e-6
    assert (threat.random_point(x, keys, 0.01) - x).abs().max() <= 0.01 + 1e-6
