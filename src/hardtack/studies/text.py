"""A study for the terminal."""

from __future__ import annotations

from hardtack.report.study_tables import scale_line, text_table
from hardtack.report.study_view import StudyView


def study_text(view: StudyView) -> str:
    """A study for the terminal: what was asked, at which scale, the claims, and the table."""
    claims = [f"  {claim['verdict'].upper()}: {claim['says']}\n      {claim['sentence']}" for claim in view["claims"]]
    head = [f"{view['name']}: {view['title']}", f"  {view['asks']}", f"  {scale_line(view)}"]
    notes = [f"  {note}" for note in (*view["notes"], view["protocol_note"]) if note]
    return "\n".join([*head, *notes, *(["", *claims] if claims else []), "", *text_table(view)])
