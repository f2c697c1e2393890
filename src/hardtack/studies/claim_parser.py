"""The text of a claim, such as `worst(cctt) > worst(cccc)`, read into sums of cells.

side > side, side < side      a side is a sum of terms and numbers with + - *, parentheses and unary minus
column(row)                   a cell; column(a, b, c) on one side: the claim holds for each of these rows
mean(column, [a, b])          the mean over rows, or over a group: mean(column, group)
trend(column, [a, b, c])      the least-squares slope per step over rows in this order
abs(side) < NUMBER            equal within a margin
spearman(column, column)      rank correlation over all measured rows, or over [a, b, c, d]; against a number
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from hardtack.base.errors import UserError, did_you_mean
from hardtack.studies.claim_expression import Claim, Comparison, Equivalence, Linear, RankCorrelation, Term

FUNCTIONS = ("mean", "trend", "abs", "spearman")  # a column cannot have one of these names


def parse_claim(
    text: str, *, rows: Iterable[str], columns: Iterable[str], groups: Mapping[str, Sequence[str]] | None = None
) -> Claim:
    """Read a claim and check every name in it. `groups` are the rows of each named group."""
    return _Parser(text, tuple(rows), tuple(columns), {k: tuple(v) for k, v in (groups or {}).items()}).claim()


@dataclass(frozen=True)
class _Absolute:
    inside: list[Linear]


_Side = list[Linear] | _Absolute | RankCorrelation
_NUMBER = re.compile(r"(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?(?![\w.])", re.ASCII)
_COLUMN = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_ROW = re.compile(r"\w+", re.ASCII)


class _Parser:
    """Recursive descent over the text. A sum is a list: more than one entry if a cell lists several rows."""

    def __init__(self, text: str, rows: tuple[str, ...], columns: tuple[str, ...], groups: dict[str, tuple[str, ...]]):
        self.text, self.place = str(text), 0
        self.rows, self.columns, self.groups = rows, columns, groups

    def claim(self) -> Claim:
        left = self._side()
        sign = self._take(">") or self._take("<")
        if not sign:
            raise self._error("write LEFT > RIGHT or LEFT < RIGHT (equal within a margin: abs(LEFT - RIGHT) < NUMBER)")
        if self._take("="):
            raise self._error(f"write {sign} instead of {sign}=")
        right = self._side()
        if self._rest():
            raise self._error(f"'{self._rest()}' follows a complete claim; a claim has one comparison")
        return Claim(" ".join(self.text.split()), self._test(left, right, above=sign == ">"))

    def _test(self, left: _Side, right: _Side, *, above: bool) -> Comparison | Equivalence | RankCorrelation:
        if not isinstance(right, list) or (isinstance(left, list) and not any(part.terms for part in left)):
            left, right, above = right, left, not above  # the cells stand on the left: 5 > clean(a) is clean(a) < 5
        if not isinstance(right, list):
            raise self._error("abs(…) and spearman(…) are compared with a number, not with each other")
        if isinstance(left, list):
            return self._comparison(left, right, above)
        if len(right) != 1 or right[0].terms:
            raise self._error("abs(…) and spearman(…) are compared with a number")
        number = right[0].constant
        if isinstance(left, RankCorrelation):
            if not -1 < number < 1:
                raise self._error(f"a rank correlation lies between -1 and 1; {number:g} decides nothing")
            return replace(left, above=above, number=number)
        if above or number <= 0:
            raise self._error("an equality is written abs(…) < NUMBER with a positive number")
        for part in left.inside:
            self._check_cells(part)
        return Equivalence(tuple(left.inside), number)

    def _comparison(self, left: list[Linear], right: list[Linear], above: bool) -> Comparison:
        if len(left) > 1 and len(right) > 1:
            raise self._error("only one side may list several rows in one cell")
        parts = self._sum(left, [part.times(-1.0) for part in right])
        for part in parts:
            self._check_cells(part)
        return Comparison(tuple(parts), above)

    def _check_cells(self, part: Linear) -> None:
        if not part.coefficients():
            raise self._error("no cell is left: the cells cancel, or there are only numbers")

    def _side(self) -> _Side:
        start = self.place
        match = self._match(_COLUMN)
        if match not in ("abs", "spearman"):
            self.place = start
            return self._linear()
        self._expect("(", f"after {match}")
        side = self._spearman() if match == "spearman" else _Absolute(self._linear())
        self._expect(")", f"at the end of {match}(…)")
        if self._rest()[:1] not in ("", "<", ">"):
            raise self._error(f"{match}(…) stands alone on its side of the comparison")
        return side

    def _linear(self) -> list[Linear]:
        total = self._product()
        while sign := self._take("+") or self._take("-"):
            term = self._product()
            total = self._sum(total, term if sign == "+" else [part.times(-1.0) for part in term])
        return total

    def _product(self) -> list[Linear]:
        total = self._factor()
        while self._take("*"):
            other = self._factor()
            numbers, cells = sorted((total, other), key=lambda parts: any(part.terms for part in parts))
            if any(part.terms for part in numbers):
                raise self._error("two cells are multiplied; multiply a cell with a number only")
            total = [part.times(numbers[0].constant) for part in cells]
        if self._rest().startswith("/"):
            raise self._error("there is no division; multiply with a number: 0.5 * clean(a)")
        return total

    def _factor(self) -> list[Linear]:
        if self._take("-"):
            return [part.times(-1.0) for part in self._factor()]
        if self._take("("):
            inside = self._linear()
            self._expect(")", "at the end of (…)")
            return inside
        if number := self._match(_NUMBER):
            if not math.isfinite(float(number)):
                raise self._error(f"{number} is too large")
            return [Linear(constant=float(number))]
        name = self._match(_COLUMN)
        if not name:
            raise self._error(f"a number or column(row) is missing {self._here()}")
        if name in ("abs", "spearman"):
            raise self._error(f"{name}(…) stands alone on its side of the comparison")
        if name not in FUNCTIONS:
            self._known(name, self.columns, "column")
        self._expect("(", f"after {name}: write {'mean(column, [rows])' if name == 'mean' else name + '(row)'}")
        terms = self._function(name) if name in FUNCTIONS else self._cells(name)
        self._expect(")", f"at the end of {name}(…)")
        return [Linear((term,)) for term in terms]

    def _cells(self, column: str) -> list[Term]:
        rows = self._names("row")
        return [Term(kind="cell", column=column, rows=(row,)) for row in rows]

    def _function(self, name: str) -> list[Term]:
        column = self._column()
        self._expect(",", f"after the column of {name}(…)")
        start = self.place
        if self._take("["):
            rows = self._list()
            if name == "trend" and len(rows) < 2:
                raise self._error("a trend needs at least two rows")
            return [Term(kind="trend" if name == "trend" else "mean", column=column, rows=rows)]
        group = self._match(_ROW)
        if name == "trend" or not group:
            self.place = start
            raise self._error(f"{name}(column, …) takes rows in brackets: {name}({column}, [a, b, c])")
        self._known(group, self.groups, "group")
        if not self.groups[group]:
            raise self._error(f"the group '{group}' has no rows")
        return [Term(kind="mean", column=column, rows=self.groups[group], group=group)]

    def _spearman(self) -> RankCorrelation:
        first = self._column()
        self._expect(",", "between the two columns of spearman(…)")
        second = self._column()
        if first == second:
            raise self._error("spearman(…) takes two different columns")
        rows = None
        if self._take(","):
            self._expect("[", "before the rows of spearman(…)")
            rows = self._list()
        return RankCorrelation(
            first=first, second=second, rows=rows or self.rows, all_rows=rows is None, above=True, number=0.0
        )

    def _column(self) -> str:
        name = self._match(_COLUMN) or ""
        self._known(name, self.columns, "column")
        return name

    def _list(self) -> tuple[str, ...]:
        names = self._names("row")
        self._expect("]", "at the end of [rows]")
        return names

    def _names(self, what: str) -> tuple[str, ...]:
        names: list[str] = []
        while not names or self._take(","):
            name = self._match(_ROW) or ""
            self._known(name, self.rows, what)
            if name in names:
                raise self._error(f"the {what} '{name}' is named twice in one list")
            names.append(name)
        return tuple(names)

    def _sum(self, first: list[Linear], second: list[Linear]) -> list[Linear]:
        if len(first) > 1 and len(second) > 1:
            raise self._error("only one cell of a claim may list several rows")
        return [one + other for one in first for other in second]

    def _known(self, name: str, names: Iterable[str], what: str) -> None:
        if name in names:
            return
        if not name:
            raise self._error(f"the name of a {what} is missing {self._here()}")
        listed = ", ".join(names) or "none"
        raise self._error(f"there is no {what} '{name}'{did_you_mean(name, names) or f'; {what}s: {listed}'}")

    def _rest(self) -> str:
        return self.text[self.place :].strip()

    def _here(self) -> str:
        return f"before '{self._rest()}'" if self._rest() else "at the end"

    def _match(self, pattern: re.Pattern[str]) -> str | None:
        while self.text[self.place : self.place + 1].isspace():
            self.place += 1
        match = pattern.match(self.text, self.place)
        self.place = match.end() if match else self.place
        return match.group() if match else None

    def _take(self, sign: str) -> str | None:
        return self._match(re.compile(re.escape(sign)))

    def _expect(self, sign: str, where: str) -> None:
        if not self._take(sign):
            raise self._error(f"'{sign}' is missing {where}")

    def _error(self, problem: str) -> UserError:
        return UserError(f"claim '{self.text}': {problem}")
