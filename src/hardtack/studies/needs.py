"""What a study needs before it starts: the data sets of its runs, looked for before anything is trained."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from hardtack.base.config import build
from hardtack.base.errors import UserError
from hardtack.studies.rows import in_order
from hardtack.studies.study import section_of
from hardtack.studies.unit import Unit

if TYPE_CHECKING:
    from hardtack.studies.request import StudyRequest


def missing_data(units: Iterable[Unit]) -> dict[str, tuple[str, list[str]]]:
    """Data sets that are not here: name → why, and the runs that need it."""
    from hardtack.base.registry import datasets
    from hardtack.data.datasets import DataConfig, parse_name

    missing: dict[str, tuple[str, list[str]]] = {}
    seen: dict[str, str] = {}
    for unit in in_order(units):
        for values in _sets(unit):
            key = f"{values.get('name', 'digits')} {values.get('root')}"
            if key not in seen:
                try:
                    settings: DataConfig = build(DataConfig, values, path="data")
                    name, path = parse_name(settings.name)
                    datasets.get(name).make(settings, path)
                    seen[key] = ""
                except UserError as error:
                    seen[key] = str(error)
            if seen[key]:
                missing.setdefault(str(values.get("name")), (seen[key], []))[1].append(unit.label)
    return missing


def check_paths(request: StudyRequest) -> None:
    """Refuse folders that the user names and that are not there, before anything is trained."""
    from hardtack.data.paths import find_path

    root = section_of(request.settings, "data").get("root")
    for key, path in request.folders.items():
        find_path(str(path), root, kind=f"folders.{key}")
    if request.frost is not None:
        find_path(request.frost, root, kind="frost")


def check_data(chosen: Sequence[tuple[StudyRequest, Sequence[Unit]]]) -> None:
    """Refuse studies whose data is not here, and say what they need and what can be run instead."""
    lacking = [(request, missing) for request, units in chosen if (missing := missing_data(units))]
    if not lacking:
        return
    request, missing = lacking[0]
    other = {"paper": "scale=short needs CIFAR-10 only, scale=smoke nothing", "short": "scale=smoke needs no data"}
    hint = f"; {other[request.scale]}" if request.scale in other else ""
    if len(chosen) > 1:
        parts = [f"{request.name} ({', '.join(missing)})" for request, missing in lacking]
        raise UserError(
            f"{len(lacking)} of {len(chosen)} studies at scale {request.scale} need data that is not here: "
            f"{'; '.join(parts)}. Give data.root=FOLDER, or leave these studies out{hint}"
        )
    parts = [
        f"{name} ({len(runs)} {'run' if len(runs) == 1 else 'runs'}; {why})" for name, (why, runs) in missing.items()
    ]
    raise UserError(
        f"study {request.name} at scale {request.scale} needs data that is not here: {'; '.join(parts)}. "
        f"Give data.root=FOLDER, or rows=… without these{hint}"
    )


def _sets(unit: Unit) -> list[dict[str, Any]]:
    """The data settings of a run: its own set, and further sets that training reads."""
    data = unit.settings.get("data") or {}
    data = {"name": data} if isinstance(data, str) else dict(data)
    own = {key: value for key, value in data.items() if key not in ("extra", "synthetic")}
    root = {"root": data["root"]} if data.get("root") else {}
    others = [*(data.get("extra") or ()), *([data["synthetic"]] if data.get("synthetic") else [])]
    return [own, *({"name": other["name"], **root} for other in others)]
