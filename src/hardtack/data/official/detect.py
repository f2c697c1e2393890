"""`open_official(path)`: which set of official files a folder holds, or what is wrong with it and how to mend it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from hardtack.base.errors import UserError, did_you_mean
from hardtack.data.corruptions.catalogue import SEVERITIES, names
from hardtack.data.official import trees
from hardtack.data.official.arrays import ArrayFile, array_files
from hardtack.data.official.cifar_c import open_arrays
from hardtack.data.official.imagenet_c import open_tree
from hardtack.data.official.kinds import KINDS, title
from hardtack.data.official.marker import read_marker
from hardtack.data.official.sequences import TYPES, VIDEO, open_sequence_arrays, open_videos
from hardtack.data.official.sets import Official
from hardtack.data.official.shifts import open_shift
from hardtack.data.paths import find_path

ARCHIVES = (".tar", ".tar.gz", ".tgz", ".zip")
_LEVELS = {str(severity) for severity in SEVERITIES}

LAYOUTS = {
    "arrays": ("one .npy per type and labels.npy", ("cifar10c", "cifar100c", "corrupted")),
    "sequences": ("one .npy per type, videos×frames×32×32×3", ("cifar10p", "cifar100p")),
    "tree": ("TYPE/SEVERITY/CLASS/IMAGE", ("imagenet_c", "tiny_imagenet_c", "corrupted")),
    "videos": ("TYPE/SYNSET/*.mp4", ("imagenet_p", "tiny_imagenet_p")),
    "classes": ("CLASS/IMAGE", ("imagenet_a", "imagenet_r", "imagenet_v2", "imagenet_sketch")),
}


class Found(NamedTuple):
    layout: str
    files: Mapping[str, ArrayFile]
    folders: dict[str, Path]


def _types() -> tuple[str, ...]:
    """Every type by name; read anew each time, because a user's file may register one later."""
    return tuple(dict.fromkeys((*names(), *TYPES)))


def open_official(path: str | Path, *, kind: str | None = None, root: str | None = None) -> Official:
    """The official files in the folder (or CIFAR-C's `.tar`) `path`; `kind`, a key of `KINDS`, says what they must be.

    Relative paths are looked up as those of data sets are: below `root`, or ./data and $HARDTACK_DATA.
    """
    if kind is not None and kind not in KINDS:
        hint = did_you_mean(kind, KINDS) or f"; known: {', '.join(KINDS)}"
        raise UserError(f"there are no official files '{kind}'{hint}")
    location = find_path(str(path), root, kind=kind or "official files")
    detected = recognise(location)
    if detected is None:
        raise UserError(_explain(location, kind))
    words, kinds = LAYOUTS[detected.layout]
    if kind is not None and kind not in kinds:
        expected = next(text for text, fitting in LAYOUTS.values() if kind in fitting)
        others = " or ".join(title(other) for other in kinds if other != "corrupted")
        raise UserError(f"{location} is laid out as {words}, as in {others}; {title(kind)} is {expected}")
    mark = read_marker(location)
    if detected.layout == "arrays":
        return open_arrays(location, detected.files, kind, mark)
    if detected.layout == "sequences":
        return open_sequence_arrays(location, detected.files, kind, mark)
    if detected.layout == "tree":
        return open_tree(location, detected.folders, kind, mark)
    if detected.layout == "videos":
        return open_videos(location, detected.folders, kind, mark)
    return open_shift(location, kind, mark)


def recognise(location: Path) -> Found | None:
    """The layout of a folder or archive by its names alone; nothing where there is none."""
    if location.is_dir() or location.suffix == ".tar":
        files = array_files(location)
        arrays = [name for name in _types() if name in files]
        if arrays:
            return Found("sequences" if len(files[arrays[0]].shape) == 5 else "arrays", files, {})
    if not location.is_dir():
        return None
    folders = trees.type_folders(location, _types())
    if folders:
        if any(_has_videos(folder) for folder in folders.values()):
            return Found("videos", {}, {name: folder for name, folder in folders.items() if name in TYPES})
        corrupted = {name: folder for name, folder in folders.items() if name in names()}
        return Found("tree", {}, corrupted) if corrupted else None
    inside = trees.subfolders(location)
    classes = [name for name in inside if trees.is_synset(name) or name.isdecimal()]
    one_severity = location.name in _LEVELS and location.parent.name in _types()
    if classes and not one_severity and any(trees.files_in(location / name) for name in classes[:3]):
        return Found("classes", {}, {})
    return None


def _has_videos(folder: Path) -> bool:
    return any(trees.files_in(folder / name, VIDEO) for name in trees.subfolders(folder)[:3])


def _explain(location: Path, kind: str | None) -> str:
    """Why `location` is no set of official files: an archive, a level too low, a level too high, or something else."""
    if not location.is_dir():
        if location.name.lower().endswith(ARCHIVES):
            return f"{location} is an archive; extract it ({_extract(location)}) and name the folder"
        return f"{location} is a file; name the folder that holds the set"
    low = _too_low(location)
    if low:
        return low
    there = sorted(path.name for path in location.iterdir())
    packed = [name for name in there if name.lower().endswith(ARCHIVES)]
    for name in (*trees.subfolders(location), *packed):
        try:
            detected = recognise(location / name)
        except UserError:  # what is wrong in there is said when it is named
            continue
        if detected is not None:
            words = LAYOUTS[detected.layout][0]
            return f"{location} is one level too high: it holds {name}, {words}; name {location / name}"
    if packed:
        command = _extract(location / packed[0])
        return f"{location} holds archives that are not extracted yet ({', '.join(packed[:5])}): {command}"
    near = next((hint for name in there if (hint := did_you_mean(name.removesuffix(".npy"), _types()))), "")
    shown = ", ".join(there[:5]) + (" …" if len(there) > 5 else "") if there else "nothing"
    wanted = [text for text, kinds in LAYOUTS.values() if kind is None or kind in kinds]
    get = f"; get {title(kind)} from {KINDS[kind].get}" if kind and KINDS[kind].get else ""
    return f"{location} holds {shown}{near}; expected {', or '.join(wanted)}{get}"


def _too_low(location: Path) -> str | None:
    inside = trees.subfolders(location)
    if location.name in _LEVELS and location.parent.name in _types():
        return f"{location} is one severity of one type; name the folder that holds the types: {location.parent.parent}"
    if location.name in _types() and (_LEVELS & set(inside) or _has_videos(location)):
        return f"{location} is one type; name the folder that holds the types: {location.parent}"
    if not inside and (trees.files_in(location) or trees.files_in(location, VIDEO)):
        return f"{location} holds images without class folders; name the folder that holds the class folders"
    return None


def _extract(archive: Path) -> str:
    return (
        f"unzip {archive} -d {archive.parent}" if archive.suffix == ".zip" else f"tar -xf {archive} -C {archive.parent}"
    )
