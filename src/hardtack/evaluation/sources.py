"""The sources of an evaluation: the files and folders that decide its id, named before any of them is opened.

They are known where the weights come from a file and a reader says which files it reads. They are not known where the
user's code makes the model, where weights are downloaded or drawn at random, and where a setting names a further file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hardtack.base.config import flat
from hardtack.base.trust import PATH_KEYS, is_plain_setting
from hardtack.data.files_read import files_read
from hardtack.evaluation.job import read_job
from hardtack.evaluation.target import TargetConfig, results_folder, run_folder
from hardtack.models.files import searched_weights, side_file
from hardtack.models.from_file import place_of

# settings that may name a file: those whose files are among the sources, and those that name none that is read
_KNOWN = ("model", "model.name", "model.weights", "data", "data.name", "data.root", "data.test_list", "output")


@dataclass(frozen=True, kw_only=True)
class Sources:
    """`files` and folders, present or not; `folder` receives the results."""

    files: tuple[Path, ...]
    folder: Path


def evaluation_sources(run: str | Path | None, values: Mapping[str, Any]) -> Sources | None:
    """The sources of `evaluate` with these settings; None if they are not all known."""
    job = read_job(run, values)
    weights, images = _weights(run, job), files_read(job.data) if job.data is not None else None
    if weights is None or images is None or not all(_is_plain(key, value) for key, value in _texts(values)):
        return None
    config = [run_folder(run) / "config.yaml"] if run is not None else []
    return Sources(files=(*config, *weights, *images), folder=results_folder(run, job))


def _weights(run: str | Path | None, config: TargetConfig) -> list[Path] | None:
    """Where the weights are looked for, and the checksums beside them."""
    if run is not None:
        place: str | Path | None = run_folder(run)
    else:
        named = config.model
        own = named is None or named.pretrained or place_of(named.name) is not None
        place = None if named is None or own else named.weights
    if place is None:
        return None
    files = searched_weights(place, checkpoint=config.checkpoint if run is not None else "best")
    return [path for file in files for path in (file, side_file(file))]


def _texts(values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The texts among settings, those inside lists too, with their keys."""
    for key, value in flat(values).items():
        for item in value if isinstance(value, list | tuple) else [value]:
            if isinstance(item, Mapping):
                yield from ((f"{key}.{inner}", text) for inner, text in _texts(item))
            elif isinstance(item, str):
                yield key, item
            elif isinstance(item, list | tuple):
                yield from _texts({key: item})


def _is_plain(key: str, text: str) -> bool:
    return key in _KNOWN or (key.rpartition(".")[2] not in PATH_KEYS and is_plain_setting(key, text))
