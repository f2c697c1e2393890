"""Common corruptions as views of the images: regenerated, or from official files."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field
from torch import Tensor

from hardtack.base.config import SEVERAL
from hardtack.base.errors import UserError, did_you_mean
from hardtack.data import Dataset
from hardtack.data.corruptions import GROUPS, Constants, corrupt, frost_source, names
from hardtack.data.corruptions.jpeg import compress
from hardtack.data.official import OfficialC, open_official
from hardtack.evaluation.sights import View

Types = Annotated[tuple[str, ...], SEVERAL, Field(min_length=1)]
Severities = Annotated[tuple[Annotated[int, Field(ge=1, le=5)], ...], SEVERAL, Field(min_length=1)]


def corruption_views(
    types: tuple[str, ...],
    severities: tuple[int, ...],
    constants: Constants,
    *,
    seed: int,
    frost: str | None,
    jpeg: int | None = None,
) -> list[View]:
    """Regenerated corruptions: every type at every severity. `jpeg`: stored at that quality, as ImageNet-C's were."""
    folder = None if frost is None else Path(frost).expanduser()
    overlays = frost_source(folder)
    views = []
    for type_ in chosen_types(types):
        for severity in severities:
            how = {"type": type_, "severity": severity, "constants": constants, "seed": seed}
            how |= {"overlays": overlays} if type_ == "frost" else {}
            show = functools.partial(_shown, how=how, frost=folder, jpeg=jpeg)
            how = how | ({"jpeg": jpeg} if jpeg is not None else {})
            views.append(View(name=f"{type_}/{severity}", show=show, source="regenerated", settings=how))
    return views


def _shown(x: Tensor, index: Tensor, how: dict[str, Any], frost: Path | None, jpeg: int | None) -> Tensor:
    seen = corrupt(
        x, index, how["type"], how["severity"], constants=how["constants"], seed=how["seed"], frost=frost
    )  # fmt: skip
    return seen if jpeg is None else compress(seen, jpeg)


def official_views(path: str, types: tuple[str, ...], severities: tuple[int, ...]) -> list[View]:
    """The images in official files, by their place: image 7 of the data is image 7 of every file."""
    files = open_official(path)
    if not isinstance(files, OfficialC):
        raise UserError(f"{path} holds {files.description}; suite=corruptions takes CIFAR-C's or ImageNet-C's files")
    wanted = chosen_types(types)
    missing = [name for name in wanted if name not in files.types]
    if missing:
        raise UserError(f"{path} lacks {', '.join(missing)}; name those it has: types=[{','.join(files.types)}]")
    views = []
    for type_ in wanted:
        for severity in severities:
            stored = _Stored(files, type_, severity)
            views.append(
                View(
                    name=f"{type_}/{severity}", show=stored.images, labels=stored.labels, source=files.source,
                    files=files,
                    settings={"type": type_, "severity": severity, "files": files.kind, **_how_made(files)},
                )
            )  # fmt: skip
    return views


def _how_made(files: OfficialC) -> dict[str, Any]:
    """Whose constants, and of a regenerated set also the rest that its marker says."""
    made = files.made
    known: dict[str, Any] = {"constants": "imagenet" if files.kind == "imagenet_c" else "cifar"}
    known |= {key: value for key, value in made.items() if key in ("constants", "seed", "frost")}
    return known | ({"jpeg": made["jpeg"]} if made.get("layout") == "folder" and made.get("jpeg") else {})


@dataclass(frozen=True)
class _Stored:
    """One file of a set, opened when it is looked at; the one looked at last stays open."""

    files: OfficialC
    type: str
    severity: int

    def images(self, x: Tensor, index: Tensor) -> Tensor:
        data = _opened(self.files, self.type, self.severity)
        shown = data.batch(self._within(index, len(data)), x.device).x
        if shown.shape != x.shape:
            raise UserError(f"{data.name} has images of {tuple(shown.shape[2:])}, the data {tuple(x.shape[2:])}")
        return shown

    def labels(self, index: Tensor) -> Tensor:
        data = _opened(self.files, self.type, self.severity)
        return data.labels[self._within(index, len(data)).cpu()]

    def _within(self, index: Tensor, count: int) -> Tensor:
        if int(index.max()) >= count:
            raise UserError(f"{self.type} has {count} images, the data has one numbered {int(index.max())}")
        return index


@functools.lru_cache(maxsize=2)
def _opened(files: OfficialC, type_: str, severity: int) -> Dataset:
    return files.dataset(type_, severity)


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
