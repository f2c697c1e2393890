"""Findings of `analyze jacobian growth` as they lie on disk, with numbers that are known."""

from pathlib import Path

import numpy as np

from hardtack.results import Result, append_results, write_finding

COLUMNS = ("adversarial", "random", "corrupted", "first order", "one plus", "exponential")


def spectral(folder: Path, *, level: float, layers: int = 4, n: int = 40, few: bool = False) -> None:
    """σ_max around `level`, the first layer's twice that; perturbations grow tenfold from block to block."""
    n = 3 if few else n
    random = np.random.default_rng(round(100 * level))
    sigma = level * (1 + 0.1 * random.random((n, layers, 1)))
    sigma[:, 0] *= 2
    arrays = {
        "index": np.arange(n),
        "label": np.zeros(n, int),
        "sigma_block": sigma,
        "sigma_residual": sigma[:, 1:] - 1,
    }
    names = {"block": [f"blocks.{at}" for at in range(layers)], "residual": [f"blocks.{at}" for at in range(1, layers)]}
    facts = {
        "layers": names, "converged": {"block": 1.0, "residual": 0.5},
        "spread": {kind: {"mean": float(arrays[f"sigma_{kind}"].mean()), "std": 0.25} for kind in names},
        "products": {kind: {"mean": 30.0, "most": 44} for kind in names},
    }  # fmt: skip
    settings = {"of": ["block", "residual"], "stretch": None, "method": "lanczos", "tolerance": 1e-3}
    _finish(folder, "jacobian", settings, facts, arrays, n)
    steps = np.arange(layers + 1)
    grown = {name: np.tile(steps * (place + 1.0), (n, 1)) for place, name in enumerate(COLUMNS)}
    error = np.full((n, layers), 0.1 * level)
    error[:, 1] = np.nan
    arrays = {f"log10_{name}": values for name, values in grown.items()} | {
        "size_adversarial": 10.0 ** grown["adversarial"], "sigma_block": sigma[:, :, 0], "euler_error": error,
    }  # fmt: skip
    facts = {"steps": names["block"], "depth": layers, "most_amplifying": "blocks.0"}
    settings = {"threat": "linf:8/255", "attack": {}, "type": "fog", "severity": 3, "substeps": 8}
    _finish(folder, "growth", settings, facts, arrays, n)
    scores = [("log10_growth", float(values[0, -1]), {"column": name}) for name, values in grown.items()]
    scores += [("euler_error", 0.1 * level, {}), ("euler_drift", 0.3, {})]
    append_results(
        folder,
        [
            Result(
                metric=metric, value=value, n=n, suite="analysis", attack="growth", evaluation="growth-a",
                data="digits/test", run=folder.name, extra=extra,
            )
            for metric, value, extra in scores
        ],
    )  # fmt: skip


def _finish(folder: Path, name: str, settings: dict, facts: dict, arrays: dict, n: int) -> None:
    about = {"run": folder.name, "model": "vit_digits", "checkpoint": "best", "data": "digits/test", "n": n,
             "created": "2026-11-15"}  # fmt: skip
    record = {"analysis": name, "settings": settings, "about": about, "facts": facts, "notes": []}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.yaml").touch()
    write_finding(folder, f"{name}-a", record, arrays)
