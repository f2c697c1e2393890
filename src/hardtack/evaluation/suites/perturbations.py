"""Suite `perturbations`: how often the prediction flips between the frames of a perturbation sequence.

A noise's frames are compared with the first, which is clean; those of the other types with the one before. The top-5
distance says how far the five likeliest classes have moved in the ranking (Hendrycks and Dietterich 2019, their code).
mFR divides a type's flip probability on ImageNet-P by AlexNet's, type by type, and takes the mean of the quotients.
CIFAR-P has no such table: its score is the plain mean.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hardtack.attacks.pool.search import Cost
from hardtack.attacks.pool.verifier import Verifier
from hardtack.base.errors import UserError
from hardtack.base.registry import suites
from hardtack.data.corruptions import Constants, constants_for
from hardtack.data.corruptions.choose import chosen_types
from hardtack.data.official import EXTRA_PERTURBATIONS, OfficialP, Video, open_official
from hardtack.data.original import Original, StoredImages, enlarged_from, stored_at
from hardtack.data.perturbations import PERTURBATIONS, against, frame_count, sequence
from hardtack.engine import tensor_digest
from hardtack.evaluation.settings import EvaluationConfig
from hardtack.evaluation.suites.contract import Measurement, Suite, SuiteContext
from hardtack.evaluation.suites.corruptions import refuse_settings_of_regenerated
from hardtack.evaluation.views import Shown, View, ViewColumns, file_identity, likeliest
from hardtack.results import Result, bootstrap

TOP = 5


_DIGESTED = 8  # videos of a type whose frames are part of the id


@suites.register(
    "perturbations",
    help="How often predictions flip while images change step by step, regenerated, or from official files=FOLDER.",
)
class PerturbationsSuite(Suite):
    """Flip probabilities of each type, their mean, and mFR with ImageNet-P's types.

    Paper: Hendrycks and Dietterich 2019, Benchmarking Neural Network Robustness to Common Corruptions and
        Perturbations (arXiv:1903.12261)
    """

    takes = ("types", "constants", "files")

    def views(self, config: EvaluationConfig, context: SuiteContext) -> Sequence[View]:
        if config.files is not None:
            refuse_settings_of_regenerated(config)
            return official_sequences(config.files, config.types, original=context.original)
        stored = enlarged_from(context.original)
        constants = config.constants or constants_for(max(stored.shape) if stored else context.largest_side)
        return sequence_views(config.types, constants, seed=context.seed, stored=stored)

    def results(self, measurement: Measurement) -> list[Result]:
        return sequence_results(measurement)

    @classmethod
    def text_table(cls, results: Sequence[Result]) -> list[str]:
        return flip_list(results)


@dataclass(frozen=True, kw_only=True)
class FlipView(View):
    """`rotate`: regenerated frames, shown one after the other; the share that flips in `flips@`, and `distance@`.

    `stored`: frames are made of these images, and resized afterwards, in place of the images of the batch.
    """

    name: str
    constants: Constants
    seed: int
    stored: StoredImages | None = None
    source = "regenerated"
    places = TOP

    @property
    def settings(self) -> dict[str, Any]:  # type: ignore[override]
        return {
            "type": self.name, "frames": self.cost.forwards, "against": against(self.name),
            "constants": self.constants, "seed": self.seed, **(self.stored.settings if self.stored else {}),
        }  # fmt: skip

    @property
    def cost(self) -> Cost:
        return Cost(frame_count(self.name, self.constants))

    def shown(self, verifier: Verifier, x: Tensor, y: Tensor, index: Tensor) -> Iterator[Shown]:
        rows = torch.arange(len(x), device=x.device)
        x = x if self.stored is None else self.stored.fetch(index)
        for frame in sequence(x, index, self.name, constants=self.constants, seed=self.seed):
            yield Shown(frame if self.stored is None else self.stored.resize(frame), rows)

    def from_classes(self, classes: Sequence[Tensor], rows: Sequence[Tensor], *, y: Tensor) -> ViewColumns:
        return _columns(self.name, *flips_and_distance(torch.stack(list(classes)), self.name))


@dataclass(frozen=True, kw_only=True)
class StoredFlipView(View):
    """The same of official files: video 7 of the files is of image 7 of the data. About a batch of frames is held.

    `resized`: frames have the size that the data is stored at, and are resized as the data is.
    """

    name: str
    files: OfficialP
    frames: int
    resized: StoredImages | None = None
    places = TOP

    def stored_in(self) -> list[Any]:
        return file_identity(self.files)

    def content(self, x: Tensor, index: Tensor) -> str:
        """Videos are long: a few of them are digested."""
        few = [row for row in index.tolist() if row < self.files.count(self.name)][:_DIGESTED]
        return tensor_digest({str(row): video.frames for row, video in zip(few, self._videos(few), strict=True)})

    @property
    def source(self) -> str:  # type: ignore[override]
        return self.files.source

    @property
    def settings(self) -> dict[str, Any]:  # type: ignore[override]
        return {
            "type": self.name, "frames": self.frames, "against": against(self.name),
            "constants": _family(self.files.kind), "files": self.files.kind,
            **(self.resized.settings if self.resized else {}),
        }  # fmt: skip

    @property
    def cost(self) -> Cost:
        return Cost(self.frames)

    def shown(self, verifier: Verifier, x: Tensor, y: Tensor, index: Tensor) -> Iterator[Shown]:
        count, last = self.files.count(self.name), int(index.max())
        if last >= count:
            raise UserError(f"{self.name} has {count} videos, the data has an image numbered {last}")
        held: list[tuple[int, Tensor]] = []
        for row, (video, label) in enumerate(zip(self._videos(index.tolist()), y.tolist(), strict=True)):
            self._check(video, label, x)
            held.append((row, video.frames))
            if sum(len(frames) for _, frames in held) >= verifier.batch_size:
                yield self._together(held, x.device)
                held = []
        if held:
            yield self._together(held, x.device)

    def _together(self, videos: list[tuple[int, Tensor]], device: torch.device) -> Shown:
        images = torch.cat([frames for _, frames in videos]).to(device).float() / 255
        rows = torch.cat([torch.full((len(frames),), row) for row, frames in videos])
        return Shown(images if self.resized is None else self.resized.resize(images), rows.to(device))

    def from_classes(self, classes: Sequence[Tensor], rows: Sequence[Tensor], *, y: Tensor) -> ViewColumns:
        ranked, lengths = torch.cat(list(classes)), torch.bincount(torch.cat(list(rows)), minlength=len(y)).tolist()
        if len(set(lengths)) == 1:  # as in all published files
            videos = ranked.reshape(len(y), lengths[0], -1).transpose(0, 1)
            return _columns(self.name, *flips_and_distance(videos, self.name))
        scored = [flips_and_distance(video[:, None], self.name) for video in ranked.split(lengths)]
        flips, distance = zip(*scored, strict=True)
        return _columns(self.name, torch.cat(flips), torch.cat(distance))

    def _videos(self, rows: list[int]) -> Iterator[Video]:
        """In the data's order, each run of neighbours read in one go."""
        start = 0
        for end in range(1, len(rows) + 1):
            if end == len(rows) or rows[end] != rows[end - 1] + 1:
                yield from self.files.videos(self.name, start=rows[start], stop=rows[end - 1] + 1)
                start = end

    def _check(self, video: Video, label: int, x: Tensor) -> None:
        wanted = tuple(x.shape[2:]) if self.resized is None else self.resized.shape
        if tuple(video.frames.shape[2:]) != wanted:
            sizes = ["×".join(map(str, shape)) for shape in (video.frames.shape[2:], wanted)]
            raise UserError(f"{self.name} has frames of {sizes[0]}, the data images of {sizes[1]}")
        if video.label not in (-1, label):
            raise UserError(
                f"{self.name}: video {video.index} has another label in the files than in the data; the data must be "
                f"the test set that the files were made from, in its order"
            )


def best(logits: Tensor) -> Tensor:
    """N×5: the five likeliest classes (all, where there are fewer), of equals the first."""
    return likeliest(logits, TOP)


def flips_and_distance(ranked: Tensor, name: str) -> tuple[Tensor, Tensor]:
    """Of F×N×5 likeliest classes, frame by frame: the share of flips and the mean top-5 distance, N float64 each.

    The distance between two frames sums, over the first's five classes, how many places each has moved; one that has
    left the five counts as sixth.
    """
    later, before = ranked[1:], ranked[:1] if against(name) == "first" else ranked[:-1]
    flips = (later[..., 0] != before[..., 0]).sum(dim=0)
    matches = before[..., :, None] == later[..., None, :]
    place = torch.where(matches.any(dim=-1), matches.to(torch.uint8).argmax(dim=-1), TOP)
    moved = (place - torch.arange(ranked.shape[-1], device=ranked.device)).abs().sum(dim=(0, -1))
    return flips.cpu().double() / len(later), moved.cpu().double() / len(later)


def _columns(name: str, flips: Tensor, distance: Tensor) -> ViewColumns:
    return {f"flips@{name}": flips, f"distance@{name}": distance}


# ---------------------------------------------------------------- which


def sequence_views(
    types: tuple[str, ...], constants: Constants, *, seed: int, stored: StoredImages | None = None
) -> list[View]:
    """Regenerated sequences of the types named, by name or as common, noise or all."""
    names = _chosen(types, PERTURBATIONS[constants])
    return [FlipView(name=name, constants=constants, seed=seed, stored=stored) for name in names]


def official_sequences(path: str, types: tuple[str, ...], *, original: Original | None = None) -> list[View]:
    """The videos in official files; types beyond the ten go by their names, or all."""
    files = open_official(path)
    if not isinstance(files, OfficialP):
        raise UserError(f"{path} holds {files.description}; suite=perturbations takes CIFAR-P's or ImageNet-P's files")
    wanted = _chosen(types, PERTURBATIONS["cifar" if "cifar" in files.kind else "imagenet"], EXTRA_PERTURBATIONS)
    missing = [name for name in wanted if name not in files.types]
    if missing and "all" not in types:
        raise UserError(f"{path} lacks {', '.join(missing)}; name those it has: types=[{','.join(files.types)}]")
    present = [name for name in wanted if name in files.types]
    first = [next(files.videos(name, stop=1, workers=0)).frames.shape for name in present]
    resized = stored_at(original, (first[0][2], first[0][3])) if first else None
    return [
        StoredFlipView(name=name, files=files, frames=shape[0], resized=resized)
        for name, shape in zip(present, first, strict=True)
    ]


def _chosen(words: tuple[str, ...], ten: Sequence[str], extra: Sequence[str] = ()) -> list[str]:
    names = (*ten, *(name for name in extra if name not in ten))
    groups = {"common": ten, "noise": [name for name in ten if "noise" in name], "all": names}
    return chosen_types(words, known=names, groups=groups, noun="perturbation")


def _family(kind: str) -> str:
    """Whose constants the files were made with. Tiny-ImageNet-P has its own."""
    return {"imagenet_p": "imagenet", "tiny_imagenet_p": "tiny_imagenet"}.get(kind, "cifar")


# ---------------------------------------------------------------- scores

FLIPS = "flip_probability"
TEN = PERTURBATIONS["imagenet"]
ALEXNET_FLIPS = dict(
    zip(TEN, (0.2365, 0.3006, 0.0930, 0.0594, 0.1193, 0.0489, 0.1101, 0.1310, 0.0705, 0.2353), strict=True)
)
UNCONFIRMED = {
    "level": "yellow",
    "code": "unconfirmed_constants",
    "message": "AlexNet's flip probabilities, which mFR divides by, are in no published code; they agree with the mFR "
    "of 58.0 % that the benchmark's authors state for ResNet-50",
}


def mean_flip_rate(flips: Mapping[str, float]) -> float:
    """The mean over the ten types of a model's flip probability in units of AlexNet's."""
    return float(np.mean([flips[name] / ALEXNET_FLIPS[name] for name in TEN]))


def sequence_results(measurement: Measurement) -> list[Result]:
    """The flip probability of each type, then their mean and, with ImageNet-P's ten types, mFR."""
    views, columns, common, flags = measurement.views, measurement.columns, measurement.common, measurement.flags
    flips = {view.name: columns[f"flips@{view.name}"] for view in views}
    moved = {view.name: float(columns[f"distance@{view.name}"].mean()) for view in views}
    shared = {**common, "flags": tuple(flags), "extra": {**common["extra"], "source": views[0].source}}
    results = [_result(FLIPS, flips[view.name], view.name, view.settings, moved[view.name], shared) for view in views]
    constants = views[0].settings["constants"]
    how = {"types": list(flips), "constants": constants}
    how |= {name: views[0].settings[name] for name in ("corrupted_at", "resized") if name in views[0].settings}
    mean = np.mean(list(flips.values()), axis=0)
    results.append(
        _result("mean_flip_probability", mean, _words(flips), how, float(np.mean(list(moved.values()))), shared)
    )
    if constants == "imagenet" and set(TEN) <= set(flips):
        scaled = np.mean([flips[name] / ALEXNET_FLIPS[name] for name in TEN], axis=0)
        results.append(
            _result(
                "mean_flip_rate", scaled, _words(TEN), how | {"types": list(TEN)}, None,
                {**shared, "flags": (*flags, UNCONFIRMED), "extra": {**shared["extra"], "units": ALEXNET_FLIPS}},
            )
        )  # fmt: skip
    return results


def _result(
    metric: str,
    per_image: np.ndarray,
    attack: str,
    settings: Mapping[str, Any],
    distance: float | None,
    shared: Mapping[str, Any],
) -> Result:
    low, high = bootstrap(per_image)
    extra = shared["extra"] if distance is None else {**shared["extra"], "top5_distance": distance}
    return Result(
        metric=metric, value=float(per_image.mean()), low=low, high=high, n=len(per_image), attack=attack,
        attack_settings=dict(settings), interval="bootstrap 95%", **{**shared, "extra": extra},
    )  # fmt: skip


def _words(types: Sequence[str] | Mapping[str, Any]) -> str:
    """`10 types`, or which ones where they are few."""
    return ", ".join(types) if len(types) <= 3 else f"{len(types)} types"


def flip_list(results: Sequence[Result]) -> list[str]:
    """A line for each type: how often the prediction flips, between how many frames, and the top-5 distance."""
    rows = [result for result in results if result.metric == FLIPS]
    lines = [f"{'flip probability':<32} {'':7} {'95% interval':>16}  frames  top-5 distance"]
    for row in rows:
        interval = f"[{row.low:.2%}, {row.high:.2%}]"
        frames = f"{row.attack_settings['frames']:>6}"
        name = str(row.attack).replace("_", " ")
        lines.append(f"{name:<32} {row.value:7.2%} {interval:>16}  {frames}  {row.extra['top5_distance']:14.3f}")
    return lines
