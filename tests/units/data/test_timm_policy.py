"""timm's RandAugment, operation by operation against timm's own on 8-bit images."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pictures
import pytest
import torch
from PIL import Image
from timm.data.auto_augment import NAME_TO_OP, AugmentOp, rand_augment_transform

from hardtack.base import randomness
from hardtack.base.errors import UserError
from hardtack.data import AugmentConfig, make_augment
from hardtack.data.policies import OPERATIONS, apply_operations
from hardtack.data.timm_policy import CHOICES, RandAugmentWords, TimmRandAugment, sizes

FILL = (124, 116, 104)
SIZE = 40


def timm_name(name: str, increasing: bool) -> str:
    if name.startswith("Translate"):
        return f"{name}Rel"
    return f"{name}Increasing" if increasing and f"{name}Increasing" in NAME_TO_OP else name


@pytest.mark.parametrize("increasing", [True, False])
@pytest.mark.parametrize("name", CHOICES)
def test_each_operation_is_timms(name: str, increasing: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    images = pictures.pictures(2, SIZE, SIZE - 6)
    arrays = pictures.arrays(images)
    levels = (1.3, 5.0, 9.0, 9.7, 10.0)
    if name == "Posterize":  # keeping no bits (black) is an error since Pillow 13, and in timm with it
        levels = levels[:-1] if increasing else levels[1:]
    for level in levels:
        for negative in (False, True):
            monkeypatch.setattr(random, "random", lambda negative=negative: 0.9 if negative else 0.1)
            for kind, code in (("bicubic", Image.Resampling.BICUBIC), ("bilinear", Image.Resampling.BILINEAR)):
                hparams = {"img_mean": FILL, "interpolation": code}
                theirs_op = AugmentOp(timm_name(name, increasing), prob=1.0, magnitude=level, hparams=hparams)
                theirs = np.stack([np.asarray(theirs_op(Image.fromarray(one))) for one in arrays])
                operation = torch.full((2,), OPERATIONS.index(name))
                size = sizes(operation, torch.full((2,), level), torch.full((2,), negative), increasing=increasing)
                fill = torch.tensor(FILL) / 255
                ours = apply_operations(images, operation, size, interpolation=kind, fill=fill)
                difference = np.abs(ours.numpy().transpose(0, 2, 3, 1) * 255 - theirs)
                # Pillow rounds to 8 bits, its grey twice; a source on the very edge may fall in or out
                assert (difference > 1.6).mean() < 2e-3, (level, negative, kind, difference.max())


def test_words_are_read_as_timm_reads_them() -> None:
    for text in ("rand-m9-mstd0.5-inc1", "rand-m7-n3-p0.7-mstd1", "rand-m9-mmax30-inc1", "rand-m6-mstd101-inc1"):
        words, theirs = RandAugmentWords.read(text), rand_augment_transform(text)
        op = theirs.ops[4]
        assert words.n == theirs.num_layers and words.m == op.magnitude and words.p == op.prob
        assert words.mmax == (op.magnitude_max or 10) and ("Increasing" in op.name) == words.inc
        assert op.magnitude_std in (words.mstd, float("inf") if words.mstd > 100 else words.mstd)
        renamed = {timm_name(name, words.inc) for name in CHOICES}
        assert renamed == {op.name for op in theirs.ops}


def test_operations_magnitudes_and_probabilities_are_drawn_as_stated(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[torch.Tensor, torch.Tensor]] = []

    def spy(x: torch.Tensor, operation: torch.Tensor, size: torch.Tensor, **_: object) -> torch.Tensor:
        seen.append((operation, size))
        return x

    monkeypatch.setattr("hardtack.data.timm_policy.apply_operations", spy)
    count = 30_000
    augment = TimmRandAugment("rand-m9-mstd0.5-inc1", interpolation="bicubic", fill=(0.5, 0.5, 0.5))
    augment(torch.zeros(count, 3, 1, 1), randomness.make_keys(torch.arange(count), 4), 7)
    assert len(seen) == 2
    operation, size = (torch.cat(parts) for parts in zip(*seen, strict=True))
    counts = Counter(operation.tolist())
    assert abs(counts[0] / (2 * count) - 0.5) < 0.01  # half of the slots do nothing
    for name in CHOICES:
        assert abs(counts[OPERATIONS.index(name)] / count - 1 / 15) < 0.006
    turns = size[operation == OPERATIONS.index("Rotate")]
    levels = turns.abs() / 3
    assert abs((turns > 0).float().mean() - 0.5) < 0.03
    assert levels.max() == 10 and abs(levels.mean() - 9) < 0.03 and abs(levels.std() - 0.5) < 0.03


def test_the_policy_of_an_image_depends_on_its_key_alone() -> None:
    x = pictures.pictures(1).expand(48, -1, -1, -1).contiguous()
    keys = randomness.make_keys(torch.arange(48), 1)
    augment = make_augment(AugmentConfig(policy="rand-m9-mstd0.5-inc1"), 10)
    whole = augment(x, torch.zeros(48, dtype=torch.int64), keys)[0]
    parts = torch.cat([augment(x[a:b], None, keys[a:b])[0] for a, b in ((0, 1), (1, 30), (30, 48))])
    assert torch.equal(whole, parts)
    assert 25 < len({row.numpy().tobytes() for row in whole}) < 48  # a quarter is left alone
    assert whole.min() >= 0 and whole.max() <= 1


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"policy": "rand-m9-mst0.5"}, "mstd"),
        ({"policy": "rand-m9-tweights"}, "tweights"),
        ({"policy": "randaugmnt"}, "did you mean 'randaugment'"),
        ({"policy": "rand-n0"}, "at least 1"),
        ({"policy": "randaugment", "policy_fill": (0.5, 0.5, 0.5)}, "timm's words"),
    ],
)
def test_unknown_words_are_refused(options: dict[str, object], says: str) -> None:
    with pytest.raises(UserError, match=says):
        AugmentConfig(**options)
