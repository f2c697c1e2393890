"""Spectra of images whose spectra are known."""

import math

import pytest
import torch

from hardtack.analysis.perturbations.amplitude import amplitude
from hardtack.analysis.perturbations.picture import picture
from hardtack.analysis.perturbations.spectrum import mean_frequency, radial_power, rings
from hardtack.threats import Threat


def wave(down, across, height=16, width=16):
    row, column = torch.arange(height)[:, None] / height, torch.arange(width)[None, :] / width
    return 0.5 + 0.3 * torch.sin(2 * math.pi * (down * row + across * column)).expand(1, 3, height, width)


@pytest.mark.parametrize("down, across, ring", [(0, 1, 1), (3, 0, 3), (3, 4, 5), (0, 7, 7)])
def test_a_wave_has_all_its_power_in_its_ring(down, across, ring):
    power = radial_power(wave(down, across))[0]
    assert power[ring - 1] > 1 and power.sum() == pytest.approx(power[ring - 1].item())
    assert mean_frequency(wave(down, across)).item() == pytest.approx(ring / 16)


def test_rings_are_in_cycles_per_pixel_of_the_shorter_side():
    assert rings(16, 24).tolist() == [k / 16 for k in range(1, 9)]
    narrow = wave(0, 6, height=16, width=24)  # 6 cycles over 24 pixels are a quarter cycle per pixel
    assert radial_power(narrow)[0].argmax().item() == 3
    assert mean_frequency(narrow).item() == pytest.approx(0.25)


def test_white_noise_is_one_everywhere():
    noise = torch.randn(400, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    assert radial_power(noise).mean(dim=0) == pytest.approx(torch.ones(8), abs=0.05)
    assert mean_frequency(noise).mean().item() == pytest.approx(0.383, abs=0.01)


def test_a_single_bright_pixel_has_all_frequencies_alike():
    point = torch.zeros(1, 3, 8, 8)
    point[..., 2, 5] = 1.0
    assert radial_power(point)[0].tolist() == pytest.approx([1.0] * 4)


def test_strength_and_mean_do_not_count_and_no_change_is_no_spectrum():
    image = torch.rand(1, 3, 9, 9, generator=torch.Generator().manual_seed(0))
    assert radial_power(0.1 * image + 0.3) == pytest.approx(radial_power(image), rel=1e-4)
    assert not radial_power(torch.zeros(2, 3, 9, 9)).any() and not mean_frequency(torch.zeros(2, 3, 9, 9)).any()


def test_pictures_put_no_change_in_the_middle_and_the_bound_at_the_ends():
    delta = torch.tensor([-0.1, -0.05, 0.0, 0.1]).view(1, 1, 2, 2)
    assert picture(delta, Threat.parse("linf:0.1")).flatten().tolist() == [0, 64, 128, 255]
    assert picture(delta, Threat.parse("l2:3")).flatten().tolist() == [0, 64, 128, 255]
    assert picture(torch.zeros(1, 1, 2, 2), Threat.parse("l2:3")).flatten().tolist() == [128] * 4


def test_amplitudes_by_channel():
    delta = torch.zeros(1, 3, 2, 2)
    delta[0, 1] = torch.tensor([[0.1, -0.1], [0.05, 0.0]])
    found = amplitude(delta, Threat.parse("linf:0.1"))
    assert found["mean"].tolist() == [[0, pytest.approx(0.0625), 0]]
    assert found["at_bound"].tolist() == [[0, 0.5, 0]]
    assert found["l2"].item() == pytest.approx(0.15)
    counts = found["counts"]
    assert counts.shape == (1, 3, 41) and counts.sum(dim=2).tolist() == [[4, 4, 4]]
    assert counts[0, 0, 20] == 4 and counts[0, 1, [0, 20, 30, 40]].tolist() == [1, 1, 1, 1]
