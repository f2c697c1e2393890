"""How stable a model's attention is, and what it attends to."""

from hardtack.analysis.attention.stability import Attention

__all__ = ["Attention"]
