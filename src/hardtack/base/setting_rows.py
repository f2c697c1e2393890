"""Settings as people read them: the type, default, allowed values and sentence of every field of a configuration.

The sentence stands in the docstring of the class, beside the fields, in lines of this form:

    epochs       passes over the training images
    batch_size   images in one optimiser step, over all processes; a longer sentence goes on in lines
                 that are indented

A test fails for a setting without one.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import types
import typing
from collections.abc import Container, Iterator, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, Literal

from hardtack.base.annotations import Choice, Shown, WrittenAsText
from hardtack.base.layers import join_path
from hardtack.base.registry import registry_of

_ENTRY = re.compile(r"(\w+(?:, \w+)*) {2,}(\S.*)")
REQUIRED = "required"
SECTION = "section"


@dataclasses.dataclass(frozen=True)
class Setting:
    """One setting. `name` is its path as it is typed; `type` "section" heads the settings below it."""

    name: str
    type: str
    default: str
    allowed: str
    sentence: str


def settings_of(
    cls: type, *, presets: Mapping[str, Any] | None = None, path: str = "", closed: Container[type] = (), level: int = 0
) -> Iterator[Setting]:
    """The settings of a dataclass or of its skeleton, with those of its sections below them, unless they are `closed`.

    `presets` replace the defaults of the class.
    """
    sentences, hints = sentences_of(cls), typing.get_type_hints(cls, include_extras=True)
    for item in dataclasses.fields(cls):
        hint, name = hints[item.name], join_path(path, item.name)
        if not item.init or Shown() in _bare(hint)[1]:
            continue
        default = (presets or {}).get(item.name, _default(item))
        section = section_class(hint)
        shown = SECTION if section else type_text(hint)
        written = "" if section and default is not None else default_text(default)
        yield Setting(name, shown, written, allowed_text(hint), sentences.get(item.name, ""))
        if section and section not in closed and level < 3:
            own = {} if default in (None, dataclasses.MISSING) else _values(default)
            yield from settings_of(section, presets=own, path=name, closed=closed, level=level + 1)


def section_class(hint: Any) -> type | None:
    """The dataclass whose settings stand below a field of this annotation."""
    for arm in _arms(hint):
        bare = _bare(arm)[0]
        if isinstance(bare, type) and dataclasses.is_dataclass(bare) and not issubclass(bare, WrittenAsText):
            return bare
    return None


def choice_of(hint: Any) -> Choice | None:
    """The registry that a field's value is chosen from, if it is one."""
    marks = [mark for arm in _arms(hint) for mark in _bare(arm)[1]]
    return next((mark for mark in marks if isinstance(mark, Choice)), None)


def _values(default: Any) -> dict[str, Any]:
    return {item.name: getattr(default, item.name) for item in dataclasses.fields(default)}


def _default(item: dataclasses.Field[Any]) -> Any:
    return item.default if item.default_factory is dataclasses.MISSING else item.default_factory()


# ---------------------------------------------------------------- sentences


def sentences_of(cls: type) -> dict[str, str]:
    """By field, from the docstrings of the class and of those that it is derived from."""
    sentences: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        sentences |= entries_of(inspect.cleandoc(base.__dict__.get("__doc__") or ""))
    names = {item.name for item in dataclasses.fields(cls)}
    return {name: text for name, text in sentences.items() if name in names}


def entries_of(text: str) -> dict[str, str]:
    """The lines `name   sentence` of a docstring; `a, b   sentence` says the same of both."""
    entries: dict[str, str] = {}
    names: list[str] = []
    for line in text.splitlines():
        if match := _ENTRY.fullmatch(line):
            names = match[1].split(", ")
            entries |= dict.fromkeys(names, match[2])
        elif line.startswith(" ") and names:
            entries |= {name: f"{entries[name]} {line.strip()}" for name in names}
        else:
            names = []
    return entries


def without_entries(text: str) -> str:
    """A docstring without those lines."""
    kept: list[str] = []
    inside = False
    for line in inspect.cleandoc(text).splitlines():
        inside = bool(_ENTRY.fullmatch(line)) or (inside and line.startswith(" "))
        if not inside and (line or (kept and kept[-1])):
            kept.append(line)
    return "\n".join(kept).strip()


# ---------------------------------------------------------------- types and values

_NAMES = {bool: "true or false", int: "whole number", float: "number", str: "text", Path: "path", Any: "any"}


def type_text(hint: Any) -> str:
    """The type of a setting in words."""
    texts = []
    for arm in _arms(hint):
        bare, marks = _bare(arm)
        shown = next((mark for mark in marks if isinstance(mark, Shown)), None)
        choice = next((mark for mark in marks if isinstance(mark, Choice)), None)
        texts.append(shown.type if shown else choice.registry.kind if choice else _plain_type(bare))
    return " or ".join(dict.fromkeys([*texts, *(["null"] if _takes_null(hint) else [])]))


def _plain_type(bare: Any) -> str:
    origin, arguments = typing.get_origin(bare), typing.get_args(bare)
    if bare in _NAMES:
        return _NAMES[bare]
    if origin is Literal:
        return "whole number" if all(isinstance(value, int) for value in arguments) else "word"
    if origin is tuple and arguments[1:] == (Ellipsis,):
        inner = type_text(arguments[0])
        return f"list of {inner if ' or ' in inner else inner + 's'}"
    if origin is tuple:
        return f"{len(arguments)} {type_text(arguments[0])}s"
    if origin in (dict, Mapping):
        return "mapping"
    if isinstance(bare, type) and issubclass(bare, WrittenAsText):
        return bare.__name__.lower()
    return SECTION if isinstance(bare, type) and dataclasses.is_dataclass(bare) else str(bare)


def allowed_text(hint: Any) -> str:
    """The values that a setting may have, where that is more than its type says."""
    return ", ".join(dict.fromkeys(text for arm in _arms(hint) if (text := _allowed(arm))))


def _allowed(hint: Any) -> str:
    bare, marks = _bare(hint)
    origin, arguments = typing.get_origin(bare), typing.get_args(bare)
    shown = next((mark for mark in marks if isinstance(mark, Shown)), None)
    choice = next((mark for mark in marks if isinstance(mark, Choice)), None)
    if shown:
        return shown.allowed
    if choice:
        return f"hardtack list {choice.registry.name}"
    if bounds := _bounds(marks):
        return bounds
    if origin is Literal:
        return ", ".join(map(str, arguments))
    if origin is tuple:
        return allowed_text(arguments[0])
    if isinstance(bare, type) and issubclass(bare, WrittenAsText) and bare.EXAMPLE:
        return f"such as {bare.EXAMPLE}"
    return ""


def _bounds(marks: tuple[Any, ...]) -> str:
    """≥ 1, or (0, 1]: of pydantic's Field(ge=…, lt=…)."""
    found: dict[str, Any] = {}
    for mark in marks:
        for inner in (mark, *getattr(mark, "metadata", ())):
            found |= {key: getattr(inner, key) for key in ("ge", "gt", "le", "lt") if hasattr(inner, key)}
    low, high = found.get("ge", found.get("gt")), found.get("le", found.get("lt"))
    if low is not None and high is not None:
        return f"{'[' if 'ge' in found else '('}{low}, {high}{']' if 'le' in found else ')'}"
    if low is not None:
        return f"{'≥' if 'ge' in found else '>'} {low}"
    return f"{'≤' if 'le' in found else '<'} {high}" if high is not None else ""


def default_text(value: Any) -> str:
    """A default as it is typed; `required` where there is none."""
    if value is dataclasses.MISSING:
        return REQUIRED
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return _number_text(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(default_text, value))}]"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {default_text(item)}" for key, item in value.items()) + "}"
    if dataclasses.is_dataclass(value) and not isinstance(value, type | WrittenAsText):
        return _choice_text(value)
    return str(value)


def _number_text(value: float) -> str:
    """8/255 rather than 0.03137254901960784."""
    fraction = Fraction(value).limit_denominator(255)
    is_short = len(repr(value)) <= 7
    return f"{value:g}" if is_short or float(fraction) != value else str(fraction)


def _choice_text(value: Any) -> str:
    """A registered thing by its name, with the settings that differ from those under the name."""
    name, presets = registered_name(value)
    defaults = {item.name: _default(item) for item in dataclasses.fields(value)} | presets
    given = {key: item for key, item in _values(value).items() if str(item) != str(defaults[key])}
    threat = {key: item for key, item in given.items() if key != "threat"}  # stands in a row of its own
    return "{" + ", ".join([f"name: {name}", *(f"{key}: {default_text(item)}" for key, item in threat.items())]) + "}" \
        if threat else name  # fmt: skip


def registered_name(value: Any) -> tuple[str, dict[str, Any]]:
    """The name that a value would be chosen by, and the presets of that name."""
    registry = registry_of(type(value))
    if registry is not None:
        name = registry.name_of(value) or type(value).__name__
        return name, dict(registry.get(name).presets) if name in registry else {}
    names = getattr(type(value), "registrations", [])
    fields = _values(value)
    own = [(entry, {key: item for key, item in entry.presets.items() if key in fields}) for entry in names]
    fitting = [(entry.name, presets) for entry, presets in own if presets.items() <= fields.items()]
    return max(fitting, key=lambda pair: len(pair[1]), default=(type(value).__name__, {}))


# ---------------------------------------------------------------- annotations


def _arms(hint: Any) -> list[Any]:
    """The members of a union, without None."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return [arm for arm in typing.get_args(hint) if arm not in (None, type(None))]
    return [hint]


def _takes_null(hint: Any) -> bool:
    return typing.get_origin(hint) in (typing.Union, types.UnionType) and type(None) in typing.get_args(hint)


def _bare(hint: Any) -> tuple[Any, tuple[Any, ...]]:
    """An annotation without `Annotated`, and its marks."""
    if typing.get_origin(hint) is Annotated:
        inner, *marks = typing.get_args(hint)
        return inner, tuple(marks)
    return hint, ()
