"""What an adversary may do."""

from hardtack.threats.balls import BALLS, Ball
from hardtack.threats.threat import Threat

__all__ = ["BALLS", "Ball", "Threat"]
