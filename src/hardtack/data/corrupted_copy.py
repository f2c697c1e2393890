"""`hardtack corrupt IN OUT`: a corrupted copy of a data set, in the layout of the official files or as parquet.

Each file of the copy is one job of the engine: killed and repeated, it goes on where it stopped, and a finished file is
not made again. The folder is marked as regenerated, so that nobody, hardtack included, takes it for the official files.
"""

from __future__ import annotations

import dataclasses
import io
import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import copy as shallow_copy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from PIL import Image
from pydantic import Field
from torch import Tensor

from hardtack.base import config
from hardtack.base.arrays import Columns
from hardtack.base.config import build
from hardtack.base.errors import UserError
from hardtack.base.files import atomic, local_path
from hardtack.base.progress import Meter
from hardtack.base.runtime import Runtime
from hardtack.data import DataConfig, Dataset, load_data
from hardtack.data.contact_sheet import write_contact_sheet
from hardtack.data.corruptions import Constants, constants_for, corrupt, frost_source
from hardtack.data.corruptions.choose import Severities, Types, chosen_types
from hardtack.data.official import mark_regenerated
from hardtack.data.official.marker import read_marker
from hardtack.data.original import StoredImages, enlarged_from
from hardtack.data.spans import chunks
from hardtack.data.travel import served
from hardtack.engine import Executor, Job, Notebook, PieceResult, PieceStore, Span, choose_executor, job_id, run_job

Layout = Literal["npy", "folder", "parquet"]
_PIECE = 256  # images
_SCHEMA = pa.schema([("image", pa.struct([("bytes", pa.binary()), ("path", pa.string())])), ("label", pa.int64())])


@dataclass(frozen=True, kw_only=True)
class CorruptedCopyConfig:
    """The settings of `corrupt`.

    data         how the images are read (hardtack list settings data)
    split        which part of the data
    types        names of corruptions, or the groups common, extra, noise, all
    severities   severities, 1 to 5
    constants    the constants of CIFAR-C or of ImageNet-C; null: cifar up to 64 pixels; images that data.image_size
                 enlarges are corrupted at their stored size, which decides, and resized afterwards
    layout       npy: TYPE.npy and labels.npy as CIFAR-C has them; folder: TYPE/SEVERITY/CLASS/IMAGE as ImageNet-C has
                 them; parquet: TYPE-SEVERITY.parquet with image bytes and labels; null: npy up to 64 pixels, else
                 folder
    jpeg         of folder and parquet: the quality that images are saved with, 85 as ImageNet-C's were; 0: PNG
    frost        the folder of frost's overlay photographs; null: they are drawn
    seed         of the random corruptions
    n            only the first n images; null: all of them
    runtime      where everything is computed (hardtack list settings runtime)
    """

    data: DataConfig = field(default_factory=DataConfig)
    split: Literal["train", "validation", "test"] = "test"
    types: Types = ("common",)
    severities: Severities = (1, 2, 3, 4, 5)
    constants: Constants | None = None
    layout: Layout | None = None
    jpeg: Annotated[int, Field(ge=0, le=100)] = 85
    frost: str | None = None
    seed: int = 0
    n: Annotated[int, Field(ge=1)] | None = None
    runtime: Runtime = field(default_factory=Runtime)


def corrupt_data(
    source: str,
    output: str | Path,
    values: dict[str, Any],
    *,
    quiet: bool = False,
    executor: Executor | None = None,
) -> Path:
    """Write the copy; returns the path of the contact sheet, which shows the first image under every corruption."""
    copy = read_copy(source, output, values)
    _mark(copy.folder, copy.facts)
    executor = executor or choose_executor(copy.runtime)
    for job in copy.jobs():
        run_job(job, store=job.store, executor=executor, quiet=quiet)
    shutil.rmtree(copy.pieces, ignore_errors=True)
    return copy.finish()


def read_copy(source: str, output: str | Path, values: dict[str, Any]) -> Copy:
    """The copy that these settings ask for; the folder is made, and nothing is written."""
    values = config.merge({"data": {"name": source}}, values)
    settings: CorruptedCopyConfig = build(CorruptedCopyConfig, values)
    data = load_data(settings.data, settings.split)
    data = data.first(min(settings.n, len(data))) if settings.n is not None else data
    stored, side = enlarged_from(data.original), max(data.image_shape[1:])
    suited = constants_for(max(stored.shape) if stored else side)
    layout: Layout = settings.layout or ("npy" if constants_for(side) == "cifar" else "folder")
    severities = tuple(sorted(set(settings.severities)))
    if layout == "npy" and severities != (1, 2, 3, 4, 5):
        raise UserError("layout=npy holds all five severities in one file; leave severities out, or take layout=folder")
    folder, types = local_path(output), chosen_types(settings.types)
    folder.mkdir(parents=True, exist_ok=True)
    frost = Path(settings.frost).expanduser() if settings.frost else None
    facts = {
        "data": data.name, "split": data.split, "images": len(data), "description": data.description,
        "seed": settings.seed, "constants": settings.constants or suited, "layout": layout, "jpeg": settings.jpeg,
        "classes": list(data.classes), "frost": frost_source(frost), **(stored.settings if stored else {}),
    }  # fmt: skip
    return Copy(
        data=data, folder=folder, facts=facts, frost=frost, stored=stored, runtime=settings.runtime,
        types=tuple(types), severities=severities,
    )  # fmt: skip


def _mark(folder: Path, facts: dict[str, Any]) -> None:
    """Write what the folder holds; a folder that holds another copy is not added to."""
    marker = read_marker(folder) if folder.exists() else None
    if marker is None:
        mark_regenerated(folder, **facts)
        return
    changes = [f"{key}: {marker.get(key)} → {value}" for key, value in facts.items() if marker.get(key) != value]
    if changes:
        raise UserError(
            f"{folder} holds another corrupted copy ({', '.join(changes)}); name another folder, or remove it"
        )


@dataclass(frozen=True, kw_only=True)
class Copy:
    """What all files of a copy share."""

    data: Dataset
    folder: Path
    facts: dict[str, Any]
    frost: Path | None
    stored: StoredImages | None
    runtime: Runtime
    types: tuple[str, ...]
    severities: tuple[int, ...]

    def jobs(self) -> list[FileJob]:
        """One for each file (or folder of images) of the copy."""
        layout: Layout = self.facts["layout"]
        each = [(type_, self.severities) for type_ in self.types]
        if layout != "npy":
            each = [(type_, (severity,)) for type_ in self.types for severity in self.severities]
        return [
            _JOBS[layout](self, type_, some, title=f"corrupt {type_} ({place} of {len(each)} files)")
            for place, (type_, some) in enumerate(each, start=1)
        ]

    def finish(self) -> Path:
        """Write what belongs to no single type; the path of the contact sheet."""
        if self.facts["layout"] == "npy":
            with atomic(self.folder / "labels.npy") as file:
                np.save(file, np.tile(self.data.labels.numpy().astype(np.int64), 5))
        first = self.data.batch([0], self.runtime.torch_device)
        return write_contact_sheet(
            self.folder / "contact_sheet.png", _eight_bits(first.x)[0].numpy(), types=self.types,
            severities=self.severities,
            corrupted=lambda type_, severity: self.corrupted(first.x, first.index, type_, severity)[0].numpy(),
        )  # fmt: skip

    @property
    def pieces(self) -> Path:
        return self.folder / ".pieces"

    def corrupted(self, x: Tensor, index: Tensor, type_: str, severity: int) -> Tensor:
        """Corrupted images N×H×W×3 uint8, on the CPU."""
        constants, seed = self.facts["constants"], self.facts["seed"]
        x = x if self.stored is None else self.stored.fetch(index)
        corrupted = corrupt(x, index, type_, severity, constants=constants, seed=seed, frost=self.frost)
        return _eight_bits(corrupted if self.stored is None else self.stored.resize(corrupted))


class FileJob(Job):
    """One file (or folder of images) of the copy; its rows are the images."""

    unit = "img"
    joins_pieces = False

    def __init__(self, copy: Copy, type_: str, severities: Sequence[int], *, title: str) -> None:
        self.copy, self.type, self.severities, self.title, self.total = copy, type_, severities, title, len(copy.data)
        name = type_ if len(severities) > 1 else f"{type_}-{severities[0]}"
        id = job_id(name, [copy.facts, type_, list(severities)])
        self.store = PieceStore(copy.pieces, id, columns=self.columns, root=copy.folder)

    columns = True  # whether a piece has columns, or arrays only
    sends_files = False  # whether image files travel with the piece: it is made on a machine with another disk

    @property
    def path(self) -> Path:
        """The finished file, or the file that says that a folder is complete."""
        raise NotImplementedError

    def recall(self) -> Path | None:
        return self.path if self.path.exists() else None

    def travels(self, serve: Callable[[Any], Any]) -> FileJob:
        job = shallow_copy(self)
        data = served(self.copy.data, serve)
        job.copy = dataclasses.replace(self.copy, data=data, stored=enlarged_from(data.original))
        job.sends_files = True
        return job

    def piece_size(self, most: int) -> int:
        return _PIECE

    def inputs(self, spans: Sequence[Span]) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        for _, images in chunks(self.copy.data, self.copy.runtime.torch_device, spans):
            yield images

    def run(self, span: Span, inputs: Any, *, notebook: Notebook | None, meter: Meter) -> PieceResult:
        x, y, index = inputs
        made = {severity: self.copy.corrupted(x, index, self.type, severity) for severity in self.severities}
        return self.piece(span, made, y.cpu())

    def piece(self, span: Span, images: dict[int, Tensor], labels: Tensor) -> PieceResult:
        """What is kept of one piece; `images` by severity, N×H×W×3 uint8."""
        raise NotImplementedError

    def finish(self, columns: Columns, arrays: Columns, *, is_main: bool) -> Path:
        if is_main:
            self.write()
        return self.path

    def write(self) -> None:
        """Write the finished file from the pieces in the store."""
        raise NotImplementedError


class _ArrayJob(FileJob):
    """TYPE.npy, (5·n)×H×W×3, severity after severity."""

    columns = False

    @property
    def path(self) -> Path:
        return self.copy.folder / f"{self.type}.npy"

    def piece(self, span: Span, images: dict[int, Tensor], labels: Tensor) -> PieceResult:
        return PieceResult(arrays={str(severity): image.numpy() for severity, image in images.items()})

    def write(self) -> None:
        _, height, width = self.copy.data.image_shape
        shape = (len(self.severities) * self.total, height, width, 3)
        with atomic(self.path) as file:
            np.lib.format.write_array_header_1_0(file, {"descr": "|u1", "fortran_order": False, "shape": shape})
            for severity in self.severities:
                for _, piece in self.store.pieces():
                    file.write(np.ascontiguousarray(piece.arrays[str(severity)]).tobytes())


class _TreeJob(FileJob):
    """TYPE/SEVERITY/CLASS/IMAGE; image files are written as they are made."""

    @property
    def folder(self) -> Path:
        return self.copy.folder / self.type / str(self.severities[0])

    @property
    def path(self) -> Path:
        return self.folder / ".complete"

    def begin(self) -> None:
        if self.sends_files:
            return
        for name in self.copy.data.classes:
            (self.folder / name).mkdir(parents=True, exist_ok=True)

    def piece(self, span: Span, images: dict[int, Tensor], labels: Tensor) -> PieceResult:
        jpeg, classes = self.copy.facts["jpeg"], self.copy.data.classes
        suffix, rows = "JPEG" if jpeg else "png", np.arange(span.start, span.stop)
        paths = [
            self.folder / classes[int(label)] / f"{row:08d}.{suffix}" for row, label in zip(rows, labels, strict=True)
        ]
        with ThreadPoolExecutor() as pool:
            encoded = pool.map(lambda image: _encode(image, jpeg), images[self.severities[0]])
            if self.sends_files:
                names = [path.relative_to(self.copy.folder).as_posix() for path in paths]
                return PieceResult(columns={"row": rows}, files=dict(zip(names, encoded, strict=True)))
            list(pool.map(lambda pair: pair[0].write_bytes(pair[1]), zip(paths, encoded, strict=True)))
        return PieceResult(columns={"row": rows})

    def write(self) -> None:
        self.path.touch()


class _ParquetJob(FileJob):
    """TYPE-SEVERITY.parquet with image bytes and labels."""

    @property
    def path(self) -> Path:
        return self.copy.folder / f"{self.type}-{self.severities[0]}.parquet"

    def piece(self, span: Span, images: dict[int, Tensor], labels: Tensor) -> PieceResult:
        with ThreadPoolExecutor() as pool:
            encoded = list(pool.map(lambda image: _encode(image, self.copy.facts["jpeg"]), images[self.severities[0]]))
        column = np.empty(len(encoded), dtype=object)
        column[:] = encoded
        return PieceResult(columns={"image": column, "label": labels.numpy()})

    def write(self) -> None:
        with atomic(self.path) as file, pq.ParquetWriter(file, _SCHEMA) as writer:
            for _, piece in self.store.pieces():
                images = [{"bytes": packed, "path": None} for packed in piece.columns["image"]]
                table = {"image": images, "label": piece.columns["label"].tolist()}
                writer.write_table(pa.table(table, schema=_SCHEMA))


_JOBS: dict[Layout, type[FileJob]] = {"npy": _ArrayJob, "folder": _TreeJob, "parquet": _ParquetJob}


def _eight_bits(x: Tensor) -> Tensor:
    """Images N×3×H×W in [0,1] as N×H×W×3 uint8, on the CPU."""
    return (x * 255).round().to(torch.uint8).permute(0, 2, 3, 1).cpu()


def _encode(image: Tensor, jpeg: int) -> bytes:
    packed = io.BytesIO()
    how = {"format": "JPEG", "quality": jpeg} if jpeg else {"format": "PNG"}
    Image.fromarray(image.numpy()).save(packed, **how)
    return packed.getvalue()
