"""Where on the page a chart is drawn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class Section:
    """A section of the page: `short` is its name in the contents, `title` its heading.

    `layout`: a chart takes the whole width of the page ("stacked"), or two ("charts two") or three ("charts") stand
    side by side where there is room. Sections are in increasing `order`; those of the package have 10 to 150.
    """

    id: str
    short: str
    title: str
    layout: Literal["stacked", "charts", "charts two"] = "stacked"
    order: int = 900
