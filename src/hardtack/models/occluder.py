"""The network that chooses which patches to occlude: RSPC's corruption model.

Guo, Stutz and Schiele, "Improving robustness of vision transformers by reducing sensitivity to patch corruptions",
2023. One weighted sum per patch, one linear layer over all of them; the patches that score lowest are occluded. It is
trained against a classifier, through a choice that has no gradient: the gradient passes it as if it were the identity,
clipped to [−1, 1].
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from hardtack.base.errors import UserError
from hardtack.base.limits import shorten
from hardtack.models.files import find_weights, read_metadata
from hardtack.models.stored_architecture import LARGEST_IMAGE
from hardtack.models.weights import load_weights, save_weights

_KIND = "occluder"  # the entry of a file's metadata that says it holds one, and of which sizes


class Occluder(nn.Module):
    """Which patches of an image to occlude: a `share` of those of a square grid.

    Pixels come in [0,1]; `mean` and `std`, three numbers each, are for a network that was trained on normalised
    images. All patches whose score is not above the quantile `share` are occluded: 20 of 196, 7 of 64 for a tenth, and
    more where scores tie.
    """

    mean: Tensor
    std: Tensor

    def __init__(
        self,
        image_size: int,
        patch_size: int,
        share: float = 0.1,
        *,
        mean: Sequence[float] = (0.0, 0.0, 0.0),
        std: Sequence[float] = (1.0, 1.0, 1.0),
    ) -> None:
        super().__init__()
        if not 0 < patch_size <= image_size or image_size % patch_size:
            raise UserError(f"images of {image_size} pixels cannot be cut into patches of {patch_size}")
        if not 0 < share <= 1:
            raise UserError(f"share must lie above 0 and not above 1, found {share}")
        if len(mean) != 3 or len(std) != 3 or not all(value > 0 for value in std):
            raise UserError(f"mean and std are three numbers each, std positive, found {mean} and {std}")
        self.image_size, self.patch_size, self.share = image_size, patch_size, share
        self.side = image_size // patch_size
        self.weigh = nn.Conv2d(3, 1, kernel_size=patch_size, stride=patch_size, bias=False)
        self.activate = nn.GELU()
        self.mix = nn.Linear(self.side**2, self.side**2, bias=False)
        self.register_buffer("mean", torch.tensor(mean, dtype=torch.float32).reshape(3, 1, 1))
        self.register_buffer("std", torch.tensor(std, dtype=torch.float32).reshape(3, 1, 1))

    @property
    def count(self) -> int:
        """How many patches are occluded where no scores tie."""
        return math.floor(self.share * (self.side**2 - 1) + 1e-9) + 1

    def scores(self, x: Tensor) -> Tensor:
        """How much each patch is worth keeping, row by row: N×3×H×W to N×patches."""
        if x.shape[1:] != (3, self.image_size, self.image_size):
            wanted = f"3×{self.image_size}×{self.image_size}"
            raise UserError(f"the occluder takes images of {wanted}, found {'×'.join(map(str, x.shape[1:]))}")
        with torch.autocast(x.device.type, enabled=False):  # in half precision scores would tie that differ
            return self.mix(self.activate(self.weigh((x.float() - self.mean) / self.std)).flatten(1))

    def forward(self, x: Tensor) -> Tensor:
        """1 where a patch is occluded, 0 where it stays: N×3×H×W to N×rows×columns."""
        return self.choose(self.scores(x))

    def choose(self, scores: Tensor) -> Tensor:
        """The mask that follows from the scores: N×patches to N×rows×columns."""
        return _Lowest.apply(scores, self.count).reshape(-1, self.side, self.side)


class _Lowest(torch.autograd.Function):
    """1 for the scores up to the `count`-th lowest of each row; backwards, minus the gradient clipped to [−1, 1].

    Minus, because it is the lower score that is chosen.
    """

    @staticmethod
    def forward(ctx: Any, scores: Tensor, count: int) -> Tensor:
        return (scores <= scores.sort(dim=1).values[:, count - 1 : count]).to(scores.dtype)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return -gradients[0].clamp(-1, 1), None


# ---------------------------------------------------------------- as a file


def save_occluder(path: str | Path, occluder: Occluder) -> str:
    """Write it to `path` (.safetensors) with its sizes; returns the sha256 that goes beside it."""
    sizes = {"image_size": occluder.image_size, "patch_size": occluder.patch_size, "share": occluder.share}
    return save_weights(path, occluder, metadata={_KIND: sizes})


def find_occluder(path: str | Path) -> Path:
    """The file itself, or the one beside the best weights of a run that trained an occluder."""
    if not Path(path).expanduser().is_dir():
        return find_weights(path)
    try:
        return find_weights(path, checkpoint="best.occluder")
    except UserError:
        raise UserError(
            f"{path} holds no occluder: it was not trained with objective=rspc, or with random masks"
        ) from None


def load_occluder(path: str | Path) -> Occluder:
    """The occluder in a file that `save_occluder` wrote, or in a run folder; nothing in it is executed."""
    file = find_occluder(path)
    sizes = read_metadata(file).get(_KIND)
    if sizes is None:
        raise UserError(f"{file} holds no occluder; ht.models.save_occluder(PATH, occluder) writes one")
    occluder = Occluder(**_checked(sizes, file))
    load_weights(occluder, file)
    return occluder


def _checked(sizes: Any, file: Path) -> dict[str, Any]:
    """The sizes in a file, which may be anybody's: those of an occluder, and not larger than any image."""
    whole = {"image_size", "patch_size"}
    if not isinstance(sizes, dict) or set(sizes) != whole | {"share"}:
        raise UserError(f"{file}: an occluder has image_size, patch_size and share, found {shorten(repr(sizes))}")
    for name, value in sizes.items():
        kinds = int if name in whole else (int, float)
        if not isinstance(value, kinds) or isinstance(value, bool) or not 0 < value <= LARGEST_IMAGE:
            raise UserError(
                f"{file}: the occluder's {name} is {shorten(repr(value))}, and the limit is {LARGEST_IMAGE}"
            )
    return sizes
