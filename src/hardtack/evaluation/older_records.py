"""Records of version 0.1.0 without a digest of the images: are they about the images that are there now?

The id of such a record names the data set and its labels, but not the pixels of images that are decoded while they are
read, and of official files only their path. The predictions and confidences that it stored for every image are evidence
enough: they are compared with those of the model for a random sample of the images, and of the views.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from hardtack.attacks import preserve_state as preserve_state
from hardtack.attacks.pool.verifier import Verifier
from hardtack.base.randomness import permutation
from hardtack.base.runtime import Runtime
from hardtack.data.spans import at_positions, count
from hardtack.evaluation.consistency import other_predictions
from hardtack.evaluation.evaluation import Evaluation
from hardtack.evaluation.views import View

_IMAGES, _VIEWS = 32, 4
_TOLERANCE = 1e-2  # of confidences and flip rates, which other devices round otherwise


def predictions_agree(older: Evaluation, model: nn.Module, data: Any, views: Sequence[View], runtime: Runtime) -> bool:
    """Whether the model still predicts what the record says; a line on stderr says which way it went."""
    total = count(data)
    if len(older.verdicts["index"]) != total:
        return False
    positions = permutation(total, runtime.seed)[:_IMAGES].sort().values
    x, y, positions = at_positions(data, runtime.torch_device, positions)
    stored = {name: values[positions.numpy()] for name, values in older.verdicts.items()}
    verifier = Verifier(model, runtime, batch_size=len(x))
    with preserve_state(model), torch.no_grad():
        wrong = other_predictions(verifier.logits(x.clamp(0, 1)), y, stored)
        index = torch.as_tensor(stored["index"], device=x.device).long()
        chosen = permutation(len(views), runtime.seed)[:_VIEWS].tolist()
        for view in (views[number] for number in chosen):
            for name, values in view.columns(verifier, x, y, index).items():
                wrong += int(_differ(values.float().cpu().numpy(), stored[name].astype(np.float32)).sum())
    if wrong:
        line = "the images are not those of the stored result: the model is evaluated again"
    else:
        line = f"recalled: the stored result has no digest of the images, but {len(x)} of its predictions were repeated"
    print(f"{older.id}: {line}", file=sys.stderr)
    return not wrong


def _differ(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return ~np.isclose(a, b, rtol=0, atol=_TOLERANCE, equal_nan=True)
