"""A model card in Markdown, written from a run folder: what the model is, what it scores, what it is not."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hardtack import __version__
from hardtack.base.files import write_text
from hardtack.report import wording
from hardtack.report.charts.certified import bounds_of, numbers_of
from hardtack.report.damage import with_sound_runs
from hardtack.report.markdown import code, inline
from hardtack.report.measures import how_measured
from hardtack.report.page import templates
from hardtack.report.remarks import remarks
from hardtack.report.tables import protocol_view
from hardtack.report.view import flattened
from hardtack.results import (
    ANALYSIS,
    PROTOCOL,
    REPORTED,
    ProtocolRow,
    ProtocolTable,
    Result,
    Run,
    curves,
    distinct_flags,
    leaderboard,
    protocol_tables,
    read_run,
    source_of,
)

TRAINING_SECTIONS = ("model", "objective", "optimiser", "schedule", "train", "augment", "runtime")


def write_card(run_dir: str | Path, output: str | Path | None = None) -> Path:
    """Write the card of one run, by default as `card.md` inside its folder."""
    run = read_run(run_dir)
    return write_text(output or run.path / "card.md", with_sound_runs([run], lambda runs: render_card(runs[0])))


def render_card(run: Run) -> str:
    """The card's Markdown."""
    environment = templates()
    environment.filters |= {"inline": inline, "code": code}
    text = environment.get_template("card.md").render(
        name=run.label,
        summary=_summary(run),
        measures=_measures(run),
        tables=[_with_checkpoints(table.rows, _protocol(table, run)) for table in protocol_tables([run])],
        intervals=sorted({result.interval for result in run.results if result.interval}),
        curve=_curve(run),
        bounds=[{**numbers_of(group), "sigma": f"{group[0].sigma:g}"} for group in bounds_of([run])],
        flags=distinct_flags(run.results),
        remarks=[remark.message for remark in remarks([run]) if remark.message and run.results],
        data=_data(run),
        training=list(_training(run)),
        commands=_commands(run),
        facts=_facts(run.results),
        version=__version__,
        generated=wording.day(datetime.now(UTC).isoformat()),
    )
    text = re.sub(r"[ \t]+$", "", text, flags=re.MULTILINE)
    # Loops leave runs of blank lines, and a table must be one block.
    return re.sub(r"(?<=\|)\n\n(?=\|)", "\n", re.sub(r"\n{3,}", "\n\n", text)).rstrip() + "\n"


def _summary(run: Run) -> str:
    models = sorted({wording.architecture(result) for result in run.results if result.model})
    model = "; ".join(models) or _name_of(run.config.get("model")) or "A model"
    objective = _name_of(run.config.get("objective"))
    data = _name_of(run.config.get("data"))
    trained = f", trained with the {objective} objective" if objective else ""
    on = f" on {data}" if data else ""
    return f"{model}: an image classifier{trained}{on}. It maps pixels in [0, 1] to logits."


def _name_of(section: Any) -> str:
    if isinstance(section, dict):
        return str(section.get("name", ""))
    return str(section) if section else ""


def _measures(run: Run) -> list[dict[str, Any]]:
    """Every number outside of protocols and sweeps, in one table."""
    rows = []
    for table in leaderboard([run]):
        for row in table.rows:
            for result in (row.cells[threat] for threat in table.threats if threat in row.cells):
                rows.append({
                    "name": " ".join(filter(None, (wording.metric_name(result.metric), wording.reach_of(result)))),
                    "result": wording.with_interval(result),
                    "clean": wording.with_interval(row.clean) if row.clean else "—",
                    "checkpoint": row.checkpoint or "—",
                    "how": how_measured(table, result).replace(" · ", "; "),
                })  # fmt: skip
    return rows


def _with_checkpoints(rows: Sequence[ProtocolRow], values: dict[str, Any]) -> dict[str, Any]:
    for row, shown in zip(rows, values["rows"], strict=True):
        shown["checkpoint"] = row.checkpoint
    return values


def _protocol(table: ProtocolTable, run: Run) -> dict[str, Any]:
    values = protocol_view(table, [run])
    return {**values, "title": f"Protocol {values['title']}"}


def _curve(run: Run) -> dict[str, Any] | None:
    curve_sets = curves([run])
    if not curve_sets:
        return None
    points = curve_sets[0].curves[0].points
    how = [curve_sets[0].attack, curve_sets[0].protocol, curve_sets[0].data, wording.image_count(curve_sets[0].n)]
    return {
        "metric": wording.metric_name(curve_sets[0].metric),
        "points": [
            ((point.result.threat or ":0").partition(":")[2], wording.number(point.result.value, curve_sets[0].metric))
            for point in points
        ],
        "how": "; ".join(part for part in how if part),
    }


def _data(run: Run) -> list[str]:
    trained = _name_of(run.config.get("data"))
    lines = [f"Trained on {trained}."] if trained else []
    for data, count, description in wording.image_sets(run.results):
        lines.append(f"Measured on {data}, {count}{f': {description}' if description else ''}.")
    reported = dict.fromkeys(result.data for result in run.results if source_of(result) == REPORTED)
    return [*lines, *(f"Reported on {data}, not measured here." for data in reported)]


def _training(run: Run) -> Iterable[tuple[str, str]]:
    for section in TRAINING_SECTIONS:
        if section in run.config:
            yield from flattened({section: run.config[section]})


def _commands(run: Run) -> list[str]:
    """From the folder that holds the run: train it again, and repeat each evaluation."""
    folder = shlex.quote(code(run.path.resolve().name))
    lines = [f"hardtack train {folder}/config.yaml"] if run.config else []
    # The last result of an evaluation is its attack; the clean accuracy comes with it.
    for result in {result.evaluation: result for result in run.results}.values():
        if source_of(result) == REPORTED:
            continue
        if "words" in result.extra:
            measured = [folder] if result.checkpoint in ("best", "last") else []
            given = [shlex.quote(code(word)) for word in result.extra["words"]]
            command = "hardtack analyze" if result.suite == ANALYSIS else "hardtack evaluate"
            lines.append(" ".join([command, *measured, *given]))
            continue
        if result.suite == PROTOCOL:
            name = result.protocol.rpartition(" ")[0]  # the last word is its version
            lines.append(f"hardtack evaluate {folder} {shlex.quote(code(f'protocol={name}'))}")
            continue
        words = ["hardtack evaluate", folder, shlex.quote(code(f"suite={result.suite}"))]
        if result.checkpoint in ("best", "last"):
            words.append(f"checkpoint={result.checkpoint}")
        if result.threat and result.suite not in ("sweep", "curve"):
            words.append(shlex.quote(code(f"threat={result.threat}")))
        for key in ("steps", "restarts", "loss"):
            if result.attack_settings.get(key) is not None:
                words.append(shlex.quote(code(f"attack.{key}={result.attack_settings[key]}")))
        lines.append(" ".join(words))
    return lines


def _facts(results: list[Result]) -> list[str]:
    lines = []
    for name, values in (
        ("Weights, sha256", {result.weights_sha256 for result in results}),
        ("Seed", {result.seed for result in results}),
        ("Precision", {result.precision for result in results}),
        ("Device", {result.device for result in results}),
        ("Measured", {wording.day(result.created) for result in results}),
        ("Versions", {", ".join(f"{k} {v}" for k, v in result.versions.items()) for result in results}),
    ):
        values_known = sorted(str(value) for value in values if value not in (None, ""))
        if values_known:
            lines.append(f"{name}: {'; '.join(values_known)}")
    return lines
