"""Findings of `analyze attention` as they lie on disk, with numbers that are known."""

from pathlib import Path

import numpy as np

from hardtack.results import FindingStore


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
    FindingStore(folder, id).finish(record, arrays)
