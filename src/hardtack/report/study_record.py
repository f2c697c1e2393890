"""The record of a study in its folder, `study.json`."""

from __future__ import annotations

from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from hardtack.base.errors import UserError
from hardtack.base.limits import read_json
from hardtack.report.study_view import StudyView

RECORD = "study.json"


def read_record(folder: Path) -> StudyView | None:
    """What a study has come to in its folder; None if it was not run or the record is damaged."""
    path = folder / RECORD
    if not path.is_file():
        return None
    try:
        record: StudyView = TypeAdapter(StudyView).validate_python(read_json(path), strict=True)
    except (UserError, ValidationError, RecursionError):
        return None
    return record
