"""hardtack: train, attack, measure and explain robust image classifiers.

    import hardtack as ht
    model = ht.load_model("vit_tiny_patch4_32", num_classes=10)     # or ht.wrap(my_module, mean=…, std=…)
    x_adv = ht.attack(model, x, y, "pgd", threat="linf:8/255", steps=20)
    measured = ht.evaluate(model, (x, y), suite="pgd", threat="linf:8/255")
    finding = ht.analyze(model, (x, y), "jacobian")
    loss = ht.objective("trades", model, threat="linf:8/255")(x, y)["loss"]
    run = ht.train("recipes/digits/trades.yaml", **{"train.epochs": 5})

Each name is imported when it is used first, so that `import hardtack` is fast, and reading results and writing reports
needs no torch.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

_MODULES = {
    "analyze": "hardtack.commands.calls",
    "attack": "hardtack.evaluation.attack_call",
    "evaluate": "hardtack.commands.calls",
    "evaluate_run": "hardtack.commands.calls",
    "find_blocks": "hardtack.models",
    "load_data": "hardtack.data",
    "load_model": "hardtack.models",
    "load_run": "hardtack.evaluation.target",
    "load_weights": "hardtack.models",
    "objective": "hardtack.objectives.call",
    "save_weights": "hardtack.models",
    "study": "hardtack.commands.calls",
    "tap": "hardtack.models",
    "train": "hardtack.commands.train",
    "wrap": "hardtack.models",
    "write_report": "hardtack.report",
    "Runtime": "hardtack.base.runtime",
    "Threat": "hardtack.threats",
    "UserError": "hardtack.base.errors",
}

__all__ = ["__version__", *_MODULES]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'hardtack' has no attribute '{name}'")
    return getattr(importlib.import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
