"""What adversarial perturbations look like, and what other models see in them (Debenedetti 2022)."""

from hardtack.analysis.perturbations.analysis import Perturbations
from hardtack.analysis.perturbations.spectrum import mean_frequency, radial_power

__all__ = ["Perturbations", "mean_frequency", "radial_power"]
