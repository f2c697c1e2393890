"""The loss as a function of the weights: its surface around those that were trained."""

from hardtack.analysis.landscape.analysis import Landscape
from hardtack.analysis.landscape.directions import filter_direction, gaussian
from hardtack.analysis.landscape.loss import Losses

__all__ = ["Landscape", "Losses", "filter_direction", "gaussian"]
