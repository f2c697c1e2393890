"""Analyses of a run folder or a named model, from the command line of `hardtack analyze`."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from hardtack.analysis import analyze
from hardtack.base.config import build, choose, flat, parse_words, plain
from hardtack.base.errors import UnknownSetting, UserError, did_you_mean
from hardtack.base.registry import analyses
from hardtack.engine import Executor
from hardtack.evaluation.target import Target, TargetConfig, complete, load_target, note_missing_images
from hardtack.results import Finding

SHARED = ("checkpoint", "model", "data", "split", "n", "output", "runtime", "batch_size")


def analyze_words(words: Iterable[str], *, quiet: bool = False, executor: Executor | None = None) -> Iterator[Finding]:
    """`[RUN] ANALYSIS… [KEY=VALUE]…`; settings of one analysis are written with its name, `jacobian.top=3`.

    Mistakes on the command line are raised at once. Findings are yielded one by one. If an analysis fails for this
    model, the other analyses still run, and the error is raised at the end.
    """
    chosen, values, target, config = read_analyses(words)
    return _findings(chosen, values, target, config, quiet=quiet, executor=executor)


def read_analyses(words: Iterable[str]) -> tuple[dict[str, Any], dict[str, Any], Target, TargetConfig]:
    """The analyses by name, all settings, and what they look at."""
    words = list(words)
    run, names = _split_names([word for word in words if "=" not in word])
    values = parse_words([word for word in words if "=" in word])
    chosen = {name: _analysis(name, values) for name in names}
    _check_keys(values, names)
    shared = {key: value for key, value in values.items() if key in SHARED and key != "batch_size"}
    return chosen, values, *_target(run, shared, chosen.values())


def _findings(
    chosen: dict[str, Any],
    values: dict[str, Any],
    target: Target,
    config: TargetConfig,
    *,
    quiet: bool,
    executor: Executor | None,
) -> Iterator[Finding]:
    refused: list[str] = []
    fault: Exception | None = None
    for name, analysis in chosen.items():
        provenance = dataclasses.replace(target.provenance, words=_words(name, values))
        try:
            yield analyze(
                target.model, target.images, analysis, runtime=config.runtime, folder=target.folder, quiet=quiet,
                provenance=provenance, executor=executor,
            )  # fmt: skip
        except UserError as error:
            refused.append(f"{name}: {error}" if len(chosen) > 1 else str(error))
        except OSError:  # a full disk stops the other analyses too
            raise
        except Exception as error:
            if len(chosen) == 1:
                raise
            refused.append(f"{name}: {type(error).__name__}: {error}")
            fault = fault or error
    if fault is not None:
        raise RuntimeError("; ".join(refused)) from fault
    if refused:
        raise UserError("; ".join(refused))


def _split_names(bare: list[str]) -> tuple[str | None, list[str]]:
    """The run folder, if one is named, and the names of the analyses."""
    names = [word for word in dict.fromkeys(bare) if word in analyses]
    others = [word for word in bare if word not in analyses]
    runs = [word for word in others if Path(word).expanduser().exists()]
    for word in others:
        is_path = word in runs or "/" in word  # a run folder that is missing is reported later
        if not is_path and (runs or word != bare[0] or not names):
            analyses.get(word)  # raises an error with the nearest right name
    if len(others) > 1:
        raise UserError(f"analyze takes one run folder at a time, found {' and '.join(others)}")
    if not names:
        raise UserError(f"name an analysis: {', '.join(analyses.names())} (hardtack analyze runs/x jacobian)")
    return (others[0] if others else None), names


def _analysis(name: str, values: dict[str, Any]) -> Any:
    """The analysis with its own settings, and with `n` and `batch_size` if it has them."""
    fields = {item.name for item in dataclasses.fields(analyses.get(name).make)}  # type: ignore[arg-type]
    shared = {key: values[key] for key in ("n", "batch_size") if key in values and key in fields}
    own = values.get(name, {})
    if not isinstance(own, dict):
        raise UserError(f"'{name}' is an analysis; write its settings as {name}.KEY={own}")
    return choose(analyses, {"name": name, **shared, **own}, path=name)


def _check_keys(values: dict[str, Any], names: list[str]) -> None:
    fields = {name: {field.name for field in dataclasses.fields(analyses.get(name).make)} for name in names}  # type: ignore[arg-type]
    for key in values:
        if key in ("n", "batch_size") and not any(key in own for own in fields.values()):
            raise UserError(f"'{key}' has no effect: {' and '.join(names)} uses no images; leave it out")
        if key in SHARED or key in names:
            continue
        if key in analyses:
            raise UserError(
                f"'{key}.…' is a setting of the analysis {key}, which is not among those named; add the word {key}"
            )
        takers = [name for name in names if key in fields[name]]
        own = [f"{name}.{field}" for name in names for field in fields[name]]
        near = did_you_mean(key, [*SHARED, *names]) or did_you_mean(f"{names[0]}.{key}", own)
        hint = f"; did you mean {takers[0]}.{key}?" if takers else near
        raise UnknownSetting(f"analyze has no setting '{key}'{hint}", owner=f"analysis:{names[0]}")


def _target(run: str | None, values: dict[str, Any], chosen: Iterable[Any]) -> tuple[Target, TargetConfig]:
    """The model and the images. If no analysis uses images, none are loaded and no data need be named."""
    sizes = [analysis.n for analysis in chosen if analysis.takes_images]
    if sizes:
        config = build(TargetConfig, complete(run, {**values, "n": max(sizes)}))
    else:
        config = build(TargetConfig, {key: value for key, value in values.items() if key not in ("data", "n", "split")})
    target = load_target(run, config, with_images=bool(sizes))
    return note_missing_images(target, config.n if "n" in values else None), config


def _words(name: str, values: dict[str, Any]) -> tuple[str, ...]:
    """The words that would repeat this analysis."""
    own = {field.name for field in dataclasses.fields(analyses.get(name).make)}  # type: ignore[arg-type]
    kept = ({*SHARED} - {"output"} - ({"n", "batch_size"} - own)) | {name}
    taken = {key: value for key, value in plain(values).items() if key in kept}
    settings = (f"{key}={value if isinstance(value, str) else json.dumps(value)}" for key, value in flat(taken).items())
    return (name, *settings)
