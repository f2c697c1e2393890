"""Study files by their names, such as `architectures/table2`, and the presets of their scales."""

from __future__ import annotations

import copy
import fnmatch
import functools
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from hardtack.base.config import read_yaml
from hardtack.base.errors import UserError, did_you_mean

PACKAGE = Path(__file__).resolve().parents[1]
PRESETS = "_scales"


def study_folder() -> Path:
    """The folder in the package. In a checkout it is a link to `studies/`, which is taken where links are not kept."""
    for folder in (PACKAGE / "study_files", PACKAGE.parents[1] / "studies"):
        if folder.is_dir():
            return folder.resolve()
    raise UserError("this installation has no studies; give the path of a YAML file")


def list_studies() -> list[str]:
    """Names such as `architectures/table2`, paper by paper."""
    folder = study_folder()
    files = [path for path in folder.rglob("*.yaml") if path.parent.name != PRESETS]
    return sorted(path.relative_to(folder).with_suffix("").as_posix() for path in files)


def find_studies(names: Iterable[str | Path]) -> list[str | Path]:
    """Studies by their names, by the folder of a paper (`cauchy`), by patterns (`*/table1`) and by files, each once.

    A name that is none of these stays as it is: whoever reads the study says what is wrong with it.
    """
    known, found = list_studies(), list[str | Path]()
    for name in names:
        text = str(name).rstrip("/").removeprefix("studies/")
        inside = [other for other in known if other.startswith(f"{text}/") or fnmatch.fnmatchcase(other, text)]
        if not inside and any(sign in text for sign in "*?[") and not Path(name).is_file():
            raise UserError(f"no study is called like '{text}'; hardtack list studies")
        found += inside or [name]
    each: dict[str | Path, str | Path] = {}
    for name in found:
        each.setdefault(name if name in known else Path(name).expanduser().resolve(), name)
    return list(each.values())


def is_study(name: str) -> bool:
    """Whether this names a study, or a study file of the user's."""
    return name in list_studies() or (Path(name).suffix in (".yaml", ".yml") and Path(name).is_file())


def read_scale_preset(name: str) -> dict[str, Any]:
    """What several studies share at one scale: `studies/_scales/NAME.yaml`."""
    folder = study_folder() / PRESETS
    path = folder / f"{name}.yaml"
    if not path.is_file():
        known = [other.stem for other in folder.glob("*.yaml")]
        raise UserError(f"there is no scale preset '{name}'{did_you_mean(name, known)}")
    return copy.deepcopy(_read_preset(path, max(file.stat().st_mtime_ns for file in folder.glob("*.yaml"))))


@functools.lru_cache(maxsize=32)
def _read_preset(path: Path, changed_ns: int) -> dict[str, Any]:
    """Most studies share a preset: a list of all studies reads each once. A changed file is read again."""
    return read_yaml(path)
