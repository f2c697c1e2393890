"""What an adversary does."""

from hardtack.attacks.apgd import APGD
from hardtack.attacks.ascent import Ascent, ascent_step
from hardtack.attacks.carlini_wagner import CarliniWagner
from hardtack.attacks.fab import FAB
from hardtack.attacks.losses import LOSSES, get_loss
from hardtack.attacks.minimum_norm import MinimumNorm
from hardtack.attacks.occlusion import Occlusion
from hardtack.attacks.outcome import Outcome
from hardtack.attacks.patch_fool import PatchFool
from hardtack.attacks.preserve_state import Mode, call, preserve_state
from hardtack.attacks.square import Square
from hardtack.attacks.transfer import Transfer

__all__ = [
    "APGD",
    "FAB",
    "LOSSES",
    "Ascent",
    "CarliniWagner",
    "MinimumNorm",
    "Mode",
    "Occlusion",
    "Outcome",
    "PatchFool",
    "Square",
    "Transfer",
    "ascent_step",
    "call",
    "get_loss",
    "preserve_state",
]
