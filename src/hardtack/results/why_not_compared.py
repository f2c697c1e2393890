"""Why numbers of two runs may not be compared: `n 20 against 12, steps 5 against 3`.

For each metric that both runs have, the two results that differ in least are found, and what they differ in is said.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable, Sequence
from typing import Any

from hardtack.base.config import flat
from hardtack.base.limits import shorten
from hardtack.results.metrics import find_metric
from hardtack.results.record import INCIDENTAL_SETTINGS, PROTOCOL, Result

CLEAN = "clean_accuracy"
MOST_SAID = 4  # differences of one pair, and metrics
_MOST_PAIRS = 2000  # of one metric; of more the first are looked at
_FIRST_IMAGES = re.compile(r"first \d+")  # n says it, too


def why_not(first: Sequence[Result], second: Sequence[Result], *, but: Iterable[str] = ()) -> list[str]:
    """A line for each metric that both have and `but` does not name: `robust accuracy: steps 5 against 3`."""
    taken = set(but)
    metrics = [name for name in dict.fromkeys(result.metric for result in first) if name not in taken]
    lines = []
    for metric in metrics:
        pairs = itertools.product(*([r for r in results if r.metric == metric] for results in (first, second)))
        different = [differences(*pair) for pair in itertools.islice(pairs, _MOST_PAIRS)]
        nearest = min(different, key=len, default=None)
        if nearest:
            more = f" and {len(nearest) - MOST_SAID} more" if len(nearest) > MOST_SAID else ""
            lines.append(f"{metric.replace('_', ' ')}: {', '.join(nearest[:MOST_SAID])}{more}")
    return lines


def differences(first: Result, second: Result) -> list[str]:
    """What distinguishes two measurements of one metric, what matters most first."""
    facts = [_facts(result) for result in (first, second)]
    said = []
    for name in dict.fromkeys([*facts[0], *facts[1]]):
        one, other = (entry.get(name) for entry in facts)
        if one == other:
            continue
        if isinstance(one, list) and isinstance(other, list):  # only what is not in both
            one, other = (
                [item for item in these if item not in those] for these, those in ((one, other), (other, one))
            )
        said.append(f"{name} {_text(one)} against {_text(other)}")
    return said


def _facts(result: Result) -> dict[str, Any]:
    """What must be equal, by the name under which it is typed or shown."""
    description = [part for part in result.data_description.split("; ") if part and not _FIRST_IMAGES.fullmatch(part)]
    images = {"data": result.data, "n": result.n or None, "images": description}
    source = {"source": result.extra.get("source")}
    if result.metric == CLEAN and result.suite != PROTOCOL:
        return {**images, **source}
    settings = {
        key.removeprefix("attack."): value
        for key, value in flat(result.attack_settings).items()
        if key and key.rpartition(".")[2] not in INCIDENTAL_SETTINGS and key != "n"
    }
    attack = {} if "name" in settings else {"attack": (result.attack or "").partition(" ")[0] or None}
    return {
        **images, "threat": result.threat, "suite": result.suite, **attack, **settings,
        "protocol": result.protocol or None, "column": result.extra.get("column"),
        "precision": result.precision or None, **source,
    }  # fmt: skip


def _text(value: Any) -> str:
    if value in (None, "", []):
        return "none"
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        value = ", ".join(value)
    return shorten(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False), 60)


def main_metrics(results: Iterable[Result]) -> list[Result]:
    """Results without single views, and without those that repeat others."""
    return [r for r in results if not find_metric(r.metric).per_view and not find_metric(r.metric).derived]
