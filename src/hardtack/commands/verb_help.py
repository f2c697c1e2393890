"""What typer's commands say themselves: the settings of a verb in its help, and mistakes in its words."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.panel import Panel
from rich.table import Table
from typer.core import TyperCommand

from hardtack.base import registry
from hardtack.base.errors import UserError

MOST = 12  # names of a section that has many
# what stands below sections that are chosen by name
CHOSEN = {
    "attack": "those of the attack and of its gradient: hardtack list settings pgd, … gradients",
    "objective": "those of the objective: hardtack list settings trades",
    "ANALYSIS": "those of the analysis: hardtack list settings jacobian",
    "SUITE": "those that the suite brings: hardtack list settings smoothing",
}
PLACES = ("workers", "per_gpu")


class VerbCommand(TyperCommand):
    """A verb with its settings in the help, whose options may be written as settings."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, [self._as_option(word) for word in args])

    def _as_option(self, word: str) -> str:
        """`--output=x` for `output=x`: settings of other verbs are written so."""
        key, equals, _ = word.partition("=")
        param = next((param for param in self.params if f"--{key}" in param.opts), None)
        if param is None or not equals or Path(word).exists():
            return word
        if getattr(param, "is_flag", False):
            raise UserError(f"{word}: {key} is a switch of hardtack {self.name}, written --{key}")
        return f"--{word}"

    def format_help(self, ctx: Any, formatter: Any) -> None:
        super().format_help(ctx, formatter)
        groups = list(setting_groups(self.name or ""))
        if not groups:
            return
        table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
        table.add_column(no_wrap=True, style="bold cyan")
        table.add_column()
        for section, names in groups:
            table.add_row(escape(section), escape(names))
        panel = Panel(
            table, title="Settings", title_align="left", border_style="dim", box=box.ROUNDED, subtitle_align="left",
            subtitle=f"hardtack list settings {self.name} explains them",
        )  # fmt: skip
        Console().print(panel, highlight=False)


def setting_groups(verb: str) -> Iterator[tuple[str, str]]:
    """The settings of a verb as `KEY=VALUE`, then each section with the first of its names."""
    from hardtack.commands.settings_table import SECTION, Section, find_sections, section_rows

    rows = [row for row in section_rows(Section("verb", verb)) if not row.name.startswith("--")]
    top = [row for row in rows if "." not in row.name]
    if not top:
        return
    plain = [row.name for row in top if row.type != SECTION and row.name != "suite_settings"]
    if plain:
        yield "KEY=VALUE", ", ".join(plain)
    for row in top:
        if row.type == SECTION:
            own = [item.name for item in rows if item.name.startswith(f"{row.name}.")]
            shared = [item for item in find_sections(row.name) if item.kind == "recipe"]
            own = own or [item.name for section in shared for item in section_rows(section)]
            yield f"{row.name}.…", _first([name.removeprefix(f"{row.name}.") for name in own if name != row.name])
    names = {row.name for row in top}
    for section, below in CHOSEN.items():
        taken = {"ANALYSIS": verb == "analyze", "SUITE": "suite" in names}.get(section, section in names)
        if taken:
            yield f"{section}.…", below
    if any(row.name == "--on" for row in section_rows(Section("verb", verb))) and verb in registry.verbs:
        yield "places", f"{', '.join(PLACES)}, ray.…, slurm.…: hardtack list settings ray, … slurm"


def _first(names: list[str]) -> str:
    inner = [name for name in names if "." not in name]
    return ", ".join(inner[:MOST]) + (f", … ({len(names)})" if len(inner) > MOST else "")
