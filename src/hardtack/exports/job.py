"""`hardtack export` of a model: write it to a temporary place, read it back, compare, and only then keep it."""

from __future__ import annotations

import json
import platform
import shutil
import tempfile
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

import hardtack
from hardtack.base.config import build
from hardtack.base.digests import file_digest
from hardtack.base.errors import UserError
from hardtack.base.files import local_path, write_text
from hardtack.base.limits import shorten
from hardtack.evaluation.target import complete
from hardtack.exports import hub_card, hub_folder, onnx_file, program
from hardtack.exports.comparison import Comparison, Reference
from hardtack.exports.public import names_paths
from hardtack.exports.subject import ModelExport, Subject, of_module, of_run
from hardtack.models.dtypes import takes_model

FORMATS = {"onnx": ".onnx", "torch": ".pt2", "hub": "-hub"}
RECORD = "check.json"


@dataclass(frozen=True, kw_only=True)
class Exported:
    """What was written. `comparisons`: the check of the file, by the software that read it back."""

    path: Path
    record: Path
    described: str
    comparisons: dict[str, list[Comparison]]
    flags: tuple[dict[str, str], ...] = ()

    def __str__(self) -> str:
        lines = [f"exported: {self.path}: {self.described}"]
        for software, comparisons in self.comparisons.items():
            lines += [f"checked with {software}: {comparison}" for comparison in comparisons]
        lines += [f"{flag['level'].upper()} FLAG {flag['code']}: {flag['message']}" for flag in self.flags]
        return "\n".join([*lines, f"record: {self.record}"])


def export_run(run: str | Path | None, words: Mapping[str, Any]) -> Exported:
    """The model of a run folder, or `model=NAME`, as a file of `format`."""
    config: ModelExport = build(ModelExport, complete(run, words))
    _require(config)
    return _export(of_run(run, config, typed="data" in words), config)


@takes_model
def export_module(model: nn.Module, data: Any, config: ModelExport) -> Exported:
    """A model of Python, which takes [0,1] pixels, compared with the file on `data`, or on random images."""
    _require(config)
    return _export(of_module(model, data, config), config)


def _require(config: ModelExport) -> None:
    if config.format not in FORMATS:
        raise UserError(f"format={config.format} exports numbers: hardtack export runs/ format={config.format}")
    if config.format == "onnx":
        onnx_file.require(config.opset)
    if config.output is not None:
        _check_free(local_path(config.output), config)


def _export(subject: Subject, config: ModelExport) -> Exported:
    path = local_path(config.output or f"{subject.name}{FORMATS[config.format]}")
    _check_free(path, config)
    path.parent.mkdir(parents=True, exist_ok=True)
    facts = _facts(subject, config)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as temporary:
        made = Path(temporary) / path.name
        comparisons = _write(subject, config, made, facts)
        record = made / RECORD if made.is_dir() else made.with_name(f"{path.name}.{RECORD}")
        digest = file_digest(made / hub_folder.WEIGHTS if made.is_dir() else made)
        checked = {software: [asdict(item) for item in items] for software, items in comparisons.items()}
        written = {**facts, "sha256": digest, "checked": checked, "flags": list(subject.provenance.flags)}
        write_text(record, json.dumps(written, indent=1, default=str, ensure_ascii=False) + "\n")
        if not made.is_dir():  # an earlier record says nothing about the file that comes now
            path.with_name(record.name).unlink(missing_ok=True)
        _replace(made, path)
        if not path.is_dir():
            _replace(record, path.with_name(record.name))
    return Exported(
        path=path, record=path / RECORD if path.is_dir() else path.with_name(record.name),
        described=_described(subject, config, path), comparisons=comparisons, flags=subject.provenance.flags,
    )  # fmt: skip


def _write(subject: Subject, config: ModelExport, path: Path, facts: Mapping[str, Any]) -> dict[str, list[Comparison]]:
    """Write the format to `path`, read it back and compare."""
    reference = Reference(subject.model, subject.sets)
    if config.format == "hub":
        return _write_hub(subject, path, facts, reference)
    if config.format == "onnx":
        onnx_file.write(subject, path, facts, config.opset)
        what, predictors = "the ONNX file", {onnx_file.software(): onnx_file.read(path)}
    else:
        program.write(subject, path, facts)
        what, predictors = "the program", {f"torch {torch.__version__}": program.read(path)}
    return {name: reference.compare(predict, what) for name, predict in predictors.items()}


def _write_hub(
    subject: Subject, folder: Path, facts: Mapping[str, Any], reference: Reference
) -> dict[str, list[Comparison]]:
    folder.mkdir()
    hub_folder.write(subject, folder, facts)
    comparisons = {"hardtack": reference.compare(hub_folder.read(subject, folder), "the folder as hardtack loads it")}
    if hub_folder.loads_with_timm(folder):
        try:
            predict = hub_folder.read_with_timm(subject, folder)
            comparisons["timm"] = reference.compare(predict, "the folder as timm loads it")
        except Exception as error:  # timm builds another network: its own was changed, as LeViT's for small images
            hub_folder.forget_timm(folder)
            if subject.provenance.model.startswith("timm:"):
                warnings.warn(f"timm cannot load the folder, hardtack can ({shorten(error)})")
    checked = [item for items in comparisons.values() for item in items]
    hub_card.write_card(subject, folder, timm=hub_folder.loads_with_timm(folder), checked=checked)
    if any(names_paths(file.read_text(encoding="utf-8")) for file in folder.glob("evidence/*.json")):
        warnings.warn(
            f"{folder.name}/evidence names paths of this machine, which are part of the records; remove that folder "
            "before you publish it if they are private"
        )
    return comparisons


def _facts(subject: Subject, config: ModelExport) -> dict[str, Any]:
    """What a file says of itself; no paths, because files are given away."""
    channels, height, width = subject.shape
    about = subject.provenance
    return {
        "format": config.format,
        **({"opset": config.opset} if config.format == "onnx" else {}),
        "model": about.model,
        "run": about.run or subject.name,
        "checkpoint": about.checkpoint,
        "weights_sha256": about.weights_sha256,
        "input": f"float32 N×{channels}×{height}×{width} in [0, 1]; the normalisation is inside",
        "output": "float32 logits",
        "classes": subject.classes,
        "versions": {
            "hardtack": hardtack.__version__, "torch": torch.__version__, "python": platform.python_version()
        },
    }  # fmt: skip


def _described(subject: Subject, config: ModelExport, path: Path) -> str:
    channels, height, width = subject.shape
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    size = sum(file.stat().st_size for file in files) / 2**20
    kind = {"onnx": f"ONNX opset {config.opset}", "torch": "torch.export", "hub": "folder in Hugging Face's layout"}
    images = f"images N×{channels}×{height}×{width} float32 in [0, 1], normalisation inside"
    return f"{kind[config.format]}, {images}, {size:.1f} MB"


# ---------------------------------------------------------------- what is there already


def _check_free(path: Path, config: ModelExport) -> None:
    """Refuse a place that is taken, unless `overwrite` is given; a folder is replaced only if an export wrote it."""
    if config.format == "hub" and path.is_file():
        raise UserError(f"{path} is a file, and format=hub writes a folder; give another output=…")
    if config.format != "hub" and path.is_dir():
        raise UserError(f"{path} is a folder, and format={config.format} writes a file; give output=FILE")
    if not path.exists() or (path.is_dir() and not any(path.iterdir())):
        return
    if not config.overwrite:
        raise UserError(f"{path} exists; overwrite=true replaces it, or give another output=…")
    if path.is_dir() and not ((path / hub_folder.CONFIG).is_file() and (path / RECORD).is_file()):
        raise UserError(f"{path} is a folder that no export has written, and is not replaced; give another output=…")


def _replace(made: Path, path: Path) -> None:
    """Put what was made in its place; a folder cannot replace one that has files."""
    if not path.is_dir():
        made.replace(path)
        return
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as old:
        path.replace(Path(old) / path.name)
        made.replace(path)
        shutil.rmtree(Path(old) / path.name)
