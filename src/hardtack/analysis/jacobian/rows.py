"""The rows of one image's Jacobian, a few at a time: the exact spectrum of small pieces, and the bound of paper 4.

The image is repeated once for every row of a batch. The copies are independent, so that one backward pass with a
different unit vector for each copy gives all rows of the batch.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from hardtack.analysis.jacobian.block_parts import Piece
from hardtack.analysis.jacobian.lanczos import SingularValues
from hardtack.base.arrays import read_arrays, write_arrays
from hardtack.base.errors import UserError

MOST_NUMBERS = 1 << 26  # values of a matrix that is decomposed as a whole: 8192 × 8192
_WRITE_S = 20  # at most so many seconds of work are lost when the process is killed


def jacobian_rows(piece: Piece, image: Tensor, *, begin: int = 0, at_once: int = 64) -> Iterator[tuple[int, Tensor]]:
    """Yield (index of the first row, rows×inputs), beginning at row `begin`; `image` is C×H×W."""
    at_once = min(at_once, piece.outputs)
    x, y = piece.trace(image.expand(at_once, *image.shape))
    for first in range(begin, piece.outputs, at_once):
        count = min(at_once, piece.outputs - first)
        unit = torch.zeros(at_once, piece.outputs, device=image.device)
        places = torch.arange(count, device=image.device)
        unit[places, first + places] = 1.0
        (rows,) = torch.autograd.grad(y, x, unit.reshape(y.shape), retain_graph=True, materialize_grads=True)
        yield first, rows.reshape(at_once, -1)[:count]


def dense_jacobian(piece: Piece, image: Tensor, *, bare: bool = False) -> Tensor:
    """The Jacobian, outputs×inputs; with `bare`, minus the identity."""
    if piece.inputs * piece.outputs > MOST_NUMBERS:
        size = piece.inputs * piece.outputs * 4 / 2**30
        raise UserError(
            f"the Jacobian of {piece.name} has {piece.outputs} × {piece.inputs} numbers ({size:.1f} GB): too many for "
            "a full decomposition; method=lanczos finds the largest singular values without storing the matrix"
        )
    matrix = torch.cat([rows for _, rows in jacobian_rows(piece, image)])
    if not bool(torch.isfinite(matrix).all()):
        raise UserError(f"the Jacobian of {piece.name} has values that are not finite")
    return matrix - torch.eye(piece.inputs, device=matrix.device) if bare else matrix


def dense(piece: Piece, images: Tensor, *, top: int = 1, bare: bool = False, vectors: bool = False) -> SingularValues:
    """The exact spectrum by an SVD of every image's Jacobian."""
    top = min(top, piece.inputs, piece.outputs)
    spectrum = SingularValues.empty(len(images), top)
    spectrum.error[:], spectrum.converged[:], spectrum.products[:] = 0.0, True, piece.outputs
    lefts, rights = [], []
    for row, image in enumerate(images):
        matrix = dense_jacobian(piece, image, bare=bare).double()
        if not vectors:
            spectrum.sigma[row] = torch.linalg.svdvals(matrix)[:top].cpu()
            continue
        left, sigma, right = torch.linalg.svd(matrix, full_matrices=False)
        spectrum.sigma[row] = sigma[:top].cpu()
        lefts.append(left[:, :top].T.float().cpu().numpy())
        rights.append(right[:top].float().cpu().numpy())
    if vectors:
        spectrum.left, spectrum.right = np.stack(lefts), np.stack(rights)
    return spectrum


# ---------------------------------------------------------------- the bound


def bound(piece: Piece, image: Tensor, *, at_once: int = 64, file: Path | None = None) -> tuple[float, float]:
    """√(‖J‖₁ ‖J‖∞) ≥ σ_max, of the piece and of the piece minus the identity (nan if it is not square).

    ‖J‖∞ is the largest sum of magnitudes of a row, ‖J‖₁ that of a column. The bound takes one row of the Jacobian per
    output of the piece. Partial sums are stored in `file`, so that a killed analysis can be resumed.
    """
    square = bool(piece.bare)
    columns = torch.zeros(2, piece.inputs, dtype=torch.float64, device=image.device)
    largest, begin = torch.zeros(2, dtype=torch.float64, device=image.device), 0
    if file is not None and file.exists():
        state = read_arrays(file)
        columns, largest = (torch.as_tensor(state[name]).to(image.device) for name in ("columns", "largest"))
        begin = int(state["next"])
    written = time.monotonic()
    for first, rows in jacobian_rows(piece, image, begin=begin, at_once=at_once):
        sizes = rows.abs()
        for variant in range(1 + square):
            if variant:  # only the diagonal changes
                places = torch.arange(len(rows), device=rows.device)
                sizes[places, first + places] = (rows[places, first + places] - 1).abs()
            columns[variant] += sizes.sum(dim=0, dtype=torch.float64)
            largest[variant] = torch.maximum(largest[variant], sizes.sum(dim=1, dtype=torch.float64).max())
        done = first + len(rows)
        if file is not None and (done == piece.outputs or time.monotonic() - written > _WRITE_S):
            state = {"columns": columns.cpu().numpy(), "largest": largest.cpu().numpy(), "next": np.array(done)}
            write_arrays(file, state, compressed=False)
            written = time.monotonic()
    bounds = [math.sqrt(float(columns[variant].max() * largest[variant])) for variant in (0, 1)]
    return bounds[0], bounds[1] if square else math.nan
