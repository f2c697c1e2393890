"""Perturbation sequences as sights: the frames of a short film, and how often the prediction flips between them.

A noise's frames are compared with the first, which is clean; those of the other types with the one before. The top-5
distance says how far the five likeliest classes have moved in the ranking (Hendrycks and Dietterich 2019, their code).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from hardtack.attacks.pool.search import Cost
from hardtack.attacks.pool.verifier import Verifier
from hardtack.base.errors import UserError
from hardtack.data.corruptions import Constants
from hardtack.data.official import EXTRA_PERTURBATIONS, OfficialP, Video, open_official
from hardtack.data.perturbations import PERTURBATIONS, against, frame_count, sequence
from hardtack.evaluation.sights import Seen, Sight, finite_logits
from hardtack.evaluation.views import chosen_types

TOP = 5


@dataclass(frozen=True, kw_only=True)
class Flips:
    """`rotate`: regenerated frames, shown one after the other; the share that flips in `flips@`, and `distance@`."""

    name: str
    constants: Constants
    seed: int
    source = "regenerated"

    @property
    def settings(self) -> dict[str, Any]:
        return {
            "type": self.name, "frames": self.cost.forwards, "against": against(self.name),
            "constants": self.constants, "seed": self.seed,
        }  # fmt: skip

    @property
    def cost(self) -> Cost:
        return Cost(frame_count(self.name, self.constants))

    def look(self, verifier: Verifier, x: Tensor, y: Tensor, index: Tensor) -> Seen:
        frames = sequence(x, index, self.name, constants=self.constants, seed=self.seed)
        ranked = torch.stack([best(finite_logits(verifier, frame, self.name)) for frame in frames])
        return _columns(self.name, *flips_and_distance(ranked, self.name))


@dataclass(frozen=True, kw_only=True)
class StoredFlips:
    """The same of official files: video 7 of the files is of image 7 of the data. About a batch of frames is held."""

    name: str
    files: OfficialP
    frames: int

    @property
    def source(self) -> str:
        return self.files.source

    @property
    def settings(self) -> dict[str, Any]:
        return {
            "type": self.name, "frames": self.frames, "against": against(self.name),
            "constants": _family(self.files.kind), "files": self.files.kind,
        }  # fmt: skip

    @property
    def cost(self) -> Cost:
        return Cost(self.frames)

    def look(self, verifier: Verifier, x: Tensor, y: Tensor, index: Tensor) -> Seen:
        count, last = self.files.count(self.name), int(index.max())
        if last >= count:
            raise UserError(f"{self.name} has {count} videos, the data has an image numbered {last}")
        seen: list[tuple[Tensor, Tensor]] = []
        held: list[Tensor] = []
        for video, label in zip(self._videos(index.tolist()), y.tolist(), strict=True):
            self._check(video, label, x)
            held.append(video.frames)
            if sum(map(len, held)) >= verifier.batch_size:
                seen += self._judged(verifier, held, x.device)
                held = []
        seen += self._judged(verifier, held, x.device)
        flips, distance = zip(*seen, strict=True)
        return _columns(self.name, torch.cat(flips), torch.cat(distance))

    def _videos(self, rows: list[int]) -> Iterator[Video]:
        """In the data's order, each run of neighbours read in one go."""
        start = 0
        for end in range(1, len(rows) + 1):
            if end == len(rows) or rows[end] != rows[end - 1] + 1:
                yield from self.files.videos(self.name, start=rows[start], stop=rows[end - 1] + 1)
                start = end

    def _check(self, video: Video, label: int, x: Tensor) -> None:
        if video.frames.shape[1:] != x.shape[1:]:
            sizes = ["×".join(map(str, shape)) for shape in (video.frames.shape[2:], x.shape[2:])]
            raise UserError(f"{self.name} has frames of {sizes[0]}, the data images of {sizes[1]}")
        if video.label not in (-1, label):
            raise UserError(
                f"{self.name}: video {video.index} has another label in the files than in the data; the data must be "
                f"the test set that the files were made from, in its order"
            )

    def _judged(self, verifier: Verifier, videos: list[Tensor], device: torch.device) -> list[tuple[Tensor, Tensor]]:
        if not videos:
            return []
        ranked = best(finite_logits(verifier, torch.cat(videos).to(device).float() / 255, self.name))
        return [flips_and_distance(one[:, None], self.name) for one in ranked.split([len(video) for video in videos])]


def best(logits: Tensor) -> Tensor:
    """N×5: the five likeliest classes (all, where there are fewer), of equals the first."""
    return logits.argsort(dim=1, descending=True, stable=True)[:, :TOP]


def flips_and_distance(ranked: Tensor, name: str) -> tuple[Tensor, Tensor]:
    """Of F×N×5 likeliest classes, frame by frame: the share of flips and the mean top-5 distance, N float64 each.

    The distance between two frames sums, over the first's five classes, how many places each has moved; one that has
    left the five counts as sixth.
    """
    later, before = ranked[1:], ranked[:1] if against(name) == "first" else ranked[:-1]
    flips = (later[..., 0] != before[..., 0]).sum(dim=0)
    found = before[..., :, None] == later[..., None, :]
    place = torch.where(found.any(dim=-1), found.to(torch.uint8).argmax(dim=-1), TOP)
    moved = (place - torch.arange(ranked.shape[-1], device=ranked.device)).abs().sum(dim=(0, -1))
    return flips.cpu().double() / len(later), moved.cpu().double() / len(later)


def _columns(name: str, flips: Tensor, distance: Tensor) -> Seen:
    return {f"flips@{name}": flips, f"distance@{name}": distance}


# ---------------------------------------------------------------- which


def sequence_sights(types: tuple[str, ...], constants: Constants, *, seed: int) -> list[Sight]:
    """Regenerated sequences of the types named, by name or as common, noise or all."""
    names = _chosen(types, PERTURBATIONS[constants])
    return [Flips(name=name, constants=constants, seed=seed) for name in names]


def official_sequences(path: str, types: tuple[str, ...]) -> list[Sight]:
    """The videos in official files; types beyond the ten go by their names, or all."""
    files = open_official(path)
    if not isinstance(files, OfficialP):
        raise UserError(f"{path} holds {files.description}; suite=perturbations takes CIFAR-P's or ImageNet-P's files")
    wanted = _chosen(types, PERTURBATIONS["cifar" if "cifar" in files.kind else "imagenet"], EXTRA_PERTURBATIONS)
    missing = [name for name in wanted if name not in files.types]
    if missing and "all" not in types:
        raise UserError(f"{path} lacks {', '.join(missing)}; name those it has: types=[{','.join(files.types)}]")
    present = [name for name in wanted if name in files.types]
    lengths = [len(next(files.videos(name, stop=1, workers=0)).frames) for name in present]
    return [StoredFlips(name=n, files=files, frames=frames) for n, frames in zip(present, lengths, strict=True)]


def _chosen(words: tuple[str, ...], ten: Sequence[str], extra: Sequence[str] = ()) -> list[str]:
    known = (*ten, *(name for name in extra if name not in ten))
    groups = {"common": ten, "noise": [name for name in ten if "noise" in name], "all": known}
    return chosen_types(words, known=known, groups=groups, noun="perturbation")


def _family(kind: str) -> str:
    """Whose constants the files were made with. Tiny-ImageNet-P has its own."""
    return {"imagenet_p": "imagenet", "tiny_imagenet_p": "tiny_imagenet"}.get(kind, "cifar")
