"""The text of claims: what is read, and what each wrong text is told."""

import pytest

from hardtack.base.errors import UserError
from hardtack.studies.claim_expression import Equivalence
from hardtack.studies.claim_parser import parse_claim

ROWS = ("cccc", "cctt", "cttt", "50", "4x4")
COLUMNS = ("worst", "clean", "aa_linf")
GROUPS = {"attention": ("cctt", "cttt"), "empty": ()}


def parse(text):
    return parse_claim(text, rows=ROWS, columns=COLUMNS, groups=GROUPS)


def sums(text):
    """For each part: coefficients by cell, constant; and the side."""
    test = parse(text).test
    return [(part.coefficients(), pytest.approx(part.constant)) for part in test.parts], getattr(test, "above", None)


@pytest.mark.parametrize(
    "text, coefficients, constant, above",
    [
        ("worst(cctt) > worst(cccc)", {("cctt", "worst"): 1, ("cccc", "worst"): -1}, 0, True),
        (" worst(cctt)<worst( cccc )+2 ", {("cctt", "worst"): 1, ("cccc", "worst"): -1}, -2, False),
        ("5 > clean(50)", {("50", "clean"): 1}, -5, False),
        ("-clean(4x4) > -.5e1", {("4x4", "clean"): -1}, 5, True),
        ("2 * (clean(50) - 3) * -1.5 > 1", {("50", "clean"): -3}, 8, True),
        ("mean(worst, [cccc, 50]) > mean(worst, attention)",
         {("cccc", "worst"): 0.5, ("50", "worst"): 0.5, ("cctt", "worst"): -0.5, ("cttt", "worst"): -0.5}, 0, True),
        ("trend(worst, [cccc, cctt, cttt, 50]) > 0",
         {("cccc", "worst"): -0.3, ("cctt", "worst"): -0.1, ("cttt", "worst"): 0.1, ("50", "worst"): 0.3}, 0, True),
        ("mean(worst, [cccc, cctt]) > 0.5*worst(cccc)", {("cctt", "worst"): 0.5}, 0, True),  # what cancels is left out
    ],
)  # fmt: skip
def test_a_claim_is_a_sum_of_cells(text, coefficients, constant, above):
    assert sums(text) == ([(pytest.approx(coefficients), constant)], above)


def test_a_cell_with_several_rows_is_a_claim_about_each():
    parts, above = sums("worst(cctt) - 1 > 2 * worst(cccc, 50)")
    assert above and [part for part, _ in parts] == [
        {("cctt", "worst"): 1, ("cccc", "worst"): -2}, {("cctt", "worst"): 1, ("50", "worst"): -2},
    ]  # fmt: skip
    assert len(parse("worst(cccc, cctt, 50) > 20").test.parts) == 3


def test_margins_and_rank_correlations():
    claim = parse("abs(clean(cctt) - clean(cccc)) < 1")
    assert isinstance(claim.test, Equivalence) and claim.test.margin == 1
    assert parse("1 > abs(clean(cctt) - clean(cccc))").test == claim.test
    everything = parse("spearman(worst, clean) > 0").test
    assert everything.rows == ROWS and everything.all_rows and everything.above
    some = parse("0.5 > spearman(worst, clean, [50, cccc, cctt, 4x4])").test
    assert some.rows == ("50", "cccc", "cctt", "4x4") and not some.all_rows
    assert not some.above and some.number == 0.5


def test_the_cells_of_a_claim_are_listed_once():
    assert parse("worst(cctt) > worst(cccc, 50)").cells() == (("cctt", "worst"), ("cccc", "worst"), ("50", "worst"))
    assert ("4x4", "clean") in parse("spearman(worst, clean) > 0").cells()


@pytest.mark.parametrize(
    "text, message",
    [
        ("worst(cctt) > wrst(cccc)", "there is no column 'wrst' (did you mean 'worst'?)"),
        ("worst(cct) > 1", "there is no row 'cct' (did you mean 'cctt'?)"),
        ("worst(zz) > 1", "there is no row 'zz'; rows: cccc, cctt, cttt, 50, 4x4"),
        ("mean(worst, atention) > 1", "there is no group 'atention' (did you mean 'attention'?)"),
        ("mean(worst, empty) > 1", "the group 'empty' has no rows"),
        ("worst(cctt)", "write LEFT > RIGHT or LEFT < RIGHT"),
        ("worst(cctt) == worst(cccc)", "equal within a margin: abs(LEFT - RIGHT) < NUMBER"),
        ("worst(cctt) >= 1", "write > instead of >="),
        ("worst(cctt) * clean(cccc) > 1", "multiply a cell with a number only"),
        ("worst(cctt) / 2 > 1", "there is no division"),
        ("trend(worst, attention) > 0", "takes rows in brackets: trend(worst, [a, b, c])"),
        ("trend(worst, [cccc]) > 0", "a trend needs at least two rows"),
        ("mean(worst, [cccc, cccc]) > 0", "the row 'cccc' is named twice"),
        ("abs(worst(cccc)) > 1", "an equality is written abs(…) < NUMBER"),
        ("abs(worst(cccc)) < -1", "with a positive number"),
        ("abs(worst(cccc)) < worst(cctt)", "are compared with a number"),
        ("2 * abs(worst(cccc)) < 1", "abs(…) stands alone"),
        ("abs(worst(cccc)) + 1 < 2", "abs(…) stands alone"),
        ("spearman(worst, worst) > 0", "two different columns"),
        ("spearman(worst, clean) > 1", "lies between -1 and 1"),
        ("spearman(worst, clean) > spearman(clean, worst)", "not with each other"),
        ("worst(cccc, cctt) > worst(cttt, 50)", "only one side may list several rows"),
        ("worst(cccc, cctt) + clean(cccc, cctt) > 1", "only one cell of a claim may list several rows"),
        ("worst(cccc) > worst(cccc)", "no cell is left"),
        ("0 * worst(cccc) > 1", "no cell is left"),
        ("1 > 0", "no cell is left"),
        ("worst(cccc) > clean(cccc) > 1", "'> 1' follows a complete claim"),
        ("worst(cccc) > 2x", "missing before '2x'"),
        ("worst(cccc) > 1e999", "1e999 is too large"),
        ("worst cccc > 1", "'(' is missing after worst: write worst(row)"),
        ("(worst(cccc) > 1", "')' is missing at the end of (…)"),
        ("worst() > 1", "the name of a row is missing before ') > 1'"),
        ("worst(cccc) >", "a number or column(row) is missing at the end"),
        ("", "a number or column(row) is missing at the end"),
    ],
)
def test_a_wrong_text_is_named_with_what_to_write(text, message):
    with pytest.raises(UserError) as error:
        parse(text)
    assert str(error.value).startswith(f"claim '{text}': ") and message in str(error.value)
