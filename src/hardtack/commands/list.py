"""`hardtack list`: tables of everything that can be named."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Column, Table

from hardtack.base import registry
from hardtack.base.errors import UserError, did_you_mean
from hardtack.base.progress import Meter
from hardtack.commands.recipe_files import list_recipes, recipe_folder
from hardtack.commands.words import page

if TYPE_CHECKING:
    from hardtack.models.facts import Facts

Rows = tuple[tuple[str, ...], list[tuple[str, ...]]]
WIDE_ONLY = ("family", "pixels", "source", "papers")  # columns that a narrow window leaves out


@registry.verbs.register("list")
def list_names(
    kind: Annotated[str, typer.Argument(help="models, attacks, datasets, objectives, suites, protocols, recipes …")],
    words: Annotated[list[str] | None, typer.Argument(metavar="[WORD]...", help="keep rows that hold them all")] = None,
) -> None:
    """List names: models, attacks, datasets, objectives, suites, analyses, protocols, recipes, settings.

    Models can be selected by column too: family=swin, paper=arg, attention=window, source=ours, pixels=32.
    image_size=64 gives the GFLOPs and tokens of the models that take that size.
    """
    header, rows = rows_of(kind, words or [])
    paper = page()
    needed = sum(2 + max(len(row[at]) for row in [header, *rows]) for at in range(len(header))) - 2
    kept = [at for at, name in enumerate(header) if needed <= paper.width or name not in WIDE_ONLY]
    names = [header[at] for at in kept]
    table = Table(Column(names[0], no_wrap=True), *names[1:], box=None, pad_edge=False, header_style="bold")
    for row in rows:
        table.add_row(*(escape(row[at]) for at in kept))
    paper.print(table, highlight=False)
    if len(kept) < len(header):
        paper.print(f"[dim]a window of {needed} columns also shows {', '.join(WIDE_ONLY)}[/dim]")


def _models(words: list[str]) -> Rows:
    from hardtack.models.facts import known, measure

    asked = {key: value for key, equals, value in (word.partition("=") for word in words) if equals}
    bare = [word.lower() for word in words if "=" not in word]
    size = _whole_number(asked["image_size"]) if "image_size" in asked else None
    chosen: dict[str, Facts] = {}
    for name in registry.models.names():
        entry = registry.models.get(name)
        facts = known()[name] if name in known() else measure(name)  # a plugin's is measured
        columns = {
            "name": name, "family": entry.family, "pixels": str(facts.image_size), "attention": facts.attention,
            "source": facts.source, "paper": " ".join(entry.papers),
        }  # fmt: skip
        _require_known(asked, [*columns, "image_size"])
        text = " ".join([*columns.values(), entry.help]).lower()
        exact = {"family", "pixels", "source"}
        fits = (
            value == columns[key] if key in exact else value in columns[key]
            for key, value in asked.items()
            if key in columns
        )
        if all(fits) and all(word in text for word in bare):
            chosen[name] = facts
    rows = [_row(name, facts) for name, facts in (chosen if size is None else _resized(chosen, size)).items()]
    if not rows:
        families = sorted({registry.models.get(name).family for name in registry.models.names()})
        hint = did_you_mean(asked.get("family", bare[0] if bare else ""), [*families, *registry.models.names()])
        raise UserError(f"no model fits {' '.join(words)}{hint}; hardtack list models shows all")
    header = ("name", "family", "parameters", "GFLOPs", "pixels", "tokens", "attention", "source", "papers")
    return header, rows if words else [*rows, ("timm:NAME", "", "", "", "", "", "", "timm", "")]


def _row(name: str, facts: Facts) -> tuple[str, ...]:
    entry = registry.models.get(name)
    return (
        name, entry.family, f"{facts.parameters / 1e6:.2f} M", f"{facts.gflops:.3g}", str(facts.image_size),
        facts.tokens, facts.attention, facts.source, " ".join(entry.papers),
    )  # fmt: skip


def _resized(names: Collection[str], size: int) -> dict[str, Facts]:
    """Those that take images of this size, as they are then."""
    from hardtack.models.facts import measure

    found: dict[str, Facts] = {}
    with Meter("list models", total=len(names), unit="models") as meter:
        for name in names:
            with contextlib.suppress(UserError):
                found[name] = measure(name, image_size=size)
            meter.advance(1)
    return found


def _require_known(asked: Iterable[str], known: list[str]) -> None:
    for key in asked:
        if key not in known:
            hint = did_you_mean(key, known) or f"; known: {', '.join(known)}"
            raise UserError(f"models cannot be chosen by '{key}'{hint}")


def _whole_number(text: str) -> int:
    if not text.isdigit():
        raise UserError(f"image_size must be a whole number of pixels, found '{text}'")
    return int(text)


def _entries(table: registry.Registry) -> Callable[[], Rows]:
    return lambda: (("name", ""), [(entry.name, entry.help) for entry in table.listing()])


def rows_of(kind: str, words: list[str]) -> Rows:
    """The table of a kind of things; `words` keep the rows that hold them all."""
    if kind == "models":
        return _models(words)
    if kind not in LISTS:
        known = ["models", *LISTS]
        raise UserError(f"cannot list '{kind}'{did_you_mean(kind, known) or '; known: ' + ', '.join(known)}")
    header, rows = LISTS[kind]()
    kept = [row for row in rows if all(word.lower() in " ".join(row).lower() for word in words)]
    if words and not kept:
        raise UserError(f"none of the {kind} fit {' '.join(words)}; hardtack list {kind} shows all")
    return header, kept


def _suites() -> Rows:
    from hardtack.evaluation.surveys import SURVEYS
    from hardtack.evaluation.trials import TRIALS

    makers = {**TRIALS, **{name: suite.make for name, suite in SURVEYS.items()}}
    return ("name", ""), [(name, (make.__doc__ or "").split("\n")[0]) for name, make in makers.items()]


def _protocols() -> Rows:
    from hardtack.studies import list_protocols

    return ("name", ""), list(list_protocols().items())


def _recipes() -> Rows:
    return ("name", ""), [(name, _first_comment(name)) for name in list_recipes()]


def _settings() -> Rows:
    from hardtack.base.config import choose, flat, plain
    from hardtack.training import Recipe

    chosen = {name: plain(choose(registry.analyses, name)) for name in registry.analyses.names()}
    own = {name: {key: value for key, value in settings.items() if key != "name"} for name, settings in chosen.items()}
    known = {**flat(plain(Recipe())), **flat(own)}
    return ("setting", "default"), [(path, _written(value)) for path, value in known.items()]


def _written(value: object) -> str:
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _first_comment(name: str) -> str:
    first = (recipe_folder() / f"{name}.yaml").read_text().split("\n", 1)[0]
    return first.removeprefix("#").strip() if first.startswith("#") else ""


LISTS: dict[str, Callable[[], Rows]] = {
    "attacks": _entries(registry.attacks),
    "datasets": _entries(registry.datasets),
    "objectives": _entries(registry.objectives),
    "suites": _suites,
    "analyses": _entries(registry.analyses),
    "protocols": _protocols,
    "recipes": _recipes,
    "settings": _settings,
}
