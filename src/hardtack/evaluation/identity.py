"""The identity of an evaluation: everything that decides its verdicts, and the digest that names them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

import hardtack
from hardtack.base.config import plain
from hardtack.base.runtime import Runtime
from hardtack.engine import job_id, tensor_digest
from hardtack.evaluation.provenance import Provenance
from hardtack.evaluation.settings import EvaluationConfig
from hardtack.evaluation.suites import Suite
from hardtack.evaluation.threat_stages import ThreatStages
from hardtack.evaluation.views import View


@dataclass(frozen=True, kw_only=True)
class Identity:
    """What is measured, by what, on what.

    trials      the attacks, threat by threat
    precision   of the search
    seconds     by attack or kind of view
    source      of corrupted or shifted images: `official` or `regenerated`
    facts       everything that the id is the digest of, by name (see `evaluation_id`)
    """

    id: str
    suite: Suite
    suite_name: str
    trials: list[ThreatStages]
    views: Sequence[View]
    provenance: Provenance
    data: str
    data_description: str
    classes: tuple[str, ...]
    runtime: Runtime
    precision: str = "fp32"
    seconds: dict[str, float] = field(default_factory=dict)
    parameters: int = 0
    source: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)


def evaluation_id(suite: str, facts: Mapping[str, Any]) -> str:
    """The id of an evaluation: the digest of its facts, in their order."""
    return job_id(suite, list(facts.values()))


def identify(
    model: nn.Module,
    data: Any,
    config: EvaluationConfig,
    *,
    suite: Suite,
    trials: list[ThreatStages],
    views: Sequence[View],
    runtime: Runtime,
    provenance: Provenance,
    kept: bool,
) -> Identity:
    """`kept`: the verdicts go to disk, and the id must change with everything that could change them."""
    if isinstance(data, tuple):
        name, description, classes = "tensors", f"{len(data[1])} images given as tensors", ()
    else:
        name, description, classes = f"{data.name}/{data.split}", data.description, tuple(data.classes)
    own_settings, votes = dataclasses.asdict(suite), suite.votes(config)
    facts = {
        "data": name, "data_description": description, "suite": config.suite,
        "attacks": [[str(t.threat), t.words, t.details, *map(str, t.radii)] for t in trials],
        "examples": config.examples, "keep": config.keep, "seed": runtime.seed, "precision": runtime.precision,
        "version": hardtack.__version__,
        **({"views": [view.identity() for view in views]} if views else {}),
        **({"suite_settings": own_settings} if own_settings else {}),
        **({"votes": votes} if votes > 1 and config.version != "rand" else {}),
        **(contents(model, data) if kept else {}),
    }  # fmt: skip
    return Identity(
        id=evaluation_id(config.suite, facts), suite=suite, suite_name=config.suite, trials=trials, views=views,
        provenance=provenance, data=name, data_description=description, classes=classes, runtime=runtime,
        parameters=sum(weight.numel() for weight in model.parameters()), source=getattr(data, "source", ""),
        facts=facts,
    )  # fmt: skip


def contents(model: nn.Module, data: Any) -> dict[str, Any]:
    """Digests of the weights and the images, by name. Normalisation is in the buffers and in the architecture."""
    weights = tensor_digest({**model.state_dict(), **dict(model.named_buffers())})
    if isinstance(data, tuple):
        images = tensor_digest({"x": data[0], "y": data[1]})
    else:
        images = tensor_digest({"labels": data.labels, "index": data.index, **_pixels_in_memory(data)})
    return {"weights": weights, "architecture": plain(getattr(model, "architecture", None)), "images": images}


def _pixels_in_memory(data: Any) -> dict[str, torch.Tensor]:
    """The images of a data set that is held in memory; one that is streamed is identified by its name and labels."""
    pixels = getattr(data.store, "pixels", None)
    return {} if pixels is None else {"pixels": pixels, "rows": data.rows}
