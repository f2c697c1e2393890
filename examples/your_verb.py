"""A verb of your own: a function with typer's annotations, registered in `verbs`.

    hardtack --import examples/your_verb.py --help
    hardtack --import examples/your_verb.py classes digits

Heavy imports belong inside the function, so that `--help` stays fast.
"""

from typing import Annotated

import typer

from hardtack.base.registry import verbs


@verbs.register("classes")
def classes(data: Annotated[str, typer.Argument(help="a data set, such as digits or folder:PATH")]) -> None:
    """Count the test images of every class of a data set."""
    from hardtack.data import load_data

    images = load_data(data, "test")
    counts = images.labels.bincount(minlength=len(images.classes)).tolist()
    for name, count in zip(images.classes, counts, strict=True):
        print(f"{name:<12} {count:>6} images")


if __name__ == "__main__":
    classes("digits")
