"""hardtack: train, attack, measure and explain robust image classifiers.

    import hardtack as ht
    model = ht.load_model("vit_tiny_patch4_32", num_classes=10)     # or ht.wrap(my_module, mean=…, std=…)
    x_adv = ht.attack(model, x, y, "pgd", threat="linf:8/255", steps=20)
    measured = ht.evaluate(model, (x, y), suite="pgd", threat="linf:8/255")
    finding = ht.analyze(model, (x, y), "jacobian")
    loss = ht.objective("trades", model, threat="linf:8/255")(x, y)["loss"]
    run = ht.train("digits/trades", train={"epochs": 5})

Each name is imported when it is used first, so that `import hardtack` is fast, and reading results and writing reports
needs no torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # what _MODULES says, for type checkers and editors
    from hardtack.base.errors import UserError as UserError
    from hardtack.base.runtime import Runtime as Runtime
    from hardtack.commands.calls import analyze as analyze
    from hardtack.commands.calls import evaluate as evaluate
    from hardtack.commands.calls import evaluate_run as evaluate_run
    from hardtack.commands.calls import run_studies as run_studies
    from hardtack.commands.calls import study as study
    from hardtack.commands.export_call import export as export
    from hardtack.commands.leaderboard import write_leaderboard as write_leaderboard
    from hardtack.commands.train import train as train
    from hardtack.data import load_data as load_data
    from hardtack.evaluation.attack_call import attack as attack
    from hardtack.evaluation.target import load_run as load_run
    from hardtack.models import find_blocks as find_blocks
    from hardtack.models import load_model as load_model
    from hardtack.models import load_weights as load_weights
    from hardtack.models import save_weights as save_weights
    from hardtack.models import tap as tap
    from hardtack.models import wrap as wrap
    from hardtack.objectives.call import objective as objective
    from hardtack.report import write_report as write_report
    from hardtack.results.query import query as query
    from hardtack.threats import Threat as Threat

__version__ = "0.1.0"

_MODULES = {
    "analyze": "hardtack.commands.calls",
    "attack": "hardtack.evaluation.attack_call",
    "evaluate": "hardtack.commands.calls",
    "evaluate_run": "hardtack.commands.calls",
    "export": "hardtack.commands.export_call",
    "find_blocks": "hardtack.models",
    "load_data": "hardtack.data",
    "load_model": "hardtack.models",
    "load_run": "hardtack.evaluation.target",
    "load_weights": "hardtack.models",
    "objective": "hardtack.objectives.call",
    "query": "hardtack.results.query",
    "run_studies": "hardtack.commands.calls",
    "save_weights": "hardtack.models",
    "study": "hardtack.commands.calls",
    "tap": "hardtack.models",
    "train": "hardtack.commands.train",
    "wrap": "hardtack.models",
    "write_leaderboard": "hardtack.commands.leaderboard",
    "write_report": "hardtack.report",
    "Runtime": "hardtack.base.runtime",
    "Threat": "hardtack.threats",
    "UserError": "hardtack.base.errors",
}

__all__ = ["__version__", *_MODULES]


if not TYPE_CHECKING:  # a type checker that saw it would accept any name

    def __getattr__(name: str) -> Any:
        if name not in _MODULES:
            from hardtack.base.errors import did_you_mean

            near = "" if name.startswith("_") else did_you_mean(name, _MODULES)
            raise AttributeError(f"module 'hardtack' has no attribute '{name}'{near}")
        return getattr(importlib.import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
