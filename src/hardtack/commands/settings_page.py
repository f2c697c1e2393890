"""The tables of docs/settings.md, from the rows that `hardtack list settings` shows.

    python -m hardtack.commands.settings_page

What stands above the marker in that file is written by hand and stays. A test fails where the tables are not current.
Sections that differ in their defaults alone (`pgd` and `fgsm`) share a table; the defaults of the others stand below.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path

from hardtack.base.files import write_text
from hardtack.commands.settings_table import Section, SettingRow, all_sections, section_rows

PAGE = Path(__file__).resolve().parents[3] / "docs" / "settings.md"
MARKER = "<!-- Below: written by python -m hardtack.commands.settings_page. -->"
# kinds of sections, with their headings
PARTS = {
    "recipe": ("Recipes", "Typed in a recipe, or as `train.epochs=5`."),
    "objective": ("Objectives", "Typed as `objective=trades objective.beta=3`."),
    "attack": ("Attacks", "Typed as `attack=pgd attack.steps=50`, in a recipe under `objective.attack`."),
    "gradients": ("Gradients of attacks", "Of every attack by gradients, beside its own settings."),
    "suite": ("Suites", "Typed as `suite=autoattack tier=fast`."),
    "analysis": ("Analyses", "Typed as `hardtack analyze RUN sparsity sparsity.threshold=0.01`."),
    "executor": ("Executors", "Typed with `--on`, as in `--on slurm slurm.hours=4`."),
    "verb": ("Commands", "The sections `data`, `model` and `runtime` are those of recipes."),
}
HEADER = ("setting", "default", "values", "what it does")
BASE = Section("verb", "evaluate")
MANY = 10  # settings that a command shares with `evaluate`, from which on they are not written again
Table = tuple[list[str], list[SettingRow], list[str]]


def page(text: str) -> str:
    """The page with current tables; `text` is what it is now."""
    head = text.partition(MARKER)[0].rstrip()
    sections = all_sections()
    parts = [head, MARKER]
    for kind, (title, sentence) in PARTS.items():
        parts += [f"## {title}", sentence]
        for names, rows, notes in tables([section for section in sections if section.kind == kind]):
            rows, shared = _own(names[0], rows)
            parts += [f"### {', '.join(names)}", *([_table(rows)] if rows else []), *notes, *shared]
    return "\n\n".join(parts) + "\n"


def tables(sections: Sequence[Section]) -> Iterator[Table]:
    """The titles of the sections that share a table, its rows, and the defaults in which the others differ."""
    groups: dict[tuple[tuple[str, ...], ...], list[Section]] = {}
    for section in sections:
        rows = section_rows(section)
        groups.setdefault(tuple((row.name, row.type, row.allowed, row.sentence) for row in rows), []).append(section)
    for group in groups.values():
        members = sorted(group, key=lambda section: (len(section.name), section.name))
        first = section_rows(members[0])
        notes = [f"`{member.name}`: {said}." for member in members[1:] if (said := _differences(first, member))]
        yield [_title(member) for member in members], first, notes


def _own(title: str, rows: list[SettingRow]) -> tuple[list[SettingRow], list[str]]:
    """The settings of a command that are not those of `evaluate`, which several commands take, and a line about it."""
    if not title.startswith("hardtack ") or title == BASE.title:
        return rows, [] if rows else ["It has no settings."]
    shared = {dataclasses.replace(row, section=title) for row in section_rows(BASE)}
    own = [row for row in rows if row not in shared]
    if len(rows) - len(own) < MANY:
        return rows, [] if rows else ["It has no settings."]
    return own, [f"And the settings of [`{BASE.title}`](#hardtack-evaluate)."]


def _title(section: Section) -> str:
    """`hardtack evaluate`, `apgd`, `optimiser`."""
    return section.title if section.kind in ("verb", "gradients") else section.name


def _differences(first: Sequence[SettingRow], other: Section) -> str:
    changed = [row for row, usual in zip(section_rows(other), first, strict=True) if row.default != usual.default]
    return ", ".join(f"`{row.name}={row.default}`" for row in changed)


def _table(rows: Sequence[SettingRow]) -> str:
    from hardtack.commands.settings_text import values_text

    cells = [
        (f"`{row.name}`", f"`{row.default}`" if row.default else "", values_text(row), row.sentence) for row in rows
    ]
    lines = [HEADER, ("---",) * len(HEADER), *cells]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


if __name__ == "__main__":
    write_text(PAGE, page(PAGE.read_text(encoding="utf-8")))
