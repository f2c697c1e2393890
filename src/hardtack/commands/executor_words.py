"""`--on`: where a command computes its pieces, and the words that belong to it."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hardtack.base.errors import UserError, did_you_mean
from hardtack.base.registry import executors
from hardtack.commands.words import typed

if TYPE_CHECKING:
    from hardtack.engine import Executor

On = Annotated[
    str | None,
    typer.Option("--on", metavar="here|torchrun|ray[:ADDRESS]|slurm", help="where to compute (docs/more_gpus.md)"),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="with --on slurm: print the scripts, submit nothing")]
TASK = "HARDTACK_TASK"
SHARED = ("workers", "per_gpu")
CHOICES = ("here", "torchrun", "ray", "slurm")
INTERNAL = ("task", "together")  # executors that nobody names


def take_executor(
    on: str | None, values: Mapping[str, Any], *, dry_run: bool = False
) -> tuple[Executor | None, dict[str, Any]]:
    """The executor that the words name (None: the usual one), and the words that are left.

    `workers=` and `per_gpu=` belong to every executor, `ray.KEY=` and `slurm.KEY=` to one.
    """
    from hardtack.base.config import build
    from hardtack.base.runtime import Runtime
    from hardtack.engine.executors import make_executor
    from hardtack.models.user_code import travelling_code

    if TASK in os.environ:
        return _task_part(values)
    place, left = read_place(on, values)
    if dry_run and place.name != "slurm":
        raise UserError("--dry-run prints the scripts of --on slurm")
    if on is None and not place.settings:
        return None, left
    runtime: Runtime = build(Runtime, left.get("runtime") or {}, path="runtime")
    executor = make_executor(place.name, {**place.settings, **({"dry_run": True} if dry_run else {})}, runtime)
    executor.steps = travelling_code
    if place.name == "slurm":
        executor.command = command_elsewhere(typed)  # type: ignore[attr-defined]
    return executor, left


@dataclass(frozen=True)
class Place:
    """What `--on` and its words name: an executor and its settings."""

    name: str
    settings: Mapping[str, Any]


def read_place(on: str | None, values: Mapping[str, Any]) -> tuple[Place, dict[str, Any]]:
    """Where the words say that a command runs, and the words that are left."""
    left = dict(values)
    settings = {key: left.pop(key) for key in SHARED if key in left}
    sections = {name: left.pop(name) for name in CHOICES if isinstance(left.get(name), Mapping)}
    name, colon, address = (on or "here").partition(":")
    if name in INTERNAL or (name not in CHOICES and name not in executors):
        hint = did_you_mean(name, CHOICES)
        raise UserError(f"--on {on}: there is no executor '{name}'{hint}; known: {', '.join(CHOICES)}")
    for key in left:
        if near := difflib.get_close_matches(key, (*SHARED, *CHOICES), n=1, cutoff=0.8):
            raise UserError(f"unknown key '{key}' (did you mean '{near[0]}'?)")
    if twice := settings.keys() & sections.get(name, {}).keys():
        raise UserError(f"'{min(twice)}' and '{name}.{min(twice)}' are the same setting; give one of them")
    others = [section for section in sections if section != name]
    if others:
        raise UserError(f"'{others[0]}.…' is a setting of --on {others[0]}; this command runs on {name}")
    if colon and (name != "ray" or not address):
        raise UserError(f"--on {on}: only ray takes an address, as in --on ray:HOST:PORT")
    if (on is not None or settings) and name != "torchrun" and int(os.environ.get("WORLD_SIZE", 1)) > 1:
        raise UserError(f"--on {name} starts processes itself; leave torchrun out, or leave --on out")
    return Place(name, {**settings, **sections.get(name, {}), **({"address": address} if colon else {})}), left


def is_of_place(word: str) -> bool:
    """Whether a word says where a command runs, as `workers=4` and `slurm.hours=2` do."""
    return word.startswith((*(f"{key}=" for key in SHARED), *(f"{name}." for name in CHOICES)))


def command_elsewhere(words: Sequence[str]) -> tuple[str, ...]:
    """The words of this command that other processes repeat: all but those that say where it runs."""
    kept: list[str] = []
    skip = False
    for word in words:
        if skip or word == "--on":
            skip = not skip
        elif not word.startswith("--on=") and word != "--dry-run" and not is_of_place(word):
            kept.append(word)
    return tuple(kept)


def _task_part(values: Mapping[str, Any]) -> tuple[Executor, dict[str, Any]]:
    """The executor of a task of a job array."""
    from hardtack.base.config import build
    from hardtack.base.runtime import Runtime
    from hardtack.engine.executors.task import TaskPart
    from hardtack.models.user_code import travelling_code

    runtime: Runtime = build(Runtime, values.get("runtime") or {}, path="runtime")
    executor = TaskPart(runtime)
    executor.steps = travelling_code
    return executor, dict(values)
