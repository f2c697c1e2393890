"""A claim's test in plain words: what was compared, on what sample, by which test, with which result."""

from __future__ import annotations

import math
from collections.abc import Mapping

from hardtack.studies.claim_expression import Claim, Comparison, Equivalence, Linear, RankCorrelation, Term
from hardtack.studies.claim_sample import DEFAULT_UNIT
from hardtack.studies.claim_statistics import EXACT, Outcome

_MOST_NAMED = 4  # longer lists of rows are counted, not named


def describe(part: Linear, titles: Mapping[str, str]) -> str:
    """The cells of a part: `worst case of CCTT minus worst case of CCCC`."""
    words = ""
    for term in part.terms:
        sign = " minus " if term.factor < 0 else " plus "
        factor = "" if abs(term.factor) == 1 else f"{abs(term.factor):g} × "
        words += (sign if words or term.factor < 0 else "") + factor + _term(term, titles)
    return words.strip()


def _term(term: Term, titles: Mapping[str, str]) -> str:
    column = titles.get(term.column, term.column)
    rows = _rows(term.rows, titles)
    if term.kind == "cell":
        return f"{column} of {rows}"
    if term.kind == "trend":
        return f"slope of {column} per step over {rows}"
    return f"mean of {column} over " + (f"{titles.get(term.group, term.group)} ({rows})" if term.group else rows)


def _rows(rows: tuple[str, ...], titles: Mapping[str, str]) -> str:
    return ", ".join(titles.get(row, row) for row in rows) if len(rows) <= _MOST_NAMED else f"{len(rows)} rows"


def describe_claim(claim: Claim, outcome: Outcome | None, titles: Mapping[str, str]) -> str:
    """What the number of the sentence is: the part that decided, or all parts where none was tested."""
    test = claim.test
    if isinstance(test, RankCorrelation):
        columns = [titles.get(name, name) for name in (test.first, test.second)]
        rows = f"{outcome.rows} rows" if outcome else ("all rows" if test.all_rows else _rows(test.rows, titles))
        return f"rank correlation (Spearman) of {columns[0]} and {columns[1]} over {rows}"
    if outcome is None or outcome.part is None:
        return "; ".join(describe(part, titles) for part in test.parts)
    lead = f"weakest of {len(test.parts)} comparisons: " if len(test.parts) > 1 else ""
    return lead + describe(outcome.part, titles)


def unit_of(claim: Claim, part: Linear | None, units: Mapping[str, str]) -> str:
    """`points` for a difference of percentages, `%` for a percentage, nothing for other numbers."""
    if part is None or isinstance(claim.test, RankCorrelation):
        return ""
    if any(units.get(term.column, DEFAULT_UNIT) != "percent" for term in part.terms):
        return ""
    if [term.kind for term in part.terms] == ["trend"]:
        return "points per step"
    return "%" if _is_level(part) else "points"


def _is_level(part: Linear) -> bool:
    """A cell or a mean of cells by itself, which has no sign; every other sum is a difference of some kind."""
    return len(part.terms) == 1 and part.terms[0].kind != "trend" and part.terms[0].factor > 0


def sentence(
    claim: Claim, outcome: Outcome, *, verdict: str, adjusted: float | None, tested: int,
    alpha: float, titles: Mapping[str, str], units: Mapping[str, str],
) -> str:  # fmt: skip
    """All of it, as one sentence; `tested` claims share the significance level."""
    said = [describe_claim(claim, outcome, titles) + _numbers(claim, outcome, alpha, units)]
    if claimed := _claimed(claim, outcome):
        said.append(claimed)
    if outcome.p is None:
        observed = "" if outcome.effect is None else f"{'as' if outcome.as_claimed else 'not as'} claimed, but "
        return ", ".join([*said, f"{observed}not tested: {outcome.reason}"]) + f": {verdict}"
    if outcome.test == EXACT:
        return ", ".join([*said, "which follows from the settings and needs no test"]) + f": {verdict}"
    said += [_sample(outcome), _p(outcome.p)]
    if adjusted is not None and tested > 1:
        said.append(f"{_p(adjusted).removeprefix('p ').removeprefix('= ')} after Holm over {tested} claims")
    return ", ".join(said) + f": {verdict}"


def _numbers(claim: Claim, outcome: Outcome, alpha: float, units: Mapping[str, str]) -> str:
    if outcome.effect is None:
        return ""
    unit = unit_of(claim, outcome.part, units)
    signed = outcome.part is None or not _is_level(outcome.part)
    digits = _digits(outcome, least=1 if unit else 0)
    text = f": {outcome.effect:{'+' if signed else ''}.{digits}f} {unit}".rstrip()
    if outcome.low is None or outcome.high is None:
        return text
    kind = f", {100 * (1 - 2 * alpha):g} % interval " if isinstance(claim.test, Equivalence) else " "
    return f"{text}{kind}[{outcome.low:.{digits}f}, {outcome.high:.{digits}f}]"


def _digits(outcome: Outcome, *, least: int) -> int:
    """Two significant digits of the interval's width."""
    width = abs(outcome.effect or 0.0)
    if outcome.low is not None and outcome.high is not None:
        width = outcome.high - outcome.low or width
    return min(6, max(least, 1 - math.floor(math.log10(width)))) if width > 0 else max(least, 1)


def _claimed(claim: Claim, outcome: Outcome) -> str:
    """What was claimed of the number; nothing if it is only `above 0`."""
    test, part = claim.test, outcome.part
    if isinstance(test, RankCorrelation):
        side, number = test.above, test.number
    elif part is None:
        return ""
    elif isinstance(test, Equivalence):
        centre = -part.constant
        limits = f"between {centre - test.margin:g} and {centre + test.margin:g}"
        return "claimed " + (limits if centre else f"within ±{test.margin:g}")
    else:
        assert isinstance(test, Comparison)
        side, number = test.above, -part.constant or 0.0
    return "" if side and number == 0 else f"claimed {'above' if side else 'below'} {number:g}"


def _sample(outcome: Outcome) -> str:
    seeds = "1 seed" if outcome.seeds == 1 else f"{outcome.seeds} seeds"
    if outcome.rows:
        return f"with rows and not images as the sample, {seeds} ({outcome.test})"
    several = outcome.part is not None and len(outcome.part.coefficients()) > 1
    images = f"{'paired ' if several else ''}over {outcome.n:,} images, " if outcome.n else ""
    caution = "; other trainings may differ" if outcome.seeds == 1 else ""
    return f"{images}{seeds} ({outcome.test}{caution})"


def _p(value: float) -> str:
    return "p < 0.0001" if value < 1e-4 else f"p = {value:.2g}"
