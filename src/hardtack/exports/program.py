"""format=torch: a program of torch.export (.pt2), which runs with torch alone, without hardtack or the model's code."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from hardtack.base.errors import UserError
from hardtack.base.limits import shorten
from hardtack.exports.comparison import Predict
from hardtack.exports.subject import Subject, as_batch
from hardtack.models.classifier import evaluating

FACTS = "hardtack.json"


def trace(subject: Subject) -> torch.export.ExportedProgram:
    """The model as a graph for batches of any size."""
    x = as_batch(subject.sets[0].x, subject.shape)
    dynamic = ({0: torch.export.Dim("batch")},)
    try:
        with evaluating(subject.model), torch.no_grad(), quiet():
            return torch.export.export(subject.model, (x,), dynamic_shapes=dynamic, strict=False)
    except Exception as error:
        raise UserError(
            f"torch.export cannot follow {subject.provenance.model} ({type(error).__name__}: {shorten(error, 160)}); "
            "its forward must not depend on values of the images or on a fixed number of them"
        ) from error


def write(subject: Subject, path: Path, facts: Mapping[str, Any]) -> None:
    """The program, with the facts as an extra file."""
    with quiet():
        torch.export.save(trace(subject), path, extra_files={FACTS: json.dumps(facts)})


def read(path: Path) -> Predict:
    """The stored program as a function."""
    with quiet():
        module: Predict = torch.export.load(path).module()

    def predict(x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            return module(x)

    return predict


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without the exporters' own warnings, log lines and listings of graphs."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with (
            warnings.catch_warnings(),
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()),
        ):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
