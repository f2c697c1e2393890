"""The words of a study, as `hardtack study` takes them, checked."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from hardtack.base.annotations import NOT_TYPED, Shown
from hardtack.base.config import build, flat, nested
from hardtack.base.errors import UserError, did_you_mean
from hardtack.base.files import local_path
from hardtack.studies.rows import OUTPUT
from hardtack.studies.study import SECTIONS, section_of

MEASURING_WORDS = ("n", "folders", "frost")
WORDS = ("scale", "seeds", "rows", "output", *MEASURING_WORDS, *SECTIONS)


@dataclass(frozen=True, kw_only=True)
class StudyRequest:
    """The words of a study: which one, at which scale, how many seeds, which rows, and settings over all of them.

    scale     smoke (minutes on a CPU), short (one GPU, planned for an hour) or paper (as published)
    seeds     how many times every row is trained, with seeds 0, 1, 2 …
    rows      only these rows, as rows=a,b; none: all of them
    output    the folder of all studies
    n         test images that are measured; null: as many as the scale says
    folders   folders of official files by the name of their set, as folders.imagenet_c=PATH
    frost     the folder of frost's overlay photographs; null: they are drawn
    """

    name: Annotated[str, NOT_TYPED]
    scale: Annotated[str, Shown("word", "smoke, short, paper")] = "smoke"
    seeds: int = 1
    rows: tuple[str, ...] = ()
    output: str = OUTPUT
    n: int | None = None
    folders: dict[str, str] = dataclasses.field(default_factory=dict)
    frost: str | None = None
    settings: Annotated[dict[str, Any], NOT_TYPED] = dataclasses.field(default_factory=dict)

    @property
    def root(self) -> Path:
        return local_path(self.output)

    @property
    def folder(self) -> Path:
        return self.root / self.name / self.scale

    @property
    def changes(self) -> tuple[str, ...]:
        """Settings of the command line that are not the scale's own and may change numbers."""
        left_out = ("data.root", "runtime.device")
        words = [f"{key}={value}" for key, value in flat(self.settings).items() if key not in left_out]
        return tuple(words + [f"n={self.n}"] * (self.n is not None))

    @property
    def command(self) -> str:
        """The command that repeats the study."""
        words = [f"scale={self.scale}"] + [f"seeds={self.seeds}"] * (self.seeds != 1)
        words += [f"{key}={value}" for key, value in flat(self.settings).items() if not key.endswith("root")]
        words += [f"n={self.n}"] * (self.n is not None)
        return " ".join(["hardtack study", self.name, *map(shlex.quote, words)])


def read_request(name: str | Path, words: Mapping[str, Any]) -> StudyRequest:
    """The words of the command line, checked."""
    values = nested(dict(words))
    for key in values:
        if key in SECTIONS:
            section_of(values, key)
        if key not in WORDS:
            raise UserError(f"a study has no setting '{key}'{did_you_mean(key, WORDS)}; settings: {', '.join(WORDS)}")
    settings = {key: value for key, value in values.items() if key in SECTIONS}
    rest = {key: value for key, value in values.items() if key not in SECTIONS}
    request: StudyRequest = build(
        StudyRequest, {**rest, "name": str(name), "rows": _names(rest.get("rows", ())), "settings": settings}
    )
    for key, number in (("seeds", request.seeds), ("n", request.n)):
        if number is not None and number < 1:
            raise UserError(f"{key} must be at least 1, found {number}")
    return request


def check_rows(studies: Sequence[str | Path], words: Mapping[str, Any]) -> None:
    """Refuse rows for several studies, which have rows of their own."""
    if len(studies) > 1 and words.get("rows"):
        raise UserError("rows names rows of one study; leave it out, or name one study")


def _names(value: Any) -> tuple[str, ...]:
    """Rows as typed: `a,b`, `[a, b]` or, in Python, any sequence of names."""
    names = value.split(",") if isinstance(value, str) else value
    if not isinstance(names, list | tuple) or (names and not all(str(name).strip() for name in names)):
        raise UserError(f"rows: expected names such as rows=a,b, found {value!r}")
    return tuple(str(name).strip() for name in names)
