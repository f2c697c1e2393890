"""What the report is told about a study: plain values, made by `hardtack.studies` and read by everything here.

Numbers are in the table's units (27.64 for 27.64 %, 0.676 where the paper prints fractions). None stands for a number
that does not exist: the paper prints none, or nothing was measured.
"""

from __future__ import annotations

import math
from typing import Literal, NotRequired

from typing_extensions import TypedDict  # pydantic checks records with it, and needs this one before Python 3.12

MEASURED = "measured"
NOT_RUN_YET = "not run yet"
NOT_AT_THIS_SCALE = "not run at this scale"
QUOTED = "quoted from the paper"  # the row is never trained
VERDICTS: tuple[Verdict, ...] = ("reproduced", "refuted", "undecided", "not measured")

Verdict = Literal["reproduced", "refuted", "undecided", "not measured"]


class Flag(TypedDict):
    """As in results: `level` is red or yellow."""

    level: str
    code: str
    message: str


class StudyCell(TypedDict):
    """A number of the table. `value` is the mean over the seeds, `values` one for each, `difference` ours − paper."""

    paper: float | None
    value: float | None
    low: float | None
    high: float | None
    n: int
    seeds: int
    values: list[float]
    flags: list[Flag]
    difference: float | None


class StudyColumn(TypedDict):
    """`unit` is percent, fraction or number; `digits`: decimals; `lower` is better; `ours`: the paper has none."""

    name: str
    title: str
    unit: str
    digits: int
    lower: bool
    ours: bool


class StudyRow(TypedDict):
    """`state` is one of the constants above, or `failed: …`. `runs` are folders relative to the page's folder.

    `run_names` say what tells the runs of the row apart: the training and the seed, where there are several.
    `measured_by` has the ids of the evaluations and analyses of its cells: other studies may share the runs.
    `x` is the row's place on the x axis of plots. A column that is missing in `cells` was not measured and the paper
    prints nothing.
    """

    name: str
    title: str
    group: str
    state: str
    runs: list[str]
    run_names: NotRequired[list[str]]
    measured_by: NotRequired[list[str]]
    x: float | None
    cells: dict[str, StudyCell]


class StudyClaim(TypedDict):
    """`says`: in words; `test`: as an expression; `sentence`: what was tested and what was found."""

    says: str
    where: str
    test: str
    verdict: Verdict
    sentence: str
    effect: float | None
    low: float | None
    high: float | None
    p: float | None
    adjusted_p: float | None


class StudyPlot(TypedDict):
    """Drawn from the cells. `x` and `y` are names of columns; x may be `x`, the rows' own. `log`: of the x axis.

    `x_title` is written at the x axis instead of the column's title or `x`.
    """

    kind: Literal["lines", "scatter", "bars"]
    x: str
    x_title: NotRequired[str]
    y: list[str]
    title: str
    log: bool


class StudyView(TypedDict):
    """A study at one scale.

    name           `architectures/table2`
    asks           the question that the table or figure answers
    kind           table, figure, sweep or text
    notes          sentences: what stands in for what at this scale
    protocol_note  where the paper's protocol differs from the one measured here
    figures        sections or entries of the report's charts that belong to the study (see `figure_names`)
    command        what makes the study again
    created        ISO time
    """

    name: str
    title: str
    paper: str
    asks: str
    kind: str
    scale: str
    seeds: int
    notes: list[str]
    protocol_note: str
    columns: list[StudyColumn]
    rows: list[StudyRow]
    claims: list[StudyClaim]
    plots: list[StudyPlot]
    figures: list[str]
    command: str
    created: str
    version: str
    device: str
    seconds: float


_EMPTY: StudyCell = {
    "paper": None, "value": None, "low": None, "high": None, "n": 0, "seeds": 0, "values": [], "flags": [],
    "difference": None,
}  # fmt: skip


def cell_of(row: StudyRow, column: str) -> StudyCell:
    """The cell of a column, all None where there is none; a number that is not finite counts as none."""
    cell = row["cells"].get(column, _EMPTY)
    return {
        **cell,
        "paper": _finite(cell["paper"]),
        "value": _finite(cell["value"]),
        "low": _finite(cell["low"]),
        "high": _finite(cell["high"]),
        "difference": _finite(cell["difference"]),
    }


def is_red(cell: StudyCell) -> bool:
    """Whether a check says that the number should not be believed as it stands."""
    return any(flag["level"] == "red" for flag in cell["flags"])


def rows_done(study: StudyView) -> int:
    return sum(row["state"] == MEASURED for row in study["rows"])


def rows_trained(study: StudyView) -> int:
    """Rows that are not only quoted."""
    return sum(row["state"] != QUOTED for row in study["rows"])


def verdict_counts(study: StudyView) -> dict[str, int]:
    """How many claims have each verdict, all four of them."""
    return {verdict: sum(claim["verdict"] == verdict for claim in study["claims"]) for verdict in VERDICTS}


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
