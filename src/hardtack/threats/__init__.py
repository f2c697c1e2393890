"""What an adversary may do."""

from hardtack.threats.balls import BALLS, DENSE_L1, Ball
from hardtack.threats.threat import Threat

__all__ = ["BALLS", "DENSE_L1", "Ball", "Threat"]
