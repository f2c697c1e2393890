"""Findings of `analyze attention`, `saliency` and `visions` as they lie on disk, with numbers that are known."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from surveyed import measured

from hardtack.results import append_result, write_finding


def attended(
    folder: Path, *, level: float, layers: int = 4, id: str = "attention-a", maps: bool = True, n: int = 40, **settings
) -> None:
    """Similarity around `level`; the first layer has two heads of three, and tokens of unknown place."""
    random = np.random.default_rng(round(100 * level))
    values = np.clip(level + 0.02 * random.standard_normal((n, layers, 3)), 0, 1).astype(np.float32)
    values[:, 0, 2] = np.nan
    near = values.copy() / 2
    near[:, 0] = np.nan
    arrays = {
        "index": np.arange(5, 5 + n), "label": np.arange(n) % 2, "similarity": values, "similarity_rows": values,
        "similarity_masks": np.repeat(np.nanmean(values, axis=(1, 2))[:, None], 3, axis=1), "entropy": values,
        "entropy_disturbed": values / 2, "distance": near, "distance_disturbed": near / 2,
    }  # fmt: skip
    names = [f"blocks.{at}" for at in range(layers)]
    if maps:
        images = random.integers(0, 256, (2, 8, 8, 3), dtype=np.uint8)
        drawn = random.random((2, layers, 4, 4), dtype=np.float32)
        alike = np.full((2, layers), level, np.float32)
        arrays |= {"shown_x": images, "shown_disturbed": 255 - images, "map": drawn, "map_disturbed": drawn / 2}
        arrays["map_similarity"] = alike
    known = {"disturb": "occlude", "masks": 3, "kind": "token", "query": [0.5, 0.5], "n": n, "shown": 2}
    record = {
        "analysis": "attention", "settings": known | settings,
        "about": {"run": folder.name, "model": "vit_digits", "checkpoint": "best", "data": "digits/test", "n": n,
                  "classes": ["cat", "dog"], "created": "2026-11-15"},
        "facts": {"layers": names, "drawn": names if maps else [], "disturbed": "occluded",
                  "disturbance": "uniform noise in place of 2 of 16 patches of 8×8, 3 masks"},
        "notes": [],
    }  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.yaml").touch()
    write_finding(folder, id, record, arrays)


def stared(folder: Path, *, occluder: bool) -> None:
    """`analyze saliency`: overlaps with saliency of a half for attention, of a quarter for the occluder."""
    random = np.random.default_rng(1)
    choices = ["saliency", "attention", *(["occluder"] if occluder else [])]
    shares = {"saliency_attention": 0.5, "saliency_occluder": 0.25, "attention_occluder": 0.75}
    pairs = [name for name in shares if occluder or "occluder" not in name]
    arrays = {
        "index": np.arange(3, 7), "label": np.arange(4) % 2, "concentration": np.full(4, 0.3),
        "shown_x": random.integers(0, 256, (2, 8, 8, 3), dtype=np.uint8),
        "shown_saliency": random.integers(0, 256, (2, 8, 8), dtype=np.uint8),
        **{f"patches_{name}": random.random((4, 4, 4)) for name in choices},
        **{f"overlap_{name}": np.full(4, shares[name]) for name in pairs},
    }  # fmt: skip
    facts = {"patches": 4, "of": 16, "patch_size": 2, "chance": 0.25, "choices": choices, "smooth": 0, "class": "label"}
    settings = {"smooth": 0, "n": 4, "occluder": "runs/rspc" if occluder else None}
    id = "saliency-b" if occluder else "saliency-a"
    _keep(folder, id, "saliency", settings, facts, arrays)
    made = {"evaluation": id, "suite": "analysis", "attack": "saliency"}
    for name in pairs:
        column = {"column": name.replace("_", ", ")}
        append_result(folder, measured(folder, "patch_overlap", shares[name], half=0, extra=column, **made))


def saw(
    folder: Path, *, reached: float = 0.5, start: str = "noise", block: str = "", goals: Sequence[str] = ("0", "1")
) -> None:
    """`analyze visions`."""
    random = np.random.default_rng(2)
    pictures = random.integers(0, 256, (3, len(goals), 8, 8, 3), dtype=np.uint8)
    arrays = {
        "index": np.arange(len(goals)), "after": np.full(len(goals), reached), "size": np.full(len(goals), 2.0),
        "start": pictures[0], "vision": pictures[1], "change": pictures[2],
    }  # fmt: skip
    facts = {"of": "unit" if block else "class", "block": block, "threat": "l2:2.14", "steps": 100, "start": start}
    _keep(folder, "visions-a", "visions", {"start": start, "block": block}, {**facts, "goals": list(goals)}, arrays)


def _keep(folder: Path, id: str, analysis: str, settings: dict, facts: dict, arrays: dict) -> None:
    about = {"run": folder.name, "model": "vit_digits", "checkpoint": "best", "data": "digits/test", "n": 4}
    about |= {"classes": ["cat", "dog"], "created": "2026-11-15"}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.yaml").touch()
    record = {"analysis": analysis, "settings": settings, "about": about, "facts": facts, "notes": []}
    write_finding(folder, id, record, arrays)
