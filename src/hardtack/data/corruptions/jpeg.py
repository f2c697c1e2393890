"""JPEG compression: every image through a JPEG codec and back."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor

from hardtack.base.registry import corruptions
from hardtack.data.corruptions.catalogue import Constants
from hardtack.data.corruptions.jpeg_integer import jpeg_round_trip
from hardtack.data.corruptions.parts import in_parts

_QUALITY: dict[Constants, tuple[int, ...]] = {
    "cifar": (80, 65, 58, 50, 40),
    "imagenet": (25, 18, 15, 10, 7),
}
_WORTH_A_THREAD = 64 * 64  # pixels: below, threads would wait for the interpreter's lock


@corruptions.register("jpeg_compression", stream=15, help="stored as JPEG at low quality")
def jpeg_compression(x: Tensor, keys: Tensor, severity: int, constants: Constants) -> Tensor:
    """Code as JPEG at a quality and decode.

    Byte for byte what Pillow gives at that quality with its default settings (4:2:0, standard tables); nothing is
    random. On the CPU through libjpeg-turbo, on a GPU by the same integer arithmetic in tensor operations.
    """
    return compress(x, _QUALITY[constants][severity - 1])


def compress(x: Tensor, quality: int) -> Tensor:
    """`x` N×3×H×W in steps of 1/255 after a round trip through JPEG, in such steps again."""
    if x.is_cuda:
        return in_parts(lambda part: by_arithmetic(part, quality), x)
    return _through_codec((x * 255).round().to(torch.uint8).cpu(), quality).to(x.device).to(x.dtype) / 255


def by_arithmetic(x: Tensor, quality: int) -> Tensor:
    """The same on any device, without the codec."""
    return jpeg_round_trip((x * 255).round().to(torch.int32), quality).to(x.dtype) / 255


def _through_codec(images: Tensor, quality: int) -> Tensor:
    from torchvision.io import decode_jpeg, encode_jpeg  # takes a second to load

    decoded = torch.empty_like(images)

    def round_trip(start: int, stop: int) -> None:
        for index in range(start, stop):
            decoded[index] = decode_jpeg(encode_jpeg(images[index], quality))

    threads = torch.get_num_threads() if images.shape[-2] * images.shape[-1] >= _WORTH_A_THREAD else 1
    if threads == 1:
        round_trip(0, len(images))
        return decoded
    bounds = [len(images) * part // threads for part in range(threads + 1)]
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(round_trip, bounds[:-1], bounds[1:]))
    return decoded
