"""Frost against the published steps, with overlays made here; the drawn overlays; what a folder must hold."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from pictures import arrays, pictures
from PIL import Image

from hardtack.base import randomness
from hardtack.base.errors import UserError
from hardtack.data.corruptions import corrupt, overlays
from hardtack.data.corruptions.frost import frost
from hardtack.data.corruptions.ice import draw_ice
from hardtack.data.corruptions.overlays import frost_source

CONSTANTS = {
    "cifar": [(1, 0.2), (1, 0.3), (0.9, 0.4), (0.85, 0.4), (0.75, 0.45)],
    "imagenet": [(1, 0.4), (0.8, 0.6), (0.7, 0.7), (0.65, 0.7), (0.6, 0.75)],
}
SIZES = ((203, 311), (180, 190), (182, 173), (201, 255), (224, 167), (300, 300))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Six overlays of different sizes, with an alpha channel here and there as the published ones have."""
    path, rng = tmp_path_factory.mktemp("frost"), np.random.default_rng(0)
    for number, (height, width) in enumerate(SIZES, start=1):
        pixels = rng.integers(0, 256, (height, width, 4 if number < 4 else 3), dtype=np.uint8)
        Image.fromarray(pixels).save(path / f"frost{number}.png")
    return path


def shrunk(picture):
    """To a fifth with bilinear weights at (i + ½)·5 − ½ and no smoothing before, as OpenCV does."""
    height, width = (round(side * 0.2) for side in picture.shape[:2])
    made = np.empty((height, width, 3))
    for i in range(height):
        for j in range(width):
            y, x = (i + 0.5) * 5 - 0.5, (j + 0.5) * 5 - 0.5
            above, left, down, right = int(y), int(x), y % 1, x % 1
            below, beside = min(above + 1, len(picture) - 1), min(left + 1, picture.shape[1] - 1)
            made[i, j] = (1 - down) * ((1 - right) * picture[above, left] + right * picture[above, beside]) + down * (
                (1 - right) * picture[below, left] + right * picture[below, beside]
            )
    return made


@pytest.mark.parametrize(("constants", "height", "width"), [("cifar", 32, 32), ("cifar", 17, 31), ("imagenet", 96, 80)])
def test_frost(folder, constants, height, width):
    pictured = [np.asarray(Image.open(folder / f"frost{number}.png").convert("RGB")) for number in range(1, 6)]
    if constants == "cifar":
        pictured = [shrunk(picture) for picture in pictured]
    x, seen = pictures(24, height, width), set()
    for severity in range(1, 6):
        keys = randomness.make_keys(torch.arange(24), severity)
        made = (frost(x, keys, severity, constants, folder) * 255).permute(0, 2, 3, 1).numpy()
        chosen = (randomness.uniform(keys, (), 0) * 5).int().tolist()
        down, right = (randomness.uniform(keys, (), stream).tolist() for stream in (1, 2))
        share, frost_share = CONSTANTS[constants][severity - 1]
        for number, image in enumerate(arrays(x)):
            overlay = pictured[chosen[number]]
            top = int(down[number] * (overlay.shape[0] - height))
            left = int(right[number] * (overlay.shape[1] - width))
            piece = overlay[top : top + height, left : left + width]
            assert (made[number].round() == np.uint8(np.clip(share * image + frost_share * piece, 0, 255))).all()
        seen |= set(chosen)
    assert seen == {0, 1, 2, 3, 4}


def test_an_overlay_smaller_than_the_image_is_enlarged(folder):
    made = frost(torch.zeros(3, 3, 400, 20), torch.arange(3), 5, "cifar", folder)
    assert made.shape == (3, 3, 400, 20)
    assert abs(made.mean().item() - 0.45 * 0.5) < 0.02


def test_corrupt_hands_the_folder_on(folder):
    x = pictures(4)
    drawn, given = (corrupt(x, torch.arange(4), "frost", 3, frost=source) for source in (None, folder))
    assert not torch.equal(drawn, given)
    assert torch.equal(drawn, corrupt(x, torch.arange(4), "frost", 3))


def test_results_can_name_the_overlays(folder, monkeypatch):
    assert frost_source(None) == "procedural overlays"
    assert frost_source(folder) == "other overlays"
    monkeypatch.setattr(overlays, "_PUBLISHED", overlays._digest(folder))
    assert frost_source(folder) == "published overlays"


def test_a_folder_without_overlays_is_named(tmp_path, folder):
    with pytest.raises(UserError, match=r"no such folder"):
        frost_source(tmp_path / "nothing")
    for number in (1, 2, 4, 5):
        (tmp_path / f"frost{number}.png").write_bytes((folder / f"frost{number}.png").read_bytes())
    with pytest.raises(UserError, match=r"frost3\.png or frost3\.jpg"):
        corrupt(pictures(1), torch.arange(1), "frost", 1, frost=tmp_path)


def test_drawn_ice_is_always_the_same_and_about_as_bright_as_the_photographs():
    first, second = draw_ice(5), draw_ice(2)
    assert all((a == b).all() for a, b in zip(first, second, strict=False))
    means = [picture.mean() for picture in first]
    assert np.mean(means) == pytest.approx(164, abs=3)  # of the five photographs
    assert min(picture.std() for picture in first) > 15
    assert all(picture.shape[0] > 224 and picture.shape[1] > 224 for picture in first)
    assert len({picture.tobytes() for picture in first}) == 5
