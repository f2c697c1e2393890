"""The columns of the tables `runs`, `settings` and `problems`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from hardtack.base.layers import flat
from hardtack.results.query.columns import BOOL, NUMBER, TEXT, TIME, WHOLE, Column, Json, to_json
from hardtack.results.query.folders import Folder
from hardtack.results.record import Result


def _setting(*paths: str) -> Callable[[Folder], Any]:
    """The first of these settings that a run's configuration has."""

    def read(folder: Folder) -> Any:
        for path in paths:
            value: Any = folder.config
            for key in path.split("."):
                value = value.get(key) if isinstance(value, Mapping) else None
            if value is not None and not isinstance(value, Mapping | list):
                return value
        return None

    return read


def _of_results(read: Callable[[Result], Any]) -> Callable[[Folder], Any]:
    """The first value that results of the run have."""
    return lambda folder: next((value for result in folder.results if (value := read(result)) not in (None, "")), None)


def _either(*reads: Callable[[Folder], Any]) -> Callable[[Folder], Any]:
    return lambda folder: next((value for read in reads if (value := read(folder)) not in (None, "")), None)


def _is_trained(folder: Folder) -> bool:
    return folder.is_closed and (folder.path / "metrics.jsonl").is_file()


def _newest(folder: Folder) -> str | None:
    return max((result.created for result in folder.results), default=None)


RUNS = [
    Column("run", TEXT, "the name of the folder, with as much of its path as makes it unique", lambda f: f.label),
    Column("path", TEXT, "where the folder is", lambda f: f.path),
    Column("model", TEXT, "the architecture", _either(_setting("model.name", "model"), _of_results(lambda r: r.model))),
    Column("parameters", WHOLE, "its number of parameters", _of_results(lambda r: r.extra.get("parameters"))),
    Column("objective", TEXT, "what training minimised", _setting("objective.name", "objective")),
    Column("threat", TEXT, "the threat of the attack in training", _setting("objective.attack.threat")),
    Column("data", TEXT, "the training data", _setting("data.name", "data")),
    Column("epochs", NUMBER, "epochs of training, as configured", _setting("train.epochs")),
    Column("seed", WHOLE, "the seed of training", _setting("runtime.seed")),
    Column("trained", BOOL, "whether it was trained here", _is_trained),
    Column("evaluations", WHOLE, "how many evaluations and analyses it has", lambda f: len(f.groups)),
    Column("results", WHOLE, "how many numbers it has", lambda f: len(f.results)),
    Column("created", TIME, "when its newest number was measured (UTC)", _newest),
    Column("config", Json, "all settings: config->>'$.optimiser.lr'", lambda f: f.config or None),
]  # fmt: skip


def _as_text(folder: Folder, key: str, value: Any) -> str | None:
    return value if isinstance(value, str) else to_json(value)


def _as_number(folder: Folder, key: str, value: Any) -> Any:
    return None if isinstance(value, bool) else value


SETTINGS = [
    Column("run", TEXT, "the run", lambda f, key, value: f.label),
    Column("setting", TEXT, "the name of a setting, as it is typed: optimiser.lr", lambda f, key, value: key),
    Column("value", TEXT, "its value as text", _as_text),
    Column("number", NUMBER, "its value where it is a number", _as_number),
]  # fmt: skip


def settings_rows(folders: list[Folder]) -> list[tuple[Any, ...]]:
    return [(folder, key, value) for folder in folders for key, value in flat(folder.config).items()]


PROBLEMS = [
    Column("run", TEXT, "the run", lambda f, text: f.label),
    Column("problem", TEXT, "what was left out of this query, and why", lambda f, text: text),
]
