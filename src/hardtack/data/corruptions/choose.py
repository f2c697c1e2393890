"""Choosing corruption types and severities by name, group or number, as users type them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

from pydantic import Field

from hardtack.base.annotations import Shown
from hardtack.base.config import SEVERAL
from hardtack.base.errors import UserError, did_you_mean
from hardtack.data.corruptions.catalogue import GROUPS, names

Types = Annotated[
    tuple[str, ...], SEVERAL, Field(min_length=1), Shown("list of corruptions or groups", "hardtack list corruptions")
]
Severities = Annotated[tuple[Annotated[int, Field(ge=1, le=5)], ...], SEVERAL, Field(min_length=1)]


def chosen_types(
    words: tuple[str, ...],
    *,
    known: Sequence[str] | None = None,
    groups: Mapping[str, Sequence[str]] = GROUPS,
    noun: str = "corruption",
) -> list[str]:
    """Types by name or by group (common, extra, all, noise), in the published order and once each."""
    known = names() if known is None else known
    for word in words:
        if word not in known and word not in groups:
            hint = did_you_mean(word, [*known, *groups]) or f"; known: {', '.join([*groups, *known])}"
            raise UserError(f"there is no {noun} '{word}'{hint}")
    wanted = {name for word in words for name in groups.get(word, (word,))}
    return [name for name in known if name in wanted]
