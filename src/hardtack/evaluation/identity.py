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
from hardtack.base.digests import json_digest
from hardtack.base.randomness import permutation
from hardtack.base.runtime import Runtime
from hardtack.data.content import content_digest
from hardtack.data.spans import shape_of
from hardtack.engine import job_id, tensor_digest
from hardtack.evaluation.provenance import Provenance
from hardtack.evaluation.settings import EvaluationConfig
from hardtack.evaluation.suites import Suite
from hardtack.evaluation.threat_stages import ThreatStages
from hardtack.evaluation.views import View

_SAMPLE = 256  # small images of official files whose pixels are part of the id


@dataclass(frozen=True, kw_only=True)
class Identity:
    """What is measured, by what, on what.

    trials      the attacks, threat by threat
    precision   of the search
    seconds     by attack or kind of view
    older_id    the id that version 0.1.0 gave the same measurement, where it had no digest of the images in it
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
    older_id: str | None = None


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
        **({"views": _shown(views, data) if kept else [view.identity() for view in views]} if views else {}),
        **({"suite_settings": own_settings} if own_settings else {}),
        **({"votes": votes} if votes > 1 and config.version != "rand" else {}),
        **(contents(model, data) if kept else {}),
    }  # fmt: skip
    id = evaluation_id(config.suite, facts)
    older_id = evaluation_id(config.suite, {**facts, **_as_before(facts, views, data)}) if kept else id
    return Identity(
        id=id, older_id=older_id if older_id != id else None, suite=suite, suite_name=config.suite, trials=trials,
        views=views,
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
        images = _data_digest(data)
        content = content_digest(data)
        images = images if content is None else json_digest([images, content])
    return {"weights": weights, "architecture": plain(getattr(model, "architecture", None)), "images": images}


def _data_digest(data: Any) -> str:
    """Labels and positions, and the pixels where they are in memory: all of a data set that version 0.1.0 digested."""
    return tensor_digest({"labels": data.labels, "index": data.index, **_pixels_in_memory(data)})


def _shown(views: Sequence[View], data: Any) -> list[list[Any]]:
    """What decides the views: of official files what they hold for a sample of the images, not where they are."""
    shape, index = shape_of(data), _numbers(data)
    index = index[permutation(len(index), 0)[: _SAMPLE if max(shape[1:]) <= 64 else _SAMPLE // 8].sort().values]
    blank = torch.zeros(len(index), *shape)
    shown = []
    for view in views:
        stored = view.stored_in()
        shown.append([*view.identity(), *([*stored[1:], view.content(blank, index)] if stored else [])])
    return shown


def _as_before(facts: Mapping[str, Any], views: Sequence[View], data: Any) -> dict[str, Any]:
    """Facts as version 0.1.0 stated them: no digest of images that are not in memory, and paths of official files."""
    before: dict[str, Any] = {}
    if "views" in facts:
        before["views"] = [[*view.identity(), *view.stored_in()] for view in views]
    if "images" in facts and not isinstance(data, tuple):
        before["images"] = _data_digest(data)
    return before


def _numbers(data: Any) -> torch.Tensor:
    return torch.arange(len(data[1])) if isinstance(data, tuple) else data.index


def _pixels_in_memory(data: Any) -> dict[str, torch.Tensor]:
    """The images of a data set that is held in memory; one that is streamed is identified by its name and labels."""
    pixels = getattr(data.store, "pixels", None)
    return {} if pixels is None else {"pixels": pixels, "rows": data.rows}
