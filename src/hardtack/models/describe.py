"""`hardtack describe MODEL`: its parts in the order they compute, with shapes, as a tree.

Descriptions of this package's own models lie in descriptions.json beside this file, so that printing one needs no
torch. It is written by `python -m hardtack.models.describe`; a test describes every model again.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

import torch
from rich.markup import escape
from rich.tree import Tree
from torch import Tensor, nn

from hardtack.base import registry
from hardtack.base.config import parse_words
from hardtack.base.errors import UserError
from hardtack.base.files import write_text
from hardtack.base.printable import printable
from hardtack.models.blocks import Block, find_blocks
from hardtack.models.build import rebuild
from hardtack.models.catalog import make_body
from hardtack.models.facts import MultiplyAdds, known, usual
from hardtack.models.files import searched_weights, side_file
from hardtack.models.from_file import place_of, working_size


@dataclass
class Part:
    """A module that ran: its shape for one image, its parameters, and what it is made of."""

    name: str
    kind: str
    shape: str
    parameters: int
    note: str = ""
    parts: list[Part] = field(default_factory=list)

    @property
    def alike(self) -> tuple[Any, ...]:
        """Neighbours that agree in this are drawn once."""
        return self.kind, self.shape, self.parameters, self.note, tuple(part.alike for part in self.parts)


def describe_model(name: str, words: list[str]) -> tuple[Tree, dict[str, Any]]:
    """The tree of a model by name, or of the one in a weights file or run folder, and its knobs, where it has any.

    A name of ours or timm's allocates nothing.
    """
    settings = parse_words(words)
    if place_of(name) is None and Path(name).expanduser().exists():
        if settings:
            raise UserError(f"the settings of {name} are fixed by its file; leave {', '.join(settings)} out")
        model = rebuild(name)
        title, body, size = f"{model.architecture['name']} in {name}", model.body, model.image_size or 32
    else:
        usual_size, classes = usual(name)
        classes, asked = settings.pop("num_classes", classes), settings.pop("image_size", None)
        with torch.device("cpu" if place_of(name) else "meta"):  # code of a user's may look at its numbers
            made = make_body(name, num_classes=classes, image_size=asked, options=settings)
        title, body = name, made.module
        size = asked or made.image_size or (working_size(body) if place_of(name) else None) or usual_size
    with MultiplyAdds() as counted:
        parts = describe(body, size)
    total = sum(parameter.numel() for parameter in body.parameters())
    cost = f"{total / 1e6:.2f} M parameters · {counted.total / 1e9:.3g} GFLOPs (multiply-adds)"
    title = escape(printable(title))
    head = f"[bold]{title}[/bold]  {type(body).__name__}  [cyan]3×{size}×{size}[/cyan]  [dim]{cost}[/dim]"
    return draw(head, parts), knobs(name) if name in registry.models else {}


def labels_of(tree: Tree) -> list[Any]:
    """A tree as nested lists: its label, then the lists of what it holds."""
    return [str(tree.label), *(labels_of(child) for child in tree.children)]


def table_row(name: str) -> dict[str, Any]:
    """A model's row in descriptions.json."""
    tree, options = describe_model(name, [])
    make = registry.models.get(name).make
    return {
        "made_by": f"{make.__module__}:{make.__qualname__}",
        "tree": labels_of(tree),
        "options": {key: str(value) for key, value in options.items()},
    }


def files_described(name: str) -> list[Path] | None:
    """What `describe_model` reads if it is there (a name of ours is no file); None where code of a user's is run."""
    if place_of(name) is not None:
        return None
    return [path for file in searched_weights(name) for path in (file, side_file(file))]


def knobs(name: str) -> dict[str, Any]:
    """The options of a registered model, with what they are unless set."""
    entry = registry.models.get(name)
    parameters = inspect.signature(entry.make).parameters
    return {key: entry.presets.get(key, one.default) for key, one in parameters.items() if key != "num_classes"}


def describe(model: nn.Module, image_size: int) -> list[Part]:
    """The parts of a model, as one image passes through it; blocks are the leaves where there are any."""
    body = getattr(model, "body", model)
    blocks = {block.module: block for block in find_blocks(body)}
    holders = {module for module in body.modules() if any(inner in blocks for inner in module.modules())}
    shapes: dict[nn.Module, str] = {}
    order: list[nn.Module] = []

    def ran(module: nn.Module, args: Any, output: Any) -> None:
        if module not in shapes:
            order.append(module)
        shapes[module] = _shape(output)

    hooks = [module.register_forward_hook(ran) for module in body.modules()]
    device = next((parameter.device for parameter in body.parameters()), torch.device("cpu"))
    flags = {module: module.training for module in body.modules()}
    try:
        with torch.no_grad():
            body.eval()(torch.zeros(1, 3, image_size, image_size, device=device))
    finally:
        for hook in hooks:
            hook.remove()
        for module, training in flags.items():
            module.training = training
    place = {module: number for number, module in enumerate(order)}

    def parts(module: nn.Module) -> Iterator[Part]:
        children = [
            (name, child)
            for name, child in module.named_children()
            if _when(child, place) is not None and not isinstance(child, nn.Identity | nn.Dropout)
        ]
        for name, child in sorted(children, key=lambda pair: _when(pair[1], place) or 0):
            opened = child in holders and child not in blocks
            inner = list(parts(child)) if opened else []
            note = _block_note(blocks[child]) if child in blocks else ""
            yield Part(name, type(child).__name__, shapes.get(child, ""), _count(child), note, inner)

    return list(parts(body))


def draw(title: str, parts: list[Part]) -> Tree:
    """As a tree for the terminal; neighbours that are alike share a line."""
    tree = Tree(title, guide_style="dim")
    _grow(tree, parts)
    return tree


def _grow(tree: Tree, parts: list[Part]) -> None:
    for _, group in groupby(parts, key=lambda part: part.alike):
        members = list(group)
        first, last = members[0], members[-1]
        name = first.name if first is last else f"{first.name}–{last.name}"
        times = f" ×{len(members)}" if len(members) > 1 else ""
        size = f"{first.parameters / 1e6:.2f} M" if first.parameters >= 1e5 else f"{first.parameters:,}"
        each = " each" if times else ""
        kind = "" if first.kind in ("ModuleList", "Sequential") else first.kind
        words = [
            f"[bold]{escape(printable(name))}[/bold]{times}",
            kind,
            f"[cyan]{first.shape}[/cyan]" if first.shape else "",
        ]
        words += [f"[dim]{size}{each}[/dim]" if first.parameters else "", first.note]
        _grow(tree.add("  ".join(word for word in words if word)), first.parts)


def _block_note(block: Block) -> str:
    kinds = " → ".join(branch.kind for branch in block.branches) or "no residual branches"
    attention = ", ".join(dict.fromkeys(attending.kind for attending in block.attending))
    return kinds + (f"; attention: {attention}" if attention else "")


def _when(module: nn.Module, place: dict[nn.Module, int]) -> int | None:
    """When it first ran; a list of modules, when the first of them did."""
    if module in place:
        return place[module]
    inner = [place[part] for part in module.modules() if part in place]
    return min(inner) if inner else None


def _count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def _shape(output: Any) -> str:
    output = output[0] if isinstance(output, tuple | list) and output else output
    return "×".join(map(str, output.shape[1:])) if isinstance(output, Tensor) else ""


def write_table() -> None:
    """Models of timm are left out: their parts depend on its version."""
    rows = {name: table_row(name) for name, facts in known().items() if facts.source == "ours"}
    lines = [f"  {json.dumps(name)}: {json.dumps(row, ensure_ascii=False)}" for name, row in rows.items()]
    write_text(Path(__file__).with_name("descriptions.json"), "{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    write_table()
