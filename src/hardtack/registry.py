"""One table of names serves datasets, models, attacks, objectives and analyses.

An entry is a class or function plus presets (so that `fgsm` and `pgd` can be one class with two sets of
defaults) and a line of help. A registry imports the rooms that fill it on first use, so that looking a
name up never depends on what happened to be imported before.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from hardtack.errors import UserError, did_you_mean


@dataclass(frozen=True)
class Entry:
    name: str
    make: Callable[..., Any]
    presets: dict[str, Any] = field(default_factory=dict)
    help: str = ""
    family: str = ""  # what it is a member of: the file it stands in, unless told
    papers: tuple[str, ...] = ()  # of the four: rspc, xcit, arg, cauchy
    published: str = ""  # the timm model whose published weights fit


class Registry:
    def __init__(self, kind: str, *rooms: str) -> None:
        self.kind = kind
        self._rooms = rooms
        self._entries: dict[str, Entry] = {}
        self._filled = False

    def register(
        self,
        name: str,
        *,
        help: str = "",
        family: str = "",
        papers: tuple[str, ...] = (),
        published: str = "",
        **presets: Any,
    ) -> Callable[[Any], Any]:
        """Decorator: enter a class or function under `name`, with `presets` overriding its defaults."""

        def enter(make: Any) -> Any:
            if name in self._entries:
                raise ValueError(f"{self.kind} '{name}' is registered twice")
            text = help or (make.__doc__ or "").strip().split("\n")[0]
            kin = family or make.__module__.rpartition(".")[2]
            self._entries[name] = Entry(name, make, presets, text, kin, papers, published)
            if isinstance(make, type):
                make.registry = self  # type: ignore[attr-defined]  # so that a configuration can be written back
            return make

        return enter

    def get(self, name: str) -> Entry:
        if name not in self:
            hint = did_you_mean(name, self._entries) or f"; known: {', '.join(self.names())}"
            raise UserError(f"there is no {self.kind} '{name}'{hint}")
        return self._entries[name]

    def name_of(self, value: Any) -> str | None:
        """The name a value would be chosen by: of its class's entries the one with most presets, all of them met."""
        self._fill()
        fitting = [
            entry
            for entry in self._entries.values()
            if entry.make is type(value) and all(getattr(value, key) == item for key, item in entry.presets.items())
        ]
        return max(fitting, key=lambda entry: len(entry.presets)).name if fitting else None

    def names(self) -> list[str]:
        self._fill()
        return sorted(self._entries)

    def __contains__(self, name: object) -> bool:
        self._fill()
        return isinstance(name, str) and name in self._entries

    def _fill(self) -> None:
        if not self._filled:
            for room in self._rooms:
                importlib.import_module(room)
            self._filled = True


datasets = Registry("dataset", "hardtack.data")
models = Registry("model", "hardtack.models")
attacks = Registry("attack", "hardtack.attacks")
objectives = Registry("objective", "hardtack.objectives")
analyses = Registry("analysis", "hardtack.analysis")
