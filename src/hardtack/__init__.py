"""hardtack: train, attack, measure and explain robust image classifiers."""

__version__ = "0.1.0"
