"""The value that `evaluate` returns, and how it is written to a run folder and read again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from hardtack.base.arrays import read_arrays, write_arrays
from hardtack.base.errors import UserError
from hardtack.base.registry import suites
from hardtack.evaluation.recomputation import RECALLED, compare_results
from hardtack.evaluation.sanity import Flag
from hardtack.evaluation.settings import suite_class
from hardtack.results import (
    Result,
    append_results,
    find_metric,
    is_share,
    read_results,
    read_verdicts,
    verdicts_path,
    write_verdicts,
)
from hardtack.results.agreement import check_evaluation
from hardtack.results.audit_bound import audit_line
from hardtack.results.disagreement import Disagreement, wrong_file
from hardtack.results.evidence import examples_path, write_evidence
from hardtack.results.frames import data_frame, result_dicts, result_frame
from hardtack.results.notebook import table_html

if TYPE_CHECKING:
    import pandas

Columns = dict[str, np.ndarray]


@dataclass(frozen=True)
class Evaluation:
    """A measured model. `verdicts` has one row per image; `examples` holds the first few images."""

    id: str
    results: tuple[Result, ...]
    verdicts: Columns
    examples: Columns

    @property
    def clean_accuracy(self) -> float:
        return next(result.value for result in self.results if result.metric == "clean_accuracy")

    @property
    def robust_accuracy(self) -> float | None:
        """Under the strongest threat of the suite, or the union of all; None where nothing was attacked."""
        values = [r.value for r in self.results if r.metric in ("robust_accuracy", "worst_case_accuracy")]
        return values[-1] if values else None

    @property
    def robust(self) -> np.ndarray:
        """One bool per image: correct on the clean image and on every attacked one."""
        if "robust" not in self.verdicts:
            raise UserError(f"{self.id} attacked nothing; its verdicts have {', '.join(list(self.verdicts)[:8])} …")
        return self.verdicts["robust"]

    @property
    def curve(self) -> list[tuple[str, float]]:
        return self._by_threat("robust_accuracy")

    @property
    def certified(self) -> list[tuple[str, float]]:
        """Certified accuracy of the smoothed model at every radius of suite=smoothing."""
        return self._by_threat("certified_accuracy")

    def _by_threat(self, metric: str) -> list[tuple[str, float]]:
        return [(result.threat or "", result.value) for result in self.results if result.metric == metric]

    @property
    def flags(self) -> tuple[Flag, ...]:
        return self.results[-1].flags

    def to_dict(self) -> dict[str, Any]:
        """Everything but the images, as plain values that JSON can hold; `results` are whole records."""
        return {
            "id": self.id, "suite": self.results[0].suite, "data": self.results[0].data,
            "n": len(self.verdicts["index"]),
            **{result.metric: result.value for result in self.results if result.metric == "clean_accuracy"},
            "robust_accuracy": self.robust_accuracy, "flags": [dict(flag) for flag in self.flags],
            "results": result_dicts(self.results),
        }  # fmt: skip

    def to_frame(self, of: Literal["results", "images"] = "results") -> pandas.DataFrame:
        """A data frame of pandas: a row for each number, or with `of="images"` for each image and its verdicts."""
        if of not in ("results", "images"):
            raise UserError(f"to_frame has a row for each of 'results' or 'images', found {of!r}")
        return result_frame(self.results) if of == "results" else data_frame(self.verdicts)

    def _repr_html_(self) -> str:
        curve = [result for result in self.results if result.metric == "robust_accuracy"]
        audits = [line for facts in self.results[-1].extra.get("audit", ()) if (line := audit_line(facts))]
        rows = [(_label(result), result) for result in self._shown()]
        return table_html(self._title(), rows, flags=self.flags, notes=audits, curve=curve)

    def _title(self) -> str:
        first, last = self.results[0], self.results[-1]
        title = (last.attack or first.suite).removeprefix(f"{last.attack_settings.get('kind')} ")
        return f"{title} on {first.data}"

    def _shown(self) -> list[Result]:
        """The results without those of single views."""
        return [result for result in self.results if not find_metric(result.metric).per_view]

    def __repr__(self) -> str:
        return f"Evaluation({self.id}: {', '.join(f'{r.metric} {r.value:.2%}' for r in self.results)})"

    def __str__(self) -> str:
        first, last = self.results[0], self.results[-1]
        lines, shown = [f"{self._title()}  ({self.id})"], self._shown()
        if len(shown) < len(self.results) and first.suite in suites:
            lines += suite_class(first.suite).text_table(self.results)
        names = [_label(result) for result in shown]
        width = max(32, *(len(name) for name in names))
        for name, result in zip(names, shown, strict=True):
            kind = ".2%" if is_share(result.metric) else ".4g"
            interval = f"[{result.low:{kind}}, {result.high:{kind}}]"
            lines.append(f"{name:<{width}} {result.value:7{kind}}  {interval}  n={result.n}")
        lines += [line for facts in last.extra.get("audit", ()) if (line := audit_line(facts))]
        lines += [f"{flag['level'].upper()} FLAG {flag['code']}: {flag['message']}" for flag in self.flags]
        return "\n".join(lines)


def _label(result: Result) -> str:
    """`robust accuracy linf:8/255`, `patch accuracy occlude`."""
    parts = (result.metric.replace("_", " "), result.attack_settings.get("kind"), result.threat)
    return " ".join(str(part) for part in parts if part)


def write_evaluation(
    folder: str | Path,
    evaluation: Evaluation,
    *,
    example_facts: Mapping[str, np.ndarray] | None,
    facts: Mapping[str, Any],
    common: Mapping[str, Any],
    flags: Sequence[Flag],
) -> None:
    """Write results, verdicts, their evidence and, with `example_facts` (threat, class names), the example images.

    `facts`, `common` and `flags` (those that do not follow from the verdicts) go into the evidence record.
    """
    folder = Path(folder)
    if evaluation.examples and example_facts is not None:
        exact = evaluation.examples["x"]
        pictures = {**evaluation.examples, "x": eight_bits(exact), "x_exact": exact}
        write_arrays(examples_path(folder, evaluation.id), {**pictures, **example_facts})
    append_results(folder, evaluation.results, replacing=evaluation.id)
    write_evidence(folder, evaluation.results, evaluation.verdicts, facts=facts, common=common, flags=flags)
    # the verdicts are written last: their presence says that the evaluation is complete
    write_verdicts(verdicts_path(folder, evaluation.id), evaluation.verdicts)


def recall_evaluation(
    folder: str | Path, id: str, recompute: Callable[[Columns], Sequence[Result]]
) -> tuple[Evaluation | None, str]:
    """The evaluation as it was written when it was complete; None while there is something left to do.

    Only results that agree with their evidence are recalled, and that have the numbers which `recompute` gives for the
    verdict columns. Where they do not, the text names the field and both values, and the model is evaluated again.
    """
    folder = Path(folder)
    results = tuple(result for result in read_results(folder) if result.evaluation == id)
    if not results or not verdicts_path(folder, id).exists():
        return None, ""
    try:
        verdicts, examples = read_verdicts(verdicts_path(folder, id)), _read_examples(folder, id)
    except UserError as error:  # a damaged file must not stop the evaluation that would replace it
        return None, str(error)
    wrong = check_evaluation(folder, results).wrong or _other_numbers(results, verdicts, recompute)
    if wrong:
        more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
        return None, f"{folder / 'results.jsonl'}: {id}: {wrong[0]}{more}"
    return Evaluation(id, results, verdicts, examples), ""


def _other_numbers(
    results: Sequence[Result], verdicts: Columns, recompute: Callable[[Columns], Sequence[Result]]
) -> list[Disagreement]:
    try:
        expected = recompute(verdicts)
    except KeyError as error:
        name = str(error.args[0])
        if not name.startswith("clean_") and "@" not in name:  # a column that another version did not have
            return []
        return [wrong_file(name, "no such column", "a column", "the settings")]
    return compare_results(results, expected, RECALLED)


def eight_bits(x: np.ndarray) -> np.ndarray:
    return np.round(255 * x).astype(np.uint8)


def _read_examples(folder: Path, id: str) -> Columns:
    path = examples_path(folder, id)
    if not path.exists():
        return {}
    arrays = {name: value for name, value in read_arrays(path).items() if name not in ("threat", "classes")}
    exact = arrays.pop("x_exact")
    return {**arrays, "x": exact}
