"""`hardtack corrupt IN OUT`: a corrupted copy of a data set, in the layout of the official files or as parquet.

A file that is finished is not made again: kill it and repeat. The folder is marked as regenerated, so that nobody,
hardtack included, takes it for the official files.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from PIL import Image, ImageDraw
from pydantic import Field
from torch import Tensor

from hardtack.base import config
from hardtack.base.config import build
from hardtack.base.errors import UserError
from hardtack.base.files import atomic
from hardtack.base.progress import Meter
from hardtack.base.runtime import Runtime
from hardtack.data import DataConfig, Dataset, batches, load_data
from hardtack.data.corruptions import Constants, constants_for, corrupt, frost_source
from hardtack.data.corruptions.choose import Severities, Types, chosen_types
from hardtack.data.official import mark_regenerated
from hardtack.data.official.marker import read_marker

Layout = Literal["npy", "folder", "parquet"]
_BATCH = 256
_SHEET = 8  # pixels between two tiles
_SCHEMA = pa.schema([("image", pa.struct([("bytes", pa.binary()), ("path", pa.string())])), ("label", pa.int64())])


@dataclass(frozen=True, kw_only=True)
class CorruptionJob:
    """Settings of `hardtack corrupt`.

    layout      npy: TYPE.npy and labels.npy as CIFAR-C has them; folder: TYPE/SEVERITY/CLASS/IMAGE as ImageNet-C has
                them; parquet: TYPE-SEVERITY.parquet with image bytes and labels (None: npy up to 64 pixels)
    constants   cifar or imagenet (None: cifar up to 64 pixels)
    jpeg        of layout=folder and parquet: the quality images are saved with, 85 as ImageNet-C's were; 0: PNG
    n           only the first images
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


def corrupt_data(source: str, output: str | Path, values: dict[str, Any], *, quiet: bool = False) -> Path:
    """Write the copy; returns the contact sheet that shows what was made of the first image."""
    values = config.merge({"data": {"name": source}}, values)
    job: CorruptionJob = build(CorruptionJob, values)
    data = load_data(job.data, job.split)
    data = data.first(min(job.n, len(data))) if job.n is not None else data
    suited = constants_for(max(data.image_shape[1:]))
    constants = job.constants or suited
    layout: Layout = job.layout or ("npy" if suited == "cifar" else "folder")
    severities = tuple(sorted(set(job.severities)))
    if layout == "npy" and severities != (1, 2, 3, 4, 5):
        raise UserError("layout=npy holds all five severities in one file; leave severities out, or take layout=folder")
    folder = Path(output).expanduser()
    folder.mkdir(parents=True, exist_ok=True)
    types, frost = chosen_types(job.types), Path(job.frost).expanduser() if job.frost else None
    facts = {
        "data": data.name, "split": data.split, "images": len(data), "description": data.description, "seed": job.seed,
        "constants": constants, "layout": layout, "jpeg": job.jpeg, "classes": list(data.classes),
        "frost": frost_source(frost),
    }  # fmt: skip
    _mark(folder, facts)
    device = job.runtime.torch_device

    def views(type_: str, severity: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Corrupted images N×H×W×3 uint8 and labels, in the order of the data."""
        for batch in batches(data, _BATCH, device=device):
            made = corrupt(batch.x, batch.index, type_, severity, constants=constants, seed=job.seed, frost=frost)
            yield (made * 255).round().to(torch.uint8).permute(0, 2, 3, 1).cpu(), batch.y.cpu()

    write = {"npy": _write_arrays, "folder": _write_tree, "parquet": _write_parquet}[layout]
    with Meter("corrupt", total=len(types) * len(severities), quiet=quiet) as meter:
        for type_ in types:
            write(folder, type_, severities, data, views, job.jpeg, meter)
    one = data.batch([0], device)

    def first(type_: str, severity: int) -> np.ndarray:
        made = corrupt(one.x, one.index, type_, severity, constants=constants, seed=job.seed, frost=frost)[0]
        return (made * 255).round().to(torch.uint8).permute(1, 2, 0).cpu().numpy()

    return _contact_sheet(folder, data, types, severities, first)


def _mark(folder: Path, facts: dict[str, Any]) -> None:
    """Say what lies there; a folder that holds something else is not added to."""
    known = read_marker(folder) if folder.exists() else None
    differing = [key for key, value in facts.items() if known is not None and known.get(key) != value]
    if differing:
        changes = ", ".join(f"{key}: {known.get(key)} → {facts[key]}" for key in differing if known is not None)
        raise UserError(f"{folder} holds another corrupted copy ({changes}); name another folder, or remove it")
    if known is None:
        mark_regenerated(folder, **facts)


Views = Callable[[str, int], Iterator[tuple[Tensor, Tensor]]]


def _write_arrays(
    folder: Path, type_: str, severities: tuple[int, ...], data: Dataset, views: Views, jpeg: int, meter: Meter
) -> None:
    """(5·n)×H×W×3, severity after severity; labels five times over."""
    labels, n = folder / "labels.npy", len(data)
    if not labels.exists():
        with atomic(labels) as file:
            np.save(file, np.tile(data.labels.numpy().astype(np.int64), 5))
    path = folder / f"{type_}.npy"
    if not path.exists():
        with atomic(path) as file:
            _, height, width = data.image_shape
            header = {"descr": "|u1", "fortran_order": False, "shape": (5 * n, height, width, 3)}
            np.lib.format.write_array_header_1_0(file, header)
            for severity in severities:
                for images, _ in views(type_, severity):
                    file.write(images.numpy().tobytes())
                meter.advance(n, f"{type_}/{severity}")


def _write_tree(
    folder: Path, type_: str, severities: tuple[int, ...], data: Dataset, views: Views, jpeg: int, meter: Meter
) -> None:
    for severity in severities:
        home = folder / type_ / str(severity)
        done = home / ".complete"
        if not done.exists():
            for name in data.classes:
                (home / name).mkdir(parents=True, exist_ok=True)
            place = 0
            with ThreadPoolExecutor() as pool:
                for images, labels in views(type_, severity):
                    paths = [
                        home / data.classes[int(label)] / f"{place + at:08d}.{_suffix(jpeg)}"
                        for at, label in enumerate(labels)
                    ]
                    list(
                        pool.map(
                            lambda pair: pair[0].write_bytes(_encode(pair[1], jpeg)), zip(paths, images, strict=True)
                        )
                    )
                    place += len(images)
            done.touch()
        meter.advance(len(data), f"{type_}/{severity}")


def _write_parquet(
    folder: Path, type_: str, severities: tuple[int, ...], data: Dataset, views: Views, jpeg: int, meter: Meter
) -> None:
    for severity in severities:
        path = folder / f"{type_}-{severity}.parquet"
        if not path.exists():
            schema = pa.schema(
                [("image", pa.struct([("bytes", pa.binary()), ("path", pa.string())])), ("label", pa.int64())]
            )
            with atomic(path) as file, pq.ParquetWriter(file, schema) as writer, ThreadPoolExecutor() as pool:
                for images, labels in views(type_, severity):
                    packed = pool.map(lambda image: {"bytes": _encode(image, jpeg), "path": None}, images)
                    writer.write_table(pa.table({"image": list(packed), "label": labels.tolist()}, schema=_SCHEMA))
        meter.advance(len(data), f"{type_}/{severity}")


def _suffix(jpeg: int) -> str:
    return "JPEG" if jpeg else "png"


def _encode(image: Tensor, jpeg: int) -> bytes:
    packed = io.BytesIO()
    how = {"format": "JPEG", "quality": jpeg} if jpeg else {"format": "PNG"}
    Image.fromarray(image.numpy()).save(packed, **how)
    return packed.getvalue()


def _contact_sheet(
    folder: Path,
    data: Dataset,
    types: list[str],
    severities: tuple[int, ...],
    first: Callable[[str, int], np.ndarray],
) -> Path:
    """The first image, a row for each type: as it is, then at every severity."""
    one = data.subset([0])
    _, height, width = data.image_shape
    scale = max(1, 96 // max(height, width))
    tile, margin = (width * scale, height * scale), 150
    sheet = Image.new(
        "RGB", (margin + (tile[0] + _SHEET) * (len(severities) + 1), (tile[1] + _SHEET) * len(types) + 24), "white"
    )
    draw = ImageDraw.Draw(sheet)
    clean = (one.batch([0]).x[0] * 255).round().to(torch.uint8).permute(1, 2, 0).numpy()
    for column, title in enumerate(["clean", *map(str, severities)]):
        draw.text((margin + column * (tile[0] + _SHEET), 6), title, fill="black")
    for row, type_ in enumerate(types):
        top = 24 + row * (tile[1] + _SHEET)
        draw.text((6, top + tile[1] // 2 - 6), type_.replace("_", " "), fill="black")
        for column, pixels in enumerate([clean, *(first(type_, severity) for severity in severities)]):
            picture = Image.fromarray(pixels).resize(tile, Image.Resampling.NEAREST)
            sheet.paste(picture, (margin + column * (tile[0] + _SHEET), top))
    path = folder / "contact_sheet.png"
    with atomic(path) as file:
        sheet.save(file, format="PNG")
    return path
