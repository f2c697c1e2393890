"""What training minimises."""

from hardtack.objectives.adversarial import Adversarial, AdversarialConfig
from hardtack.objectives.adversary import Adversary, Warmup
from hardtack.objectives.alp import ALP, ALPConfig
from hardtack.objectives.contract import Objective, ObjectiveConfig
from hardtack.objectives.free import Free, FreeConfig
from hardtack.objectives.gaussian import Gaussian, GaussianConfig
from hardtack.objectives.mart import MART, MARTConfig
from hardtack.objectives.rspc import RSPC, RSPCConfig
from hardtack.objectives.rspc_occluder import OccluderConfig
from hardtack.objectives.standard import Standard, StandardConfig
from hardtack.objectives.trades import Trades, TradesConfig

__all__ = [
    "ALP",
    "MART",
    "RSPC",
    "ALPConfig",
    "Adversarial",
    "AdversarialConfig",
    "Adversary",
    "Free",
    "FreeConfig",
    "Gaussian",
    "GaussianConfig",
    "MARTConfig",
    "Objective",
    "ObjectiveConfig",
    "OccluderConfig",
    "RSPCConfig",
    "Standard",
    "StandardConfig",
    "Trades",
    "TradesConfig",
    "Warmup",
]
