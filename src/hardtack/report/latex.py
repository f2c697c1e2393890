"""Results as LaTeX tables, for a paper: one table for each group of numbers that may be compared."""

from __future__ import annotations

import re
from collections.abc import Sequence

from hardtack.base.errors import UserError
from hardtack.report import wording
from hardtack.results import ProtocolRow, ProtocolTable, Result, Row, Run, Table, is_share, leaderboard, protocol_tables

_ESCAPED = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "%": r"\%", "#": r"\#", "_": r"\_",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "|": r"\textbar{}", '"': r"\textquotedbl{}", "×": r"$\times$", "·": r"$\cdot$", "≤": r"$\le$", "→": r"$\to$",
    "≥": r"$\ge$", "±": r"$\pm$", "−": "$-$", "∞": r"$\infty$", "ℓ": r"$\ell$", "ε": r"$\varepsilon$", "σ": r"$\sigma$",
    "λ": r"$\lambda$", "β": r"$\beta$", "ρ": r"$\rho$", "₀": "$_0$", "₁": "$_1$", "₂": "$_2$",
    "–": "--", "—": "---", "…": r"\ldots{}", "∪": r"$\cup$",
    "[": "{[}", "]": "{]}", "*": "{*}",  # after the end of a row they would be its arguments
}  # fmt: skip
_BALL = re.compile(r"[A-Za-z0-9]+:[0-9.e/+-]+")
_NORMS = {"linf": r"\ell_\infty", "l2": r"\ell_2", "l1": r"\ell_1", "l0": r"\ell_0"}


def latex_text(runs: Sequence[Run]) -> str:
    """Protocols first, then a table for each group of numbers that may be compared; a row for each checkpoint."""
    tables = [*map(_latex_protocol, protocol_tables(runs)), *map(_latex_table, leaderboard(runs))]
    if not tables:
        raise UserError("these runs have no results to put into a table; evaluate them first: hardtack evaluate RUN")
    return "\n".join(["% needs \\usepackage{booktabs}", *tables]) + "\n"


def _latex_protocol(table: ProtocolTable) -> str:
    cells = [row.cells.get(column) for row in table.rows for column in table.columns]
    about = [wording.images(next(cell for cell in cells if cell)), *map(wording.source, table.sources)]
    rows = [(row, [row.cells.get(column) for column in table.columns]) for row in table.rows]
    return _tabular([*map(escaped, table.columns)], rows, f"{escaped(table.protocol)} (\\%)", about)


def _latex_table(table: Table) -> str:
    has_clean = any(row.clean for row in table.rows)
    cells = {threat: cell for row in table.rows for threat, cell in row.cells.items()}
    heads = [*(["Clean"] if has_clean else []), *(_latex_head(cells[threat]) for threat in table.threats)]
    rows = [
        (row, [*([row.clean] if has_clean else []), *(row.cells.get(threat) for threat in table.threats)])
        for row in table.rows
    ]
    unit = " (\\%)" if is_share(table.metric) else ""
    first = next(iter(table.rows[0].cells.values()))
    about = [table.attack or table.suite, table.protocol, wording.images(first), wording.source(table.source)]
    return _tabular(heads, rows, f"{escaped(wording.metric_name(table.metric))}{unit}", about)


def _tabular(
    heads: Sequence[str], rows: Sequence[tuple[Row | ProtocolRow, list[Result | None]]], title: str, about: list[str]
) -> str:
    """`about`: what the caption says about the numbers; rows with red flags are marked with a dagger."""
    several = len({row.run for row, _ in rows}) < len(rows)
    body, codes = [], set()
    for row, cells in rows:
        name = " ".join(part for part in (row.run, row.checkpoint if several else "") if part)
        red = {flag["code"] for cell in cells if cell for flag in cell.flags if flag["level"] == "red"}
        codes |= red
        mark = r"$^\dagger$" if red else ""
        body.append(" & ".join([escaped(name) + mark, *map(_latex_cell, cells)]) + r" \\")
    with_interval = [cell for _, cells in rows for cell in cells if cell and cell.low is not None]
    parts = [*about, *(f"small: {cell.interval}" for cell in with_interval)]
    listed = escaped(", ".join(sorted(codes)))
    flagged = rf" $\dagger$: flagged as unreliable: {listed}." if codes else ""
    caption = f"{title}: {'; '.join(escaped(part) for part in dict.fromkeys(parts) if part)}.{flagged}"
    lines = [
        r"\begin{table}", r"  \centering", f"  \\caption{{{caption}}}",
        f"  \\begin{{tabular}}{{l{'r' * len(heads)}}}", r"    \toprule", "    " + " & ".join(["Run", *heads]) + r" \\",
        r"    \midrule", *(f"    {line}" for line in body), r"    \bottomrule", r"  \end{tabular}", r"\end{table}",
    ]  # fmt: skip
    return "\n".join(lines)


def escaped(text: str) -> str:
    """Text in which LaTeX's special characters are escaped."""
    return "".join(_ESCAPED.get(letter, letter) for letter in " ".join(text.split()))


def _latex_head(result: Result) -> str:
    limits = str(result.extra.get("limits", ""))
    if not result.threat or limits:
        return escaped(wording.reach_of(result) or wording.metric_name(result.metric))
    balls = [part.partition(":") for part in result.threat.split("+")]
    if not all(_BALL.fullmatch(f"{norm}:{eps}") for norm, _, eps in balls):  # anything could stand there
        return escaped(result.threat)
    return "$" + r" \cup ".join(rf"{_NORMS.get(norm, norm)} \le {eps}" for norm, _, eps in balls) + "$"


def _latex_cell(result: Result | None) -> str:
    """`31.2 {\\scriptsize 28.4--34.1}`: per cent to one decimal, and the interval in small type."""
    if result is None:
        return "---"
    text = escaped(wording.number(result.value, result.metric).removesuffix("%"))
    interval = escaped(wording.interval(result).removesuffix("%"))
    return f"{text} {{\\scriptsize {interval}}}" if interval else text
