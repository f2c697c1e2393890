"""Hugging Face's image parquet: a column of encoded images and a column of labels. `parquet:PATH`.

PATH is a file, a folder (searched below), or a pattern with `*`. The split of a file is read from its name
or its folder (`train-00000-of-00002.parquet`, `test/0.parquet`). Class names come from the schema's
Hugging Face metadata where there is any.
"""

from __future__ import annotations

import glob
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from hardtack.base.errors import UserError, did_you_mean
from hardtack.base.limits import ROWS, check_unpacked, parse_json, shorten
from hardtack.base.registry import datasets
from hardtack.data.decode import decode_bytes
from hardtack.data.paths import find_path, search_places
from hardtack.data.source import SPLIT_WORDS, WHOLE, Splits, Stored, integer_labels, numbered_classes

if TYPE_CHECKING:
    from hardtack.data.datasets import DataConfig

_LABELS = ("label", "labels", "fine_label")
_BATCH = 64  # rows that are unpacked together
_KEPT_IMAGES = 2048  # about so many encoded images each process keeps while it reads at random


class HeldBytes:
    """Encoded images in memory, for sets whose files fit: the faster way."""

    def __init__(self, files: list[Path], column: str) -> None:
        self.files = files
        # 64-bit offsets: a plain binary array ends at 2 GiB
        chunks = [chunk.cast(pa.large_binary()) for file in files for chunk in _encoded_images(file, column)]
        self.data = pa.concat_arrays(chunks) if chunks else pa.array([], pa.large_binary())

    def __len__(self) -> int:
        return len(self.data)

    def read(self, index: int) -> np.ndarray:
        return decode_bytes(self.encoded(index), self.where(index))

    def encoded(self, index: int) -> bytes:
        return _present(self.data[index].as_py(), self.where(index))

    def where(self, index: int) -> str:
        return f"row {index} of {self.files[0]}{' …' if len(self.files) > 1 else ''}"


class RowGroups:
    """Encoded images read a row group at a time, for sets that do not fit; `kept` groups are kept.

    Training shuffles the groups, and the images of as many groups as are kept (see `sampler`): reading one image in a
    wholly random order would read its whole group again and again.
    """

    def __init__(self, files: list[Path], column: str) -> None:
        self.column = column
        self.groups: list[tuple[Path, int]] = []
        sizes = []
        for file in files:
            meta = pq.read_metadata(file)
            self.groups += [(file, number) for number in range(meta.num_row_groups)]
            sizes += [meta.row_group(number).num_rows for number in range(meta.num_row_groups)]
        self.ends = np.cumsum(sizes)
        self.kept = min(32, max(2, _KEPT_IMAGES // max(1, int(np.mean(sizes)) if sizes else 1)))
        self.held: dict[int, Any] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "held": {}}  # another process reads its own

    def __len__(self) -> int:
        return int(self.ends[-1]) if len(self.ends) else 0

    def read(self, index: int) -> np.ndarray:
        return decode_bytes(self.encoded(index), self.where(index))

    def encoded(self, index: int) -> bytes:
        group = int(np.searchsorted(self.ends, index, side="right"))
        start = int(self.ends[group - 1]) if group else 0
        return _present(self._group(group)[index - start].as_py(), self.where(index))

    def _group(self, number: int) -> Any:
        """The bytes of one row group; threads may read the same one twice, which only takes time."""
        cached = self.held.get(number)
        if cached is None:
            file, place = self.groups[number]
            chunks = [chunk.cast(pa.large_binary()) for chunk in _encoded_images(file, self.column, group=place)]
            cached = pa.concat_arrays(chunks)
            for old in list(self.held)[: max(0, len(self.held) + 1 - self.kept)]:
                self.held.pop(old, None)
            self.held[number] = cached
        return cached

    def where(self, index: int) -> str:
        return f"row {index} of {self.groups[0][0]}{' …' if len(self.groups) > 1 else ''}"


def _present(data: bytes | None, where: str) -> bytes:
    if data is None:
        raise UserError(f"{where} has no bytes (only a path?); store the images themselves")
    return data


def _encoded_images(file: Path, column: str, *, group: int | None = None) -> Iterator[pa.Array]:
    """The bytes of the images of a file, or of one row group, in batches; refuses a file that unpacks to far more."""
    size = 0
    try:
        with pq.ParquetFile(file) as opened:
            groups = None if group is None else [group]
            for batch in opened.iter_batches(_BATCH, row_groups=groups, columns=[f"{column}.bytes"]):
                size += batch.nbytes
                check_unpacked(file, size)
                yield batch.column(0).field("bytes")
    except (pa.ArrowException, OSError, MemoryError) as error:
        raise UserError(f"{file} cannot be read: {shorten(error, 200)}") from None


def _split_of(relative: str) -> str:
    """The split a file belongs to by the words of its path, last part first; WHOLE if no word names a split."""
    for part in reversed(Path(relative).parts):
        for word in re.split(r"[-_.]", part.lower()):
            if word in SPLIT_WORDS:
                return SPLIT_WORDS[word]
    return WHOLE


def find_files(path: str, root: str | None) -> dict[str, list[Path]]:
    """The parquet files PATH names, by split."""
    if any(sign in path for sign in "*?["):
        expanded = Path(path).expanduser()
        places = [""] if expanded.is_absolute() else [f"{place}/" for place in search_places(root)] + [""]
        files = next((matches for place in places if (matches := sorted(glob.glob(f"{place}{expanded}")))), [])
        named = [(Path(file).name, Path(file)) for file in files]
    else:
        where = find_path(path, root, kind="parquet")
        if where.is_file():
            named = [(where.name, where)]
        else:
            named = [(str(file.relative_to(where)), file) for file in sorted(where.rglob("*.parquet"))]
    if not named:
        raise UserError(f"parquet: '{path}' matches no .parquet file")
    splits: dict[str, list[Path]] = {}
    for name, file in named:
        splits.setdefault(_split_of(name), []).append(file)
    if WHOLE in splits and len(splits) > 1:
        raise UserError(f"parquet: the name of {splits[WHOLE][0]} has no split, but others do; add train or test to it")
    return splits


def _schema(file: Path) -> Any:
    try:
        return pq.read_schema(file)
    except (pa.ArrowException, OSError) as error:
        raise UserError(f"{file} is not a readable parquet file: {str(error).splitlines()[0]}") from None


def _columns(schema: Any, file: Path, wanted: str | None) -> tuple[str, str]:
    """(image column, label column) of the schema."""
    structs = [field for field in schema if pa.types.is_struct(field.type)]
    images = [field.name for field in structs if field.type.get_field_index("bytes") >= 0]
    if not images:
        raise UserError(f"{file} has no image column (a struct with 'bytes'); its columns: {', '.join(schema.names)}")
    if wanted is not None:
        if wanted not in schema.names:
            raise UserError(f"{file} has no label column '{wanted}'{did_you_mean(wanted, schema.names)}")
        return images[0], wanted
    label = next((name for name in _LABELS if name in schema.names), None)
    if label is None:
        raise UserError(
            f"{file} has none of the label columns {', '.join(_LABELS)}; set data.label to one of "
            f"{', '.join(name for name in schema.names if name not in images)}"
        )
    return images[0], label


def class_names(schema: Any, label: str) -> tuple[str, ...]:
    """The names in the schema's Hugging Face metadata; empty when it has none."""
    try:
        text = (schema.metadata or {})[b"huggingface"].decode("utf-8", errors="replace")
        features = parse_json(text, "Hugging Face's metadata")["info"]["features"]
        return tuple(str(name) for name in features[label]["names"])
    except (KeyError, TypeError, ValueError):
        return ()


@datasets.register(
    "parquet", path="PATH", help="parquet:PATH: Hugging Face image parquet, a file, a folder of shards or a pattern"
)
def read_parquet(config: DataConfig, path: str) -> Splits:
    splits = find_files(path, config.root)
    first = next(iter(splits.values()))[0]
    schema = _schema(first)
    image, label = _columns(schema, first, config.label)
    labels = {split: _labels(files, label) for split, files in splits.items()}
    named = (class_names(_schema(files[0]), label) for files in splits.values())
    classes = next(filter(None, named), ()) or numbered_classes(*labels.values())

    def opener(split: str) -> Stored:
        files = splits[split]
        held = sum(file.stat().st_size for file in files) <= config.memory_limit_mb * 2**20
        images: HeldBytes | RowGroups = HeldBytes(files, image) if held else RowGroups(files, image)
        note = "" if held else "row groups read from disk as needed"
        return Stored(images, labels[split], classes, note)

    return {split: (lambda split=split: opener(split)) for split in splits}  # type: ignore[misc]


def _labels(files: list[Path], column: str) -> Any:
    parts = []
    for file in files:
        if column not in _schema(file).names:
            raise UserError(f"{file} has no column '{column}' while other shards do")
        labels = _read_labels(file, column)
        if labels.null_count:
            raise UserError(f"{file}: {labels.null_count} labels in '{column}' are missing")
        parts.append(labels.to_numpy())
    return integer_labels(np.concatenate(parts), f"{files[0]}:{column}")


def _read_labels(file: Path, column: str) -> pa.ChunkedArray:
    try:
        with pq.ParquetFile(file) as opened:
            if opened.metadata.num_rows > ROWS:
                raise UserError(f"{file} has {opened.metadata.num_rows} rows, and the limit for one file is {ROWS}")
            kind = opened.schema_arrow.field(column).type
            if not pa.types.is_primitive(kind):
                raise UserError(f"{file}: labels must be whole numbers, found a column of {shorten(kind)}")
            return opened.read(columns=[column])[column]
    except (pa.ArrowException, OSError, MemoryError) as error:
        raise UserError(f"{file} cannot be read: {shorten(error, 200)}") from None
