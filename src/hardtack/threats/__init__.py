"""What an adversary may do."""

from hardtack.threats.balls import BALLS, Ball
from hardtack.threats.dense_l1 import DENSE_L1
from hardtack.threats.threat import Threat

__all__ = ["BALLS", "DENSE_L1", "Ball", "Threat"]
