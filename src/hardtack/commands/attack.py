"""`hardtack attack`: adversarial images of a model, as arrays and as a picture."""

from __future__ import annotations

from dataclasses import dataclass

from hardtack.base.quick_imports import quick_imports
from hardtack.base.registry import verbs
from hardtack.commands.words import Words, say, split_target


@dataclass(frozen=True, kw_only=True)
class AttackWords:
    """Where `attack` differs from `evaluate`.

    n       the number of images that are attacked, from the first one on
    output  the folder that receives adversarial.npz and adversarial.png
    """

    n: int = 16
    output: str = "adversarial"


@verbs.register("attack", settings=("hardtack.evaluation.job:EvaluationJob", "hardtack.commands.attack:AttackWords"))
def attack(words: Words = None) -> None:
    """Make adversarial images: [bold]hardtack attack runs/x attack=pgd threat=linf:8/255 output=adv[/bold].

    Writes adversarial.npz (images, labels, predictions) and adversarial.png (clean image, adversarial image and
    magnified perturbation, one row per image) to the folder `output`.
    """
    with quick_imports():
        from hardtack.evaluation.craft import craft
        from hardtack.report.figures import write_examples_figure

    path, settings = split_target(words)
    crafted = craft(path, settings)
    picture = write_examples_figure(crafted.gallery, crafted.arrays.with_suffix(".png"))
    say(f"{crafted.summary}\nimages: {crafted.arrays}\npicture: {picture}")
