"""Growth of perturbations from block to block, and the upper limits given by the blocks' Jacobians.

Paper 4 compares a residual network with the equation x′ = F(x, t), whose perturbations grow at most by exp ∫‖J_F‖dt.
For the network itself, x ↦ x + F(x) block by block, the first-order limit is the product of σ_max of the blocks. It is
at most Π(1 + σ_max(J_F)), which is at most exp Σσ_max(J_F).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from hardtack.analysis.adversary import blind_notes, make_adversary, moved
from hardtack.analysis.analysis import AnalysisContext, Arrays, Conclusion, OverImages, RowWork, Score, mean_score
from hardtack.analysis.jacobian.block_parts import Piece
from hardtack.analysis.jacobian.chain import Chain, find_chain, stations
from hardtack.analysis.jacobian.euler import euler_errors
from hardtack.analysis.jacobian.lanczos import lanczos
from hardtack.analysis.jacobian.products import Jacobian
from hardtack.analysis.jacobian.selection import find_spectrum, images_at_once, require_apart
from hardtack.base import randomness
from hardtack.base.annotations import AN_ATTACK, Shown
from hardtack.base.config import check
from hardtack.base.errors import UserError
from hardtack.base.registry import analyses
from hardtack.data.corruptions import constants_for, corrupt
from hardtack.data.corruptions.choose import chosen_types
from hardtack.models.blocks import class_name
from hardtack.threats import Threat

PERTURBED = ("adversarial", "random", "corrupted")
_TINY = 1e-12


@analyses.register("growth", papers=("cauchy",))
@dataclass(frozen=True, kw_only=True)
class Growth(OverImages):
    """Growth of adversarial, random and corruption perturbations layer by layer, with the limits from the spectra.

    n           the number of images, from the first one on
    threat      norm and radius of the adversarial perturbation; null: that of an attack that has one of its own, else
                linf:8/255
    attack      the attack, its name or settings, as in evaluate; by default PGD of 20 steps
    type        the corruption of the third perturbation (hardtack list corruptions)
    severity    severity of that corruption
    tolerance   relative tolerance of σ_max, as for jacobian
    most        most products with the Jacobian for σ_max of an image
    substeps    smaller Euler steps that a block is compared with; 0: no comparison

    The random perturbation is Gaussian and has the same l2 norm for each image, before it is clipped to [0,1].
    """

    n: Annotated[int, Field(ge=1)] = 50
    threat: Threat | None = None
    attack: Annotated[Any, AN_ATTACK] = field(default_factory=dict)
    type: Annotated[str, Shown("corruption", "hardtack list corruptions")] = "gaussian_noise"
    severity: Annotated[int, Field(ge=1, le=5)] = 3
    tolerance: Annotated[float, Field(ge=1e-6, lt=1)] = 1e-3
    most: Annotated[int, Field(ge=4)] = 100
    substeps: Annotated[int, Field(ge=0, le=1000)] = 8

    def __post_init__(self) -> None:
        check(self)
        object.__setattr__(self, "threat", make_adversary(self.attack, self.threat).threat)
        if len(chosen_types((self.type,))) != 1:
            raise UserError(f"type is one corruption, found the group '{self.type}'")
        if self.substeps == 1:
            raise UserError("substeps=1 is the block itself: give 2 or more, or 0 to leave out the Euler error")

    def begin(self, context: AnalysisContext) -> RowWork:
        return _Growth(self, context)


class _Growth:
    """A row for each image."""

    def __init__(self, settings: Growth, context: AnalysisContext) -> None:
        self.settings, self.context = settings, context
        self.attack = make_adversary(settings.attack, settings.threat)
        images, _, _ = context.images(0, min(2, context.count))
        self.chain = _chain(context, images)
        require_apart(context, images)
        for piece in self.chain.steps:
            Jacobian(piece.trace, images[:1], name=piece.name).check()

    @property
    def length(self) -> int:
        return self.context.count

    @property
    def at_once(self) -> int:
        most = images_at_once(self.context, list(self.chain.steps), list(self.chain.layers), self.settings.most)
        return self.settings.batch_size or most

    def rows(self, start: int, stop: int) -> Arrays:
        x, y, index = self.context.images(start, stop)
        arrays: Arrays = {"index": index.cpu().numpy(), "label": y.cpu().numpy()}
        clean = stations(self.context.model, self.chain, x)
        for name, other in zip(PERTURBED, self._perturbed(x, y, index), strict=True):
            there = stations(self.context.model, self.chain, other)
            sizes = [(a - b).norm(dim=1) for a, b in zip(there, clean, strict=True)]
            arrays[f"size_{name}"] = torch.stack(sizes, dim=1).double().cpu().numpy()
            arrays[f"pixels_{name}"] = (other - x).flatten(1).norm(dim=1).double().cpu().numpy()
        for name, bare in (("block", False), ("residual", True)):
            spectra = [self._sigma(piece, bare, x, index) for piece in self.chain.steps]
            arrays[f"sigma_{name}"] = np.stack([sigma for sigma, _ in spectra], 1)
            arrays[f"converged_{name}"] = np.stack([converged for _, converged in spectra], 1)
        if self.settings.substeps:
            errors = euler_errors(self.context.model, self.chain, x, self.settings.substeps)
            arrays |= dict(
                zip(("euler_error", "euler_drift"), (values.double().cpu().numpy() for values in errors), strict=True)
            )
        return arrays

    def _perturbed(self, x: Tensor, y: Tensor, index: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The images under each of the three perturbations."""
        context, settings = self.context, self.settings
        attacked = moved(self.attack, context.model, x, y, index, context.seed)
        direction = randomness.normal(randomness.make_keys(index, context.seed), tuple(x.shape[1:]), stream=5)
        length = (attacked - x).flatten(1).norm(dim=1) / direction.flatten(1).norm(dim=1)
        constants = constants_for(max(context.shape[1:]))
        corrupted = corrupt(x, index, settings.type, settings.severity, constants=constants, seed=context.seed)
        return attacked, (x + length.view(-1, 1, 1, 1) * direction).clamp(0, 1), corrupted

    def _sigma(self, piece: Piece, bare: bool, x: Tensor, index: Tensor) -> tuple[np.ndarray, np.ndarray]:
        """σ_max of a step at every image, and whether it converged; nan for a step without a residual."""
        if bare and not piece.bare:
            return np.full(len(x), np.nan), np.ones(len(x), bool)
        how = {"tolerance": self.settings.tolerance, "most": self.settings.most}
        spectrum = find_spectrum(lanczos, piece, x, index, (self.context.seed, str(bare)), bare=bare, **how)
        return spectrum.sigma[:, 0], spectrum.converged

    # ------------------------------------------------------------ conclusion

    def conclude(self, arrays: Arrays) -> Conclusion:
        grown = {name: log_growth(arrays[f"size_{name}"]) for name in PERTURBED} | limits(arrays)
        threat = {"adversarial": str(self.settings.threat)}
        scores = [
            mean_score("log10_growth", values[:, -1], column=name, threat=threat.get(name))
            for name, values in grown.items()
        ]
        names = [piece.name for piece in self.chain.steps]
        factors = arrays["size_adversarial"].clip(_TINY)
        amplified = factors[:, 1:] / factors[:, :-1]
        scores += [
            mean_score("amplification", amplified[:, number], column=name, threat=threat["adversarial"])
            for number, name in enumerate(names)
        ]
        scores += _euler_scores(arrays, [layer.name for layer in self.chain.layers])
        facts = {
            "steps": names,
            "blocks": [layer.name for layer in self.chain.layers],
            "depth": len(self.chain.layers),
            "most_amplifying": names[int(amplified.mean(axis=0).argmax())],
            "used": float(np.mean(amplified / arrays["sigma_block"])),  # share of the largest possible growth
            "above_limit": float(np.mean(grown["adversarial"][:, -1] > grown["first order"][:, -1])),
        }
        return Conclusion(
            scores=scores, facts=facts, notes=self._notes(arrays), arrays={f"log10_{k}": v for k, v in grown.items()}
        )

    def _notes(self, arrays: Arrays) -> list[str]:
        notes = blind_notes(self.attack, self.context)
        unsure = 1 - min(arrays[f"converged_{kind}"].mean() for kind in ("block", "residual"))
        if unsure:
            notes.append(
                f"{unsure:.1%} of the spectra did not converge in {self.settings.most} products: raise growth.most"
            )
        if still := int((arrays["pixels_adversarial"] == 0).sum()):
            notes.append(f"the attack did not change {still} images: their growth is counted as 1 ×")
        if self.chain.lost:
            notes.append(f"the chain ends before {self.chain.lost}: its input does not come from the block before it")
        other = [piece.name for piece in self.chain.steps if not piece.bare]
        if other:
            notes.append(f"not residual, and counted with their own σ_max in all limits: {', '.join(other)}")
        return notes


def _chain(context: AnalysisContext, images: Tensor) -> Chain:
    chain = find_chain(context.model, images)
    if not chain.steps:
        raise UserError(f"no blocks are known in {class_name(context.model)}: growth needs blocks")
    if len(stations(context.model, chain, images)) > len(chain.steps) + 1:
        raise UserError(
            "a block of this network is called several times for an image: growth needs blocks that are called once"
        )
    return chain


def log_growth(sizes: np.ndarray) -> np.ndarray:
    """log₁₀ ‖Δx_k‖/‖Δx_0‖ before the first and after every step, N×(steps+1), from the norms of a perturbation."""
    sizes = sizes.clip(_TINY)
    return np.log10(sizes / sizes[:, :1])


def limits(arrays: Arrays) -> dict[str, np.ndarray]:
    """log₁₀ of the limits from the spectra, N×(steps+1): three limits, each at most as large as the next.

    `first order`: Π σ_max(I + J_F); `one plus`: Π (1 + σ_max(J_F)); `exponential`: exp Σ σ_max(J_F), that of the
    paper. A step without a residual contributes its own σ_max to each limit.
    """
    own, residual = arrays["sigma_block"], arrays["sigma_residual"]
    plain = np.log(own.clip(_TINY))
    parts = {
        "first order": plain,
        "one plus": np.where(np.isnan(residual), plain, np.log1p(residual)),
        "exponential": np.where(np.isnan(residual), plain, residual),
    }
    return {name: np.pad(np.cumsum(part, axis=1), ((0, 0), (1, 0))) / np.log(10) for name, part in parts.items()}


def _euler_scores(arrays: Arrays, names: list[str]) -> list[Score]:
    if "euler_error" not in arrays:
        return []
    errors = arrays["euler_error"]
    defined = [number for number in range(len(names)) if np.isfinite(errors[:, number]).all()]
    if not defined:
        return []
    each = [mean_score("euler_error", errors[:, number], column=names[number]) for number in defined]
    drift = mean_score("euler_drift", arrays["euler_drift"][:, -1])
    return [mean_score("euler_error", errors[:, defined].mean(axis=1)), *each, drift]
