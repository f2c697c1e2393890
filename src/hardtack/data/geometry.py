"""Flips, crops and affine warps of whole batches, each image with its own parameters.

Everything takes N×3×H×W in [0,1] and gives the same shape; parameters are tensors of length N.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from hardtack.base import randomness


def per_image(values: Tensor) -> Tensor:
    """N → N×1×1×1."""
    return values.view(-1, 1, 1, 1)


def flip(x: Tensor, chosen: Tensor) -> Tensor:
    """Mirror the chosen (N bool) images left to right."""
    return torch.where(per_image(chosen), x.flip(-1), x)


def shifted_crop(x: Tensor, top: Tensor, left: Tensor, *, padding: int, mode: str) -> Tensor:
    """Rows top … top+H−1 and columns left … left+W−1 of each image padded by `padding` (zero or reflect)."""
    count, _, height, width = x.shape
    rows = torch.arange(height, device=x.device) + top[:, None] - padding
    columns = torch.arange(width, device=x.device) + left[:, None] - padding
    inside = ((rows >= 0) & (rows < height))[:, :, None] & ((columns >= 0) & (columns < width))[:, None, :]
    rows, columns = _reflect(rows, height), _reflect(columns, width)
    image = torch.arange(count, device=x.device)[:, None, None]
    moved = x.permute(0, 2, 3, 1)[image, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)
    if mode == "zero":
        moved = moved * inside[:, None]
    return moved.contiguous()


def _reflect(position: Tensor, size: int) -> Tensor:
    # … 2 1 | 0 1 2 … size−1 | size−2 …, as torch.nn.functional.pad's reflect
    position = position.abs()
    return (size - 1 - (size - 1 - position).abs()).clamp(0, size - 1)


def draw_boxes(
    keys: Tensor,
    size: tuple[int, int],
    *,
    area: tuple[float, float],
    ratio: tuple[float, float],
    stream: int,
    whole: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """(top, left, height, width, fitted) of a random box per image, drawn as torchvision does.

    Ten candidates with area uniform in `area` (share of the image) and width/height log-uniform in `ratio`;
    the first that fits is taken, and `fitted` (N bool) says whether one did. `whole`: a box as large as the image fits
    (crops) or not (erasing).
    """
    height, width = size
    candidates, place = box_draws(keys, stream)
    share = candidates[..., 0] * (area[1] - area[0]) + area[0]
    low, high = math.log(ratio[0]), math.log(ratio[1])
    shape = torch.exp(candidates[..., 1] * (high - low) + low)
    wide = torch.round(torch.sqrt(share * height * width * shape)).long()
    tall = torch.round(torch.sqrt(share * height * width / shape)).long()
    limit = 0 if whole else 1
    fits = (wide > 0) & (tall > 0) & (wide <= width - limit) & (tall <= height - limit)
    first = fits.to(torch.uint8).argmax(dim=1, keepdim=True)
    wide, tall = wide.gather(1, first)[:, 0], tall.gather(1, first)[:, 0]
    fitted = fits.any(dim=1)
    most_tall, most_wide = _largest_box(size, ratio)
    wide, tall = torch.where(fitted, wide, most_wide), torch.where(fitted, tall, most_tall)
    top, left = ((place[:, n] * room).long() for n, room in enumerate((height - tall + 1, width - wide + 1)))
    top = torch.where(fitted, top, (height - most_tall) // 2)
    left = torch.where(fitted, left, (width - most_wide) // 2)
    return top, left, tall, wide, fitted


def box_draws(keys: Tensor, stream: int) -> tuple[Tensor, Tensor]:
    """Uniform numbers of a box per image: N×10×2 (area, shape) of its candidates, N×2 of its place."""
    candidates = [randomness.uniform(keys, (10,), stream + n) for n in (0, 1)]
    place = [randomness.uniform(keys, (), stream + n) for n in (2, 3)]
    return torch.stack(candidates, dim=-1), torch.stack(place, dim=-1)


def crop_box(
    candidates: list[list[float]], place: list[float], size: tuple[int, int],
    *, area: tuple[float, float], ratio: tuple[float, float],
) -> tuple[int, int, int, int]:  # fmt: skip
    """(top, left, height, width) of one image's crop from its `box_draws`: `draw_boxes` without tensors."""
    height, width = size
    low, high = math.log(ratio[0]), math.log(ratio[1])
    for share, shape in candidates:
        pixels = (share * (area[1] - area[0]) + area[0]) * height * width
        slant = math.exp(shape * (high - low) + low)
        wide, tall = round(math.sqrt(pixels * slant)), round(math.sqrt(pixels / slant))
        if 0 < wide <= width and 0 < tall <= height:
            return int(place[0] * (height - tall + 1)), int(place[1] * (width - wide + 1)), tall, wide
    tall, wide = _largest_box(size, ratio)
    return (height - tall) // 2, (width - wide) // 2, tall, wide


def _largest_box(size: tuple[int, int], ratio: tuple[float, float]) -> tuple[int, int]:
    """torchvision's fallback for crops: (height, width) of the largest box inside the ratio bounds."""
    height, width = size
    wide = min(width, max(1, round(height * ratio[1]))) if width / height > ratio[1] else width
    tall = min(height, max(1, round(width / ratio[0]))) if width / height < ratio[0] else height
    return tall, wide


def resized_crop(
    x: Tensor, top: Tensor, left: Tensor, tall: Tensor, wide: Tensor, *, interpolation: str = "bilinear"
) -> Tensor:
    """Each image's box enlarged to the image's size, bilinear or bicubic; equals torchvision's resized_crop.

    A crop is never larger than the image, so nothing is shrunk and antialiasing would change nothing.
    Samples are held inside the box: no pixel from beyond its edge bleeds in.
    """
    height, width = x.shape[-2:]
    if interpolation == "bicubic":
        x = _stretch_cubic(x, top, tall, dim=2)
        return _stretch_cubic(x, left, wide, dim=3).clamp(0, 1)
    row = _stretch(torch.arange(height, device=x.device), top, tall, height)
    column = _stretch(torch.arange(width, device=x.device), left, wide, width)
    grid = torch.stack(
        [
            ((2 * column + 1) / width - 1)[:, None, :].expand(-1, height, -1),
            ((2 * row + 1) / height - 1)[:, :, None].expand(-1, -1, width),
        ],
        dim=-1,
    )
    return F.grid_sample(x, grid, mode="bilinear", padding_mode="border", align_corners=False).clamp(0, 1)


def _stretch(position: Tensor, start: Tensor, length: Tensor, size: int) -> Tensor:
    """N×size source coordinates (pixel centres at whole numbers) of output positions 0 … size−1."""
    scale = (length.float() / size)[:, None]
    inner = (position.float() + 0.5) * scale - 0.5
    return start[:, None] + torch.minimum(inner.clamp(min=0), length[:, None] - 1.0)


def _stretch_cubic(x: Tensor, start: Tensor, length: Tensor, *, dim: int) -> Tensor:
    """`length` rows (dim 2) or columns (3) from `start` on, enlarged to all of that axis, as Pillow's bicubic does."""
    size = x.shape[dim]
    centre = (torch.arange(size, device=x.device) + 0.5) * (length.float() / size)[:, None] - 0.5
    first = centre.floor().long() - 1
    total, weights = torch.zeros_like(x), torch.zeros_like(centre)
    shape = [1, 1, 1, 1]
    shape[0], shape[dim] = len(x), size
    for tap in range(4):
        place = first + tap
        inside = (place >= 0) & (place < length[:, None])
        # Keys' kernel with a = −½; what lies beyond the box is left out, and the rest shares its weight
        weight = _cubic((centre - place).abs(), -0.5) * inside
        row = (start[:, None] + torch.minimum(place.clamp(min=0), length[:, None] - 1)).view(shape)
        total = total + x.gather(dim, row.expand_as(x)) * weight.view(shape)
        weights = weights + weight
    return total / weights.view(shape)


def _cubic(distance: Tensor, a: float) -> Tensor:
    """Keys' cubic kernel (1981) at a distance below 2."""
    near = ((a + 2) * distance - (a + 3)) * distance**2 + 1
    far = ((distance - 5) * distance + 8) * distance * a - 4 * a
    return torch.where(distance <= 1, near, torch.where(distance < 2, far, 0.0))


def warp(x: Tensor, matrix: Tensor, *, interpolation: str) -> Tensor:
    """Sample each image at `matrix` (N×2×3) · (column, row, 1), measured in pixels from the image's centre.

    Outside the image is black. The arithmetic is torchvision's, so that nearest neighbours agree with it.
    """
    count, _, height, width = x.shape
    base = _centred_pixels(x)
    # filled on the device: a tensor made from Python numbers would be copied there, and the step would wait
    half = torch.stack([x.new_full((), 0.5 * width), x.new_full((), 0.5 * height)])
    # products and sums written out: a matrix product may run in TF32, which moves pixels
    grid = (base[:, :, None, :] * (matrix / half[:, None])[:, None]).sum(-1)
    grid = grid.view(count, height, width, 2)
    return F.grid_sample(x, grid, mode=interpolation, padding_mode="zeros", align_corners=False)


def pillow_warp(x: Tensor, matrix: Tensor, *, interpolation: str, fill: Tensor) -> Tensor:
    """As `warp`, but as Pillow's `Image.transform`: nearest, bilinear or bicubic, `fill` (3) outside.

    A pixel whose source lies inside the image takes its missing neighbours from the edge; all others are `fill`.
    """
    count, channels, height, width = x.shape
    source = (_centred_pixels(x)[:, :, None, :] * matrix[:, None]).sum(-1)
    column, row = source[..., 0] + 0.5 * width, source[..., 1] + 0.5 * height
    inside = (column >= 0) & (column < width) & (row >= 0) & (row < height)
    if interpolation != "nearest":
        column, row = column - 0.5, row - 0.5
    reach = {"nearest": (0, 1), "bilinear": (0, 2), "bicubic": (-1, 3)}[interpolation]
    flat, total = x.flatten(2), torch.zeros_like(x).flatten(2)
    for down in range(*reach):
        for right in range(*reach):
            x_at, y_at = column.floor() + right, row.floor() + down
            weight = _pillow_weight(column - x_at, interpolation) * _pillow_weight(row - y_at, interpolation)
            place = y_at.clamp(0, height - 1).long() * width + x_at.clamp(0, width - 1).long()
            total = total + flat.gather(2, place[:, None].expand(-1, channels, -1)) * weight[:, None]
    moved = torch.where(inside[:, None], total.clamp(0, 1), fill.view(1, -1, 1))
    return moved.view(count, channels, height, width)


def _pillow_weight(distance: Tensor, interpolation: str) -> Tensor:
    if interpolation == "nearest":
        return torch.ones_like(distance)
    # Pillow moves images with a = −1, although it resizes them with −½
    return 1 - distance.abs() if interpolation == "bilinear" else _cubic(distance.abs(), -1.0)


def _centred_pixels(x: Tensor) -> Tensor:
    """1×HW×3: (column, row, 1) of every pixel's centre, measured from the image's centre."""
    height, width = x.shape[-2:]
    columns = torch.linspace((1.0 - width) * 0.5, (width - 1.0) * 0.5, steps=width, device=x.device)
    rows = torch.linspace((1.0 - height) * 0.5, (height - 1.0) * 0.5, steps=height, device=x.device)
    return torch.stack(
        [columns[None, :].expand(height, -1), rows[:, None].expand(-1, width), torch.ones_like(x[0, 0])],
        dim=-1,
    ).view(1, height * width, 3)


def affine_matrices(shear_x: Tensor, shear_y: Tensor, move_x: Tensor, move_y: Tensor, degrees: Tensor,
                    size: tuple[int, int]) -> Tensor:  # fmt: skip
    """N×2×3 output-to-input matrices; of the five (N each) at most one is not zero for any image.

    Shears keep the top left corner where it is, rotation (counter-clockwise) turns about the centre.
    """
    height, width = size
    angle = degrees * (math.pi / 180)
    sine, cosine = torch.sin(angle), torch.cos(angle)
    top = torch.stack([cosine, shear_x - sine, shear_x * (0.5 * height) - move_x], dim=-1)
    bottom = torch.stack([shear_y + sine, cosine, shear_y * (0.5 * width) - move_y], dim=-1)
    return torch.stack([top, bottom], dim=1)
