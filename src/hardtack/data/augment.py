"""Augmentation on the device, a whole batch at a time, with per-image randomness.

`Augment` is called as `(x, y, keys) -> (x, y)`: x N×3×H×W in [0,1], y int64, keys from
`randomness.make_keys(index, seed, epoch)`. What happens to an image is a function of its key alone, whatever
the batch, the order or the number of processes; only the partner in mixup and cutmix is found in the batch, and with
`mix_mode: batch` their draws are those of the first image of a group. No host synchronisation and no data-dependent
shapes: it can be compiled. The order is crop, flip, rotation, policy, colour jitter, cutout, erasing, mixing. Output is
float32 in [0,1], shaped like the input.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor, nn

from hardtack.base import randomness
from hardtack.base.errors import UserError, did_you_mean
from hardtack.data import colour, erasing, geometry, mixing
from hardtack.data.policies import POLICIES, PolicyAugment
from hardtack.data.timm_policy import RandAugmentWords, TimmRandAugment

if TYPE_CHECKING:
    from hardtack.data.datasets import Dataset

# one stream per draw, far from those of attacks and objectives that use the same keys
_CROP, _RESIZED, _FLIP, _POLICY, _JITTER, _CUTOUT, _ERASE, _MIX, _ROTATE = (0xA4600 + 16 * n for n in range(9))
RESIZED_CROP = _RESIZED  # the loader's crops are drawn like the device's
_COLOURS = ("color_jitter", "color_jitter_hue")
_GREY = (128 / 255,) * 3
Colour = tuple[float, float, float]


@dataclass(frozen=True, kw_only=True)
class AugmentConfig:
    """Section `augment:` of a recipe; everything is off by default.

    flip                    probability of a horizontal flip
    crop_padding            pixels that an image is padded by before its original size is cut out at random
    crop_mode               what pads: black (zero) or the mirrored image (reflect)
    resized_crop            range of the area (share of the image) of a random crop that is enlarged back; areas above 1
                            never fit and are drawn again, at most ten times; null: no such crop
    resized_crop_ratio      range of width over height of that crop
    resized_crop_interpolation  how it is enlarged
    resized_crop_at         decode: cut out of the stored photograph by the loader, and brought to data.image_size;
                            device: cut out of the images that the loader made square
    rotate                  most degrees of a random rotation either way
    rotate_interpolation    how rotated pixels are computed
    color_jitter            strength of random changes of brightness, contrast and saturation
    color_jitter_hue        largest change of the hue, in turns (at most 0.5)
    color_jitter_with_policy  whether colours are jittered beside a policy, too; timm does not
    cutout                  side in pixels of a square that is blanked
    cutout_fill             the value it is blanked to (0.5: mid-grey, the mean as in the paper)
    erase                   probability of random erasing
    erase_mode              what replaces the pixels: uniform noise (pixel), noise of mean ½ and deviation ¼ cut off at
                            0 and 1 (normal), standard normal noise in the model's normalised units, clamped
                            (normalised: timm's pixel), or erase_fill (const)
    erase_fill              the value that erase_mode=const leaves
    erase_area              range of the erased share of the image
    erase_ratio             range of width over height of the erased box
    erase_after_mixing      erase the mixed images, as timm's prefetching loader does; false: erase, then mix
    mixup                   α of Beta(α, α), from which the share of the other image is drawn; 0: no mixup
    cutmix                  α of Beta(α, α), from which the area of the box out of the other image is drawn; 0: no
                            cutmix
    mix_switch              probability of cutmix where mixup is on, too
    mix_probability         probability that an image is mixed at all
    mix_mode                image: share, box and choice are drawn for each image, whose partner is its neighbour; batch
                            (timm's default): once for mix_batch images in a row, image i with the i-th from the end
    mix_batch               of mix_mode=batch: images that share one draw; null: all that a process has of a batch
    policy                  randaugment, autoaugment_cifar10, autoaugment_imagenet, or timm's words such as
                            rand-m9-mstd0.5-inc1; none: no policy
    policy_first            the policy before the crop and the flip; false: after them
    policy_interpolation    how the policy computes moved pixels; null: nearest for torchvision's policies, bicubic for
                            timm's
    policy_fill             colour of pixels from outside the image, for timm's words; null: mid-grey
    randaugment_magnitude   strength of the operations of policy=randaugment, out of randaugment_bins
    randaugment_ops         operations that each image goes through in policy=randaugment
    randaugment_bins        number of strengths that policy=randaugment knows
    """

    flip: float = 0.0
    crop_padding: int = 0
    crop_mode: Literal["zero", "reflect"] = "zero"
    resized_crop: tuple[float, float] | None = None
    resized_crop_ratio: tuple[float, float] = (3 / 4, 4 / 3)
    resized_crop_interpolation: Literal["bilinear", "bicubic"] = "bilinear"
    resized_crop_at: Literal["device", "decode"] = "device"
    rotate: float = 0.0
    rotate_interpolation: Literal["nearest", "bilinear"] = "nearest"
    color_jitter: float = 0.0
    color_jitter_hue: float = 0.0
    color_jitter_with_policy: bool = True
    cutout: int = 0
    cutout_fill: float = 0.5
    erase: float = 0.0
    erase_mode: Literal["pixel", "normal", "normalised", "const"] = "pixel"
    erase_fill: float = 0.0
    erase_area: tuple[float, float] = (0.02, 1 / 3)
    erase_ratio: tuple[float, float] = (0.3, 3.3)
    erase_after_mixing: bool = False
    mixup: float = 0.0
    cutmix: float = 0.0
    mix_switch: float = 0.5
    mix_probability: float = 1.0
    mix_mode: Literal["image", "batch"] = "image"
    mix_batch: int | None = None
    policy: str = "none"
    policy_first: bool = False
    policy_interpolation: Literal["nearest", "bilinear", "bicubic"] | None = None
    policy_fill: tuple[float, float, float] | None = None
    randaugment_magnitude: int = 9
    randaugment_ops: int = 2
    randaugment_bins: int = 31

    def __post_init__(self) -> None:
        for name in ("flip", "erase", "mix_switch", "mix_probability", "cutout_fill", "erase_fill"):
            if not 0 <= getattr(self, name) <= 1:
                raise UserError(f"{name} must lie in [0, 1], found {getattr(self, name)}")
        for name in ("crop_padding", "color_jitter", "cutout", "mixup", "cutmix", "randaugment_ops", "rotate"):
            if getattr(self, name) < 0:
                raise UserError(f"{name} must not be negative, found {getattr(self, name)}")
        if self.mix_batch is not None and self.mix_batch < 2:
            raise UserError(f"mix_batch must be at least 2, found {self.mix_batch}")
        if not 0 <= self.color_jitter_hue <= 0.5:
            raise UserError(f"color_jitter_hue must lie in [0, 0.5], found {self.color_jitter_hue}")
        for name, most in (
            ("resized_crop", None),
            ("erase_area", 1.0),
            ("resized_crop_ratio", None),
            ("erase_ratio", None),
        ):
            pair = getattr(self, name)
            if pair is not None and not 0 < pair[0] <= pair[1] <= (most or pair[1]):
                raise UserError(f"{name} must be a range (low, high) above 0{' up to 1' if most else ''}, found {pair}")
        if self.resized_crop_at == "decode" and self.resized_crop is None:
            raise UserError("resized_crop_at=decode needs the range of resized_crop, such as [0.08, 1]")
        self._check_policy()
        if self.randaugment_bins < 2 or not 0 <= self.randaugment_magnitude < self.randaugment_bins:
            top, magnitude = self.randaugment_bins - 1, self.randaugment_magnitude
            raise UserError(f"randaugment_magnitude must lie in 0 … {top}, found {magnitude}")

    def notes(self) -> Iterator[str]:
        """A sentence for every setting that has no effect because of another one."""
        if self.mix_batch is not None and self.mix_mode == "image":
            yield "augment.mix_batch has no effect: augment.mix_mode is image"

    def _check_policy(self) -> None:
        if self.policy.startswith("rand-"):
            RandAugmentWords.read(self.policy)
        elif self.policy not in POLICIES:
            policies = (*POLICIES, "rand-m9-mstd0.5-inc1")
            near = did_you_mean(self.policy, policies)
            raise UserError(f"there is no policy '{self.policy}'{near}; policies: {', '.join(policies)}")
        elif self.policy_fill is not None or self.policy_interpolation == "bicubic":
            raise UserError(f"policy_fill and bicubic are for timm's words, not for {self.policy} (torchvision's)")
        if self.policy_fill is not None and not all(0 <= part <= 1 for part in self.policy_fill):
            raise UserError(f"policy_fill must be a colour in [0, 1], found {self.policy_fill}")


class Augment(nn.Module):
    """Callable (x, y, keys) → (x, y); y becomes N×C soft labels when mixup or cutmix is on.

    `mean` and `std` are what the model normalises with: the units of `erase_mode: normalised`.
    """

    mixup_table: Tensor
    cutmix_table: Tensor
    mean: Tensor
    std: Tensor

    def __init__(
        self, config: AugmentConfig, num_classes: int, *, mean: Colour = (0.0, 0.0, 0.0),
        std: Colour = (1.0, 1.0, 1.0), channels: int = 3,
    ) -> None:  # fmt: skip
        super().__init__()
        self.config, self.num_classes = config, num_classes
        self.policy = _make_policy(config)
        self.jitters = bool(config.color_jitter or config.color_jitter_hue)
        if self.policy is not None and not config.color_jitter_with_policy:
            self.jitters = False
        for name, values in (("mean", mean), ("std", std)):
            self.register_buffer(name, torch.tensor(values[:channels]).view(1, channels, 1, 1), persistent=False)
        for name in ("mixup", "cutmix"):
            alpha = getattr(config, name)
            table = mixing.beta_table(alpha) if alpha else torch.zeros(1)
            self.register_buffer(f"{name}_table", table, persistent=False)

    @torch.no_grad()
    def forward(self, x: Tensor, y: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
        if self.policy is not None and self.config.policy_first:
            x = self.policy(x, keys, _POLICY)
        x = self._move(x, keys)
        if self.policy is not None and not self.config.policy_first:
            x = self.policy(x, keys, _POLICY)
        x = self._recolour(x, keys)
        if not self.config.erase_after_mixing:
            x = self._erase(x, keys)
        x, y = self._mix(x, y, keys)
        return self._erase(x, keys) if self.config.erase_after_mixing else x, y

    def _move(self, x: Tensor, keys: Tensor) -> Tensor:
        config, size = self.config, (x.shape[-2], x.shape[-1])
        if config.resized_crop is not None and config.resized_crop_at == "device":
            box = geometry.draw_boxes(
                keys,
                size,
                area=config.resized_crop,
                ratio=config.resized_crop_ratio,
                stream=_RESIZED,
                whole=True,
            )
            x = geometry.resized_crop(x, *box[:4], interpolation=config.resized_crop_interpolation)
        if config.crop_padding:
            if config.crop_mode == "reflect" and config.crop_padding >= min(size):
                raise UserError(f"crop_padding {config.crop_padding} must be below the side {min(size)} to reflect")
            top = randomness.integers(keys, 2 * config.crop_padding + 1, (), _CROP)
            left = randomness.integers(keys, 2 * config.crop_padding + 1, (), _CROP + 1)
            x = geometry.shifted_crop(x, top, left, padding=config.crop_padding, mode=config.crop_mode)
        if config.flip:
            x = geometry.flip(x, randomness.uniform(keys, (), _FLIP) < config.flip)
        if config.rotate:
            degrees = (randomness.uniform(keys, (), _ROTATE) * 2 - 1) * config.rotate
            still = torch.zeros_like(degrees)
            turned = geometry.affine_matrices(still, still, still, still, degrees, size)
            x = geometry.warp(x, turned, interpolation=config.rotate_interpolation).clamp(0, 1)
        return x

    def _recolour(self, x: Tensor, keys: Tensor) -> Tensor:
        config = self.config
        if self.jitters:
            x = colour.jitter(x, keys, strength=config.color_jitter, hue=config.color_jitter_hue, stream=_JITTER)
        if config.cutout:
            x = erasing.cutout(x, keys, side=config.cutout, fill=config.cutout_fill, stream=_CUTOUT)
        return x

    def _erase(self, x: Tensor, keys: Tensor) -> Tensor:
        config = self.config
        if not config.erase:
            return x
        return erasing.erase(
            x, keys, probability=config.erase, mode=config.erase_mode, fill=config.erase_fill,
            mean=self.mean.to(x.device), std=self.std.to(x.device),
            area=config.erase_area, ratio=config.erase_ratio, stream=_ERASE,
        )  # fmt: skip

    def _mix(self, x: Tensor, y: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
        config = self.config
        if not (config.mixup or config.cutmix):
            return x, y
        return mixing.mix(
            x, y, keys, num_classes=self.num_classes, mixup=config.mixup, cutmix=config.cutmix,
            tables=(self.mixup_table.to(x.device), self.cutmix_table.to(x.device)),
            switch=config.mix_switch, probability=config.mix_probability, group=self._group(len(x)), stream=_MIX,
        )  # fmt: skip

    def _group(self, count: int) -> int | None:
        """How many of `count` images in a row are mixed alike; None where each is mixed by itself."""
        if self.config.mix_mode == "image":
            return None
        group = min(self.config.mix_batch or count, count)
        if count % group:
            raise UserError(
                f"augment.mix_batch {group} does not divide the {count} images that each process has of a batch; "
                "change it or train.batch_size, or set augment.mix_batch=null to mix all of them alike"
            )
        return group


def _make_policy(config: AugmentConfig) -> PolicyAugment | TimmRandAugment | None:
    if config.policy == "none":
        return None
    if config.policy.startswith("rand-"):
        interpolation = config.policy_interpolation or "bicubic"
        return TimmRandAugment(config.policy, interpolation=interpolation, fill=config.policy_fill or _GREY)
    return PolicyAugment(
        config.policy, level=config.randaugment_magnitude, bins=config.randaugment_bins,
        slots=config.randaugment_ops, interpolation=config.policy_interpolation or "nearest",
    )  # fmt: skip


def make_augment(
    config: AugmentConfig, num_classes: int, data: Dataset | None = None, *,
    mean: Colour = (0.0, 0.0, 0.0), std: Colour = (1.0, 1.0, 1.0),
) -> Augment:  # fmt: skip
    """The augmentation a configuration asks for (of `data`, if given); move it with `.to(device)` once.

    `mean` and `std` are those that the model normalises with; `erase_mode: normalised` needs them.
    """
    cropped = data is None or (data.sampling is not None and data.sampling.crop is not None)
    if config.resized_crop_at == "decode" and not cropped:
        raise UserError("augment.resized_crop_at=decode crops while loading: load the data with ht.data.load_training")
    channels = 3 if data is None else data.image_shape[0]
    coloured = [name for name in _COLOURS if getattr(config, name)]
    coloured += ["policy"] * (config.policy != "none")
    if channels == 1 and coloured:
        raise UserError(f"augment.{coloured[0]} changes colours, and these images are grey; leave it out")
    return Augment(config, num_classes, mean=mean, std=std, channels=channels)
