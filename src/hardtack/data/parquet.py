"""Hugging Face's image parquet: a column of encoded images and a column of labels. `parquet:PATH`.

PATH is a file, a folder (searched below), or a pattern with `*`, and may be a URL. The split of a file is read from its
name or its folder (`train-00000-of-00002.parquet`, `test/0.parquet`). Class names come from the schema's Hugging Face
metadata where there is any. Only the column of labels is read before images are asked for.
"""

from __future__ import annotations

import functools
import glob
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from hardtack.base.arrays import to_numpy
from hardtack.base.errors import UserError, did_you_mean
from hardtack.base.limits import ROWS, parse_json, shorten
from hardtack.base.registry import datasets
from hardtack.data.parquet_images import HeldBytes, RowGroups, for_each_file, opened_parquet
from hardtack.data.paths import find_place, path_files, search_places
from hardtack.data.remote import Place, RemotePath, is_url, size_bytes
from hardtack.data.remote.address import is_pattern
from hardtack.data.remote.path import matching
from hardtack.data.source import SPLIT_WORDS, WHOLE, Splits, Stored, integer_labels, numbered_classes

if TYPE_CHECKING:
    from hardtack.data.datasets import DataConfig

_LABELS = ("label", "labels", "fine_label")
_HELD_MB = 256  # files that are held in memory even where images are to be streamed


def _split_of(relative: str) -> str:
    """The split a file belongs to by the words of its path, last part first; WHOLE if no word names a split."""
    for part in reversed(Path(relative).parts):
        for word in re.split(r"[-_.]", part.lower()):
            if word in SPLIT_WORDS:
                return SPLIT_WORDS[word]
    return WHOLE


def find_files(path: str, root: str | None) -> dict[str, list[Place]]:
    """The parquet files PATH names, by split."""
    named: list[tuple[str, Place]]
    if is_url(path) and is_pattern(path):
        named = [(file.name, file) for file in matching(path)]
    elif not is_url(path) and any(sign in path for sign in "*?["):
        expanded = Path(path).expanduser()
        places = [""] if expanded.is_absolute() else [f"{place}/" for place in search_places(root)] + [""]
        files = next((matches for place in places if (matches := sorted(glob.glob(f"{place}{expanded}")))), [])
        named = [(Path(file).name, Path(file)) for file in files]
    else:
        named = _files_at(find_place(path, root, kind="parquet"))
    if not named:
        raise UserError(f"parquet: '{path}' matches no .parquet file")
    splits: dict[str, list[Place]] = {}
    for name, file in named:
        splits.setdefault(_split_of(name), []).append(file)
    if WHOLE in splits and len(splits) > 1:
        raise UserError(f"parquet: the name of {splits[WHOLE][0]} has no split, but others do; add train or test to it")
    return splits


def _files_at(where: Any) -> list[tuple[str, Place]]:
    """The name and place of a file, or of every parquet file in a folder."""
    if isinstance(where, RemotePath):
        where = where.known()
    if where.is_file():
        return [(where.name, where)]
    return [(str(file.relative_to(where)), file) for file in sorted(where.rglob("*.parquet"))]


def _schema(file: Place) -> Any:
    try:
        with opened_parquet(file) as opened:
            return opened.schema_arrow
    except (pa.ArrowException, OSError) as error:
        raise UserError(f"{file} is not a readable parquet file: {str(error).splitlines()[0]}") from None


def _columns(schema: Any, file: Place, wanted: str | None) -> tuple[str, str]:
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
    "parquet",
    path="PATH",
    files=path_files,
    help="parquet:PATH: Hugging Face image parquet, a file, a folder of shards or a pattern",
)
def read_parquet(config: DataConfig, path: str) -> Splits:
    splits = find_files(path, config.root)
    first = next(iter(splits.values()))[0]
    schema = _schema(first)
    image, label = _columns(schema, first, config.label)

    @functools.cache
    def labels(split: str) -> Any:
        return _labels(splits[split], label)

    named = (class_names(_schema(files[0]), label) for files in splits.values())
    classes = next(filter(None, named), ()) or numbered_classes(*map(labels, splits))

    def opener(split: str) -> Stored:
        files = splits[split]
        remote = isinstance(files[0], RemotePath)
        size = sum(map(size_bytes, files))
        small = size <= config.memory_limit_mb * 2**20
        # images that are streamed are not all held either, unless they are few
        held = small and not remote and (not config.stream or size <= _HELD_MB * 2**20)
        images: HeldBytes | RowGroups = HeldBytes(files, image) if held else RowGroups(files, image)
        note = "" if small else "row groups read from disk as needed"
        return Stored(images, labels(split), classes, note, remote=remote)

    return {split: (lambda split=split: opener(split)) for split in splits}  # type: ignore[misc]


def _labels(files: Sequence[Place], column: str) -> Any:
    parts = []
    for file, labels in zip(files, for_each_file(lambda file: _read_labels(file, column), files), strict=True):
        if labels.null_count:
            raise UserError(f"{file}: {labels.null_count} labels in '{column}' are missing")
        parts.append(to_numpy(labels))
    return integer_labels(np.concatenate(parts), f"{files[0]}:{column}")


def _read_labels(file: Place, column: str) -> pa.ChunkedArray:
    try:
        with opened_parquet(file) as opened:
            if column not in opened.schema_arrow.names:
                raise UserError(f"{file} has no column '{column}' while other shards do")
            if opened.metadata.num_rows > ROWS:
                raise UserError(f"{file} has {opened.metadata.num_rows} rows, and the limit for one file is {ROWS}")
            kind = opened.schema_arrow.field(column).type
            if not pa.types.is_primitive(kind):
                raise UserError(f"{file}: labels must be whole numbers, found a column of {shorten(kind)}")
            return opened.read(columns=[column])[column]
    except (pa.ArrowException, OSError, MemoryError) as error:
        raise UserError(f"{file} cannot be read: {shorten(error, 200)}") from None
