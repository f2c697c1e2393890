"""A study's table for the terminal, in Markdown, in LaTeX and as CSV: the paper's numbers beside ours."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence

from hardtack.base.printable import printable
from hardtack.report.latex import escaped
from hardtack.report.markdown import code, inline
from hardtack.report.study_cells import NONE, CellText, head, row_texts
from hardtack.report.study_view import MEASURED, StudyRow, StudyView, cell_of, rows_done, rows_trained
from hardtack.results.export import csv_cell

MARK = "▲"  # a red flag
READ = "Each cell: paper | ours [95 % interval] | difference (ours − paper)."
RED = "a check says that this number should not be believed as it stands"
LONG = 45  # lines of a LaTeX table that still fit on a page
CSV_HEAD = ("row", "column", "paper", "ours", "low", "high", "difference", "n", "seeds", "flags")


def scale_line(study: StudyView) -> str:
    """`Scale smoke · 2 seeds · 3 of 8 rows measured`."""
    seeds = "1 seed" if study["seeds"] == 1 else f"{study['seeds']} seeds"
    return f"Scale {study['scale']} · {seeds} · {rows_done(study)} of {rows_trained(study)} rows measured"


# ---------------------------------------------------------------- terminal


def text_table(study: StudyView, *, width: int = 120) -> list[str]:
    """Lines of at most `width` letters, if one column fits: columns that do not fit follow in a block below."""
    texts = [row_texts(row, study) for row in study["rows"]]
    heads = [printable(head(column)) for column in study["columns"]]
    widths = [max(map(len, [heads[place], *_column_texts(texts, place)])) for place in range(len(heads))]
    names = [printable(row["title"]) for row in study["rows"]]
    left = max(map(len, names), default=0) + len("  difference  ")
    lines: list[str] = []
    for block in _blocks(widths, width - left):
        lines += ["", " " * left + _aligned([heads[place] for place in block], [widths[place] for place in block])]
        for row, name, cells in zip(study["rows"], names, texts, strict=True):
            lines += _text_row(row, name.ljust(left - len("  difference  ")), [cells[place] for place in block],
                               [widths[place] for place in block])  # fmt: skip
    red = any(text.red for cells in texts for text in cells)
    return [*lines[1:], *([f"{MARK} {RED}"] if red else [])]


def _column_texts(texts: Sequence[Sequence[CellText]], place: int) -> list[str]:
    cells = [cells[place] for cells in texts]
    return [text for cell in cells for text in (cell.paper, f"{cell.ours}{MARK}", cell.interval, cell.difference)]


def _blocks(widths: Sequence[int], room: int) -> list[list[int]]:
    """Columns beside each other, as many as there is room for."""
    blocks: list[list[int]] = []
    taken = 0
    for place, width in enumerate(widths):
        if not blocks or taken + width + 2 > room:
            blocks.append([])
            taken = 0
        blocks[-1].append(place)
        taken += width + 2
    return blocks


def _text_row(row: StudyRow, name: str, cells: Sequence[CellText], widths: Sequence[int]) -> list[str]:
    lines = [("paper", [cell.paper for cell in cells])]
    if any(cell.ours != NONE for cell in cells):
        lines += [
            ("ours", [f"{cell.ours}{MARK if cell.red else ''}" for cell in cells]),
            ("", [cell.interval for cell in cells]),
            ("difference", [cell.difference for cell in cells]),
        ]
    shown = [
        f"{name if place == 0 else ' ' * len(name)}  {what:<10}  {_aligned(texts, widths)}".rstrip()
        for place, (what, texts) in enumerate(lines)
        if any(texts)
    ]
    return shown if row["state"] == MEASURED else [*shown, f"{' ' * len(name)}  {printable(row['state'])}"]


def _aligned(texts: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(f"{text:>{width}}" for text, width in zip(texts, widths, strict=True))


# ---------------------------------------------------------------- Markdown


def markdown_table(study: StudyView) -> str:
    """The study in Markdown: scale, what stands in for what, claims, table, command."""
    lines = [f"# {inline(study['title'])}", "", inline(study["paper"]), "", f"*{inline(study['asks'])}*", ""]
    lines += [f"**{inline(scale_line(study))}.**", ""]
    notes = [*study["notes"], *([study["protocol_note"]] if study["protocol_note"] else [])]
    lines += [*(f"- {inline(note)}" for note in notes), ""]
    for claim in study["claims"]:
        where = f" ({inline(claim['where'])})" if claim["where"] else ""
        lines += [f"- **{claim['verdict']}**: {inline(claim['says'])}{where}. {inline(claim['sentence'])} "
                  f"`{code(claim['test'])}`"]  # fmt: skip
    lines += ["", READ, "", "| | " + " | ".join(inline(head(column)) for column in study["columns"]) + " |"]
    lines += ["|---|" + "---|" * len(study["columns"])]
    texts = [row_texts(row, study) for row in study["rows"]]
    for row, cells in zip(study["rows"], texts, strict=True):
        state = "" if row["state"] == MEASURED else f" ({inline(row['state'])})"
        lines.append("| " + " | ".join([inline(row["title"]) + state, *map(_markdown_cell, cells)]) + " |")
    if any(cell.red for cells in texts for cell in cells):
        lines += ["", f"{MARK} {RED}."]
    lines += ["", f"`{code(study['command'])}`"]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)) + "\n"


def _markdown_cell(cell: CellText) -> str:
    ours = inline(f"{cell.ours}{MARK if cell.red else ''} {cell.interval}".rstrip())
    return NONE if {cell.paper, cell.ours} == {NONE} else rf"{cell.paper} \| {ours} \| {cell.difference}"


# ---------------------------------------------------------------- LaTeX


def latex_table(study: StudyView) -> str:
    """A table for a paper: up to three lines for each row, the paper's numbers, ours and the difference."""
    texts = [row_texts(row, study) for row in study["rows"]]
    groups = [_latex_row(row, cells) for row, cells in zip(study["rows"], texts, strict=True)]
    body: list[str] = []
    for place, lines in enumerate(groups):
        body += [r"    \addlinespace"] * (place > 0) + [rf"    {line} \\" for line in lines]
    heads = " & ".join(["", "", *(escaped(head(column)) for column in study["columns"])]) + r" \\"
    red = any(cell.red for cells in texts for cell in cells)
    caption = _caption(study, red=red)
    columns = "ll" + "r" * len(study["columns"])
    ruled = [r"    \toprule", f"    {heads}", r"    \midrule"]
    if sum(map(len, groups)) > LONG:
        return "\n".join([
            r"% needs \usepackage{booktabs,longtable}", rf"\begin{{longtable}}{{{columns}}}", rf"  {caption} \\",
            *ruled, r"    \endhead", *body, r"    \bottomrule", r"\end{longtable}", "",
        ])  # fmt: skip
    return "\n".join([
        r"% needs \usepackage{booktabs}", r"\begin{table}", r"  \centering", f"  {caption}",
        rf"  \begin{{tabular}}{{{columns}}}", *ruled, *body, r"    \bottomrule", r"  \end{tabular}", r"\end{table}", "",
    ])  # fmt: skip


def _caption(study: StudyView, *, red: bool) -> str:
    about = [f"{study['title']} ({study['paper']})", scale_line(study), *study["notes"], study["protocol_note"]]
    sentences = " ".join(f"{escaped(part.rstrip('.'))}." for part in about if part)
    flagged = rf" $\dagger$: {escaped(RED)}." if red else ""
    label = re.sub(r"[^A-Za-z0-9]+", "-", f"{study['name']}-{study['scale']}").strip("-")
    return rf"\caption{{{sentences} Brackets: 95\,\% intervals.{flagged}}}\label{{tab:{label}}}"


def _latex_row(row: StudyRow, cells: Sequence[CellText]) -> list[str]:
    lines = [("paper", [escaped(cell.paper) for cell in cells])]
    if any(cell.ours != NONE for cell in cells):
        lines += [
            ("ours", [_latex_ours(cell) for cell in cells]),
            ("difference", [escaped(cell.difference) for cell in cells]),
        ]
    state = "" if row["state"] == MEASURED else rf" {{\scriptsize {escaped(row['state'])}}}"
    name = escaped(row["title"]) + state
    return [" & ".join([name if not place else "", what, *texts]) for place, (what, texts) in enumerate(lines)]


def _latex_ours(cell: CellText) -> str:
    mark = r"$^\dagger$" if cell.red else ""
    small = rf" {{\scriptsize {escaped(cell.interval)}}}" if cell.interval else ""
    return f"{escaped(cell.ours)}{mark}{small}"


# ---------------------------------------------------------------- CSV


def csv_table(study: StudyView) -> str:
    """One line for each row and column, numbers with all their digits, by the names that the study's file uses."""
    file = io.StringIO()
    lines = csv.writer(file, lineterminator="\n")
    lines.writerow(CSV_HEAD)
    for row in study["rows"]:
        for column in study["columns"]:
            cell = cell_of(row, column["name"])
            numbers = [cell[key] for key in ("paper", "value", "low", "high", "difference")]
            flags = " ".join(f"{flag['level']}:{flag['code']}" for flag in cell["flags"])
            line = [row["name"], column["name"], *numbers, cell["n"] or None, cell["seeds"] or None, flags]
            lines.writerow([csv_cell(entry) for entry in line])
    return file.getvalue()
