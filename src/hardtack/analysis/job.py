"""The job behind `hardtack analyze`: which model and images, which analyses, and where what they find is kept."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from hardtack.analysis import analyze
from hardtack.base.config import build, choose, flat, parse_words, plain
from hardtack.base.errors import UserError, did_you_mean
from hardtack.base.registry import analyses
from hardtack.evaluation.target import Target, TargetConfig, complete, load_target
from hardtack.results import Finding

SHARED = ("checkpoint", "model", "data", "split", "n", "output", "runtime", "batch_size")


def analyze_words(words: Iterable[str], *, quiet: bool = False) -> Iterator[Finding]:
    """`[RUN] ANALYSIS… [KEY=VALUE]…`: settings of one analysis stand under its name, `jacobian.top=3`.

    Mistakes are said at once. Findings come one by one; what the model cannot be asked is said after all others.
    """
    given = list(words)
    run, names = _named([word for word in given if "=" not in word])
    values = parse_words([word for word in given if "=" in word])
    wanted = {name: _analysis(name, values) for name in names}
    _check_keys(values, names)
    shared = {key: value for key, value in values.items() if key in SHARED and key != "batch_size"}
    target, config = _target(run, shared, wanted.values())
    return _findings(wanted, values, target, config, quiet=quiet)


def _findings(
    wanted: dict[str, Any], values: dict[str, Any], target: Target, config: TargetConfig, *, quiet: bool
) -> Iterator[Finding]:
    refused: list[str] = []
    fault: Exception | None = None
    for name, analysis in wanted.items():
        provenance = dataclasses.replace(target.provenance, words=_words(name, values))
        try:
            yield analyze(
                target.model, target.images, analysis, runtime=config.runtime, folder=target.folder, quiet=quiet,
                provenance=provenance,
            )  # fmt: skip
        except UserError as error:
            refused.append(f"{name}: {error}" if len(wanted) > 1 else str(error))
        except OSError:  # a full disk is full for all
            raise
        except Exception as error:
            if len(wanted) == 1:
                raise
            refused.append(f"{name}: {type(error).__name__}: {error}")
            fault = fault or error
    if fault is not None:
        raise RuntimeError("; ".join(refused)) from fault
    if refused:
        raise UserError("; ".join(refused))


def _named(bare: list[str]) -> tuple[str | None, list[str]]:
    """The run, if one is named, and the analyses."""
    known = analyses.names()
    names = [word for word in dict.fromkeys(bare) if word in known]
    others = [word for word in bare if word not in known]
    runs = [word for word in others if Path(word).expanduser().exists()]
    for word in others:
        is_path = word in runs or "/" in word  # of a missing run one hears later
        if not is_path and (runs or word != bare[0] or not names):
            analyses.get(word)  # a misspelt one is refused with the nearest right name
    if len(others) > 1:
        raise UserError(f"one run at a time: found {' and '.join(others)}")
    if not names:
        raise UserError(f"name an analysis: {', '.join(known)} (hardtack analyze runs/x {known[0]})")
    return (others[0] if others else None), names


def _analysis(name: str, values: dict[str, Any]) -> Any:
    """The analysis with its own settings, and of the shared ones those it has: `n`, `batch_size`."""
    fields = {item.name for item in dataclasses.fields(analyses.get(name).make)}  # type: ignore[arg-type]
    shared = {key: values[key] for key in ("n", "batch_size") if key in values and key in fields}
    own = values.get(name, {})
    if not isinstance(own, dict):
        raise UserError(f"'{name}' is an analysis: its settings are written {name}.KEY={own}")
    return choose(analyses, {"name": name, **shared, **own}, path=name)


def _check_keys(values: dict[str, Any], names: list[str]) -> None:
    fields = {name: {field.name for field in dataclasses.fields(analyses.get(name).make)} for name in names}  # type: ignore[arg-type]
    for key in values:
        if key in ("n", "batch_size") and not any(key in known for known in fields.values()):
            raise UserError(f"'{key}' says how many images to look at, and {' and '.join(names)} looks at none")
        if key in SHARED or key in names:
            continue
        if key in analyses:
            raise UserError(f"'{key}.…' is a setting of an analysis that was not asked for; add the word {key}")
        takers = [name for name in names if key in fields[name]]
        hint = f"; did you mean {takers[0]}.{key}?" if takers else did_you_mean(key, [*SHARED, *names])
        raise UserError(f"'{key}' is no setting of analyze{hint}")


def _target(run: str | None, values: dict[str, Any], wanted: Iterable[Any]) -> tuple[Target, TargetConfig]:
    """The model, and the images that the analyses look at; where none looks at images, no data need be named."""
    sizes = [analysis.n for analysis in wanted if analysis.takes_images]
    if sizes:
        config = build(TargetConfig, complete(run, {**values, "n": max(sizes)}))
    else:
        config = build(TargetConfig, {key: value for key, value in values.items() if key not in ("data", "n", "split")})
    return load_target(run, config, with_images=bool(sizes)), config


def _words(name: str, values: dict[str, Any]) -> tuple[str, ...]:
    """What asks for this analysis again: one that looks at no images refuses `n`."""
    own = {field.name for field in dataclasses.fields(analyses.get(name).make)}  # type: ignore[arg-type]
    kept = ({*SHARED} - {"output"} - ({"n", "batch_size"} - own)) | {name}
    taken = {key: value for key, value in plain(values).items() if key in kept}
    said = (f"{key}={value if isinstance(value, str) else json.dumps(value)}" for key, value in flat(taken).items())
    return (name, *said)
