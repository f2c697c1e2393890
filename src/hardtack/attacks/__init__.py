"""Attacks: the contract, one file per attack, and the pool that runs many searches at once."""

from hardtack.attacks.apgd import APGD
from hardtack.attacks.ascent import Ascent, ascent_step
from hardtack.attacks.boundary import Boundary
from hardtack.attacks.carlini_wagner import CarliniWagner
from hardtack.attacks.contract import Attack, as_attack
from hardtack.attacks.ddn import DDN
from hardtack.attacks.deepfool import DeepFool
from hardtack.attacks.ead import EAD
from hardtack.attacks.fab import FAB
from hardtack.attacks.hopskipjump import HopSkipJump
from hardtack.attacks.losses import LOSSES, get_loss
from hardtack.attacks.minimum_norm import MinimumNorm
from hardtack.attacks.nes import NES
from hardtack.attacks.occlusion import Occlusion
from hardtack.attacks.outcome import AttackOutcome
from hardtack.attacks.patch_fool import PatchFool
from hardtack.attacks.preserve_state import Mode, preserve_state
from hardtack.attacks.spsa import SPSA
from hardtack.attacks.square import Square
from hardtack.attacks.transfer import Transfer

__all__ = [
    "APGD",
    "DDN",
    "EAD",
    "FAB",
    "LOSSES",
    "NES",
    "SPSA",
    "Ascent",
    "Attack",
    "AttackOutcome",
    "Boundary",
    "CarliniWagner",
    "DeepFool",
    "HopSkipJump",
    "MinimumNorm",
    "Mode",
    "Occlusion",
    "PatchFool",
    "Square",
    "Transfer",
    "as_attack",
    "ascent_step",
    "get_loss",
    "preserve_state",
]
