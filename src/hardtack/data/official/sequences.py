"""ImageNet-P's videos (TYPE/SYNSET/*.mp4) and CIFAR-P's arrays (videos×frames×32×32×3), one video at a time.

Frames are used as stored. ImageNet-P's are H.264 with full-resolution colour; the conversion to RGB is FFmpeg's, as in
the published evaluation, which reads them through OpenCV.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from hardtack.base.errors import UserError
from hardtack.data.official import class_names, marker, trees
from hardtack.data.official.arrays import ArrayFile
from hardtack.data.official.kinds import EXTRA_PERTURBATIONS, KINDS, PERTURBATIONS, of_how_many, title
from hardtack.data.official.sets import OfficialP, Video
from hardtack.data.official.synsets import class_index
from hardtack.data.source import check_labels, integer_labels

TYPES = (*PERTURBATIONS, *EXTRA_PERTURBATIONS)
VIDEO = (".mp4",)
_Item = TypeVar("_Item")
_Made = TypeVar("_Made")


def open_sequence_arrays(
    location: Path, files: Mapping[str, ArrayFile], kind: str | None, mark: dict[str, Any] | None
) -> OfficialP:
    """CIFAR-10-P or -100-P. They come without labels, which flip rates do not need; a labels.npy is used."""
    types = tuple(name for name in TYPES if name in files)
    kind = kind or ("cifar100p" if "100" in location.name else "cifar10p")
    side = KINDS[kind].side
    for name in types:
        shape, dtype = files[name].shape, files[name].dtype
        if len(shape) != 5 or shape[2:] != (side, side, 3) or shape[1] < 2 or dtype != np.uint8:
            raise UserError(
                f"{files[name].where} holds {dtype} of shape {shape}; expected uint8, videos×frames×{side}×{side}×3"
            )
        files[name].open()
    classes = class_names.CIFAR10 if kind == "cifar10p" else class_names.CIFAR100
    labels = _array_labels(files, types, classes)

    def read(perturbation: str, rows: range, workers: int) -> Iterator[Video]:
        array = files[perturbation].open()
        for row in rows:
            frames = torch.from_numpy(np.ascontiguousarray(array[row].transpose(0, 3, 1, 2)))
            yield Video(frames, -1 if labels is None else int(labels[row]), row)

    counts = {name: files[name].shape[0] for name in types}
    return OfficialP(
        kind=kind, location=location, source=marker.source_of(kind, mark), types=types, classes=classes,
        description=_describe(kind, mark, types, counts[types[0]]), count=counts.__getitem__, read=read,
    )  # fmt: skip


def open_videos(location: Path, folders: dict[str, Path], kind: str | None, mark: dict[str, Any] | None) -> OfficialP:
    """ImageNet-P or Tiny-ImageNet-P; a type's videos are listed when they are first asked for."""
    first = next(iter(folders.values()))
    here = trees.subfolders(first)
    kind = kind or ("imagenet_p" if all(name in class_index() for name in here) else "tiny_imagenet_p")
    rule = "imagenet" if kind == "imagenet_p" else "tiny"
    classes = trees.labels_of(here, rule, first)[0]
    listed: dict[str, tuple[list[Path], list[int]]] = {}

    def files(perturbation: str) -> tuple[list[Path], list[int]]:
        if perturbation not in listed:
            folder = folders[perturbation]
            labels = trees.labels_of(trees.subfolders(folder), rule, folder)[1]
            listed[perturbation] = trees.list_images(folder, labels, VIDEO)
            if not listed[perturbation][0]:
                raise UserError(f"{folder} has no .mp4 in its {len(labels)} class folders; expected TYPE/SYNSET/*.mp4")
        return listed[perturbation]

    def read(perturbation: str, rows: range, workers: int) -> Iterator[Video]:
        paths, labels = files(perturbation)
        _require_av()

        def work(row: int) -> Video:
            return Video(read_video(paths[row], KINDS[kind].side), labels[row], row)

        return _ahead(work, rows, workers)

    return OfficialP(
        kind=kind, location=location, source=marker.source_of(kind, mark), types=tuple(folders), classes=classes,
        description=_describe(kind, mark, tuple(folders), len(files(next(iter(folders)))[0])),
        count=lambda perturbation: len(files(perturbation)[0]), read=read,
    )  # fmt: skip


def read_video(path: Path, side: int) -> Tensor:
    """All frames of a video file, F×3×side×side uint8."""
    av = _require_av()
    try:
        with av.open(str(path)) as container:
            stream = container.streams.video[0]
            stream.codec_context.thread_count = 1  # many short videos: one thread for each, several at once
            frames = [frame.to_ndarray(format="rgb24") for frame in container.decode(stream)]
    except Exception as error:  # FFmpeg's errors are many
        raise UserError(f"cannot read the video {path}: {' '.join(str(error).split())}") from None
    sizes = {frame.shape[:2] for frame in frames}
    if len(frames) < 2 or sizes != {(side, side)}:
        found = f"{len(frames)} frames" + (f" of {'×'.join(map(str, max(sizes)))}" if sizes else "")
        raise UserError(f"{path} has {found}; expected two or more of {side}×{side}, used as stored")
    return torch.from_numpy(np.stack(frames)).permute(0, 3, 1, 2).contiguous()


def _array_labels(files: Mapping[str, ArrayFile], types: tuple[str, ...], classes: tuple[str, ...]) -> Tensor | None:
    if "labels" not in files:
        return None
    labels = integer_labels(np.array(files["labels"].open()), files["labels"].where)
    for name in types:
        if len(labels) != files[name].shape[0]:
            raise UserError(
                f"{files[name].where} has {files[name].shape[0]:,} videos but labels.npy has {len(labels):,} labels"
            )
    check_labels(labels, classes, files["labels"].where)
    return labels


def _describe(kind: str, mark: dict[str, Any] | None, types: tuple[str, ...], count: int) -> str:
    extra = sum(name in EXTRA_PERTURBATIONS for name in types)
    wanted = len(types) - extra
    return (
        f"{marker.statement(kind, mark)}: {of_how_many(count, kind)} in each type; "
        f"{wanted} of {len(PERTURBATIONS)} types, {extra} extra; {title(kind)}'s frames as stored"
    )


def _require_av() -> Any:
    try:
        import av
    except ImportError:
        raise UserError("videos need the package av: pip install 'hardtack[video]'") from None
    return av


def _ahead(work: Callable[[_Item], _Made], items: Iterable[_Item], workers: int) -> Iterator[_Made]:
    """`work` on every item in order, a few of them ahead of the one that is asked for."""
    if workers < 1:
        yield from map(work, items)
        return
    pool = ThreadPoolExecutor(workers)
    waiting: deque[Future[_Made]] = deque()
    try:
        for item in items:
            waiting.append(pool.submit(work, item))
            if len(waiting) > 2 * workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)
