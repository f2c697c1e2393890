"""Why a model is robust or not: spectra, attention, weights, landscapes, perturbations.

A folder for each analysis: `analysis.py` has its settings and its computation, `chart.py` what the report draws of it.
Names are imported when they are used: the report reads the charts of this package and needs no torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hardtack.analysis.analysis import Analysis, AnalysisContext, Conclusion, OverImages, RowWork, Score, mean_score
    from hardtack.analysis.run import analyze

__all__ = ["Analysis", "AnalysisContext", "Conclusion", "OverImages", "RowWork", "Score", "analyze", "mean_score"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'hardtack.analysis' has no attribute '{name}'")
    module = "run" if name == "analyze" else "analysis"
    return getattr(importlib.import_module(f"hardtack.analysis.{module}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
