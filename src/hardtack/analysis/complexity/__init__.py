"""Rademacher complexity of linear classes on images, and what it says about the dimension."""

from hardtack.analysis.complexity.analysis import Complexity

__all__ = ["Complexity"]
