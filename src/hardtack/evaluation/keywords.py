"""The settings of `evaluate` as keywords with types, for type checkers and editors.

`EvaluationConfig` says what each of them does, its default, and what is allowed; it has the same names (a contract test
compares both). A name of a suite or an attack may also be one that a user has registered: names are completed in
editors and checked when the call runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from torch import Tensor, nn
from typing_extensions import TypedDict

from hardtack.attacks import Attack
from hardtack.attacks.autoattack import Tier, Version
from hardtack.base.runtime import Runtime
from hardtack.data.corruptions import Constants
from hardtack.evaluation.masks import PatchConfig
from hardtack.models import ModelConfig
from hardtack.threats import Threat

SuiteName = (
    Literal[
        "attacks", "autoattack", "clean", "corruptions", "curve", "patches", "perturbations", "pgd", "smoothing",
        "sweep",
    ]
    | str
)  # fmt: skip
AttackName = (
    Literal[
        "apgd", "apgd_ce", "apgd_dlr", "apgd_t", "boundary", "cw", "ddn", "deepfool", "ead", "fab", "fab_t", "fgsm",
        "fmn", "hopskipjump", "momentum_pgd", "nes", "pgd", "rfgsm", "spsa", "square", "transfer",
    ]
    | str
)  # fmt: skip
AnyAttack = AttackName | Mapping[str, Any] | type[Any] | Attack | Callable[..., Tensor]
AnyThreat = str | Threat


class EvaluationSettings(TypedDict, total=False):
    """The settings of `ht.evaluate`."""

    suite: SuiteName
    threat: AnyThreat | None
    tier: Tier
    version: Version
    attack: AnyAttack
    attacks: Sequence[AnyAttack]
    union: Sequence[AnyThreat] | str
    sweep: Sequence[str | float]
    types: Sequence[str] | str
    severities: Sequence[int] | str
    constants: Constants | None
    files: str | None
    frost: str | None
    jpeg: int | None
    confidence: bool
    patches: Mapping[str, Any] | PatchConfig
    batch_size: int | None
    chunk_size: int | None
    examples: int
    audit: int | None
    keep: bool
    suite_settings: Mapping[str, Mapping[str, Any]]


class RunEvaluationSettings(EvaluationSettings, total=False):
    """The settings of `ht.evaluate_run`."""

    checkpoint: str
    model: str | Mapping[str, Any] | ModelConfig | nn.Module | None
    data: Any
    split: Literal["train", "validation", "test"]
    n: int | None
    output: str | Path | None
    runtime: Mapping[str, Any] | Runtime
