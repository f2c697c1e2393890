"""`hardtack list`: tables of everything that can be named."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, NamedTuple

import typer
from rich.markup import escape
from rich.table import Column, Table

from hardtack.base import registry
from hardtack.base.config import first_comment
from hardtack.base.errors import UserError, did_you_mean
from hardtack.base.flag_meanings import FLAGS
from hardtack.base.progress import Meter
from hardtack.commands.recipe_files import list_recipes, recipe_folder
from hardtack.commands.settings_table import words_of_kind
from hardtack.commands.settings_text import chosen_settings, print_settings
from hardtack.commands.things import LISTED
from hardtack.commands.words import page, say

Rows = tuple[tuple[str, ...], list[tuple[str, ...]]]
FACTS = Path(__file__).resolve().parents[1] / "models" / "facts.json"
WIDE_ONLY = ("family", "pixels", "source", "papers")  # columns that a narrow window leaves out


@registry.verbs.register("list")
def list_names(
    kind: Annotated[
        str | None, typer.Argument(help="models, attacks, objectives, settings …; all kinds without it")
    ] = None,
    words: Annotated[
        list[str] | None, typer.Argument(metavar="[WORD]...", help="show only rows with all these words")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print a list of objects for other programs")] = False,
) -> None:
    """List names of a kind, or without one the kinds. [bold]hardtack describe NAME[/bold] says more of one.

    Models can be selected by column too: family=swin, paper=arg, attention=window, source=ours, pixels=32.
    image_size=64 gives the GFLOPs and tokens of the models that take that size.
    Settings of a verb, of a section of a recipe or of anything that is registered: [bold]hardtack list settings
    trades[/bold], [bold]list settings evaluate threat[/bold], [bold]list settings attack:pgd[/bold].
    """
    if kind == "settings":
        blocks = chosen_settings(words or [])
        if as_json:
            _print_json([asdict(row) for _, rows in blocks for row in rows])
        else:
            print_settings(blocks)
        return
    header, rows = rows_of(kind, words or []) if kind else (("kind", ""), list(LISTED.items()))
    if as_json:
        keys = [name or "about" for name in header]
        _print_json([dict(zip(keys, row, strict=True)) for row in rows])
        return
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


def _print_json(rows: list[dict[str, str]]) -> None:
    say(json.dumps(rows, indent=1, ensure_ascii=False))


# ---------------------------------------------------------------- models


class Model(NamedTuple):
    """A row of the table of models: what the registry says, and the facts that were measured."""

    name: str
    family: str
    papers: str
    help: str
    parameters: int
    gflops: float
    image_size: int
    tokens: str
    attention: str
    source: str

    def columns(self) -> dict[str, str]:
        """What models can be selected by."""
        return {
            "name": self.name, "family": self.family, "pixels": str(self.image_size), "attention": self.attention,
            "source": self.source, "paper": self.papers,
        }  # fmt: skip

    def cells(self) -> tuple[str, ...]:
        return (
            self.name, self.family, f"{self.parameters / 1e6:.2f} M", f"{self.gflops:.3g}", str(self.image_size),
            self.tokens, self.attention, self.source, self.papers,
        )  # fmt: skip


def _models(words: list[str]) -> Rows:
    wanted = {key: value for key, equals, value in (word.partition("=") for word in words) if equals}
    bare = [word.lower() for word in words if "=" not in word]
    size = _whole_number(wanted.pop("image_size")) if "image_size" in wanted else None
    models = _table_of_models()
    _check_columns(wanted, [*models[0].columns(), "image_size"])
    chosen = [model for model in models if _matches(model, wanted, bare)]
    if size is not None:
        chosen = _resized(chosen, size)
    if not chosen:
        known = [*sorted({model.family for model in models}), *(model.name for model in models)]
        hint = did_you_mean(wanted.get("family", bare[0] if bare else ""), known)
        raise UserError(f"no model fits {' '.join(words)}{hint}; hardtack list models shows all")
    header = ("name", "family", "parameters", "GFLOPs", "pixels", "tokens", "attention", "source", "papers")
    rows = [model.cells() for model in chosen]
    return header, rows if words else [*rows, ("timm:NAME", "", "", "", "", "", "", "timm", "")]


def _table_of_models() -> list[Model]:
    """The built-in models, from the table that `python -m hardtack.models.facts` writes; those of the user's files.

    A model that is not in the table was registered by a file of the user's, and is measured.
    """
    table = json.loads(FACTS.read_text(encoding="utf-8"))
    models = []
    for name, row in table.items():
        row |= {"name": name, "papers": " ".join(row["papers"])}
        models.append(Model(**{key: row[key] for key in Model._fields}))
    return models + [_measured(entry) for entry in registry.models.registered() if entry.name not in table]


def _measured(entry: registry.Entry, image_size: int | None = None) -> Model:
    from hardtack.models.facts import measure

    facts = measure(entry.name, image_size=image_size)
    shared = {key: value for key, value in vars(facts).items() if key in Model._fields}
    return Model(name=entry.name, family=entry.family, papers=" ".join(entry.papers), help=entry.help, **shared)


def _matches(model: Model, wanted: dict[str, str], bare: list[str]) -> bool:
    columns = model.columns()
    exact = {"family", "pixels", "source"}
    fits = (value == columns[key] if key in exact else value in columns[key] for key, value in wanted.items())
    text = " ".join([*columns.values(), model.help]).lower()
    return all(fits) and all(word in text for word in bare)


def _resized(models: list[Model], size: int) -> list[Model]:
    """The models that take images of this size, measured at it."""
    taken = []
    with Meter("list models", total=len(models), unit="models") as meter:
        for model in models:
            with contextlib.suppress(UserError):
                taken.append(_measured(registry.models.get(model.name), size))
            meter.advance(1)
    return taken


def _check_columns(wanted: Iterable[str], known: list[str]) -> None:
    for key in wanted:
        if key not in known:
            hint = did_you_mean(key, known) or f"; known: {', '.join(known)}"
            raise UserError(f"models cannot be selected by '{key}'{hint}")


def _whole_number(text: str) -> int:
    if not text.isdigit():
        raise UserError(f"image_size must be a whole number of pixels, found '{text}'")
    return int(text)


def _entries(table: registry.Registry) -> Callable[[], Rows]:
    return lambda: (("name", ""), [(entry.name, entry.help) for entry in table.listing()])


def rows_of(kind: str, words: list[str]) -> Rows:
    """The table of a kind of things; with `words`, only the rows that contain all of them."""
    if kind == "models":
        return _models(words)
    if kind not in LISTS:
        known = list(LISTED)
        raise UserError(f"cannot list '{kind}'{did_you_mean(kind, known) or '; known: ' + ', '.join(known)}")
    header, rows = LISTS[kind]()
    kept = [row for row in rows if all(word.lower() in " ".join(row).lower() for word in words)]
    if words and not kept:
        raise UserError(f"none of the {kind} fit {' '.join(words)}; hardtack list {kind} shows all")
    return header, kept


def _attacks() -> Rows:
    """The built-in attacks, then those of other packages as `foolbox:NAME`."""
    header, rows = _entries(registry.attacks)()
    return header, [*rows, *((f"{entry.name}:NAME", entry.help) for entry in registry.packages.listing())]


def _protocols() -> Rows:
    from hardtack.studies import list_protocols

    return ("name", ""), list(list_protocols().items())


def _charts() -> Rows:
    """The kinds of charts that a page draws."""
    return ("name", ""), [(entry.name, words_of_kind(entry)) for entry in registry.kinds.listing()]


def _executors() -> Rows:
    """Those that `--on` takes; the others serve hardtack itself."""
    from hardtack.commands.executor_words import INTERNAL

    listed = [entry for entry in registry.executors.listing() if entry.name not in INTERNAL]
    return ("name", ""), [(entry.name, entry.help) for entry in listed]


def _recipes() -> Rows:
    return ("name", ""), [(name, first_comment(recipe_folder() / f"{name}.yaml")) for name in list_recipes()]


def _studies() -> Rows:
    from hardtack.studies.study_files import list_studies, study_folder

    return ("name", ""), [(name, first_comment(study_folder() / f"{name}.yaml")) for name in list_studies()]


LISTS: dict[str, Callable[[], Rows]] = {
    "attacks": _attacks,
    "losses": _entries(registry.losses),
    "corruptions": _entries(registry.corruptions),
    "datasets": _entries(registry.datasets),
    "objectives": _entries(registry.objectives),
    "suites": _entries(registry.suites),
    "analyses": _entries(registry.analyses),
    "metrics": _entries(registry.metrics),
    "charts": _charts,
    "flags": lambda: (("name", "level", ""), [(row.code, row.level, row.means) for row in FLAGS.values()]),
    "mechanisms": _entries(registry.mechanisms),
    "evaluators": _entries(registry.evaluators),
    "trackers": _entries(registry.trackers),
    "protocols": _protocols,
    "executors": _executors,
    "recipes": _recipes,
    "studies": _studies,
}
