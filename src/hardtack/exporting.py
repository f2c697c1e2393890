"""`hardtack export`: results as a table for a spreadsheet, a paper or RobustBench."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from hardtack.config import build
from hardtack.errors import UserError
from hardtack.files import write_text
from hardtack.report import wording
from hardtack.results import Result, Row, Run, Table, leaderboard, read_runs
from hardtack.robustbench import Paper, model_infos


@dataclass(frozen=True, kw_only=True)
class ExportJob(Paper):
    """The words of `export`. Those of `Paper` are for format=robustbench alone."""

    format: Literal["csv", "latex", "robustbench"] = "csv"
    output: str | None = None


def export(runs: Sequence[str | Path], words: Iterable[str] = ()) -> str:
    """Write what the words ask for; what was written where, or the text itself where there is no `output`."""
    job: ExportJob = build(ExportJob, _plain_words(words))
    if job.format == "robustbench":
        return _export_infos(read_runs(runs), job)
    text = {"csv": csv_text, "latex": latex_text}[job.format](read_runs(runs))
    if job.output is None:
        return text.rstrip()
    return f"exported: {write_text(Path(job.output).expanduser(), text)}"


def _plain_words(words: Iterable[str]) -> dict[str, str]:
    """Values as they are typed: a title may hold a colon, and a name may look like a number."""
    pairs = [word.partition("=") for word in words]
    for key, equals, _ in pairs:
        if not equals:
            raise UserError(f"'{key}' is not of the form key=value (run folders come first)")
    return {key: value for key, _, value in pairs}


def _export_infos(runs: list[Run], job: ExportJob) -> str:
    infos = model_infos(runs, job)
    if job.output is None or job.output.endswith(".json"):
        if len(infos) > 1:
            listed = ", ".join(map(str, infos))
            raise UserError(
                f"there are {len(infos)} files to write ({listed}): give output=FOLDER, or one run and threat=…"
            )
        text = next(iter(infos.values()))
        return text.rstrip() if job.output is None else f"exported: {write_text(Path(job.output).expanduser(), text)}"
    folder = Path(job.output).expanduser()
    return "\n".join(f"exported: {write_text(folder / path, text)}" for path, text in infos.items())


# ---------------------------------------------------------------- csv

COLUMNS: dict[str, Callable[[Result], object]] = {
    "model": lambda result: result.model,
    "checkpoint": lambda result: result.checkpoint,
    "metric": lambda result: result.metric,
    "value": lambda result: result.value,
    "low": lambda result: result.low,
    "high": lambda result: result.high,
    "interval": lambda result: result.interval,
    "n": lambda result: result.n or None,
    "threat": lambda result: result.threat,
    "attack": lambda result: result.attack,
    "suite": lambda result: result.suite,
    "data": lambda result: result.data,
    "data_description": lambda result: result.data_description,
    "protocol": lambda result: result.protocol,
    "source": lambda result: result.extra.get("source"),
    "flags": lambda result: " ".join(f"{flag['level']}:{flag['code']}" for flag in result.flags),
    "precision": lambda result: result.precision,
    "seed": lambda result: result.seed,
    "created": lambda result: result.created,
    "weights_sha256": lambda result: result.weights_sha256,
    "evaluation": lambda result: result.evaluation,
}


def csv_text(runs: Sequence[Run]) -> str:
    """One line per result; accuracies are fractions, as they are stored."""
    file = io.StringIO()
    lines = csv.writer(file, lineterminator="\n")
    lines.writerow(["run", *COLUMNS])
    for run in runs:
        lines.writerows([run.label, *(read(result) for read in COLUMNS.values())] for result in run.results)
    return file.getvalue()


# ---------------------------------------------------------------- latex

_ESCAPED = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "%": r"\%", "#": r"\#", "_": r"\_",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "|": r"\textbar{}", '"': r"\textquotedbl{}", "×": r"$\times$", "·": r"$\cdot$", "≤": r"$\le$", "→": r"$\to$",
    "–": "--", "—": "---", "…": r"\ldots{}", "∪": r"$\cup$",
    "[": "{[}", "]": "{]}", "*": "{*}",  # after the end of a row they would be its arguments
}  # fmt: skip
_NORMS = {"linf": r"\ell_\infty", "l2": r"\ell_2", "l1": r"\ell_1", "l0": r"\ell_0"}


def latex_text(runs: Sequence[Run]) -> str:
    """One table for each group of numbers that may be compared, one row for each checkpoint of a run."""
    tables = leaderboard(runs)
    if not tables:
        raise UserError("there is nothing to put into a table: these runs have not been evaluated")
    return "\n".join(["% needs \\usepackage{booktabs}", *(_latex_table(table) for table in tables)]) + "\n"


def _latex_table(table: Table) -> str:
    has_clean = any(row.clean for row in table.rows)
    cells = {threat: cell for row in table.rows for threat, cell in row.cells.items()}
    heads = ["Run", *(["Clean"] if has_clean else []), *(_latex_head(cells[threat]) for threat in table.threats)]
    several = len({row.run for row in table.rows}) < len(table.rows)
    body = []
    for row in table.rows:
        name = " ".join(part for part in (row.run, row.checkpoint if several else "") if part)
        mark = r"$^\dagger$" if _red(row) else ""
        results = [*([row.clean] if has_clean else []), *(row.cells.get(threat) for threat in table.threats)]
        body.append(" & ".join([escaped(name) + mark, *map(_latex_cell, results)]) + r" \\")
    lines = [
        r"\begin{table}", r"  \centering", f"  \\caption{{{_caption(table)}}}",
        f"  \\begin{{tabular}}{{l{'r' * (len(heads) - 1)}}}", r"    \toprule", "    " + " & ".join(heads) + r" \\",
        r"    \midrule", *(f"    {line}" for line in body), r"    \bottomrule", r"  \end{tabular}", r"\end{table}",
    ]  # fmt: skip
    return "\n".join(lines)


def escaped(text: str) -> str:
    """Text that LaTeX prints as it stands."""
    return "".join(_ESCAPED.get(letter, letter) for letter in " ".join(text.split()))


def _latex_head(result: Result) -> str:
    limits = str(result.extra.get("limits", ""))
    if not result.threat or limits:
        return escaped(wording.reach_of(result) or wording.metric_name(result.metric))
    balls = [part.partition(":") for part in result.threat.split("+")]
    return "$" + r" \cup ".join(rf"{_NORMS.get(norm, norm)} \le {eps}" for norm, _, eps in balls) + "$"


def _latex_cell(result: Result | None) -> str:
    """`31.2 {\\scriptsize 28.4--34.1}`: per cent to one decimal, and the interval in small type."""
    if result is None:
        return "---"
    text = escaped(wording.number(result.value, result.metric).removesuffix("%"))
    interval = escaped(wording.interval(result).removesuffix("%"))
    return f"{text} {{\\scriptsize {interval}}}" if interval else text


def _caption(table: Table) -> str:
    unit = " (\\%)" if wording.is_share(table.metric) else ""
    results = [cell for row in table.rows for cell in row.cells.values()]
    intervals = dict.fromkeys(f"small: {result.interval}" for result in results if result.low is not None)
    how = [
        table.attack or table.suite, table.protocol, wording.images(results[0]), wording.source(table.source),
        *intervals,
    ]  # fmt: skip
    parts = [escaped(part) for part in dict.fromkeys(how) if part]
    codes = sorted({code for row in table.rows for code in _red(row)})
    flagged = rf" $\dagger$: not to be quoted before this is understood: {escaped(', '.join(codes))}." if codes else ""
    return f"{escaped(wording.metric_name(table.metric))}{unit}: {'; '.join(parts)}.{flagged}"


def _red(row: Row) -> list[str]:
    return [flag["code"] for flag in row.flags if flag["level"] == "red"]
