"""The bundled set: scikit-learn's 1797 handwritten digits, 8×8 with 17 grey levels, as 3×32×32."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.nn import functional as F

from hardtack.base.errors import UserError
from hardtack.base.registry import datasets
from hardtack.data.source import Splits, Stored
from hardtack.data.splitting import stratified_cut

if TYPE_CHECKING:
    from hardtack.data.datasets import DataConfig

TEST_SHARE, TEST_SEED = 0.2, 20_240_501  # fixed for good: results on digits compare only on one split


@datasets.register("digits", help="scikit-learn's 1797 handwritten digits as 3×32×32; bundled, nothing to download")
def read_digits(config: DataConfig, path: str) -> Splits:
    """Train and test (20 %, stratified, fixed); bicubic from 8×8, clamped to [0,1], rounded to 8 bits."""
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise UserError("the digits come with scikit-learn, which is missing: pip install scikit-learn") from None
    bunch = load_digits()
    small = torch.from_numpy(bunch.images).to(torch.float32)[:, None] / 16
    large = F.interpolate(small, size=(32, 32), mode="bicubic", align_corners=False).clamp(0, 1)
    images = (large * 255).round().to(torch.uint8).expand(-1, 3, -1, -1)
    labels = torch.from_numpy(bunch.target).to(torch.int64)
    rest, held = stratified_cut(labels, TEST_SHARE, TEST_SEED, tuple("0123456789"))

    def opener(rows: torch.Tensor) -> Stored:
        note = "8×8 enlarged to 32×32 (bicubic), grey repeated to RGB"
        return Stored(images[rows].contiguous(), labels[rows], tuple("0123456789"), note)

    return {"train": lambda: opener(rest), "test": lambda: opener(held)}
