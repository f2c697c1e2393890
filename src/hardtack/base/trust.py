"""What a run folder may cause to be run or opened. Every command asks here before it uses what a folder says.

A run folder may come from anybody. Its settings (`config.yaml`, the words of a result) may name what hardtack itself
registers: suites, attacks, data sets without a path, models of ours and of timm's. Code (`mine.py:build`,
`package.module:NAME`) is run only if the user names it in this process, and a file or folder outside of the run is
opened only if the user typed its path: now, or in an earlier command, which is remembered in the user's own home. A
URL of data is contacted only if the user typed exactly this URL.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from hardtack.base.errors import UserError
from hardtack.base.files import state_folder, write_text
from hardtack.base.layers import flat, merge
from hardtack.base.limits import shorten

# settings whose value is a file or a folder, by the last part of their key
PATH_KEYS = frozenset({
    "root", "files", "frost", "weights", "source", "output", "others", "surrogate", "transfer", "folders", "test_list",
})  # fmt: skip
RUN_FILES = ("results.jsonl", "metrics.jsonl", "checkpoints")
LONGEST_TEXT = 1000  # characters of one stored setting
MOST_REMEMBERED = 2000
MOST_FILES = 200_000  # in a run folder: a run that kept every image of ImageNet has fewer
DEEPEST = 12

_NAME = r"[A-Za-z0-9_][A-Za-z0-9_.+ -]*"
_WORDS = re.compile(rf"(?:{_NAME}(?:\s*,\s*{_NAME})*)?")
_THREAT = re.compile(r"[A-Za-z][A-Za-z0-9_]*:[0-9.e+-]+(?:/[0-9.e+-]+)?")
_TIMM = re.compile(rf"timm:{_NAME}")
# an attack of another package, of which only the public attacks can be named; the keys that may name one
_OTHERS_ATTACK = re.compile(rf"(?:foolbox|torchattacks|art|autoattack):{_NAME}")
_ATTACK_KEYS = ("attack.name", "attacks", "attacks.name", "attack.attack", "attack.attack.name")
URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_GIVEN = re.compile(r"given:[A-Za-z0-9_.-]+")  # what a call in Python brought along: nothing that could be opened
_NUMBER = re.compile(r"[-+]?[0-9.]+(?:[eE][-+]?[0-9]+)?(?:/[0-9.]+)?")


# ---------------------------------------------------------------- settings


def stored_settings(
    stored: Mapping[str, Any],
    typed: Mapping[str, Any],
    *,
    folder: str | Path,
    code: Callable[[str], str | None] = lambda name: None,
) -> dict[str, Any]:
    """Settings stored in a run folder, with those that the user typed over them.

    `code` returns where the code of a model lies if the user named it in this process, else None. Raises a UserError
    for a stored setting that names code, or a file or folder outside of the run, which the user has not typed.
    """
    merged = merge(stored, typed)
    chosen = {_full_key(key) for key in flat(typed)}
    for key, value in list(flat(merged).items()):
        if _full_key(key) in chosen or any(_full_key(key).startswith(f"{outer}.") for outer in chosen):
            continue
        if _full_key(key) == "model.name" and isinstance(value, str) and (place := code(value)) is not None:
            section = merged["model"]
            merged = {**merged, "model": {**(section if isinstance(section, Mapping) else {}), "name": place}}
            continue
        _check(key, value, merged, Path(folder), chosen)
    return merged


def _full_key(key: str) -> str:
    """`model=NAME` is short for `model.name=NAME`, and so are `data` and `attack`."""
    return f"{key}.name" if key in ("model", "data", "attack") else key


def _check(key: str, value: Any, values: Mapping[str, Any], folder: Path, chosen: set[str]) -> None:
    if isinstance(value, Mapping):
        for name, item in value.items():
            _check(f"{key}.{name}", item, value, folder, chosen)
    elif isinstance(value, list | tuple):
        for item in value:
            _check(key, item, values, folder, chosen)
    elif isinstance(value, str):
        _check_text(key, value, values, folder, chosen)


def _check_text(key: str, text: str, values: Mapping[str, Any], folder: Path, chosen: set[str]) -> None:
    if len(text) > LONGEST_TEXT:
        raise UserError(
            f"{folder}: the stored setting {shorten(key)} has {len(text)} characters, and the limit is {LONGEST_TEXT}; "
            f"type the setting that you want: {shorten(key)}=VALUE"
        )
    last = key.rpartition(".")[2]
    if _full_key(key) in ("data.name",) or (last == "name" and ".extra" in key) or key.endswith("synthetic.name"):
        _check_data(key, text, values, folder, chosen)
    elif last in PATH_KEYS:
        _check_path(key, text, folder)
    elif not is_plain_setting(key, text):
        raise _refusal(key, text, folder)


def is_plain(text: str) -> bool:
    """Whether a setting is a name of ours or of timm's, a threat or a number, and so names no code, file or URL."""
    return not text.endswith(".py") and any(form.fullmatch(text) for form in (_WORDS, _THREAT, _TIMM, _NUMBER, _GIVEN))


def is_plain_setting(key: str, text: str) -> bool:
    """`is_plain`, or an attack of another package (foolbox:LinfPGD) where an attack is named."""
    return is_plain(text) or (_full_key(key) in _ATTACK_KEYS and _OTHERS_ATTACK.fullmatch(text) is not None)


def _check_data(key: str, text: str, values: Mapping[str, Any], folder: Path, chosen: set[str]) -> None:
    """A data set without a path is a name of ours; a path must lie below a root that was typed, or be remembered."""
    colon, path = _path_of(text)
    if _GIVEN.fullmatch(text) or (not colon and "/" not in text and _WORDS.fullmatch(text) and text[-3:] != ".py"):
        return
    data = values.get("data") if "data" in values else values
    root = data.get("root") if isinstance(data, Mapping) else None
    inside = isinstance(root, str) and not Path(path).is_absolute() and ".." not in Path(path).parts
    inside = inside and not URL.match(path)
    if colon and inside and not path.startswith("~") and ("data.root" in chosen or _may_open(str(root), folder)):
        return
    if not (_may_open(_below(path, root), folder) if colon else text in _remembered()):
        raise _refusal(key, text, folder)


def _check_path(key: str, text: str, folder: Path) -> None:
    if not _may_open(text, folder):
        raise _refusal(key, text, folder)


def _refusal(key: str, text: str, folder: Path) -> UserError:
    word = f"{shorten(key)}={shorten(text)}"
    code = f" (code: {word}, or --import FILE.py)" if key.startswith("model") and ":" in text else ""
    return UserError(
        f"{folder} names {word}, which is code, or a file or folder outside of the run; hardtack does not run or open "
        f"what a run folder names: if you trust it, type it yourself: {word}{code}"
    )


# ---------------------------------------------------------------- paths that the user typed


def remember_paths(typed: Mapping[str, Any]) -> None:
    """Keep the paths among settings that the user typed, so that a run made from them can open them again.

    They are kept in the user's home ($XDG_STATE_HOME/hardtack), never in the run folder. If that is not possible,
    later commands ask for the paths.
    """
    paths = list(_typed_paths(typed))
    with contextlib.suppress(OSError):
        known = _remembered()
        new = [path for path in dict.fromkeys(paths) if path not in known]
        if new:
            lines = [*known, *new][-MOST_REMEMBERED:]
            write_text(_state_file(), "".join(json.dumps(line) + "\n" for line in lines))


def _typed_paths(values: Mapping[str, Any]) -> Iterator[str]:
    data = values.get("data")
    section = {"name": data} if isinstance(data, str) else data
    for entry in _data_sections(section):
        if _GIVEN.fullmatch(str(entry.get("name", ""))):
            continue
        root, (colon, path) = entry.get("root"), _path_of(str(entry.get("name", "")))
        if isinstance(root, str):
            yield _absolute(root)
        yield from [_absolute(_below(path, root))] if colon and path else [str(entry.get("name", ""))]
    for key, value in flat(values).items():
        if key.rpartition(".")[2] in PATH_KEYS and key != "output":
            yield from (_absolute(item) for item in ([value] if isinstance(value, str) else _texts(value)))


def _data_sections(section: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(section, Mapping):
        yield section
        extra, synthetic = section.get("extra") or (), section.get("synthetic")
        for inner in (*(extra if isinstance(extra, list | tuple) else ()), synthetic):
            if isinstance(inner, Mapping):
                yield {"root": section.get("root"), **{key: item for key, item in inner.items() if item is not None}}


def _texts(value: Any) -> Iterable[str]:
    return (item for item in value if isinstance(item, str)) if isinstance(value, list | tuple) else ()


def _path_of(name: str) -> tuple[bool, str]:
    """Whether the name of a data set has a path (`folder:PATH`, `wds/s3://BUCKET`), and the path."""
    _, colon, path = name.partition(":")
    url = re.fullmatch(rf"(?:(?:timm:)?wds/|[^:/]+:)({URL.pattern}.*)", name, re.DOTALL)
    return (True, url[1]) if url else (bool(colon), path)


def _below(path: str, root: Any) -> str:
    if URL.match(path):
        return path
    return os.path.join(os.path.expanduser(root), path) if isinstance(root, str) and path[:1] != "~" else path


def _absolute(path: str) -> str:
    return path if URL.match(path) else os.path.abspath(os.path.expanduser(path))


def _may_open(path: str, folder: Path) -> bool:
    """Whether a path lies in the run folder itself, or was typed by the user in an earlier command."""
    if "\0" in path:
        return False
    if URL.match(path):
        return path in _remembered()
    inside = Path(_absolute(path)).resolve().is_relative_to(folder.resolve())
    return inside or _absolute(path) in _remembered()


def _state_file() -> Path:
    return state_folder() / "paths.jsonl"


def _remembered() -> list[str]:
    try:
        lines = _state_file().read_text(encoding="utf-8").splitlines()
        return [str(json.loads(line)) for line in lines]
    except (OSError, ValueError):
        return []


# ---------------------------------------------------------------- files of a run folder


def file_inside(folder: str | Path, name: str) -> Path:
    """The file of a run folder that one of its records names; a name that leads out of the folder is refused."""
    folder = Path(folder)
    parts = Path(name).parts
    odd = not parts or "\0" in name or len(name) > LONGEST_TEXT or Path(name).is_absolute() or ".." in parts
    if odd or not (folder / name).resolve().is_relative_to(folder.resolve()):
        raise UserError(f"{folder} names the file '{shorten(name)}', which is not in that folder; it was not opened")
    return folder / name


def check_links(folder: str | Path) -> None:
    """Refuse a run folder with a link that leads out of it: reading or writing would reach files of the user's."""
    top = Path(folder).resolve()
    count = 0
    for here, folders, files in os.walk(top):
        if len(Path(here).relative_to(top).parts) >= DEEPEST:
            raise UserError(
                f"{folder} has folders {DEEPEST} levels deep, more than any run; name the run folder itself"
            )
        for name in (*folders, *files):
            count += 1
            path = os.path.join(here, name)
            if os.path.islink(path) and not Path(os.path.realpath(path)).is_relative_to(top):
                link = shorten(os.path.relpath(path, top))
                raise UserError(
                    f"{folder}: {link} is a link to {shorten(os.path.realpath(path))}, outside of the run folder, "
                    "and is not followed; put the file itself there, or remove the link"
                )
        if count > MOST_FILES:
            raise UserError(f"{folder} has more than {MOST_FILES} files, more than any run; name the run folder itself")


def is_in_run(file: str | Path) -> bool:
    """Whether a file is the configuration inside a run folder, rather than a recipe that the user keeps."""
    folder = Path(file).expanduser().resolve().parent
    return any((folder / name).exists() for name in RUN_FILES)
