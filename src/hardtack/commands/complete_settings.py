"""Settings and their values for completion: `attack.st` → `attack.steps=`, `suite=` → the suites."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from hardtack.base import registry
from hardtack.base.layers import read_yaml
from hardtack.commands.settings_table import (
    KINDS,
    SECTION,
    Section,
    SettingRow,
    find_sections,
    section_rows,
    words_rows,
)

Pair = tuple[str, str]
FILES: list[Pair] = [("", "files")]
THREATS = ("linf:8/255", "linf:4/255", "linf:0.1", "l2:0.5", "l2:128/255", "l1:12")
PLACES = {"workers": "processes that share the work", "ray": "of --on ray", "slurm": "of --on slurm"}
PATHS = ("root", "output", "weights", "files", "frost", "test_list", "core", "source", "bpda", "transfer")


def settings_below(verb: str, word: str, before: Sequence[str]) -> Iterator[Pair]:
    """The settings that begin with the word, down to the next dot: `data.` stands for all of a section."""
    rows = [*_rows(verb, word.rpartition(".")[0], before)]
    given = {item.partition("=")[0] for item in before}
    shown: dict[str, str] = {}
    for row in rows:
        if row.name.startswith("--") or not row.name.startswith(word) or (row.name in given and row.type != SECTION):
            continue
        rest = row.name[len(word) :]
        inner = rest.partition(".")[0]
        if "." in rest or row.type == SECTION:
            shown.setdefault(f"{word}{inner}.", row.sentence)
        else:
            shown.setdefault(f"{row.name}=", row.sentence)
    if "." not in word:
        for name in ("attack", "objective"):
            if f"{name}=" in shown:
                shown[f"{name}."] = f"settings of the {name}"
        names = {row.name for row in rows}
        for name in ("model", "data", "optimiser", "schedule", "sharpness"):  # the short form of the section
            if f"{name}." in shown and name not in given:
                shown[f"{name}="] = shown[f"{name}."]
        if "--on" in names:
            shown |= {f"{name}{'=' if name == 'workers' else '.'}": about for name, about in PLACES.items()
                      if name.startswith(word)}  # fmt: skip
        for item in before if verb == "analyze" else ():
            if item in registry.analyses and item.startswith(word):
                shown[f"{item}."] = f"settings of {item}"
    yield from shown.items()


def values_of(verb: str, key: str, before: Sequence[str]) -> list[Pair]:
    """The values that a setting can have, where they are known; FILES where it is a path."""
    rows = [row for row in _rows(verb, key.rpartition(".")[0], before) if row.name == key]
    row = rows[0] if rows else None
    leaf = key.rpartition(".")[2]
    names = _names_for(key, leaf, row)
    if names is not None:
        return names()
    if row is None:
        return []
    if leaf in PATHS:
        return FILES
    if row.type == SECTION:  # the short form is the name of the section
        inner = [item for item in _rows(verb, key, before) if item.name == f"{key}.name"]
        return _words_of(inner[0]) if inner else []
    words = _words_of(row)
    return words or ([(row.default, "the default")] if row.default not in ("", "null", "required", "[]", "{}") else [])


def _words_of(row: SettingRow) -> list[Pair]:
    kind = row.type.removesuffix(" or null")
    values: list[str] = []
    if kind == "true or false":
        values = ["true", "false"]
    elif kind in ("word", "list of words", "text", "whole number") and not row.allowed.startswith(("≥", ">", "[", "(")):
        values = [item for item in row.allowed.split(", ") if item and " " not in item]
    values += ["null"] if values and row.type.endswith(" or null") else []
    return [(value, "the default" if value == row.default else "") for value in values]


def _names_for(key: str, leaf: str, row: SettingRow | None) -> Callable[[], list[Pair]] | None:
    """What lists the names that a setting is chosen from."""
    from hardtack.commands import things

    def of_kind(noun: str) -> Callable[[], list[Pair]]:
        return lambda: [(thing.name, thing.help) for thing in things.kinds()[noun].list()]

    section = key.rpartition(".")[0]
    by_key = {
        "protocol": "protocol", "study": "study", "metric": "metric", "evaluators": "evaluator",
        "mechanisms": "mechanism", "model": "model", "model.name": "model", "data": "dataset", "data.name": "dataset",
        "surrogate": "model", "recipe": "recipe", "train.track": "tracker",
    }  # fmt: skip
    if key in by_key:
        return of_kind(by_key[key])
    if leaf in ("threat", "union"):
        return lambda: [(threat, "") for threat in THREATS]
    if leaf == "checkpoint":
        return lambda: [("best", ""), ("last", "")]
    if leaf == "device":
        return lambda: [(name, "") for name in ("auto", "cpu", "cuda", "cuda:0", "mps")]
    if leaf == "name" and section.rpartition(".")[2] in ("attack", "objective"):
        return of_kind(section.rpartition(".")[2])
    listed = row.allowed.partition("hardtack list ")[2].split(" ")[0].split(",")[0] if row is not None else ""
    nouns = {"attacks": "attack", "suites": "suite", "objectives": "objective", "losses": "loss", "models": "model",
             "datasets": "dataset", "corruptions": "corruption"}  # fmt: skip
    return of_kind(nouns[listed]) if listed in nouns else None


# ---------------------------------------------------------------- the rows in question


def _rows(verb: str, section: str, before: Sequence[str]) -> Iterable[SettingRow]:
    """The settings of a verb, or of one section of it: only what is asked for is read."""
    first = section.partition(".")[0]
    if not first:
        return words_rows(verb)
    if first in KINDS:  # attack.… and objective.… of the one that is chosen
        rows = section_rows(Section(first, _chosen(first, before)))
        if section.startswith("objective.attack"):
            attack = section_rows(Section("attack", _chosen("objective.attack", before)))
            rows += [_moved(row, "objective.") for row in attack]
        return rows + (section_rows(Section("gradients", "gradients")) if first == "attack" else [])
    if section.startswith("model.options"):
        return section_rows(Section("model", _chosen("model", before)))
    found = [item for item in find_sections(first) if item.kind in ("recipe", "analysis", "executor", "suite")]
    rows = [row for item in found for row in section_rows(item) if row.name.startswith(f"{first}.")]
    return rows or [row for row in words_rows(verb) if row.name.startswith(f"{first}.")]


def _moved(row: SettingRow, lead: str) -> SettingRow:
    return SettingRow(row.section, lead + row.name, row.type, row.default, row.allowed, row.sentence)


def _chosen(key: str, before: Sequence[str]) -> str:
    """The name that a section was given on this line, or in the recipe that it names."""
    for word in reversed(before):
        name, _, value = word.partition("=")
        if name in (key, f"{key}.name"):
            return value
    usual = {"attack": "pgd", "objective.attack": "pgd", "objective": "trades", "model": "vit_tiny_patch4_32"}[key]
    from hardtack.commands.recipe_files import list_recipes, recipe_folder

    first = next((word for word in before if "=" not in word), "").removeprefix("recipes/").removesuffix(".yaml")
    found: Any = read_yaml(recipe_folder() / f"{first}.yaml") if first in list_recipes() else {}
    for part in key.split("."):
        found = found.get(part) if isinstance(found, dict) else None
    found = found.get("name") if isinstance(found, dict) else found
    return found if isinstance(found, str) else usual
