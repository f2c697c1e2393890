"""What is known of every registered model without building it: parameters, multiply-adds, tokens, attention.

The table beside this file is written by `python -m hardtack.models.facts`; a test measures every model again. It also
holds the family, papers and help text of every model, so that `hardtack list models` needs no torch.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import init
from torch.utils._python_dispatch import TorchDispatchMode

from hardtack.base.files import write_text
from hardtack.base.registry import Entry, models
from hardtack.models.blocks import Block, find_blocks
from hardtack.models.catalog import TIMM, make_body
from hardtack.models.taps import tap
from hardtack.models.tokens import patch_size_of

_TABLE = Path(__file__).with_suffix(".json")


@dataclass(frozen=True)
class ModelFacts:
    """`gflops` are 10⁹ multiply-adds, as papers count them. `tokens` are those of the blocks, stage by stage.

    `patch_size` is the network's own (models/tokens.py), None where it has no patches of its own.
    """

    parameters: int
    gflops: float
    tokens: str
    attention: str  # the kinds, or none
    blocks: int
    patch_size: int | None
    image_size: int
    num_classes: int
    source: str  # ours or timm


@functools.cache
def known() -> dict[str, ModelFacts]:
    """At each model's usual size."""
    names = [item.name for item in dataclasses.fields(ModelFacts)]
    rows = json.loads(_TABLE.read_text(encoding="utf-8"))
    return {model: ModelFacts(**{name: row[name] for name in names}) for model, row in rows.items()}


def usual(name: str) -> tuple[int, int]:
    """The image size and the number of classes a model is meant for."""
    return (224, 1000) if name.endswith("_224") or name.startswith(TIMM) else (32, 10)


def measure(name: str, *, image_size: int | None = None, num_classes: int | None = None, **options: Any) -> ModelFacts:
    """Facts of a model as it would be built; nothing is allocated."""
    size, classes = usual(name)
    classes = num_classes or classes
    with torch.device("meta"):
        with uninitialised():
            body = make_body(name, num_classes=classes, image_size=image_size, options=options)
        size = image_size or body.image_size or size
        module = body.module.eval()
        x = torch.zeros(1, 3, size, size)
        with torch.no_grad(), MultiplyAdds() as counted, tap(module, attention=False) as taps:
            module(x)
    blocks = find_blocks(module)
    return ModelFacts(
        parameters=sum(parameter.numel() for parameter in module.parameters()),
        gflops=round(counted.total / 1e9, 4),
        tokens=stages(taps.features),
        attention=attention_kinds(blocks),
        blocks=len(taps.features),
        patch_size=patch_size_of(taps, blocks, (size, size)),
        image_size=size,
        num_classes=classes,
        source=source(module),
    )


def stages(features: list[Tensor]) -> str:
    """256→64→16: the number of tokens, block by block, without repetition."""
    return "→".join(str(count) for count, _ in groupby(feature.shape[1] for feature in features))


def attention_kinds(blocks: list[Block]) -> str:
    kinds = dict.fromkeys(attending.kind for block in blocks for attending in block.attending)
    return ", ".join(kinds) or "none"


def source(module: nn.Module) -> str:
    return "timm" if type(module).__module__.startswith("timm.") else "ours"


@contextlib.contextmanager
def uninitialised() -> Iterator[None]:
    """Parameters on the meta device have no values: drawing them costs most of a network's construction.

    Only `torch.nn.init` and the one function behind timm's initialisers are replaced while a network is built.
    """
    from timm.layers import weight_init

    drawing = [(init, name) for name in vars(init) if name.endswith("_") and not name.startswith("_")]
    drawing.append((weight_init, "_trunc_normal_"))
    before = [(module, name, getattr(module, name)) for module, name in drawing]
    for module, name in drawing:
        setattr(module, name, lambda tensor, *args, **kwargs: tensor)
    try:
        yield
    finally:
        for module, name, function in before:
            setattr(module, name, function)


class MultiplyAdds(TorchDispatchMode):
    """Counts those of matrix products and convolutions.

    The meta kernels of normalisations, activations and linear layers are written in Python and would take most of the
    time; their shapes are known, so they are answered here with an empty tensor.
    """

    aten = torch.ops.aten
    activations = frozenset((aten.gelu, aten.silu, aten.relu, aten.hardswish, aten._softmax, aten._safe_softmax))
    normalisations = frozenset((aten.native_layer_norm, aten.native_batch_norm, aten.native_group_norm))

    def __init__(self) -> None:
        super().__init__()
        from torch.utils.flop_counter import flop_registry  # brings Triton along

        self.total, self.registry = 0, flop_registry

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, packet = kwargs or {}, func._overloadpacket
        if packet in self.activations:
            return torch.empty_like(args[0])
        if packet in self.normalisations:
            statistics = args[0].new_empty(0)
            return torch.empty_like(args[0]), statistics, statistics
        product = packet is self.aten.addmm
        out = args[1].new_empty(args[1].shape[0], args[2].shape[1]) if product else func(*args, **kwargs)
        count = self.registry.get(packet)
        if count is not None:
            self.total += count(*args, **kwargs, out_val=out) // 2
        return out


def table_row(entry: Entry, facts: ModelFacts) -> dict[str, Any]:
    """One row of the table: the facts, and what the registry says about the model."""
    about = {"family": entry.family, "papers": list(entry.papers), "help": entry.help}
    return dataclasses.asdict(facts) | about


def write_table() -> None:
    rows = {entry.name: table_row(entry, measure(entry.name)) for entry in models.entries()}
    lines = [f"  {json.dumps(name)}: {json.dumps(row, ensure_ascii=False)}" for name, row in rows.items()]
    write_text(_TABLE, "{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    write_table()
