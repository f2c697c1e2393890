"""The tables behind `hardtack list`."""

from __future__ import annotations

from collections.abc import Callable

from hardtack import registry
from hardtack.recipes import list_recipes, recipe_folder

Rows = tuple[tuple[str, ...], list[tuple[str, ...]]]


def _models() -> Rows:
    from hardtack.models import describe

    rows = [(name, f"{parameters / 1e6:.2f} M", text) for name, parameters, text in describe()]
    return ("name", "parameters", ""), [
        *rows,
        ("timm:NAME", "", "any model of timm; options as model.options.KEY=VALUE"),
    ]


def _entries(table: registry.Registry) -> Callable[[], Rows]:
    return lambda: (("name", ""), [(name, table.get(name).help) for name in table.names()])


def _suites() -> Rows:
    from hardtack.evaluation import SUITES

    return ("name", ""), [(name, (make.__doc__ or "").split("\n")[0]) for name, make in SUITES.items()]


def _recipes() -> Rows:
    return ("name", ""), [(name, _first_comment(name)) for name in list_recipes()]


def _settings() -> Rows:
    from hardtack.config import flat, plain
    from hardtack.training import Recipe

    return ("setting", "default"), [(path, _written(value)) for path, value in flat(plain(Recipe())).items()]


def _written(value: object) -> str:
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _first_comment(name: str) -> str:
    first = (recipe_folder() / f"{name}.yaml").read_text().split("\n", 1)[0]
    return first.removeprefix("#").strip() if first.startswith("#") else ""


LISTS: dict[str, Callable[[], Rows]] = {
    "models": _models,
    "attacks": _entries(registry.attacks),
    "datasets": _entries(registry.datasets),
    "objectives": _entries(registry.objectives),
    "suites": _suites,
    "recipes": _recipes,
    "settings": _settings,
}
