"""Spatter and the edges under it against loops over pixels, and against OpenCV where it is installed."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from pictures import arrays, pictures
from scipy.ndimage import correlate, gaussian_filter, label

from hardtack.base import randomness
from hardtack.data.corruptions.edges import ONE, distance_to, find_edges
from hardtack.data.corruptions.spatter import drop_light, spatter

CONSTANTS = {
    "cifar": [
        (0.62, 0.1, 0.7, 0.7, 0.5), (0.65, 0.1, 0.8, 0.7, 0.5), (0.65, 0.3, 1, 0.69, 0.5), (0.65, 0.1, 0.7, 0.69, 0.6),
        (0.65, 0.1, 0.5, 0.68, 0.6),
    ],
    "imagenet": [
        (0.65, 0.3, 4, 0.69, 0.6), (0.65, 0.3, 3, 0.68, 0.6), (0.65, 0.3, 2, 0.68, 0.5), (0.65, 0.3, 1, 0.65, 1.5),
        (0.67, 0.4, 1, 0.65, 1.5),
    ],
}  # fmt: skip
WATER, MUD = np.array([175, 238, 238]) / 255, np.array([63, 42, 20]) / 255


def canny(levels, low=50, high=150):
    """H×W uint8 to bool, pixel by pixel."""
    height, width = levels.shape
    padded = np.pad(levels.astype(int), 1, mode="edge")
    smooth, slope = np.array([1, 2, 1]), np.array([-1, 0, 1])
    across, down = np.empty((height, width), int), np.empty((height, width), int)
    for y in range(height):
        for x in range(width):
            window = padded[y : y + 3, x : x + 3]
            across[y, x], down[y, x] = smooth @ window @ slope, slope @ window @ smooth
    strength = np.pad(abs(across) + abs(down), 1)
    kept = np.zeros((height, width), bool)
    for y in range(height):
        for x in range(width):
            here = strength[y + 1, x + 1]
            dx, dy = abs(across[y, x]), abs(down[y, x])
            if dy * 2**15 < dx * 13573:
                before, after, tie = strength[y + 1, x], strength[y + 1, x + 2], True
            elif dy * 2**15 > dx * (13573 + 2**16):
                before, after, tie = strength[y, x + 1], strength[y + 2, x + 1], True
            else:
                side = -1 if (across[y, x] < 0) != (down[y, x] < 0) else 1
                before, after, tie = strength[y, x + 1 - side], strength[y + 2, x + 1 + side], False
            kept[y, x] = here > low and here > before and (here >= after if tie else here > after)
    pieces, _ = label(kept, np.ones((3, 3)))
    strong = set(pieces[kept & (strength[1:-1, 1:-1] > high)])
    return np.isin(pieces, list(strong)) & kept


def chamfer(edges, limit=20):
    """Distances by relaxing every step until nothing changes."""
    steps = [(dy, dx) for dy in range(-2, 3) for dx in range(-2, 3) if sorted((abs(dy), abs(dx))) != [0, 2]]
    cost = {1: 10_000, 2: 14_000, 5: 21_969}
    distance = np.where(edges, 0, limit * ONE)
    while True:
        padded, before = np.pad(distance, 2, constant_values=limit * ONE), distance
        for dy, dx in steps:
            if dy * dy + dx * dx in cost:
                moved = padded[2 + dy : 2 + dy + edges.shape[0], 2 + dx : 2 + dx + edges.shape[1]]
                distance = np.minimum(distance, moved + cost[dy * dy + dx * dx])
        if (distance == before).all():
            return distance


def equalise(depth):
    counts = np.bincount(depth.ravel(), minlength=256)
    least = depth.min()
    if counts[least] == depth.size:
        return depth
    scale = np.float32(255) / np.float32(depth.size - counts[least])
    table = [np.round(np.float32(counts[least + 1 : level + 1].sum()) * scale) for level in range(256)]
    return np.array(table)[depth].clip(0, 255)


def literal_light(levels):
    box = np.ones((3, 3), int)
    depth = correlate(chamfer(canny(levels)), box, mode="mirror") // (9 * ONE)
    relief = correlate(equalise(depth).astype(int), np.array([[-2, -1, 0], [-1, 1, 1], [0, 1, 2]]), mode="mirror")
    return np.round(correlate(relief.clip(0, 255), box, mode="mirror") / 9)


def literal(image, liquid, threshold, last, water, light=literal_light):
    liquid = np.where(liquid < threshold, 0, liquid)
    if not water:
        cover = gaussian_filter(np.where(liquid > threshold, 1.0, 0.0), last, mode="nearest")
        cover = np.where(cover < 0.8, 0, cover)[..., None]
        return image * (1 - cover) + cover * MUD
    levels = (liquid * 255).astype(np.int64).astype(np.uint8)
    layer = levels * light(levels)
    return image + (layer / layer.max() * last)[..., None] * WATER


def liquids(keys, size, constants, severity):
    mean, deviation, sigma, _, _ = CONSTANTS[constants][severity - 1]
    noise = randomness.normal(keys, size).double().numpy() * deviation + mean
    return gaussian_filter(noise, (0, sigma, sigma), mode="nearest")


def compare(made, expected):
    difference = np.abs(made - expected)
    # float32 noise now and then lies on the other side of a grey level or of the threshold
    assert (difference.max(axis=(1, 2, 3)) < 1e-4).mean() >= 0.5
    assert difference.mean() < 1e-3


@pytest.mark.parametrize("severity", range(1, 6))
@pytest.mark.parametrize("constants", ["cifar", "imagenet"])
def test_spatter(severity, constants):
    x, keys = pictures(4, 24, 32), randomness.make_keys(torch.arange(4), severity)
    _, _, _, threshold, last = CONSTANTS[constants][severity - 1]
    layers = liquids(keys, (24, 32), constants, severity)
    expected = [literal(image / 255, layer, threshold, last, severity < 4)
                for image, layer in zip(arrays(x), layers, strict=True)]  # fmt: skip
    compare(spatter(x, keys, severity, constants).permute(0, 2, 3, 1).numpy(), np.stack(expected))


def some_levels(count, height, width, seed=0):
    """Drops with soft and hard edges: gradients of every direction, below, between and above the thresholds."""
    rng = np.random.default_rng(seed)
    field = gaussian_filter(rng.normal(size=(count, height, width)), (0, 1.2, 1.2))
    field[count // 2 :] *= field[count // 2 :] > 0.1
    return (field / np.abs(field).max() * 400).clip(0, 255).astype(np.uint8)


def test_edges_and_distances():
    levels = some_levels(6, 17, 31)
    edges = find_edges(torch.from_numpy(levels.astype(np.int32)), 50, 150)
    assert 0.05 < edges.float().mean() < 0.5
    distance = distance_to(edges, limit=20)
    for number, image in enumerate(levels):
        assert (edges[number].numpy() == canny(image)).all()
        assert (distance[number].numpy() == chamfer(edges[number].numpy())).all()


def test_distances_from_one_pixel_and_from_none():
    edges = torch.zeros(2, 41, 60, dtype=torch.bool)
    edges[0, 20, 3] = True
    distance = distance_to(edges, limit=20)
    assert (distance[0].numpy() == chamfer(edges[0].numpy())).all()
    assert (distance[1] == 20 * ONE).all()


def test_weak_edges_count_only_when_joined_to_strong_ones():
    """A long weak line that touches a strong one at its end is kept as a whole."""
    levels = torch.zeros(2, 8, 60, dtype=torch.int32)
    levels[:, 4:] = 20  # a step of 20: gradient 80
    assert not find_edges(levels, 50, 150).any()
    levels[1, 4:, :3] = 60
    assert find_edges(levels, 50, 150)[1, :, 30:].any()


def test_light_of_drops():
    levels = some_levels(6, 24, 32, seed=1)
    made = drop_light(torch.from_numpy(levels.astype(np.int32))).numpy()
    for number, image in enumerate(levels):
        assert (made[number] == literal_light(image)).all()


@pytest.mark.oracle
@pytest.mark.parametrize(("height", "width"), [(32, 32), (224, 224), (17, 31)])
def test_equal_to_opencv(height, width):
    cv2 = pytest.importorskip("cv2", reason="opencv-python-headless is not installed")
    count = 4 if height > 100 else 20
    for seed in range(3):
        levels = some_levels(count, height, width, seed)
        tensor = torch.from_numpy(levels.astype(np.int32))
        edges, light = find_edges(tensor, 50, 150).numpy(), drop_light(tensor).numpy()
        for number, image in enumerate(levels):
            found = cv2.Canny(image, 50, 150)
            assert ((found > 0) == edges[number]).all()
            depth = np.minimum(cv2.distanceTransform(255 - found, cv2.DIST_L2, 5), 20)
            depth = cv2.equalizeHist(cv2.blur(depth, (3, 3)).astype(np.uint8))
            kernel = np.array([[-2, -1, 0], [-1, 1, 1], [0, 1, 2]])
            expected = cv2.blur(cv2.filter2D(depth, cv2.CV_8U, kernel), (3, 3))
            # without Intel's primitives OpenCV's distances have other digits, which shows at few pixels
            assert (expected != light[number]).mean() < (0 if cv2.ipp.useIPP() else 0.2) + 1e-9
