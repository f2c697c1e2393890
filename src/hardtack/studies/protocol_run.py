"""Measuring a protocol: one evaluation after the other, then a row of results that carry the protocol's name.

Each evaluation is an ordinary one: it is kept in the run folder, resumed after an interruption, shared among the
processes of torchrun, and not repeated if it was measured before. The row is written beside the evaluations, with one
value per image for every column whose images are those of the run.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hardtack.base.config import build, nested
from hardtack.base.errors import UserError, did_you_mean
from hardtack.base.instruments import Instruments
from hardtack.data.folder import find_test_list
from hardtack.data.official import OfficialC, open_official
from hardtack.data.official.kinds import KINDS
from hardtack.data.original import first_shape
from hardtack.data.paths import find_path
from hardtack.engine import Executor
from hardtack.evaluation.crop import is_cropped
from hardtack.evaluation.evaluation import Evaluation
from hardtack.evaluation.job import evaluate_target
from hardtack.evaluation.plan import plan_evaluation
from hardtack.evaluation.scores import accuracy
from hardtack.evaluation.settings import EvaluationConfig, suite_class
from hardtack.evaluation.target import Target, TargetConfig, complete, load_target
from hardtack.results import Result, append_results, per_image, write_verdicts
from hardtack.results.protocol_rows import protocol_id
from hardtack.studies.protocol import Column, Protocol, read_protocol

# settings that the user may choose; all others are fixed by the protocol
_WHAT = ("model", "data", "n", "split", "checkpoint", "output", "runtime", "frost")
FREE_WORDS = (*_WHAT, "batch_size", "chunk_size", "keep", "examples")
Tell = Callable[[str], None]


@dataclass(frozen=True)
class ProtocolMeasurement:
    """The results of a protocol. `missing`: columns that could not be measured, with the reason."""

    protocol: Protocol
    results: tuple[Result, ...]
    missing: dict[str, str]
    evaluations: tuple[Evaluation, ...]

    def value(self, column: str) -> float:
        """The number of a column."""
        for result in self.results:
            if result.extra["column"] == column:
                return result.value
        names = [result.extra["column"] for result in self.results]
        raise UserError(self.missing.get(column) or f"there is no column '{column}'{did_you_mean(column, names)}")

    def __str__(self) -> str:
        lines = [_line(result) for result in self.results]
        lines += [f"{name:<24} not measured: {why}" for name, why in self.missing.items()]
        spent = {measured.id: measured.results[-1] for measured in self.evaluations}.values()
        passes = [sum(result.extra.get(kind, 0) for result in spent) for kind in ("forwards", "backwards")]
        seconds = sum(result.seconds or 0.0 for result in spent)
        total = f"{passes[0]:,} forwards, {passes[1]:,} backwards, {seconds:,.1f} s"
        return "\n".join([f"{self.protocol}: {self.protocol.paper}", *lines, total, *_flag_lines(self.results)])


def _line(result: Result) -> str:
    interval = "" if result.low is None or result.high is None else f"  [{result.low:.2%}, {result.high:.2%}]"
    about = "  ".join(str(part) for part in (result.threat, result.extra.get("source")) if part)
    return f"{result.extra['column']:<24} {result.value:7.2%}{interval}  n={result.n}" + (f"  {about}" * bool(about))


def _flag_lines(results: tuple[Result, ...]) -> list[str]:
    lines = [
        f"{flag['level'].upper()} FLAG {flag['code']}: {flag['message']}" for result in results for flag in result.flags
    ]
    return list(dict.fromkeys(lines))


def measure_protocol(
    run: str | Path | None = None,
    /,
    *,
    quiet: bool = False,
    tell: Tell | None = None,
    executor: Executor | None = None,
    **words: Any,
) -> ProtocolMeasurement:
    """`measure_protocol("runs/x", protocol="architectures/cifar", n=1000)`; `tell` is called with each number."""
    job = ProtocolJob(run, nested(words))
    job.executor = executor
    results: dict[str, Result] = {}
    vectors: dict[str, dict[int, float]] = {}
    for column in job.protocol.columns:
        try:
            result = job.worst(column, results, vectors) if column.worst_of else job.measure(column, vectors, quiet)
        except MissingColumn as reason:
            job.missing[column.name] = str(reason)
            continue
        results[column.name] = result
        if tell is not None:
            tell(_line(dataclasses.replace(result, extra={**result.extra, "column": column.name})))
    row = job.write(results, vectors)
    return ProtocolMeasurement(job.protocol, row, job.missing, tuple(job.evaluations.values()))


def plan_protocol(run: str | Path | None, words: dict[str, Any], instruments: Instruments | None = None) -> list[Any]:
    """What each evaluation of a protocol will cost, and a line for a column that cannot be measured."""
    job = ProtocolJob(run, nested(words))
    plans: dict[str, Any] = {}
    for column in job.protocol.columns:
        if column.worst_of:
            continue
        try:
            target, config, _ = job.prepared(column)
        except MissingColumn as reason:
            plans[column.name] = f"plan: column {column.name} cannot be measured: {reason}"
            continue
        key = json.dumps([column.data, dataclasses.asdict(config)], default=str)
        if key not in plans:
            plans[key] = plan_evaluation(
                target.model, target.data, config=config, runtime=job.target_config.runtime, instruments=instruments,
                first=not plans,
            )  # fmt: skip
    return list(plans.values())


class MissingColumn(Exception):
    """The reason why a column cannot be measured."""


class ProtocolJob:
    """A protocol that is being measured: the user's settings, the targets loaded so far, and the evaluations."""

    executor: Executor | None = None  # where evaluations compute their pieces

    def __init__(self, run: str | Path | None, values: dict[str, Any]) -> None:
        name = values.pop("protocol", None)
        if not isinstance(name, str | Path | Protocol):
            raise UserError("name a protocol: protocol=architectures/cifar (hardtack list protocols shows all)")
        self.protocol = name if isinstance(name, Protocol) else read_protocol(name)
        self.folders = self._folders(values.pop("folders", {}))
        self.threat = values.pop("threat", None)
        if self.threat is not None and self.protocol.threat is None:
            raise UserError(f"protocol {self.protocol} fixes its threats; leave 'threat' out")
        for key in values:
            if key not in FREE_WORDS:
                raise UserError(self._not_free(key))
        self.frost = values.pop("frost", None)
        self.run = run
        self.values = {"n": self.protocol.n, **values} if self.protocol.n is not None else values
        self.target_config, self.target = self._load(self.values)
        self.evaluations: dict[str, Evaluation] = {}
        self.missing: dict[str, str] = {}
        self._others: dict[str, Target] = {}
        self._lists: dict[str, Path | None] = {}
        for key in self._given:  # a missing folder is reported before anything is measured
            self._place(key)

    def _load(self, values: dict[str, Any]) -> tuple[TargetConfig, Target]:
        known = {item.name for item in dataclasses.fields(TargetConfig)}
        settings = {key: value for key, value in values.items() if key in known}
        config: TargetConfig = build(TargetConfig, complete(self.run, settings))
        return config, load_target(self.run, config)

    def _not_free(self, key: str) -> str:
        if key in {item.name for item in dataclasses.fields(EvaluationConfig)}:
            return f"protocol {self.protocol} fixes '{key}'; leave it out, or use suite=… instead of protocol=…"
        known = [*FREE_WORDS, "folders", "threat"]
        return f"unknown key '{key}'{did_you_mean(key, known) or '; known keys: ' + ', '.join(known)}"

    def _folders(self, given: Any) -> dict[str, str]:
        if not isinstance(given, dict):
            raise UserError(f"name the folder by its key: folders.{next(iter(self.protocol.folders), 'NAME')}=PATH")
        for key in given:
            if key not in self.protocol.folders:
                known = ", ".join(self.protocol.folders) or "none"
                raise UserError(f"protocol {self.protocol} has no folder '{key}'; its folders: {known}")
        self._given = set(given)
        return {**self.protocol.folders, **given}

    def _values(self, column: Column) -> dict[str, Any]:
        """The user's settings, with the data of the column if it has its own, or with its list of images."""
        if column.data is None:
            place = self._list(column)
            return self.values if place is None else _with_list(self.values, place)
        clean = self.target.data
        other = {"name": f"{column.data}:{self._place(column.data)}", "image_size": clean.image_shape[-1]}
        if clean.original is not None and not is_cropped(column.data):
            other["crop"] = clean.original.crop  # all photographs of a row are cropped alike
        return {key: value for key, value in self.values.items() if key != "split"} | {"data": other}

    def _place(self, key: str) -> Path | None:
        """The path of a folder; None if it does not exist. A folder that the user named must exist."""
        data = self.target_config.data
        try:
            return find_path(self.folders[key], data.root if data is not None else None, kind=key)
        except UserError:
            if key in self._given:
                raise
            return None

    def _list(self, column: Column) -> Path | None:
        """The list of a column's images: as the user named it, or under its usual name if all of its files are here."""
        if (key := column.test_list) is None or self.target_config.split != "test":
            return None
        if key not in self._lists:
            self._lists[key] = find_test_list(self.target_config.data, self.folders[key], given=key in self._given)
        return self._lists[key]

    def _official(self, key: str) -> Path | None:
        """Official files for the data; files under the usual name are used only if their labels match."""
        place = self._place(key)
        if place is None or key in self._given:
            return place
        try:
            files = open_official(place)
        except UserError:
            return None
        data = self.target.data
        if not isinstance(files, OfficialC):
            sides = {0, data.image_shape[-1], *(first_shape(data.original.images) if data.original else ())}
            return place if KINDS[files.kind].side in sides else None
        labels = files.stored(files.types[0], 1).labels
        same = int(data.index.max()) < len(labels) and torch.equal(labels[data.index], data.labels)
        return place if same else None

    # ------------------------------------------------------------ one column

    def prepared(self, column: Column) -> tuple[Target, EvaluationConfig, dict[str, Any]]:
        """The target of a column, its evaluation, and the settings that would repeat it."""
        if column.worst_of:
            raise MissingColumn("it is computed from other columns")
        settings = dict(column.settings)
        if suite_class(settings["suite"]).attacks and "threat" not in settings:
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
            if (place := self._list(column)) is None:
                return self.target
            if str(place) not in self._others:
                self._others[str(place)] = self._load(self._values(column))[1]
            return self._others[str(place)]
        if column.data not in self._others:
            if self._place(column.data) is None:
                wanted = self.folders[column.data]
                raise MissingColumn(f"there is no folder {wanted}; give its path as folders.{column.data}=PATH")
            self._others[column.data] = self._load(self._values(column))[1]
        return self._others[column.data]

    def measure(self, column: Column, vectors: dict[str, dict[int, float]], quiet: bool) -> Result:
        target, config, values = self.prepared(column)
        measured = evaluate_target(
            target, config, self.target_config.runtime, values, quiet=quiet, executor=self.executor
        )
        self.evaluations[measured.id] = measured
        for result in measured.results:
            if result.metric == column.metric and (result.attack or "").startswith(column.of):
                vector = per_image(result, measured.verdicts)
                if vector is not None and column.data is None:
                    index = measured.verdicts["index"].tolist()
                    vectors[column.name] = dict(zip(index, vector.tolist(), strict=True))
                return result
        raise MissingColumn(
            f"evaluation {measured.id} has no {column.metric}" + (f" of {column.of}" if column.of else "")
        )

    def worst(self, column: Column, results: dict[str, Result], vectors: dict[str, dict[int, float]]) -> Result:
        """The share of images that are correct in all columns of `worst_of`."""
        lacking = [name for name in column.worst_of if name not in vectors]
        if lacking:
            raise MissingColumn(f"it needs the columns {', '.join(lacking)}")
        images = sorted(vectors[column.worst_of[0]])
        correct = np.array([all(vectors[name][image] > 0.5 for name in column.worst_of) for image in images])
        vectors[column.name] = dict(zip(images, correct.astype(float).tolist(), strict=True))
        parts = [results[name] for name in column.worst_of]
        flags = {json.dumps(flag, sort_keys=True): flag for part in parts for flag in part.flags}
        common = _shared(parts[-1]) | {
            "threat": "+".join(dict.fromkeys(part.threat or "" for part in parts)),
            "attack": " + ".join(column.worst_of), "attack_settings": {}, "seconds": None,
        }  # fmt: skip
        return accuracy("worst_case_accuracy", correct, correct, (), list(flags.values()), common)

    # ------------------------------------------------------------ the row

    def write(self, results: dict[str, Result], vectors: dict[str, dict[int, float]]) -> tuple[Result, ...]:
        id = protocol_id(str(self.protocol), sorted(self.evaluations), list(results))
        row = []
        for place, column in enumerate(self.protocol.columns):
            if (result := results.get(column.name)) is None:
                continue
            extra = {key: value for key, value in result.extra.items() if key in ("source", "parameters", "limits")}
            extra |= {"column": column.name, "place": place, "measured_by": result.evaluation}
            verdicts = f"verdicts/{id}.parquet" if column.name in vectors else None
            row.append(
                dataclasses.replace(
                    result, suite="protocol", protocol=str(self.protocol), evaluation=id, extra=extra, verdicts=verdicts
                )
            )
        if self.target_config.runtime.is_main and row:
            folder = self.target.folder
            if columns := dict(_columns(vectors)):
                write_verdicts(folder / "verdicts" / f"{id}.parquet", columns)
            append_results(folder, row)
        return tuple(row)


def _with_list(values: dict[str, Any], place: Path) -> dict[str, Any]:
    data = values.get("data", {})
    return {**values, "data": {**({"name": data} if isinstance(data, str) else data), "test_list": str(place)}}


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
