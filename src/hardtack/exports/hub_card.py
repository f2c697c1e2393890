"""The model card of a hub folder: a head for Hugging Face, how the model is loaded, then hardtack's card."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from hardtack.base.files import write_text
from hardtack.exports.comparison import Comparison
from hardtack.exports.public import without_paths
from hardtack.exports.subject import Subject
from hardtack.report.card import render_card
from hardtack.report.damage import with_sound_runs
from hardtack.report.markdown import code, inline
from hardtack.report.wording import metric_name, threat_name
from hardtack.results import ANALYSIS, PROTOCOL, Result, Run, find_metric, is_share, read_run
from hardtack.results.evidence import evidence_path, read_evidence
from hardtack.results.store import is_run

CARD = "README.md"


def write_card(subject: Subject, folder: Path, *, timm: bool, checked: Sequence[Comparison]) -> None:
    """README.md, and the evidence records of the evaluations that it shows."""
    run = _run_of(subject)
    head, numbers, rest = with_sound_runs([run], lambda runs: render_card(runs[0])).partition("## Numbers")
    parts = [
        _front_matter(run, timm=timm),
        head,
        _flags(subject),
        _use(subject, timm=timm),
        numbers,
        rest.rstrip(),
        _evidence(run, folder),
    ]
    write_text(folder / CARD, "".join(parts) + _checked(checked))


def _flags(subject: Subject) -> str:
    """What is known to be wrong with the model before anything is measured, such as random weights."""
    flags = [
        f"> **{flag['level']}: {inline(flag['code'])}.** {inline(flag['message'])}" for flag in subject.provenance.flags
    ]
    return "\n>\n".join(flags) + "\n\n" if flags else ""


def _run_of(subject: Subject) -> Run:
    """The run with the results of these weights alone, under the name that the folder has."""
    folder, digest = subject.folder, subject.provenance.weights_sha256
    if folder is None or not is_run(folder):
        return Run(path=folder or Path(subject.name), label=subject.name)
    run = read_run(folder)
    results = [result for result in run.trusted.results if digest is not None and result.weights_sha256 == digest]
    results = [_public(result) for result in results]
    return dataclasses.replace(run, label=subject.name, results=results, config=without_paths(run.config))


def _public(result: Result) -> Result:
    """The result without the folders of this machine, which are in the names of data and in the words of commands."""
    place, slash, split = result.data.rpartition("/")
    extra = {**result.extra, "words": without_paths(result.extra.get("words", []))} if "words" in result.extra else {}
    return dataclasses.replace(result, data=f"{without_paths(place)}{slash}{split}", extra={**result.extra, **extra})


def _front_matter(run: Run, *, timm: bool) -> str:
    """Tags, and the results as Hugging Face's `model-index`, which its pages show and sort by."""
    facts: dict[str, Any] = {
        "library_name": "timm" if timm else "hardtack",
        "pipeline_tag": "image-classification",
        "tags": ["image-classification", "adversarial-robustness", "hardtack"],
    }
    entries = [_entry(result) for result in run.results if _is_listed(result, run)]
    if entries:
        facts["model-index"] = [{"name": run.label, "results": entries}]
    return f"---\n{yaml.safe_dump(facts, sort_keys=False, allow_unicode=True)}---\n\n"


def _is_listed(result: Result, run: Run) -> bool:
    """Whether it is a share of its own, neither one of many views nor a copy, whose evidence agrees with it."""
    if not is_share(result.metric) or find_metric(result.metric).per_view or result.suite in (ANALYSIS, PROTOCOL):
        return False
    agreement = run.agreements.get(result.evaluation)
    return agreement is not None and agreement.supports(result)


def _entry(result: Result) -> dict[str, Any]:
    """One number. Hugging Face calls a number verified if it has measured it itself, so none of ours is."""
    flags = [f"{flag['level']}: {flag['code']}" for flag in result.flags]
    kind = "accuracy" if result.metric.endswith("accuracy") else result.metric
    name = metric_name(result.metric) + (f", {threat_name(result.threat)}" if result.threat else "")
    arguments = {
        "suite": result.suite, "attack": result.attack, "threat": result.threat, "n": result.n, "low": result.low,
        "high": result.high, "interval": result.interval, "evaluation": result.evaluation, "flags": flags,
    }  # fmt: skip
    return {
        "task": {"type": "image-classification"},
        "dataset": {"name": result.data, "type": result.data.partition("/")[0]},
        "metrics": [
            {
                "type": kind, "name": name, "value": round(result.value, 6), "verified": False,
                "args": {key: value for key, value in arguments.items() if value not in (None, [], "")},
            }
        ],
    }  # fmt: skip


def _use(subject: Subject, *, timm: bool) -> str:
    channels, height, width = subject.shape
    lines = [
        "## Use", "",
        f"Images are float32 N×{channels}×{height}×{width} in [0, 1].", "",
        "```python", "import hardtack as ht", "",
        'model = ht.load_run("path/to/this/folder")  # the normalisation is its first layer',
    ]  # fmt: skip
    model = subject.classifier
    source, name = (model.architecture["source"], model.architecture["name"]) if model is not None else ("", "")
    if source in ("wrapped", "own"):
        lines[2] += f" The network is code of its author's, {inline(name)}, which is not in this folder."
    if source == "wrapped":
        network = name.rpartition(".")[2]  # names come from a file, and code may be copied from here
        network = network if network.isidentifier() else "YourNetwork"
        lines[-1] = f'model = ht.load_run("path/to/this/folder", model={network}())'
    if source == "own":
        lines[-1] = f'model = ht.load_model({json.dumps(code(name))}, weights="path/to/this/folder")'
    lines += ["logits = model(images)", "```", ""]
    if timm and model is not None:
        lines += [
            "Or with timm, which leaves the normalisation to you "
            f"(mean {inline(model.architecture['mean'])}, std {inline(model.architecture['std'])}):", "",
            "```python", "import timm", "",
            'model = timm.create_model("local-dir:path/to/this/folder", pretrained=True).eval()', "```", "",
        ]  # fmt: skip
    return "\n".join(lines) + "\n"


def _evidence(run: Run, folder: Path) -> str:
    """The digest of the record of each evaluation, whose file lies beside the card."""
    rows = []
    for id in dict.fromkeys(result.evaluation for result in run.results):
        record = read_evidence(run.path, id)
        if record is None:
            continue
        target = evidence_path(folder, id)
        target.parent.mkdir(exist_ok=True)
        shutil.copyfile(evidence_path(run.path, id), target)
        flags = {
            f"{flag['level']}: {flag['code']}" for item in run.results if item.evaluation == id for flag in item.flags
        }
        rows.append(f"| `{code(id)}` | `{code(record.digest)}` | {inline(', '.join(sorted(flags)) or 'no flag')} |")
    if not rows:
        return "\n"
    head = "\n\n## Evidence\n\nEach number comes from an evaluation whose record lies in `evidence/`. "
    head += "Whoever has the run can check it image by image: `hardtack verify`.\n\n"
    return head + "\n".join(["| evaluation | digest of its record | flags |", "|---|---|---|", *rows]) + "\n"


def _checked(checked: Sequence[Comparison]) -> str:
    lines = [f"- {inline(comparison)}" for comparison in checked]
    return "\n".join(["", "## Check of these files", "", *lines, ""])
