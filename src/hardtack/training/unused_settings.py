"""Settings that are given and never read: those of one kind in a section that names another."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any


def idle(section: str, config: Any, belongs: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """A sentence for each setting that differs from its default and belongs to other kinds than `config.name`."""
    defaults = {item.name: item.default for item in dataclasses.fields(config)}
    for name, kinds in belongs.items():
        if getattr(config, name) != defaults[name] and config.name not in kinds:
            whose = " and ".join(kinds)
            yield f"sets {section}.{name} without effect: it belongs to {whose}, and this is {config.name}"
