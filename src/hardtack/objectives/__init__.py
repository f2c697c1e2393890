"""What training minimises."""

from hardtack.objectives.adversarial import Adversarial, AdversarialConfig
from hardtack.objectives.adversary import Adversary, Warmup
from hardtack.objectives.standard import Standard, StandardConfig
from hardtack.objectives.trades import Trades, TradesConfig

__all__ = [
    "Adversarial",
    "AdversarialConfig",
    "Adversary",
    "Standard",
    "StandardConfig",
    "Trades",
    "TradesConfig",
    "Warmup",
]
