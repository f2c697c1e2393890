"""From stored bytes to RGB pixels of one size, fast and the same way for every source.

Colour: greyscale is repeated, palettes are expanded, CMYK is converted by Pillow, 16-bit greyscale is
scaled to 8 bits, and transparency is laid over white. Camera orientation tags are not applied, as in
torchvision and timm. Resizing is bicubic with antialiasing (torch's, which follows Pillow's within one grey
level), shorter side first, then a centre crop.
"""

from __future__ import annotations

import io
import itertools
import mmap
import multiprocessing
import os
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn import functional as F

from hardtack.base.cores import share_of_cores
from hardtack.base.errors import UserError
from hardtack.base.limits import check_pixels
from hardtack.data.source import Images, PrefetchedImages, Sequence

FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "GIF", "TIFF", "PPM", "JPEG2000", "ICO", "TGA")  # JPEG opens MPO too
CHUNK = 256  # images a decoding thread takes at a time
Cut = Callable[[int, Tensor], Tensor]
"""(which image of a batch, its stored pixels 3×H×W) → 3×side×side."""


def rgb_array(image: Image.Image) -> np.ndarray:
    """A Pillow image of any mode as H×W×3 uint8."""
    if image.mode.startswith("I;16"):
        grey = (np.asarray(image).astype(np.uint32) + 128) // 257
        image = Image.fromarray(grey.astype(np.uint8))
    elif image.mode in ("I", "F"):
        raise UserError(f"Pillow mode {image.mode} (32 bits a pixel) has no stated range; store 8 or 16 bits")
    if image.mode in ("RGBA", "LA", "PA", "La", "RGBa") or "transparency" in image.info:
        image = image.convert("RGBA")
        white = Image.new("RGBA", image.size, (255, 255, 255, 255))
        image = Image.alpha_composite(white, image)
    return np.asarray(image if image.mode == "RGB" else image.convert("RGB"))


def decode_bytes(data: bytes, where: str) -> np.ndarray:
    """Encoded image bytes as H×W×3 uint8; a broken image is named in the error."""
    return read_file(io.BytesIO(data), where)


def read_file(file: io.BytesIO | str | os.PathLike[str], where: str) -> np.ndarray:
    """An image file as H×W×3 uint8; a broken image is named in the error."""
    try:
        with open_image(file, where) as image:
            return rgb_array(image)
    except UserError as error:
        raise UserError(f"{where}: {error}") from None
    except Exception as error:  # Pillow raises whatever its decoders met: OSError, SyntaxError, struct.error…
        raise UserError(f"cannot read the image {where}: {' '.join(str(error).split())}") from None


def open_image(file: io.BytesIO | str | os.PathLike[str], where: str) -> Image.Image:
    """An image file with its header read: of a format that cannot run a program, and not too large to be decoded.

    Pillow chooses the format by the content, whatever the name says, and would hand PostScript to Ghostscript.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # the limit is ours
        image = Image.open(file, formats=FORMATS)
    check_pixels(*image.size, where)
    return image


def pixel_bytes(image: np.ndarray) -> bytes:
    """Size and pixels of one decoded image, to be digested."""
    return str(image.shape).encode() + np.ascontiguousarray(image).tobytes()


class Size(NamedTuple):
    """What all images are brought to: the shorter side resized to `shorter`, then the centre side×side cut out."""

    side: int
    shorter: int

    def is_that_of(self, height: int, width: int) -> bool:
        """Whether there is nothing to do."""
        return height == width == self.side == self.shorter


def fit(images: Tensor, size: Size | None) -> Tensor:
    """N×3×H×W (uint8, or float in [0,1]) brought to a size."""
    height, width = images.shape[-2:]
    if size is None or size.is_that_of(height, width):
        return images
    side, shorter = size
    scale = shorter / min(height, width)
    target = (max(shorter, round(height * scale)), max(shorter, round(width * scale)))
    if target != (height, width):
        images = F.interpolate(images, size=target, mode="bicubic", antialias=True, align_corners=False)
        if images.is_floating_point():
            images = images.clamp(0, 1)  # bicubic overshoots at edges
    top, left = (target[0] - side) // 2, (target[1] - side) // 2
    return images[..., top : top + side, left : left + side]


class MixedSizes(UserError):
    """Images of several sizes, although no size to resize them to was given."""


def fit_array(array: np.ndarray, size: Size | None) -> Tensor:
    """One H×W×3 array as 3×H'×W', resized and cropped to `size`."""
    if size is None or size.is_that_of(*array.shape[:2]):
        return torch.from_numpy(np.ascontiguousarray(array.transpose(2, 0, 1)))
    return fit(torch.from_numpy(np.array(array)).permute(2, 0, 1)[None], size)[0].contiguous()


def as_tensor(array: np.ndarray) -> Tensor:
    """One H×W×3 array as 3×H×W, sharing its memory where it may be written to."""
    return torch.from_numpy(array if array.flags.writeable else array.copy()).permute(2, 0, 1)


def describe(size: Size | None, shape: tuple[int, int, int]) -> str:
    if size is None:
        return f"{shape[1]}×{shape[2]} as stored"
    return f"shorter side to {size.shorter} (bicubic, antialiased), centre crop {size.side}×{size.side}"


def place(out: Tensor, slot: int, array: np.ndarray, size: Size | None, where: str) -> None:
    """Write one decoded image into `out[slot]`, refusing one of another size."""
    image = fit_array(array, size)
    if image.shape != out.shape[1:]:
        own, others = ("×".join(str(side) for side in each) for each in (image.shape[1:], out.shape[2:]))
        raise MixedSizes(f"{where} is {own} but others are {others}; set data.image_size to make them one size")
    out[slot] = image


def decode_rows(
    images: Images, rows: list[int], size: Size | None, shape: tuple[int, int, int], cut: Cut | None = None
) -> Tensor:
    """The images at `rows` as N×3×H×W uint8, one after the other."""
    out = torch.empty((len(rows), *shape), dtype=torch.uint8)
    if isinstance(images, PrefetchedImages):
        images.prefetch(rows)
    for slot, row in enumerate(rows):
        if cut is not None:
            out[slot] = cut(slot, as_tensor(images.read(row)))
            continue
        place(out, slot, images.read(row), size, images.where(row))
    return out


def decode_all(images: Images, rows: list[int], size: Size | None, shape: tuple[int, int, int]) -> Tensor:
    """As `decode_rows`, on all cores.

    Large images keep Pillow busy outside the interpreter's lock, so threads do. For many small ones the lock
    is the limit (two threads are slower than one), so forked processes write into memory they share.
    """
    if isinstance(images, PrefetchedImages):
        images.prefetch(rows)
    forks = "fork" in multiprocessing.get_all_start_methods() and not multiprocessing.current_process().daemon
    if forks and len(rows) >= 4096 and shape[1] * shape[2] <= 96 * 96 and share_of_cores() > 1:
        return _decode_forked(images, rows, size, shape)
    out = torch.empty((len(rows), *shape), dtype=torch.uint8)

    def work(start: int) -> None:
        out[start : start + CHUNK] = decode_rows(images, rows[start : start + CHUNK], size, shape)

    with ThreadPoolExecutor(max_workers=min(16, share_of_cores())) as pool:
        list(pool.map(work, range(0, len(rows), CHUNK)))
    return out


def _decode_forked(images: Images, rows: list[int], size: Size | None, shape: tuple[int, int, int]) -> Tensor:
    count = min(16, share_of_cores())
    # anonymous shared memory: not limited by the size of /dev/shm, gone with its last user
    memory = mmap.mmap(-1, len(rows) * shape[0] * shape[1] * shape[2])
    out = torch.frombuffer(memory, dtype=torch.uint8).view(len(rows), *shape)
    context = multiprocessing.get_context("fork")
    faults = context.SimpleQueue()

    def work(part: list[int], first: int) -> None:
        torch.set_num_threads(1)  # OpenMP's threads did not survive the fork
        try:
            for slot, row in enumerate(part, first):
                place(out, slot, images.read(row), size, images.where(row))
        except UserError as error:
            faults.put(str(error))

    bounds = [len(rows) * number // count for number in range(count + 1)]
    parts = [(rows[low:high], low) for low, high in itertools.pairwise(bounds)]
    processes = [context.Process(target=work, args=part, daemon=True) for part in parts]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    if not faults.empty():
        raise UserError(faults.get())
    if any(process.exitcode for process in processes):
        raise RuntimeError("a decoding process died (out of memory?)")
    return out


def walk_rows(sequence: Sequence, rows: set[int], size: Size | None) -> Iterator[tuple[int, Tensor]]:
    """(row, 3×H×W uint8) of the wanted rows of a sequence, in stored order; stops after the last of them."""
    for row, array in walk_arrays(sequence, rows):
        yield row, fit_array(array, size)


def walk_arrays(sequence: Sequence, rows: set[int]) -> Iterator[tuple[int, np.ndarray]]:
    """As `walk_rows`, at the stored size (H×W×3)."""
    last = max(rows, default=-1)
    if last < 0:
        return
    for row, array in enumerate(sequence.walk()):
        if row in rows:
            yield row, array
        if row >= last:
            return
