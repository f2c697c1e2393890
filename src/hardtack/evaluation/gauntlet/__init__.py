"""The gauntlet: a benchmark of evaluators, made of defence mechanisms whose true robust accuracy is known."""

from hardtack.evaluation.gauntlet.claim import Claim
from hardtack.evaluation.gauntlet.gauntlet import GauntletResult, run_gauntlet, select_mechanisms
from hardtack.evaluation.gauntlet.mechanism import Core, Defence, Draw, build_defence
from hardtack.evaluation.gauntlet.truth import Truth, find_truth
from hardtack.evaluation.gauntlet.verdict import Row

__all__ = [
    "Claim", "Core", "Defence", "Draw", "GauntletResult", "Row", "Truth", "build_defence", "find_truth", "run_gauntlet",
    "select_mechanisms",
]  # fmt: skip
