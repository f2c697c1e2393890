"""What `hardtack describe` says of recipes, studies and protocols: what their YAML files say."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from hardtack.base.layers import flat, read_one_yaml, read_yaml
from hardtack.base.setting_rows import default_text

Facts = Iterator[tuple[str, str]]
_HEADER = re.compile(r"^# (\w+) {2,}(.+(?:\n# {3,}.+)*)", re.M)
SHOWN = 24  # rows of a study, columns of a protocol


def recipe_facts(name: str) -> Facts:
    """The header of the file (hardware, scores), its base, and every setting that it changes."""
    from hardtack.commands.recipe_files import recipe_folder

    path = recipe_folder() / f"{name}.yaml"
    yield from header_facts(path)
    base = read_one_yaml(path).get("base")
    if base:
        yield "base", str(base)
    yield from ((key, default_text(value)) for key, value in flat(read_yaml(path)).items())


def header_facts(path: Path) -> Facts:
    """Lines of the comment at the head of a file such as `# hardware   two CPU cores: 34 s`."""
    text = path.read_text(encoding="utf-8")
    head = "\n".join(line for line in text.splitlines() if line.startswith("#"))
    for label, value in _HEADER.findall(head):
        yield label, " ".join(part.lstrip("# ").strip() for part in value.splitlines())


def study_facts(name: str) -> Facts:
    """What the study asks, its rows, columns and claims."""
    from hardtack.studies.study_files import study_folder

    values = read_yaml(study_folder() / f"{name}.yaml")
    for key, label in (("paper", "paper"), ("asks", "asks"), ("note", "note"), ("protocol_note", "differences")):
        if values.get(key):
            yield label, " ".join(str(values[key]).split())
    for key in ("rows", "grid", "models", "columns", "figures"):
        if isinstance(values.get(key), Mapping):
            yield key, _some([*values[key]])
    for claim in values.get("claims") or ():
        yield "claim", str(claim.get("says") or claim.get("test")) if isinstance(claim, Mapping) else str(claim)
    if isinstance(values.get("scales"), Mapping):
        yield "scales", ", ".join(values["scales"])


def protocol_facts(name: str) -> Facts:
    """The paper, and each column with the settings of its evaluation."""
    from hardtack.studies.protocol import FOLDER

    values = read_yaml(FOLDER / f"{name}.yaml")
    for key in ("paper", "threat", "n", "version"):
        if values.get(key) is not None:
            yield key, str(values[key])
    for title, settings in values["columns"].items():
        words = [f"{key}={default_text(value)}" for key, value in flat(settings).items()]
        yield f"column {title}", " ".join(words)


def _some(names: list[Any]) -> str:
    shown = ", ".join(map(str, names[:SHOWN]))
    return shown if len(names) <= SHOWN else f"{shown} … ({len(names)})"
