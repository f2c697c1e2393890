"""Settings on the terminal: `hardtack list settings`, and the settings that `hardtack describe` shows.

On a narrow terminal the sentence of a setting stands below it. In a pipe every setting is one line, so that grep finds
all of it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

from rich.markup import escape
from rich.padding import Padding
from rich.table import Column, Table

from hardtack.base.errors import UserError, did_you_mean
from hardtack.base.setting_rows import REQUIRED
from hardtack.commands.settings_table import (
    KINDS,
    Section,
    SettingRow,
    all_sections,
    find_sections,
    rows_named,
    section_rows,
)
from hardtack.commands.settings_table import settings_rows as all_setting_rows
from hardtack.commands.things import facts_of_models
from hardtack.commands.words import console

WIDE = 120  # columns from which the sentence has a column of its own
PLURALS = {"objectives": "objective", "attacks": "attack", "suites": "suite", "analyses": "analysis",
           "executors": "executor", "verbs": "verb", "recipes": "recipe"}  # fmt: skip
Block = tuple[str, Sequence[SettingRow]]


def chosen_settings(words: Sequence[str]) -> list[Block]:
    """Settings by section: of what the first word names, or all whose row contains it; more words narrow the choice.

    The first word is a verb, a section of a recipe, a registered thing (`trades`, `attack:pgd`), a kind (`attacks`),
    the name of a setting, or any word.
    """
    if not words:
        return _blocks(all_setting_rows())
    first, *rest = words
    sections = sections_named(first)
    rows = [row for section in sections for row in section_rows(section)]
    if not sections:
        rows = rows_named(first) if "." in first else []
        rows = rows or [row for row in all_setting_rows() if first in (row.name, _last(row.name))]
        rows = rows or _containing(all_setting_rows(), [first])
        if not rows:
            raise UserError(f"no setting, and nothing that has settings, is called '{first}'{_hint(first)}")
    kept = _containing(rows, rest)
    if rest and not kept:
        raise UserError(f"none of these settings fit {' '.join(rest)}; hardtack list settings {first} shows all")
    if not kept:
        raise UserError(f"{sections[0].title} has no settings of its own")
    return _blocks(kept)


def sections_named(word: str) -> list[Section]:
    """The sections of this name; of `objectives`, those of every objective."""
    kind = PLURALS.get(word) or (word if word in KINDS else "")
    return find_sections(word) or [section for section in all_sections() if section.kind == kind]


def _containing(rows: Iterable[SettingRow], words: Sequence[str]) -> list[SettingRow]:
    def text(row: SettingRow) -> str:
        return " ".join((row.name, row.type, row.default, row.allowed, row.sentence)).lower()

    return [row for row in rows if all(word.lower() in text(row) for word in words)]


def _blocks(rows: Iterable[SettingRow]) -> list[Block]:
    blocks: dict[str, list[SettingRow]] = {}
    for row in rows:
        blocks.setdefault(row.section, []).append(row)
    return [*blocks.items()]


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def _hint(word: str) -> str:
    rows = all_setting_rows()
    known = [*facts_of_models(), *(section.name for section in all_sections())]
    known += [name for row in rows for name in (row.name, _last(row.name))]
    return did_you_mean(word, known) or "; hardtack list settings shows all"


# ---------------------------------------------------------------- printing


def print_settings(blocks: Sequence[Block]) -> None:
    """A table for each section; of one setting in many sections, one table."""
    if len(blocks) > 2 and len({row.name for _, rows in blocks for row in rows}) == 1:
        console.print(f"[bold]{escape(blocks[0][1][0].name)}[/bold]", highlight=False)
        print_rows([dataclasses.replace(row, name=title) for title, rows in blocks for row in rows], of="of")
        return
    for place, (title, rows) in enumerate(blocks):
        if place:
            console.print()
        console.print(f"[bold]{escape(title)}[/bold]", highlight=False)
        print_rows(rows)


def print_rows(rows: Sequence[SettingRow], *, sections: bool = False, of: str = "setting") -> None:
    """The rows of one section, or with `sections` a table for each; `of` heads the first column."""
    if sections:
        print_settings(_blocks(rows))
        return
    if not console.is_terminal:
        _print_lines(rows, of)
        return
    wide = console.width >= WIDE
    head = Column(of, no_wrap=True), Column("default", max_width=24), Column("values", max_width=36)
    table = Table(*head, *(["what it does"] if wide else []), box=None, pad_edge=False, header_style="dim")
    for row in rows:
        cells = (escape(row.name), escape(row.default), escape(values_text(row)))
        table.add_row(*cells, *([escape(row.sentence)] if wide else []))
    if wide:
        console.print(table, highlight=False, soft_wrap=False)
        return
    for row in rows:
        default = f"= {row.default}" if row.default not in ("", REQUIRED) else row.default
        facts = "  ".join(part for part in (default, values_text(row)) if part)
        console.print(f"  [bold]{escape(row.name)}[/bold]  {escape(facts)}", highlight=False, soft_wrap=False)
        console.print(Padding(f"[dim]{escape(row.sentence)}[/dim]", (0, 0, 0, 6)), highlight=False, soft_wrap=False)


def _print_lines(rows: Sequence[SettingRow], of: str) -> None:
    header = (of, "default", "values", "what it does")
    cells = [header, *((row.name, row.default, values_text(row), row.sentence) for row in rows)]
    widths = [min(max(len(row[at]) for row in cells), 48) for at in range(3)]
    for row in cells:
        line = "  ".join([*(cell.ljust(width) for cell, width in zip(row[:3], widths, strict=True)), row[3]])
        console.print(line.rstrip(), highlight=False, markup=False)


def values_text(row: SettingRow) -> str:
    """The type and what is allowed, as one text: `number ≥ 0 or null`, `random, clean, gaussian`."""
    kind, null = row.type.removesuffix(" or null"), " or null" if row.type.endswith(" or null") else ""
    if not row.allowed:
        return row.type
    if row.allowed.startswith(("≥", ">", "≤", "<", "[", "(")):
        return f"{kind} {row.allowed}{null}"
    return (row.allowed if kind == "word" else f"{kind}: {row.allowed}") + null
