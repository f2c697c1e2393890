"""Why a model is robust or not: spectra, attention, weights, landscapes, perturbations."""

from hardtack.analysis import (  # noqa: F401  # entered in the registry
    attention,
    complexity,
    curvature,
    growth,
    jacobian,
    landscape,
    perturbations,
    saliency,
    sparsity,
    visions,
)
from hardtack.analysis.analysis import Analysis, Conclusion, OverImages, Scene, Score, Work, mean_score
from hardtack.analysis.run import analyze

__all__ = ["Analysis", "Conclusion", "OverImages", "Scene", "Score", "Work", "analyze", "mean_score"]
