"""The bundled set: scikit-learn's 1797 handwritten digits, 8×8 with 17 grey levels, as 3×32×32.

`digits.npz` holds what `sklearn.datasets.load_digits` returns, bit for bit, in 45 KB: importing scikit-learn takes a
second. The images are the test part of "Optical Recognition of Handwritten Digits" by E. Alpaydin and C. Kaynak (UCI
Machine Learning Repository, 1998, doi:10.24432/C50P49), under CC BY 4.0 (see NOTICE).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch.nn import functional as F

from hardtack.base.limits import read_npz
from hardtack.base.registry import datasets
from hardtack.data.source import Splits, Stored
from hardtack.data.splitting import stratified_cut

if TYPE_CHECKING:
    from hardtack.data.datasets import DataConfig

FILE = Path(__file__).with_name("digits.npz")
TEST_SHARE, TEST_SEED = 0.2, 20_240_501  # fixed for good: results on digits compare only on one split


@datasets.register(
    "digits",
    files=lambda config, path: [FILE],
    help="scikit-learn's 1797 handwritten digits as 3×32×32; bundled, nothing to download",
)
def read_digits(config: DataConfig, path: str) -> Splits:
    """Train and test (20 %, stratified, fixed); bicubic from 8×8, clamped to [0,1], rounded to 8 bits."""
    stored = read_npz(FILE)
    small = torch.from_numpy(stored["images"]).to(torch.float32)[:, None] / 16
    large = F.interpolate(small, size=(32, 32), mode="bicubic", align_corners=False).clamp(0, 1)
    images = (large * 255).round().to(torch.uint8).expand(-1, 3, -1, -1)
    labels = torch.from_numpy(stored["labels"]).to(torch.int64)
    rest, held = stratified_cut(labels, TEST_SHARE, TEST_SEED, tuple("0123456789"))

    def opener(rows: torch.Tensor) -> Stored:
        note = "8×8 enlarged to 32×32 (bicubic), grey repeated to RGB"
        return Stored(images[rows].contiguous(), labels[rows], tuple("0123456789"), note)

    return {"train": lambda: opener(rest), "test": lambda: opener(held)}
