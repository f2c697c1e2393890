"""What the page says, as plain values: the template only lays it out."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hardtack import __version__
from hardtack.report import attack_examples, charts, kinds, mask_snapshots, palette, wording
from hardtack.report.headline_column import telling_column
from hardtack.report.headlines import headlines, verdict
from hardtack.report.history import is_number, said_warnings
from hardtack.report.measures import measures_view, split_tables
from hardtack.report.remarks import remarks
from hardtack.report.side_by_side import best_and_last, side_by_side
from hardtack.report.tables import protocol_view, table_view
from hardtack.results import REPORTED, Result, Run, find_metric, leaderboard, protocol_tables, source_of
from hardtack.results.leaderboard import CLEAN

Part = dict[str, Any]
TRAINING = "training"  # the section that stands after the examples, with tables of its own
LEVEL_MEANS = {
    "red": "Do not quote this number until the cause is understood.",
    "yellow": "Read this before you quote the number.",
}


def view(runs: Sequence[Run], output: Path) -> dict[str, Any]:
    """Every section of the page for these runs; `output` is where the page will lie."""
    runs = palette.in_order(runs)
    tables, alone = split_tables(leaderboard(runs))
    warnings, limits = _warnings(runs), remarks(runs)
    trusted = [run.trusted for run in runs]  # a number that its evidence contradicts is no headline
    sound_tables = leaderboard(trusted)
    column = telling_column(sound_tables, trusted)
    sections = charts.sections(runs)
    training = [chart for section in sections if section["id"] == TRAINING for chart in section["charts"]]
    snapshots, unreadable = mask_snapshots.read_mask_snapshots(runs)
    values = {
        "title": _title(runs),
        "subtitle": _subtitle(runs),
        "generated": wording.day(datetime.now(UTC).isoformat()),
        "version": __version__,
        "coloured": len(palette.COLOURS),
        "who_is_coloured": palette.who_is_coloured(runs),
        "solid": palette.SOLID,
        "runs": [_run(number, run, output) for number, run in enumerate(runs)],
        "headlines": headlines(
            sound_tables, column, warnings, {run.label: number for number, run in enumerate(runs)}, limits
        ),
        "verdict": verdict(column, trusted),
        "tables": [table_view(table, runs) for table in tables],
        "measures": [measures_view(own, runs) for own in alone.values()],
        "protocols": [protocol_view(table, runs) for table in protocol_tables(runs)],
        "sections": [section for section in sections if section["id"] != TRAINING],
        "chart_words": {kind: kinds.words(kind) for kind in kinds_in(sections)},
        "example_groups": [_example_group(group) for group in attack_examples.attack_examples(runs)],
        "training": training,
        "training_runs": charts.runs_in(training),
        "best_and_last": best_and_last(runs),
        "pair": side_by_side(runs, [dict(flattened(run.config)) for run in runs]),
        "mask_snapshots": [
            mask_snapshots.snapshots_view(run_masks, images=mask_snapshots.images_shown(snapshots))
            for run_masks in snapshots
        ],
        "configuration": _configuration(runs),
        "configured": sum(bool(run.config) for run in runs),
        "warnings": warnings,
        "remarks": [asdict(remark) for remark in limits if remark.message],
        "level_means": LEVEL_MEANS,
        "provenance": _provenance(runs),
        "unverifiable": _unverifiable(runs),
        "problems": [f"{run.label}: {problem}" for run in runs for problem in run.problems] + unreadable,
    }
    return {**values, "parts": _parts(values)}


def part(template: str, short: str, *, id: str = "", count: int = 0, section: Mapping[str, Any] | None = None) -> Part:
    """A part of the page: `parts/TEMPLATE.html`, which reads the page's values; `short` is its name in the contents."""
    return {"template": template, "id": id or template, "short": short, "count": count, "section": section}


def _parts(values: Mapping[str, Any]) -> list[Part]:
    """In the page's order; those without content are left out."""
    sections = [part("charts", section["short"], id=section["id"], section=section) for section in values["sections"]]
    parts = [
        (True, [part("leaderboard", "Results" if values["measures"] and not values["tables"] else "Leaderboard")]),
        (values["protocols"], [part("protocols", "Protocols")]),
        (sections, sections),
        (values["example_groups"], [part("examples", "Examples")]),
        (values["training"], [part(TRAINING, "Training")]),
        (values["pair"], [part("pair", "Two runs")]),
        (values["mask_snapshots"], [part("masks", "Masks")]),
        (values["configuration"], [part("configuration", "Configuration")]),
        (True, [part("warnings", "Warnings", count=len(values["warnings"]))]),
        (True, [part("provenance", "Provenance")]),
    ]
    return [entry for content, entries in parts if content for entry in entries]


def kinds_in(sections: Sequence[Mapping[str, Any]]) -> list[str]:
    """The kinds of the charts in these sections."""
    return sorted({chart["kind"] for section in sections for chart in section["charts"]})


def _title(runs: Sequence[Run]) -> str:
    """A run that was never evaluated is compared with nothing."""
    evaluated = [run for run in runs if run.results]
    if len(evaluated) > 1:
        return f"{len(evaluated)} runs compared"
    return (evaluated or runs)[0].label if len(evaluated) == 1 or len(runs) == 1 else f"{len(runs)} runs"


def _subtitle(runs: Sequence[Run]) -> str:
    results = [result for run in runs for result in run.results]
    data = sorted({f"{data} ({count})" for data, count, _ in wording.image_sets(results)})
    if not data:
        here = any(source_of(result) != REPORTED for result in results)
        return "Measured without images" if here else "Reported, not measured here" if results else "Not evaluated yet"
    measured = f"Measured on {wording.listed(data) if len(data) <= 4 else f'{len(data)} sets of images'}"
    waiting = [run.label for run in runs if not run.results]
    if not waiting:
        return measured
    return f"{measured}; not evaluated: {wording.listed(waiting) if len(waiting) <= 4 else f'{len(waiting)} more runs'}"


def _run(number: int, run: Run, output: Path) -> dict[str, Any]:
    models = sorted({result.model for result in run.results if result.model})
    return {"number": number, "name": run.label, "folder": _folder_from(run.path, output), "model": ", ".join(models)}


def _folder_from(path: Path, output: Path) -> str:
    """The run folder as seen from the page; its name alone where that would tell where its maker's folders lie.

    A page may be given away, and a relative path that climbs above the home folder is the absolute one.
    """
    folder, here = path.resolve(), output.resolve().parent
    try:
        shared = Path(os.path.commonpath([folder, here]))
    except ValueError:  # on two drives
        return folder.name
    return folder.name if shared in Path.home().resolve().parents else os.path.relpath(folder, here)


# ---------------------------------------------------------------- the rest


def _example_group(group: attack_examples.AttackExamples) -> dict[str, Any]:
    reach = wording.reach(group.threat, group.limits)
    title = ": ".join(part for part in (wording.attack_name(group.attack, ""), reach) if part)
    most = max(len(example.attempts) for example in group.examples)
    return {**asdict(group), "attacked": group.attacked, "title": title or "Attack not recorded", "beside": most}


def _warnings(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Every different warning with the numbers it concerns, red first."""
    grouped: dict[tuple[str, str, str], dict[str, Any]] = {}
    for number, run in enumerate(runs):
        for result in run.results:
            for flag in result.flags:
                key = (flag["level"], flag["code"], flag["message"])
                warning = grouped.setdefault(key, {"level": key[0], "code": key[1], "message": key[2], "concerns": []})
                attack = wording.attack_name(result.attack, result.suite)
                about = ", ".join(part for part in (attack, wording.reach_of(result)) if part)
                concern = {"run": number, "name": run.label, "about": about}
                if concern not in warning["concerns"]:
                    warning["concerns"].append(concern)
        for line, message in said_warnings(run):
            key = ("yellow", line["warning"].replace("_", "-"), message)
            warning = grouped.setdefault(key, {"level": key[0], "code": key[1], "message": key[2], "concerns": []})
            about = f"training, epoch {line['epoch']:g}" if is_number(line.get("epoch")) else "training"
            warning["concerns"].append({"run": number, "name": run.label, "about": about})
    return sorted(grouped.values(), key=lambda warning: (warning["level"] != "red", warning["code"]))


def _unverifiable(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Evaluations whose numbers have no evidence beside them, with the reason; reported numbers say so themselves."""
    return [
        {"run": number, "name": run.label, "evaluation": id, "reasons": list(map(str, agreement.unverifiable))}
        for number, run in enumerate(runs)
        for id, agreement in run.agreements.items()
        if agreement.unverifiable and not agreement.reported
    ]


def _configuration(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Every setting of every run but where it lies. One that a run does not have is no difference."""
    flat = [dict(flattened(run.config)) for run in runs]
    keys = dict.fromkeys(key for values in flat for key in values if key != "output")
    rows = []
    for key in keys:
        values = [values.get(key) or _unset(key, run) for values, run in zip(flat, runs, strict=True)]
        rows.append({"key": key, "values": values, "differs": len({value for value in values if value}) > 1})
    return rows


def _unset(key: str, run: Run) -> str:
    """An option of a model that is not given has its default, which is a value as others are."""
    return "default" if key.startswith("model.options.") and isinstance(run.config.get("model"), Mapping) else ""


def flattened(values: Mapping[str, Any], path: str = "") -> Iterable[tuple[str, str]]:
    """`{"a": {"b": 1}}` as `("a.b", "1")`, one pair per setting; of options none of which is set, nothing."""
    for key, value in values.items():
        name = f"{path}.{key}" if path else str(key)
        if isinstance(value, Mapping):
            yield from flattened(value, name)
        else:
            yield name, wording.setting(value)


def _provenance(runs: Sequence[Run]) -> dict[str, Any]:
    """One line per evaluation; what all of them share is said once."""
    grouped: dict[tuple[int, str], tuple[Run, list[Result]]] = {}
    for number, run in enumerate(runs):
        for result in run.results:
            grouped.setdefault((number, result.evaluation), (run, []))[1].append(result)
    facts = {
        key: {**_facts(_main(results)), "Evidence": _evidence(run, key[1])} for key, (run, results) in grouped.items()
    }
    names = list(next(iter(facts.values()), {}))
    columns = [name for name in names if len({values[name] for values in facts.values()}) > 1]
    first: dict[str, str] = next(iter(facts.values()), {})
    return {
        "shared": [(name, first[name]) for name in names if name not in columns and first[name]],
        "columns": columns,
        "lines": [
            {
                "run": key[0],
                "name": run.label,
                "suite": _measured(results),
                "threats": _threats(results),
                "cells": [facts[key][name] for name in columns],
            }
            for key, (run, results) in grouped.items()
        ],
    }


def _evidence(run: Run, id: str) -> str:
    """Whether the numbers of an evaluation agree with the files beside them."""
    return run.agreements[id].text if id in run.agreements else ""


def _measured(results: list[Result]) -> str:
    """The suite, or that the number was only read somewhere."""
    if source_of(results[0]) != REPORTED:
        return results[0].suite
    source = wording.source(REPORTED)
    return source if results[0].suite == REPORTED else f"{results[0].suite}: {source}"


def _main(results: list[Result]) -> Result:
    """The number an evaluation was made for, whose interval is shown: that of its cells may be another."""
    main = [result for result in results if find_metric(result.metric).order is not None]
    others = [result for result in results if result.metric != CLEAN and result.suite != "clean"]
    return (main or others or results)[0]


def _threats(results: list[Result]) -> str:
    limits = next((result.extra["limits"] for result in results if result.extra.get("limits")), "")
    threats = list(dict.fromkeys(result.threat for result in results if result.threat))
    if limits and threats == [wording.WHOLE_BOX]:
        return limits
    listed = ", ".join(threats) if len(threats) < 4 else f"{len(threats)} radii, {threats[0]} to {threats[-1]}"
    return f"{limits}, {listed}" if limits else listed


def _facts(result: Result) -> dict[str, str]:
    data = f"{result.data} ({result.data_description})" if result.data_description else result.data
    return {
        "Model": wording.architecture(result),
        "Checkpoint": result.checkpoint or "",
        "Weights, sha256": (result.weights_sha256 or "")[:16],
        "Data": data,
        "Images": f"{result.n:,}" if result.n else "",
        "Interval": "" if result.low is None else result.interval,
        "Seed": "" if result.seed is None else str(result.seed),
        "Precision": result.precision,
        "Device": result.device,
        "Time": "" if result.seconds is None else f"{result.seconds:,.0f} s",
        "Date": wording.day(result.created),
        "Versions": ", ".join(f"{name} {version}" for name, version in result.versions.items()),
    }
