"""Claims of a paper, tested on what a study has measured: reproduced, refuted, undecided or not measured.

    claims = [parse_claim("worst(cctt) > worst(cccc)", rows=rows, columns=columns)]
    for verdict in judge(claims, cells, titles=titles, units=units):
        print(verdict.sentence)

All p-values of a study are adjusted together (Holm, "A simple sequentially rejective multiple test procedure",
Scandinavian Journal of Statistics 1979): the probability of one or more wrong verdicts is at most α. Claims that could
not be tested are not counted.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from hardtack.studies.cells import Cells
from hardtack.studies.claim_expression import Cell, Claim, Comparison, RankCorrelation
from hardtack.studies.claim_parser import FUNCTIONS, parse_claim
from hardtack.studies.claim_statistics import EXACT, Outcome, compare_with_zero, within_margin
from hardtack.studies.claim_words import describe_claim, sentence, unit_of
from hardtack.studies.rank_correlation import correlate

__all__ = ["FUNCTIONS", "Claim", "Verdict", "holm", "judge", "parse_claim"]

Judgement = Literal["reproduced", "refuted", "undecided", "not measured"]


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The result of one claim.

    effect     the claim's cells, left minus right, without its numbers; of several comparisons, that of the weakest
    low, high  its interval with confidence 1 - α (1 - 2α for `abs(…) < NUMBER`)
    p          two-sided, before and `adjusted` after Holm's correction; None if nothing could be tested
    n, seeds   images and trainings that were compared; `rows` is the sample of a rank correlation
    reason     why nothing could be tested, or what was not measured
    """

    claim: Claim
    verdict: Judgement
    effect: float | None = None
    low: float | None = None
    high: float | None = None
    unit: str = ""
    p: float | None = None
    adjusted: float | None = None
    n: int = 0
    seeds: int = 0
    rows: int = 0
    test: str = ""
    reason: str = ""
    sentence: str = ""


def judge(
    claims: Sequence[Claim],
    cells: Cells,
    *,
    alpha: float = 0.05,
    titles: Mapping[str, str] | None = None,
    units: Mapping[str, str] | None = None,
    exact: Collection[str] = (),
) -> list[Verdict]:
    """A verdict for each claim, with a family-wise error of `alpha` over all of them.

    titles  how rows, columns and groups are called in sentences
    units   `percent`, `fraction` or `number` for each column; `percent` if a column is not listed
    exact   columns that follow from the settings alone and have no error
    """
    titles, units = titles or {}, units or {}
    outcomes = [None if _missing(claim, cells) else _outcome(claim, cells, units, 1 - alpha, exact) for claim in claims]
    decided = {place: o for place, o in enumerate(outcomes) if o is not None and o.p is not None}
    tested = {place: o.p or 0.0 for place, o in decided.items() if o.test != EXACT}
    adjusted = dict.fromkeys(decided, 0.0) | dict(zip(tested, holm(list(tested.values())), strict=True))
    verdicts = []
    for place, (claim, outcome) in enumerate(zip(claims, outcomes, strict=True)):
        if outcome is None:
            verdicts.append(_not_measured(claim, cells, titles))
            continue
        verdict = _verdict(outcome, adjusted.get(place), alpha)
        text = sentence(
            claim, outcome, verdict=verdict, adjusted=adjusted.get(place), tested=len(tested),
            alpha=alpha, titles=titles, units=units,
        )  # fmt: skip
        verdicts.append(
            Verdict(
                claim=claim, verdict=verdict, sentence=text, unit=unit_of(claim, outcome.part, units),
                effect=outcome.effect, low=outcome.low, high=outcome.high, p=outcome.p, adjusted=adjusted.get(place),
                n=outcome.n, seeds=outcome.seeds, rows=outcome.rows, test=outcome.test, reason=outcome.reason,
            )
        )  # fmt: skip
    return verdicts


def holm(p_values: Sequence[float]) -> list[float]:
    """Adjusted p-values: those at most α are significant with a family-wise error of α."""
    adjusted, largest = [1.0] * len(p_values), 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=lambda place: p_values[place])):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[place]))
        adjusted[place] = largest
    return adjusted


def _outcome(
    claim: Claim, cells: Cells, units: Mapping[str, str], confidence: float, exact: Collection[str]
) -> Outcome:
    test = claim.test
    if isinstance(test, RankCorrelation):
        return correlate(test, cells, confidence=confidence)
    if isinstance(test, Comparison):
        above = test.above
        parts = [
            compare_with_zero(part, above=above, cells=cells, units=units, confidence=confidence, exact=exact)
            for part in test.parts
        ]  # fmt: skip
    else:
        margin = test.margin
        parts = [
            within_margin(part, margin=margin, cells=cells, units=units, confidence=confidence) for part in test.parts
        ]
    return _conjunction(parts)


def _conjunction(parts: Sequence[Outcome]) -> Outcome:
    """The outcome of a claim whose parts must all hold: an intersection-union test.

    If every part goes as claimed, the least certain part decides. A part that goes against the claim can refute it; the
    parts share the significance level there (Bonferroni), because any of them could.
    """
    against = [part for part in parts if part.p is not None and not part.as_claimed]
    if against:
        worst = min(against, key=lambda part: part.p or 0.0)
        return replace(worst, p=min(1.0, len(parts) * (worst.p or 0.0)))
    untested = [part for part in parts if part.p is None]
    return untested[0] if untested else max(parts, key=lambda part: part.p or 0.0)


def _verdict(outcome: Outcome, adjusted: float | None, alpha: float) -> Judgement:
    if adjusted is None or adjusted > alpha:
        return "undecided"
    return "reproduced" if outcome.as_claimed else "refuted"


def _missing(claim: Claim, cells: Cells) -> list[Cell]:
    """Cells that the claim needs and that were not measured. Without a list, spearman(…) takes the rows there are."""
    missing = [cell for cell in claim.cells() if not cells.get(cell)]
    if isinstance(claim.test, RankCorrelation) and claim.test.all_rows:
        measured = {column for row, column in claim.cells() if cells.get((row, column))}
        return missing if len(measured) < 2 else []
    return missing


def _not_measured(claim: Claim, cells: Cells, titles: Mapping[str, str]) -> Verdict:
    missing = _missing(claim, cells)
    named = ", ".join(f"{titles.get(column, column)} of {titles.get(row, row)}" for row, column in missing[:3])
    more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
    reason = f"no value for {named}{more}"
    text = f"{describe_claim(claim, None, titles)}: not measured: {reason}"
    return Verdict(claim=claim, verdict="not measured", reason=reason, sentence=text)
