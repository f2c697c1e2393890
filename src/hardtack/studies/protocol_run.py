"""Measuring a protocol: one evaluation after the other, then a row of numbers with the protocol's name on them.

Each evaluation is an ordinary one: kept in the run folder, resumed after a kill, shared out under torchrun, recalled
where it was measured before. The row is written beside them, with a vector per column over the images they share.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hardtack.base.config import build, nested
from hardtack.base.errors import UserError, did_you_mean
from hardtack.data.official import OfficialC, open_official
from hardtack.data.official.kinds import KINDS
from hardtack.data.paths import find_path
from hardtack.evaluation.job import evaluate_target, read_job
from hardtack.evaluation.metrics import accuracy
from hardtack.evaluation.outcome import Evaluation
from hardtack.evaluation.plan import plan_evaluation
from hardtack.evaluation.settings import ATTACKED, EvaluationConfig
from hardtack.evaluation.target import Target, load_target
from hardtack.results import Result, append_results, per_image, write_verdicts
from hardtack.studies.protocol import Column, Protocol, read_protocol

# what a user may say without changing what is measured; everything else is the protocol's
_WHAT = ("model", "data", "n", "split", "checkpoint", "output", "runtime", "frost")
FREE_WORDS = (*_WHAT, "batch_size", "chunk_size", "keep", "examples")
Tell = Callable[[str], None]


@dataclass(frozen=True)
class ProtocolMeasurement:
    """What a protocol came to. `missing`: columns that could not be measured, and why."""

    protocol: Protocol
    results: tuple[Result, ...]
    missing: dict[str, str]
    evaluations: tuple[Evaluation, ...]

    def value(self, column: str) -> float:
        """Of a column, by its name."""
        for result in self.results:
            if result.extra["column"] == column:
                return result.value
        names = [result.extra["column"] for result in self.results]
        raise UserError(self.missing.get(column) or f"there is no column '{column}'{did_you_mean(column, names)}")

    def __str__(self) -> str:
        lines = [_line(result) for result in self.results]
        lines += [f"{name:<24} not measured: {why}" for name, why in self.missing.items()]
        spent = {one.id: one.results[-1] for one in self.evaluations}.values()
        passes = [sum(result.extra.get(kind, 0) for result in spent) for kind in ("forwards", "backwards")]
        seconds = sum(result.seconds or 0.0 for result in spent)
        total = f"{passes[0]:,} forwards, {passes[1]:,} backwards, {seconds:,.1f} s"
        return "\n".join([f"{self.protocol}: {self.protocol.paper}", *lines, total, *_flags(self.results)])


def _line(result: Result) -> str:
    interval = "" if result.low is None or result.high is None else f"  [{result.low:.2%}, {result.high:.2%}]"
    about = "  ".join(str(part) for part in (result.threat, result.extra.get("source")) if part)
    return f"{result.extra['column']:<24} {result.value:7.2%}{interval}  n={result.n}" + (f"  {about}" * bool(about))


def _flags(results: tuple[Result, ...]) -> list[str]:
    lines = [
        f"{flag['level'].upper()} FLAG {flag['code']}: {flag['message']}" for result in results for flag in result.flags
    ]
    return list(dict.fromkeys(lines))


def measure_protocol(
    run: str | Path | None = None, /, *, quiet: bool = False, tell: Tell | None = None, **words: Any
) -> ProtocolMeasurement:
    """`measure_protocol("runs/x", protocol="architectures/cifar", n=1000)`; `tell` hears of each number at once."""
    part = _Measured(run, nested(words))
    found: dict[str, Result] = {}
    vectors: dict[str, dict[int, float]] = {}
    for column in part.protocol.columns:
        try:
            result = part.worst(column, found, vectors) if column.worst_of else part.measure(column, vectors, quiet)
        except _Missing as reason:
            part.missing[column.name] = str(reason)
            continue
        found[column.name] = result
        if tell is not None:
            tell(_line(dataclasses.replace(result, extra={**result.extra, "column": column.name})))
    results = part.write(found, vectors)
    return ProtocolMeasurement(part.protocol, results, part.missing, tuple(part.evaluations.values()))


def plan_protocol(run: str | Path | None, words: dict[str, Any]) -> list[Any]:
    """What each evaluation of a protocol will cost, and a line for a column that cannot be measured."""
    part = _Measured(run, nested(words))
    plans: dict[str, Any] = {}
    for column in part.protocol.columns:
        if column.worst_of:
            continue
        try:
            target, config, _ = part.prepared(column)
        except _Missing as reason:
            plans[column.name] = f"plan: {column.name} is left out: {reason}"
            continue
        key = json.dumps([column.data, dataclasses.asdict(config)], default=str)
        if key not in plans:
            plans[key] = plan_evaluation(target.model, target.data, config=config, runtime=part.job.runtime)
    return list(plans.values())


class _Missing(Exception):
    """A column that cannot be measured, and why."""


class _Measured:
    """A protocol under way: what the user said, the models and data opened for it, and the evaluations made."""

    def __init__(self, run: str | Path | None, values: dict[str, Any]) -> None:
        name = values.pop("protocol", None)
        if not isinstance(name, str | Path):
            raise UserError("name a protocol: protocol=architectures/cifar (hardtack list protocols shows them)")
        self.protocol = read_protocol(name)
        self.folders = self._folders(values.pop("folders", {}))
        self.threat = values.pop("threat", None)
        if self.threat is not None and self.protocol.threat is None:
            raise UserError(f"protocol {self.protocol} has threats of its own; 'threat' cannot be chosen")
        for key in values:
            if key not in FREE_WORDS:
                raise UserError(self._not_free(key))
        self.frost = values.pop("frost", None)
        self.run = run
        self.values = {"n": self.protocol.n, **values} if self.protocol.n is not None else values
        self.job = read_job(self.run, {**self.values, "suite": "clean"})
        self.target = load_target(self.run, self.job)
        self.evaluations: dict[str, Evaluation] = {}
        self.missing: dict[str, str] = {}
        self._others: dict[str, Target] = {}
        for key in self._given:  # one that is not there is said before anything is measured
            self._place(key)

    def _not_free(self, key: str) -> str:
        if key in {item.name for item in dataclasses.fields(EvaluationConfig)}:
            return f"'{key}' is settled by protocol {self.protocol}; leave it out, or measure a suite of your own"
        known = [*FREE_WORDS, "folders", "threat"]
        return f"unknown key '{key}'{did_you_mean(key, known) or '; known keys: ' + ', '.join(known)}"

    def _folders(self, given: Any) -> dict[str, str]:
        if not isinstance(given, dict):
            raise UserError(f"say which folder is meant: folders.{next(iter(self.protocol.folders), 'NAME')}=PATH")
        for key in given:
            if key not in self.protocol.folders:
                known = ", ".join(self.protocol.folders) or "none"
                raise UserError(f"protocol {self.protocol} knows no folder '{key}'; it has {known}")
        self._given = set(given)
        return {**self.protocol.folders, **given}

    def _values(self, column: Column) -> dict[str, Any]:
        """What the user said, with the data of the column where it has its own."""
        if column.data is None:
            return self.values
        other = {"name": f"{column.data}:{self._place(column.data)}", "image_size": self.target.data.image_shape[-1]}
        return {key: value for key, value in self.values.items() if key != "split"} | {"data": other}

    def _place(self, key: str) -> Path | None:
        """Where a folder lies; None where it is not. One that the user named must be there."""
        data = self.job.data
        try:
            return find_path(self.folders[key], data.root if data is not None else None, kind=key)
        except UserError:
            if key in self._given:
                raise
            return None

    def _official(self, key: str) -> Path | None:
        """Official files for the data; some that merely lie about under the usual name must be of these images."""
        place = self._place(key)
        if place is None or key in self._given:
            return place
        try:
            files = open_official(place)
        except UserError:
            return None
        data = self.target.data
        if not isinstance(files, OfficialC):
            return place if KINDS[files.kind].side in (0, data.image_shape[-1]) else None
        labels = files.stored(files.types[0], 1).labels
        known = int(data.index.max()) < len(labels) and torch.equal(labels[data.index], data.labels)
        return place if known else None

    # ------------------------------------------------------------ one column

    def prepared(self, column: Column) -> tuple[Target, EvaluationConfig, dict[str, Any]]:
        """The model and data of a column, its evaluation, and the words that ask for it again."""
        if column.worst_of:
            raise _Missing("not an evaluation of its own")
        settings = dict(column.settings)
        if settings["suite"] in ATTACKED and "threat" not in settings:
            settings["threat"] = self.threat or self.protocol.threat
        if settings["suite"] == "corruptions" and self.frost is not None:
            settings["frost"] = self.frost
        if column.official is not None and (place := self._official(column.official)) is not None:
            settings = {key: value for key, value in settings.items() if key not in ("frost", "constants")}
            settings["files"] = str(place)
        how = {key: value for key, value in self.values.items() if key not in _WHAT}
        config = build(EvaluationConfig, {**how, **settings}, path=f"columns.{column.name}")
        return self._target(column), config, {**self._values(column), **settings}

    def _target(self, column: Column) -> Target:
        if column.data is None:
            return self.target
        if column.data not in self._others:
            if self._place(column.data) is None:
                wanted = self.folders[column.data]
                raise _Missing(f"there is no folder {wanted}; say where it is with folders.{column.data}=PATH")
            job = read_job(self.run, {**self._values(column), "suite": "clean"})
            self._others[column.data] = load_target(self.run, job)
        return self._others[column.data]

    def measure(self, column: Column, vectors: dict[str, dict[int, float]], quiet: bool) -> Result:
        target, config, values = self.prepared(column)
        found = evaluate_target(target, config, self.job.runtime, values, quiet=quiet)
        self.evaluations[found.id] = found
        for result in found.results:
            if result.metric == column.metric and (result.attack or "").startswith(column.of):
                vector = per_image(result, found.verdicts)
                if vector is not None and column.data is None:
                    vectors[column.name] = dict(zip(found.verdicts["index"].tolist(), vector.tolist(), strict=True))
                return result
        raise _Missing(f"{found.id} has no {column.metric}" + (f" of {column.of}" if column.of else ""))

    def worst(self, column: Column, found: dict[str, Result], vectors: dict[str, dict[int, float]]) -> Result:
        lacking = [name for name in column.worst_of if name not in vectors]
        if lacking:
            raise _Missing(f"needs {', '.join(lacking)}")
        images = sorted(vectors[column.worst_of[0]])
        standing = np.array([all(vectors[name][image] > 0.5 for name in column.worst_of) for image in images])
        vectors[column.name] = dict(zip(images, standing.astype(float).tolist(), strict=True))
        parts = [found[name] for name in column.worst_of]
        flags = {json.dumps(flag, sort_keys=True): flag for part in parts for flag in part.flags}
        common = _shared(parts[-1]) | {
            "threat": "+".join(dict.fromkeys(part.threat or "" for part in parts)),
            "attack": " + ".join(column.worst_of), "attack_settings": {}, "seconds": None,
        }  # fmt: skip
        return accuracy("worst_case_accuracy", standing, standing, (), list(flags.values()), common)

    # ------------------------------------------------------------ the row

    def write(self, found: dict[str, Result], vectors: dict[str, dict[int, float]]) -> tuple[Result, ...]:
        facts = [str(self.protocol), sorted(self.evaluations), list(found)]
        id = f"protocol-{hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:12]}"
        row = []
        for place, column in enumerate(self.protocol.columns):
            if (result := found.get(column.name)) is None:
                continue
            extra = {key: value for key, value in result.extra.items() if key in ("source", "parameters", "limits")}
            extra |= {"column": column.name, "place": place, "measured_by": result.evaluation}
            verdicts = f"verdicts/{id}.parquet" if column.name in vectors else None
            row.append(
                dataclasses.replace(
                    result, suite="protocol", protocol=str(self.protocol), evaluation=id, extra=extra, verdicts=verdicts
                )
            )
        if self.job.runtime.is_main and row:
            folder = self.target.folder
            if columns := dict(_columns(vectors)):
                write_verdicts(folder / "verdicts" / f"{id}.parquet", columns)
            append_results(folder, row)
        return tuple(row)


def _columns(vectors: dict[str, dict[int, float]]) -> Iterator[tuple[str, np.ndarray]]:
    """Vectors over the same images, one column each: `value@PGD-linf`."""
    first = next(iter(vectors.values()), {})
    images = sorted(first)
    if images:
        yield "index", np.array(images)
    for name, values in vectors.items():
        if set(values) == set(images):
            yield f"value@{name}", np.array([values[image] for image in images])


def _shared(result: Result) -> dict[str, Any]:
    own = {"metric", "value", "low", "high", "n", "flags", "interval"}
    return {item.name: getattr(result, item.name) for item in dataclasses.fields(result) if item.name not in own}
