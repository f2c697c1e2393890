"""The analysis `jacobian`: by how much each piece of a network can amplify a small change of its input."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import AfterValidator, Field
from torch import Tensor

from hardtack.analysis.adversary import blind_notes, moved, optional_adversary
from hardtack.analysis.analysis import AnalysisContext, Arrays, Conclusion, OverImages, RowWork, Score, mean_score
from hardtack.analysis.jacobian.block_parts import Piece
from hardtack.analysis.jacobian.columns import column_of
from hardtack.analysis.jacobian.lanczos import SingularValues, lanczos
from hardtack.analysis.jacobian.power import power
from hardtack.analysis.jacobian.products import Jacobian
from hardtack.analysis.jacobian.rows import bound, dense
from hardtack.analysis.jacobian.selection import (
    find_spectrum,
    images_at_once,
    layers_of,
    pieces_of,
    require_apart,
    require_small,
)
from hardtack.base.annotations import AN_ATTACK, Shown
from hardtack.base.config import SEVERAL, check
from hardtack.base.errors import UserError, did_you_mean
from hardtack.base.registry import analyses
from hardtack.threats import Threat

KINDS = ("block", "residual", "branch", "attention", "mlp", "convolution", "stretch", "features", "network")


def _known(kinds: tuple[str, ...]) -> tuple[str, ...]:
    for kind in kinds:
        if kind not in KINDS:
            raise UserError(f"there is no piece '{kind}'{did_you_mean(kind, KINDS)}; known: {', '.join(KINDS)}")
    return kinds


Kinds = Annotated[
    tuple[str, ...], SEVERAL, AfterValidator(_known), Field(min_length=1), Shown("list of words", ", ".join(KINDS))
]
Stretch = Annotated[tuple[int, int], SEVERAL]


@analyses.register("jacobian", papers=("cauchy",))
@dataclass(frozen=True, kw_only=True)
class Spectra(OverImages):
    """Largest singular values of the Jacobian of every block, or of other pieces, at the features of each image.

    n           the number of images, from the first one on
    of          the pieces: block (with its residual additions), residual (block(x) − x), branch (each branch alone;
                attention, mlp or convolution: only those of that kind), stretch, features (pixels to the last block) or
                network (pixels to logits)
    stretch     of of=stretch: first and last block, numbered from 0
    top         how many of the largest singular values are computed
    vectors     store their vectors, too
    method      how they are computed; dense builds the whole Jacobian
    tolerance   their relative tolerance
    most        most products with J and Jᵀ for each image
    bound       add the bound √(‖J‖₁‖J‖∞), which takes one row of the Jacobian for each output of the piece
    rows        rows that are computed together for that bound
    threat      measure at images attacked within this threat; null: at the images themselves
    attack      the attack, its name or settings, as in evaluate; by default PGD of 20 steps
    """

    n: Annotated[int, Field(ge=1)] = 100
    of: Kinds = ("block", "residual")
    stretch: Stretch | None = None
    top: Annotated[int, Field(ge=1, le=50)] = 1
    vectors: bool = False
    method: Literal["lanczos", "power", "dense"] = "lanczos"
    tolerance: Annotated[float, Field(ge=1e-6, lt=1)] = 1e-3
    most: Annotated[int, Field(ge=4)] = 100
    bound: bool = False
    rows: Annotated[int, Field(ge=1)] = 64
    threat: Threat | None = None
    attack: Annotated[Any, AN_ATTACK] = field(default_factory=dict)

    later_settings: ClassVar[tuple[str, ...]] = ("threat", "attack")

    def __post_init__(self) -> None:
        check(self)
        threat, attack = optional_adversary("jacobian", self.attack, self.threat, steps=20)
        object.__setattr__(self, "threat", threat)
        object.__setattr__(self, "attack", attack)
        if self.stretch is not None and "stretch" not in self.of:
            raise UserError("the setting stretch needs of=stretch")

    def begin(self, context: AnalysisContext) -> RowWork:
        return _Spectra(self, context)


class _Spectra:
    """A row for each image."""

    def __init__(self, settings: Spectra, context: AnalysisContext) -> None:
        self.settings, self.context = settings, context
        images, _, _ = context.images(0, min(2, context.count))
        self.layers = [] if set(settings.of) == {"network"} else layers_of(context, images)
        self.pieces = list(pieces_of(settings.of, settings.stretch, context, self.layers, images))
        require_apart(context, images)
        if settings.method == "dense":
            require_small(self.pieces)
            return
        for piece in self.pieces:
            Jacobian(piece.trace, images[:1], name=piece.name).check()

    @property
    def length(self) -> int:
        return self.context.count

    @property
    def at_once(self) -> int:
        if self.settings.bound:  # every finished image is stored; within an image `bound` stores its partial sums
            return 1
        return self.settings.batch_size or images_at_once(self.context, self.pieces, self.layers, self.settings.most)

    @property
    def kinds(self) -> dict[str, list[tuple[Piece, bool]]]:
        """The pieces by the name of what is measured, each with whether the identity is subtracted."""
        pieces: dict[str, list[tuple[Piece, bool]]] = {}
        for piece in self.pieces:
            if piece.kind != "block" or "block" in self.settings.of:
                pieces.setdefault(piece.kind, []).append((piece, False))
            if piece.bare and "residual" in self.settings.of:
                pieces.setdefault(piece.bare, []).append((piece, True))
        return pieces

    def rows(self, start: int, stop: int) -> Arrays:
        x, y, index = self.context.images(start, stop)
        if self.settings.attack:
            x = moved(self.settings.attack, self.context.model, x, y, index, self.context.seed)
        arrays: Arrays = {"index": index.cpu().numpy(), "label": y.cpu().numpy()}
        bounds = {
            (piece.kind, piece.name): self._bounds(piece, x, index) for piece in self.pieces if self.settings.bound
        }
        for kind, pieces in self.kinds.items():
            spectra = [self._spectrum(piece, kind, bare, x, index) for piece, bare in pieces]
            arrays |= {
                f"sigma_{kind}": _stacked([spectrum.sigma for spectrum in spectra]),
                f"error_{kind}": np.stack([spectrum.error[:, 0] for spectrum in spectra], 1),
                f"products_{kind}": np.stack([spectrum.products for spectrum in spectra], 1),
                f"converged_{kind}": np.stack([spectrum.converged for spectrum in spectra], 1),
            }
            if self.settings.bound:
                arrays[f"bound_{kind}"] = np.stack(
                    [bounds[piece.kind, piece.name][:, int(bare)] for piece, bare in pieces], 1
                )
            for number, spectrum in enumerate(spectra):
                if spectrum.left is not None and spectrum.right is not None:
                    arrays |= {f"left_{kind}_{number}": spectrum.left, f"right_{kind}_{number}": spectrum.right}
        return arrays

    def _spectrum(self, piece: Piece, kind: str, bare: bool, x: Tensor, index: Tensor) -> SingularValues:
        settings, find = self.settings, power if self.settings.method == "power" else lanczos
        if settings.method == "dense":
            return dense(piece, x, top=settings.top, bare=bare, vectors=settings.vectors)
        return find_spectrum(
            find, piece, x, index, (self.context.seed, kind), bare=bare,
            top=settings.top, tolerance=settings.tolerance, most=settings.most, vectors=settings.vectors,
        )  # fmt: skip

    def _bounds(self, piece: Piece, x: Tensor, index: Tensor) -> np.ndarray:
        """N×2: the bounds of the piece, and of the piece minus the identity."""
        bounds = []
        for image, number in zip(x, index.tolist(), strict=True):
            name = f"bound-{number}-{zlib.crc32(f'{piece.kind}/{piece.name}'.encode())}.npz"
            file = self.context.scratch / name if self.context.scratch else None
            bounds.append(bound(piece, image, at_once=self.settings.rows, file=file))
        return np.array(bounds)

    def conclude(self, arrays: Arrays) -> Conclusion:
        scores: list[Score] = []
        threat = str(self.settings.threat) if self.settings.threat else None
        notes, facts = [], {"layers": {}, "sizes": {}, "spread": {}, "products": {}, "converged": {}}  # type: ignore[var-annotated]
        for kind, pieces in self.kinds.items():
            sigma, converged = arrays[f"sigma_{kind}"][:, :, 0], arrays[f"converged_{kind}"]
            names = [piece.name for piece, _ in pieces]
            column = column_of(kind, self.settings.threat)
            scores += _scores("sigma_max", column, names, sigma, threat)
            facts["layers"][kind] = names
            facts["sizes"][kind] = [[piece.inputs, piece.outputs] for piece, _ in pieces]
            facts["spread"][kind] = {"mean": float(sigma.mean()), "std": float(sigma.std())}
            products = arrays[f"products_{kind}"]
            facts["products"][kind] = {"mean": float(products.mean()), "most": int(products.max())}
            facts["converged"][kind] = float(converged.mean())
            if not converged.all():
                notes.append(_unsure(kind, arrays, self.settings))
            if self.settings.bound:
                upper = arrays[f"bound_{kind}"]
                scores += _scores("sigma_bound", column, names, upper, threat)
                scores.append(mean_score("looseness", (upper / sigma).mean(axis=1), column=column, threat=threat))
        notes += self._left_out()
        if self.settings.attack:
            notes += blind_notes(self.settings.attack, self.context)
        return Conclusion(scores=scores, facts=facts, notes=notes)

    def _left_out(self) -> list[str]:
        changing = [layer.name for layer in self.layers if not layer.square]
        if "residual" not in self.settings.of or not changing:
            return []
        return [f"residual: {', '.join(changing)} left out, because output and input have different sizes"]


def _scores(metric: str, column: str, names: list[str], values: np.ndarray, threat: str | None) -> Iterator[Score]:
    """The mean over layers and images, then layer by layer; `values` N×layers."""
    yield mean_score(metric, values.mean(axis=1), column=column, threat=threat)
    for number, name in enumerate(names):
        if len(names) > 1:
            yield mean_score(metric, values[:, number], column=f"{column} {name}", threat=threat)


def _unsure(kind: str, arrays: Arrays, settings: Spectra) -> str:
    share, worst = 1 - arrays[f"converged_{kind}"].mean(), float(np.max(arrays[f"error_{kind}"]))
    return (
        f"{kind}: {share:.1%} of the spectra did not reach {settings.tolerance:g} within {settings.most} products "
        f"(largest residual {worst:.2g} of σ_max): raise jacobian.most"
    )


def _stacked(parts: list[np.ndarray]) -> np.ndarray:
    """N×layers×top; missing singular values of small pieces are nan."""
    top = max(part.shape[1] for part in parts)
    padded = [np.pad(part, ((0, 0), (0, top - part.shape[1])), constant_values=np.nan) for part in parts]
    return np.stack(padded, 1)
