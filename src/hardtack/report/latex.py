"""Results as LaTeX tables, for a paper: one table for each group of numbers that may be compared."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass

from hardtack.base.errors import UserError
from hardtack.base.printable import printable
from hardtack.report import wording
from hardtack.report.measures import split_tables
from hardtack.results import (
    REPORTED,
    ProtocolRow,
    ProtocolTable,
    Result,
    Row,
    Run,
    Table,
    is_share,
    leaderboard,
    protocol_tables,
)
from hardtack.results.leaderboard import CLEAN

_ESCAPED = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "%": r"\%", "#": r"\#", "_": r"\_",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "|": r"\textbar{}", '"': "''", "×": r"$\times$", "·": r"$\cdot$", "≤": r"$\le$", "→": r"$\to$",
    "≥": r"$\ge$", "±": r"$\pm$", "−": "$-$", "∞": r"$\infty$", "ℓ": r"$\ell$", "ε": r"$\varepsilon$", "σ": r"$\sigma$",
    "α": r"$\alpha$", "λ": r"$\lambda$", "β": r"$\beta$", "ρ": r"$\rho$", "₀": "$_0$", "₁": "$_1$", "₂": "$_2$",
    "–": "--", "—": "---", "…": r"\ldots{}", "∪": r"$\cup$",
    "[": "{[}", "]": "{]}", "*": "{*}",  # after the end of a row they would be its arguments
}  # fmt: skip
_BALL = re.compile(r"[A-Za-z0-9]+:[0-9.e/+-]+")
# as papers write them
_ATTACKS = {
    "autoattack": "AutoAttack", "pgd": "PGD", "fgsm": "FGSM", "apgd": "APGD", "apgd_t": "targeted APGD", "fab": "FAB",
    "fab_t": "targeted FAB", "square": "Square", "cw": r"C\&W", "mim": "MIM", "deepfool": "DeepFool", "ddn": "DDN",
    "ead": "EAD", "fmn": "FMN", "boundary": "Boundary", "hopskipjump": "HopSkipJump", "nes": "NES", "spsa": "SPSA",
    "patch_fool": "Patch-Fool",
}  # fmt: skip
_ATTACK_SUITES = ("pgd", "attacks", "autoattack", "sweep", "curve")
_INTERVALS = {"wilson 95%": r"95\,\% Wilson intervals", "bootstrap 95%": r"95\,\% bootstrap intervals"}
_GREEK = {"sigma": "σ", "alpha": "α"}
_NORMS = {"linf": r"\ell_\infty", "l2": r"\ell_2", "l1": r"\ell_1", "l0": r"\ell_0"}


def latex_text(runs: Sequence[Run]) -> str:
    """Protocols first, then a table for each group of numbers that may be compared, with a row for each checkpoint.

    What only one run has is one table of this run.
    """
    shared, alone = split_tables(leaderboard(runs))
    tables = [*map(_of_protocol, protocol_tables(runs)), *map(_of_table, shared)]
    tables += [_of_run(run, own, only=len(runs) > 1) for run, own in alone.items()]
    if not tables:
        raise UserError("these runs have no results to put into a table; evaluate them first: hardtack evaluate RUN")
    written: dict[str, str] = {}
    for table in tables:
        numbered = (f"tab:{table.label}-{number}" for number in itertools.count(2))
        label = next(label for label in itertools.chain([f"tab:{table.label}"], numbered) if label not in written)
        written[label] = _written(table, label)
    return "\n\n".join(["% needs \\usepackage{booktabs}", *written.values()]) + "\n"


@dataclass(frozen=True, kw_only=True)
class _Tabular:
    """A table before it is written: `about` begins its caption, `label` distinguishes it.

    Each row has its first cells as LaTeX, and its results; `first` are the columns of the former, `heads` all others.
    """

    heads: list[str]
    rows: list[tuple[list[str], list[Result | None]]]
    about: str
    label: str
    first: tuple[tuple[str, str], ...] = (("Run", "l"),)


def _of_protocol(table: ProtocolTable) -> _Tabular:
    cells = [cell for row in table.rows for cell in row.cells.values()]
    shares = " (\\%)" if all(is_share(cell.metric) for cell in cells) else ""
    return _Tabular(
        heads=[*map(escaped, table.columns)],
        rows=_named(table.rows, [[row.cells.get(column) for column in table.columns] for row in table.rows]),
        about=f"Protocol {escaped(table.protocol)}{shares} {_images(cells[0])}{_sources(table.sources)}.",
        label=_slug(table.protocol, table.data),
    )


def _of_table(table: Table) -> _Tabular:
    has_clean = any(row.clean for row in table.rows)
    cells = {threat: cell for row in table.rows for threat, cell in row.cells.items()}
    first = next(iter(cells.values()))
    name = wording.metric_name(table.metric)
    title = f"Clean accuracy and {name[0].lower()}{name[1:]}" if has_clean and name[1:2].islower() else name
    note = f" Protocol: {escaped(table.protocol)}." if table.protocol else ""
    unit = " (\\%)" if is_share(table.metric) else ""
    attack = wording.attack_name(table.attack, table.suite)
    attack = "" if table.metric == CLEAN else attack if " " not in attack else table.suite
    return _Tabular(
        heads=[*(["Clean"] if has_clean else []), *(_latex_head(cells[threat]) for threat in table.threats)],
        rows=_named(
            table.rows,
            [[*([row.clean] if has_clean else []), *map(row.cells.get, table.threats)] for row in table.rows],
        ),
        about=f"{escaped(title)}{unit}{_by(table)} {_images(first)}{_sources([table.source])}.{note}",
        label=_slug(table.metric, attack, table.data),
    )


def _of_run(run: str, tables: Sequence[Table], *, only: bool) -> _Tabular:
    """What one run has: a row for each number."""
    rows: list[tuple[list[str], list[Result | None]]] = []
    for table in tables:
        (row,) = table.rows
        for threat in table.threats:
            result = row.cells[threat]
            by = _by(table).strip()
            by = by[1:-1] if by.startswith("(") else by.removeprefix("under ")
            how = f"{by} {_images(result)}".strip()
            unit = "" if is_share(result.metric) else " (no share)"
            name = escaped(wording.metric_name(result.metric)) + unit
            reach = _latex_head(result) if result.threat or result.extra.get("limits") else ""
            rows.append(([f"{name} {reach}".strip(), f"{how}{_sources([table.source])}"], [result, row.clean]))
    return _Tabular(
        heads=["Result", "Clean"],
        rows=rows,
        about=f"Measurements (\\%) of {escaped(run)}{', which no other run has' if only else ''}.",
        label=_slug("measurements", run),
        first=(("Measure", "l"), ("How", r"p{0.38\linewidth}")),
    )


def _named(
    rows: Sequence[Row] | Sequence[ProtocolRow], cells: list[list[Result | None]]
) -> list[tuple[list[str], list[Result | None]]]:
    """Rows that begin with their run, and with their checkpoint where a run has several."""
    several = len({row.run for row in rows}) < len(rows)
    names = [" ".join(part for part in (row.run, row.checkpoint if several else "") if part) for row in rows]
    return [([escaped(name)], own) for name, own in zip(names, cells, strict=True)]


def _by(table: Table) -> str:
    """` under PGD (20 steps, 1 restart)`; what was done to the images, where nothing was attacked."""
    if table.metric == CLEAN:
        return ""
    text = table.attack or table.suite
    name, _, settings = text.partition(" ")
    known = _ATTACKS.get(name)
    if known is None and (table.suite in _ATTACK_SUITES or table.suite == REPORTED):
        known = escaped(name)
    said = escaped(", ".join(map(_setting, settings.split())))
    if name == "smoothing":
        return f" by randomised smoothing ({said})"
    if known is None:  # corruptions, patches, sequences: a description
        return f" ({escaped(text)})"
    return f" under {known} ({said})" if said else f" under {known}"


def _setting(word: str) -> str:
    """`20 steps` of `steps=20`, `tier fast` of `tier=fast`, `σ = 0.25` of `sigma=0.25`."""
    key, equals, value = word.partition("=")
    if key in _GREEK:
        return f"{_GREEK[key]} = {value}"
    if key in ("steps", "restarts", "queries", "searches") and value.isdigit():
        return f"{value} {key.removesuffix('s') if value == '1' else key}"
    return f"{key} {value}" if equals else word


def _images(result: Result) -> str:
    data = escaped(result.data)
    return f"on {wording.image_count(result.n)} of {data}" if result.n else f"on {data}"


def _sources(sources: Sequence[str]) -> str:
    named = [wording.source(source) for source in sources]
    return "".join(f"; {escaped(source)}" for source in named if source)


def _slug(*parts: str) -> str:
    """`robust-accuracy-pgd-cifar10-test`: letters, digits and hyphens, which every package for references takes."""
    return (
        "-".join(filter(None, (re.sub(r"[^a-z0-9]+", "-", part.lower()).strip("-")[:60] for part in parts)))
        or "results"
    )


def _written(table: _Tabular, label: str) -> str:
    """Rows with red flags are marked with a dagger; the caption explains it, and the numbers in small type."""
    body, codes = [], set()
    for first, cells in table.rows:
        red = {flag["code"] for cell in cells if cell for flag in cell.flags if flag["level"] == "red"}
        codes |= red
        mark = r"$^\dagger$" if red else ""
        body.append(" & ".join([first[0] + mark, *first[1:], *map(_latex_cell, cells)]) + r" \\")
    with_interval = [cell for _, cells in table.rows for cell in cells if cell and cell.low is not None]
    kinds = [_INTERVALS.get(kind, escaped(kind)) for kind in dict.fromkeys(cell.interval for cell in with_interval)]
    small = f" Small numbers: {wording.listed(kinds)}." if kinds else ""
    flagged = rf" $\dagger$: flagged as unreliable ({escaped(', '.join(sorted(codes)))})." if codes else ""
    columns = "".join(kind for _, kind in table.first) + "r" * len(table.heads)
    heads = [*(name for name, _ in table.first), *table.heads]
    lines = [
        r"\begin{table}", r"  \centering", f"  \\caption{{{table.about}{small}{flagged}}}", f"  \\label{{{label}}}",
        f"  \\begin{{tabular}}{{{columns}}}", r"    \toprule", f"    {' & '.join(heads)} \\\\", r"    \midrule",
        *(f"    {line}" for line in body), r"    \bottomrule", r"  \end{tabular}", r"\end{table}",
    ]  # fmt: skip
    return "\n".join(lines)


def escaped(text: str) -> str:
    """Text in which LaTeX's special characters are escaped, and control characters are shown."""
    return "".join(_ESCAPED.get(letter, letter) for letter in printable(" ".join(text.split())))


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
