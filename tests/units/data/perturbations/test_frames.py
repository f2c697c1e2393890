"""What all types have in common: their length, their grey levels, and whose random numbers they use."""

from __future__ import annotations

import pytest
import torch
from pictures import pictures

from hardtack.base.errors import UserError
from hardtack.data.perturbations import PERTURBATIONS, against, frame_count, sequence

CASES = [(name, constants) for constants in ("cifar", "imagenet") for name in PERTURBATIONS[constants]]
LENGTHS = {("motion_blur", "cifar"): 21, ("translate", "cifar"): 16, ("translate", "imagenet"): 41}
RANDOM = {"gaussian_noise", "shot_noise", "snow", "spatter"}
INDEX = torch.tensor([4, 90_000, 7])


def film(x, index, name, constants, seed=0):
    return torch.stack(list(sequence(x, index, name, constants=constants, seed=seed)))


def test_ten_types_each_with_snow_or_spatter():
    assert len(PERTURBATIONS["cifar"]) == len(PERTURBATIONS["imagenet"]) == 10
    assert set(PERTURBATIONS["cifar"]) ^ set(PERTURBATIONS["imagenet"]) == {"snow", "spatter"}


@pytest.mark.parametrize(("name", "constants"), CASES)
def test_frames(name, constants):
    x = pictures(3, 28, 42)
    frames = film(x, INDEX, name, constants)
    assert len(frames) == frame_count(name, constants) == LENGTHS.get((name, constants), 31)
    assert frames.shape[1:] == x.shape and frames.min() >= 0 and frames.max() <= 1
    assert torch.equal(frames, (frames * 255).round() / 255)
    assert not torch.equal(frames[0], frames[-1])

    turned = film(x.flip(0), INDEX.flip(0), name, constants)  # another order, and alone
    assert torch.equal(turned.flip(1), frames)
    assert torch.equal(film(x[1:2], INDEX[1:2], name, constants), frames[:, 1:2])

    same = film(x[:1].expand_as(x), INDEX, name, constants)
    reseeded = film(x[:1].expand_as(x), INDEX, name, constants, seed=1)
    assert torch.equal(same[:, 0], same[:, 1]) != (name in RANDOM)
    assert torch.equal(same, reseeded) != (name in RANDOM)


def test_values_between_grey_levels_are_rounded_first():
    x = pictures(2)
    assert torch.equal(film(x + 0.4 / 255, INDEX[:2], "rotate", "cifar"), film(x, INDEX[:2], "rotate", "cifar"))


def test_noises_are_compared_with_the_first_frame():
    assert [name for name in PERTURBATIONS["cifar"] if against(name) == "first"] == ["gaussian_noise", "shot_noise"]
    assert against("gaussian_noise_2") == "first" and against("scale") == "previous"


def test_a_name_that_is_none():
    with pytest.raises(UserError, match="did you mean 'rotate'"):
        sequence(pictures(1), INDEX[:1], "rotat")
    with pytest.raises(UserError, match="no perturbation 'snow' with the constants of cifar"):
        sequence(pictures(1), INDEX[:1], "snow")
