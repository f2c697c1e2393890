"""What an evaluator says about a model.

    @evaluators.register("pgd20", help="twenty steps of PGD, and no flags")
    def pgd20(model, x, y, *, threat, runtime) -> Claim: ...

An evaluator is a function of this form in the folder `evaluators`, or in a file of the user's (`--import FILE.py`).
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from hardtack.evaluation.sanity import Flag


@dataclass(frozen=True, kw_only=True)
class Claim:
    """The number of an evaluator and its warnings.

    robust_accuracy   the share of images that the evaluator calls robust
    flags             its warnings; a red one says that the number should not be trusted
    seconds           how long it took
    x_adv             its adversarial images, one for each image, where it returns them: they can lower the truth
    refused           why the evaluator declined to give a number
    failed            the exception that ended it
    """

    robust_accuracy: float | None = None
    clean_accuracy: float | None = None
    flags: tuple[Flag, ...] = ()
    seconds: float = 0.0
    x_adv: Tensor | None = None
    refused: str = ""
    failed: str = ""
