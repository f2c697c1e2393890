"""The evidence record of an evaluation: what its numbers were made from, tied together by one digest.

`evidence/ID.json` lies in the run folder beside `verdicts/ID.parquet`:

    evaluation   the id, which is the digest of `facts`
    facts        settings, attacks, threats, data, seed, version, and digests of the weights and the images
    common       what all results of the evaluation share: model, device, versions, time …
    flags        warnings that were found while measuring; others follow from the verdicts
    verdicts     digest of the columns of the verdict file
    images       SHA-256 of every file of adversarial images
    examples     SHA-256 of the example images, if there are any
    results      digest of every line of `results.jsonl` that belongs to the evaluation
    digest       of all of the above

Anybody can compute these digests, a forger too: they show that the parts belong together, not that they are true. What
is true is recomputed (`hardtack verify`). A digest that was published cannot be changed later.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from hardtack.base.digests import columns_digest, file_digest, json_digest, json_text
from hardtack.base.errors import UserError
from hardtack.base.files import write_text
from hardtack.base.limits import read_json
from hardtack.results.record import Result, to_json
from hardtack.results.store import adversarial_folder

FORMAT = 1
_DIGITS = 12  # of an id
_MOST_BYTES = 2**26
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """The evidence record of one evaluation (see the module's documentation)."""

    evaluation: str
    facts: Mapping[str, Any]
    common: Mapping[str, Any]
    flags: Sequence[Mapping[str, Any]]
    verdicts: str
    images: Mapping[str, str]
    examples: str | None
    results: Sequence[str]
    digest: str = field(default="")
    format: int = FORMAT

    @property
    def own_digest(self) -> str:
        """The digest of everything but `digest` itself."""
        return json_digest({name: value for name, value in dataclasses.asdict(self).items() if name != "digest"})

    @property
    def own_id(self) -> str:
        """The id that the facts have: equal to `evaluation` unless one of them was changed."""
        return f"{self.facts.get('suite')}-{json_digest(list(self.facts.values()))[:_DIGITS]}"


def evidence_path(run_dir: str | Path, id: str) -> Path:
    """Where the evidence record of an evaluation is."""
    return Path(run_dir) / "evidence" / f"{id}.json"


def examples_path(run_dir: str | Path, id: str) -> Path:
    """Where the example images of an evaluation are."""
    return Path(run_dir) / "examples" / f"{id}.npz"


def is_id(text: str) -> bool:
    """Whether a text can be the id of an evaluation and so part of a file's name."""
    return _ID.fullmatch(text) is not None


def result_digest(result: Result) -> str:
    """The digest of one line of `results.jsonl`."""
    return json_digest(json.loads(to_json(result)))


def image_digests(run_dir: str | Path, id: str) -> dict[str, str]:
    """SHA-256 of every file of adversarial images of an evaluation, by its path in the run folder."""
    files = sorted(adversarial_folder(run_dir, id).glob("*.npz"))
    return {str(path.relative_to(run_dir)): file_digest(path) for path in files}


def write_evidence(
    run_dir: str | Path,
    results: Sequence[Result],
    columns: Mapping[str, np.ndarray],
    *,
    facts: Mapping[str, Any],
    common: Mapping[str, Any],
    flags: Sequence[Mapping[str, Any]],
) -> Path:
    """Write the record of an evaluation whose images are on disk already."""
    id = results[0].evaluation
    examples = examples_path(run_dir, id)
    record = Evidence(
        evaluation=id,
        facts=json.loads(json.dumps(facts, default=str)),
        common=json.loads(json.dumps(common, default=str)),
        flags=json.loads(json.dumps(list(flags), default=str)),
        verdicts=columns_digest(columns),
        images=image_digests(run_dir, id),
        examples=file_digest(examples) if examples.is_file() else None,
        results=[result_digest(result) for result in results],
    )
    values = {**dataclasses.asdict(record), "digest": record.own_digest}
    return write_text(evidence_path(run_dir, id), json.dumps(values, indent=1, ensure_ascii=False) + "\n")


def read_evidence(run_dir: str | Path, id: str) -> Evidence | None:
    """The record of an evaluation; None if there is none (version 0.1.0 wrote none)."""
    path = evidence_path(run_dir, id)
    if not is_id(id) or not path.is_file():
        return None
    if path.stat().st_size > _MOST_BYTES:
        raise UserError(f"{path} is larger than {_MOST_BYTES // 2**20} MB: it is not an evidence record")
    try:
        values = read_json(path)
        names = [item.name for item in dataclasses.fields(Evidence)]
        record = Evidence(**{name: values[name] for name in names})
        sound = isinstance(record.facts, dict) and isinstance(record.common, dict) and isinstance(record.images, dict)
        sound &= isinstance(record.flags, list) and isinstance(record.results, list) and record.format == FORMAT
    except (ValueError, KeyError, TypeError, RecursionError):
        sound = False
    if not sound:
        raise UserError(f"{path} is not an evidence record of this version (format {FORMAT})")
    return record


def same_json(first: Any, second: Any) -> bool:
    """Whether two values are equal as JSON: lists and tuples, and numbers of numpy's and Python's, are the same."""
    return json_text(first) == json_text(second)
