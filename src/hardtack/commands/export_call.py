"""`ht.export`: a run folder, or a model of Python, as a file for other software."""

from __future__ import annotations

import typing
from pathlib import Path
from typing import Any, Literal

from torch import nn

from hardtack.base.config import build
from hardtack.base.errors import UserError
from hardtack.commands.given_target import given_target
from hardtack.exports import Exported, ModelExport, export_module, export_run
from hardtack.exports.subject import OLDEST_OPSET
from hardtack.models.given import AnyModel


def export(
    target: str | Path | AnyModel, data: Any = None, *, format: Literal["onnx", "torch", "hub"],
    output: str | Path | None = None, checkpoint: str = "best", model: nn.Module | None = None, n: int = 128,
    opset: int = OLDEST_OPSET, overwrite: bool = False,
) -> Exported:  # fmt: skip
    """A model as a file for other software: `ht.export("runs/x", format="onnx")`, `ht.export(model, format="hub")`.

    `target`: a run folder, or a model from images in [0,1] to logits. What was written is read back and compared with
    the model on `n` images of `data` (of a run, its own; without data random ones), and on adversarial images that the
    run has stored. Of a run that trained a module of yours, `model` is such a module. docs/export.md explains the rest.
    """
    shared: dict[str, Any] = {"format": format, "n": n, "opset": opset, "overwrite": overwrite}
    shared |= {} if output is None else {"output": str(output)}
    if isinstance(target, str | Path):
        values = {**shared, "checkpoint": checkpoint, "data": data, "model": model}
        with given_target(target, {key: value for key, value in values.items() if value is not None}) as words:
            return export_run(target, words)
    if model is not None or checkpoint != "best":
        raise UserError("model and checkpoint belong to a run folder; here the model itself is given")
    config: ModelExport = build(ModelExport, shared)
    return export_module(typing.cast(nn.Module, target), data, config)
