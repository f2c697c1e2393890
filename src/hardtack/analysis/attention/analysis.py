"""How much a disturbance changes attention: figures 2, 4 and 5 of the RSPC paper, for any model with attention."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from hardtack.analysis.analysis import AnalysisContext, Arrays, Conclusion, OverImages, RowWork, Score, mean_score
from hardtack.analysis.attention import measures
from hardtack.analysis.attention.disturbance import Disturbance, Disturbed, make_disturbance
from hardtack.analysis.attention.maps import AttentionLayer, Kind, find_layers, listen
from hardtack.analysis.pictures import as_picture
from hardtack.base.config import SEVERAL, check
from hardtack.base.registry import analyses
from hardtack.evaluation.threat_stages import default_batch

Share = Annotated[float, Field(ge=0, lt=1)]
_MEMORY = {"cpu": 5e8, "cuda": 1e10}  # bytes of clean and disturbed maps in memory at once
_LARGEST_GRID = 56


@analyses.register("attention", papers=("rspc",))
@dataclass(frozen=True, kw_only=True)
class AttentionStability(Disturbed, OverImages):
    """Attention on clean and disturbed images: cosine similarity, entropy, distance, and maps.

    kind    token (between all tokens, tokens of a window, or tokens of a coarser grid), class, or channel
    query   the position in the image whose attention is drawn: down and across, as shares of its sides
    shown   images whose maps are stored
    """

    kind: Kind = "token"
    query: Annotated[tuple[Share, Share], SEVERAL] = (0.5, 0.5)
    shown: Annotated[int, Field(ge=0)] = 4

    def __post_init__(self) -> None:
        check(self)
        self.check_disturbance()

    def begin(self, context: AnalysisContext) -> RowWork:
        x, _, _ = context.images(0, 1)
        layers = find_layers(context.model, x, self.kind)
        return _Stability(self, context, layers, make_disturbance(self, context))


class _Stability:
    """A row for each image."""

    def __init__(
        self,
        settings: AttentionStability,
        context: AnalysisContext,
        layers: list[AttentionLayer],
        disturbance: Disturbance,
    ) -> None:
        self.settings, self.context, self.layers, self.disturbance = settings, context, layers, disturbance
        self.apart = [layer.place.apart() if layer.place else None for layer in layers]
        self.length = context.count
        device = context.device.type
        image_bytes = sum(8 * layer.size for layer in layers)  # a float in each of two passes
        fits = int(_MEMORY.get(device, _MEMORY["cpu"]) / image_bytes)
        self.at_once = settings.batch_size or max(1, min(fits, default_batch(context.shape, device)))

    def rows(self, start: int, stop: int) -> Arrays:
        x, y, index = self.context.images(start, stop)
        clean = self._listen(x)
        whole, by_row, spread, reach = [], [], [], []
        for number in range(self.settings.masks):
            again = self._listen(self.disturbance.show(x, y, index, number))
            pairs = list(zip(clean, again, strict=True))
            whole.append(_by_layer([measures.similarity(a, b) for a, b in pairs]))
            by_row.append(_by_layer([measures.row_similarity(a, b) for a, b in pairs]))
            spread.append(_by_layer([measures.entropy(b) for b in again]))
            reach.append(self._distance(again))
        measured = {
            "similarity_masks": torch.stack([_one_number(each) for each in whole], dim=1),
            "similarity": torch.stack(whole).mean(dim=0),
            "similarity_rows": torch.stack(by_row).mean(dim=0),
            "entropy": _by_layer([measures.entropy(a) for a in clean]),
            "entropy_disturbed": torch.stack(spread).mean(dim=0),
            "distance": self._distance(clean),
            "distance_disturbed": torch.stack(reach).mean(dim=0),
        }
        return {"index": _numpy(index), "label": _numpy(y), **{name: _numpy(value) for name, value in measured.items()}}

    def conclude(self, arrays: Arrays) -> Conclusion:
        names, threat = [layer.name for layer in self.layers], self.disturbance.threat
        scores: list[Score] = []
        for metric, name in (("attention_similarity", "similarity"), ("attention_similarity_rows", "similarity_rows")):
            layers = np.nanmean(
                arrays[name], axis=2
            )  # N×layers: the mean over heads first, because layers may have different numbers of heads
            scores.append(mean_score(metric, layers.mean(axis=1), threat=threat))
            scores += [
                mean_score(metric, layers[:, at], column=layer_name, threat=threat)
                for at, layer_name in enumerate(names)
            ]
        for metric, name in (("attention_entropy", "entropy"), ("attention_distance", "distance")):
            defined = arrays[name][:, ~np.isnan(arrays[name]).all(axis=(0, 2))]
            if defined.size:
                scores.append(mean_score(metric, np.nanmean(defined, axis=2).mean(axis=1)))
        facts = {
            "layers": names, "kinds": [layer.kind for layer in self.layers],
            "heads": [layer.heads for layer in self.layers], "tokens": [layer.tokens for layer in self.layers],
            "disturbance": self.disturbance.words, "disturbed": self.disturbance.name,
        }  # fmt: skip
        pictures, drawn, unseen = self._pictures()
        notes = [*self._padded(), *self._placeless(arrays), *self.disturbance.notes(), *unseen]
        return Conclusion(scores=scores, facts={**facts, "drawn": drawn}, arrays=pictures, notes=notes)

    def _placeless(self, arrays: Arrays) -> list[str]:
        """A note about the layers without known token positions, which the mean distance leaves out."""
        distance = arrays["distance"]
        names = [layer.name for at, layer in enumerate(self.layers) if np.isnan(distance[:, at]).all()]
        if not names or len(names) == len(self.layers):
            return []
        return [f"attention distance leaves out {', '.join(names)}: the positions of their tokens are not known"]

    def _padded(self) -> list[str]:
        cut = [layer.name for layer in self.layers if layer.inside is not None]
        unsure = [layer.name for layer in self.layers if layer.padded and layer.inside is None]
        cases = (
            (cut, "padding is left out"),
            (unsure, "the padded positions are not known, so that padding is counted"),
        )
        return [f"windows extend beyond the image in {', '.join(names)}: {what}" for names, what in cases if names]

    def _listen(self, x: Tensor) -> list[Tensor]:
        return listen(self.context.model, x, self.settings.kind, self.layers)

    def _distance(self, maps: list[Tensor]) -> Tensor:
        """Mean distances as shares of the image's longer side; NaN for a layer whose token positions are not known."""
        distances = []
        for weights, layer, apart in zip(maps, self.layers, self.apart, strict=True):
            if apart is None or layer.place is None or layer.place.queries is None:
                distances.append(torch.full(weights.shape[:2], torch.nan, device=weights.device))
                continue
            first = {"first_query": layer.place.queries.prefix, "first_key": layer.place.keys.prefix}
            distances.append(measures.distance(weights, apart.to(weights), **first))
        return _by_layer(distances)

    # ------------------------------------------------------------ pictures

    def _pictures(self) -> tuple[Arrays, list[str], list[str]]:
        """The attention of one token on the first images in each layer (mean over heads), and the similarity of maps.

        Returns the arrays, the names of the drawn layers, and notes.
        """
        drawn = [at for at, layer in enumerate(self.layers) if layer.place and layer.place.windows == 1]
        count = min(self.settings.shown, self.length)
        if not drawn or not count:
            silent = count and self.settings.kind != "channel"
            return (
                {},
                [],
                ["no attention map is drawn: no layer has attention between all tokens of the image"] * bool(silent),
            )
        places = [place for at in drawn if (place := self.layers[at].place)]
        grid = tuple(min(_LARGEST_GRID, max(place.keys[axis] for place in places)) for axis in (1, 2))
        batches: dict[str, list[Tensor]] = {}
        for start in range(0, count, self.at_once):
            x, y, index = self.context.images(start, min(count, start + self.at_once))
            x_disturbed = self.disturbance.show(x, y, index, 0)
            clean, again = self._listen(x), self._listen(x_disturbed)
            batches.setdefault("shown_x", []).append(as_picture(x))
            batches.setdefault("shown_disturbed", []).append(as_picture(x_disturbed))
            for name, maps in (("map", clean), ("map_disturbed", again)):
                drawings = [self._drawing(maps[at], self.layers[at], grid) for at in drawn]
                batches.setdefault(name, []).append(torch.stack(drawings, dim=1))
            alike = [measures.similarity(clean[at], again[at]).mean(dim=1) for at in drawn]
            batches.setdefault("map_similarity", []).append(torch.stack(alike, dim=1))
        arrays = {name: _numpy(torch.cat(parts)) for name, parts in batches.items()}
        left_out = len(self.layers) - len(drawn)
        note = f"{left_out} of {len(self.layers)} layers have attention within windows: no map of them is drawn"
        return arrays, [self.layers[at].name for at in drawn], [note] * bool(left_out)

    def _drawing(self, weights: Tensor, layer: AttentionLayer, grid: tuple[int, ...]) -> Tensor:
        """N×rows×columns: the attention of the query, resized to a grid that is the same for all layers."""
        assert layer.place is not None
        query, keys = 0, layer.place.keys
        if (queries := layer.place.queries) is not None:
            down, across = self.settings.query
            query = queries.prefix + int(down * queries.rows) * queries.columns + int(across * queries.columns)
        map_ = weights[:, :, 0, query, keys.prefix :].mean(dim=1).reshape(-1, 1, keys.rows, keys.columns)
        return F.interpolate(map_, grid, mode="nearest")[:, 0]


def _by_layer(layers: list[Tensor]) -> Tensor:
    """N×layers×heads from N×heads of each layer, filled with NaN where a layer has fewer heads."""
    most = max(values.shape[1] for values in layers)
    return torch.stack([F.pad(values, (0, most - values.shape[1]), value=torch.nan) for values in layers], dim=1)


def _one_number(values: Tensor) -> Tensor:
    """Mean over heads, then over layers: N."""
    return values.nanmean(dim=2).mean(dim=1)


def _numpy(values: Tensor) -> np.ndarray:
    return values.detach().cpu().numpy()
