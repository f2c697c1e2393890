"""Settings that have no effect: those of one kind in a section that names another kind."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any


def unused_settings(section: str, config: Any, kinds_of: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """A sentence for each setting that differs from its default and that `config.name` does not use.

    `kinds_of` says for some settings which kinds use them.
    """
    defaults = {item.name: item.default for item in dataclasses.fields(config)}
    for setting, kinds in kinds_of.items():
        if getattr(config, setting) != defaults[setting] and config.name not in kinds:
            users = " and ".join(kinds)
            yield f"{section}.{setting} has no effect: it is for {users}, and {section}.name is {config.name}"
