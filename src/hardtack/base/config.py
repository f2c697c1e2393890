"""Typed dataclasses filled from YAML and `a.b=c` words, checked in one place.

`build` walks a dataclass: it refuses unknown keys with the path and the nearest right one, recurses into
nested dataclasses, resolves `Choice` fields (`{name: trades, beta: 6}`) through a registry, and leaves every
plain value to pydantic. A YAML file may name one other as its `base:`; words on the command line win over
the file, the file over its base.
"""

from __future__ import annotations

import dataclasses
import functools
import re
import types
import typing
from collections.abc import Iterable, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import BeforeValidator, ConfigDict, TypeAdapter, ValidationError

from hardtack.base.errors import UserError, did_you_mean
from hardtack.base.files import write_text
from hardtack.base.registry import Registry


@dataclasses.dataclass(frozen=True)
class Choice:
    """Marks a field whose value is an entry of a registry: `objective: Annotated[Any, Choice(objectives)]`.

    The value is written as a name, or as a mapping with `name` and that entry's own settings. Where the field has a
    default, a mapping without `name` changes some of the default's settings; any `name` begins with that entry's own.
    """

    registry: Registry


def _fraction(value: Any) -> Any:
    if isinstance(value, str) and "/" in value:
        try:
            return float(Fraction(value))
        except (ValueError, ZeroDivisionError):
            return value
    return value


Number = Annotated[float, BeforeValidator(_fraction)]
"""A float that may be written as a fraction: `8/255`."""


def listed(value: Any) -> Any:
    """`a,b` and `[a, b]` as a list, and a single word or number as a list of one; anything else as it is."""
    if isinstance(value, str):
        # a list with a pattern in it, [blocks.[0-2], head], is no YAML and arrives as text
        inner = value[1:-1] if value.startswith("[") and value.endswith("]") else value
        return [part.strip() for part in inner.split(",")]
    return [value] if isinstance(value, int | float) else value


SEVERAL = BeforeValidator(listed)
"""Marks a tuple that may be written without brackets, `a,b`, and of which one is enough: `a`."""


# ---------------------------------------------------------------- text to mappings


class _Loader(yaml.SafeLoader):
    """YAML in which `1e-3` is a number; PyYAML alone wants `1.0e-3` and reads text."""


class _Dumper(yaml.SafeDumper):
    """Quotes what `_Loader` would take for a number."""


_EXPONENT = re.compile(r"^[-+]?\d+(\.\d*)?[eE][-+]?\d+$")
_BOOL = "tag:yaml.org,2002:bool"
for _kind in (_Loader, _Dumper):
    _kind.add_implicit_resolver("tag:yaml.org,2002:float", _EXPONENT, list("-+0123456789"))
    # on, off, yes and no are words, as in YAML 1.2: a setting may be called so, and a switch takes them all the same
    known = _kind.yaml_implicit_resolvers
    _kind.yaml_implicit_resolvers = {key: [one for one in pairs if one[0] != _BOOL] for key, pairs in known.items()}
    _kind.add_implicit_resolver(_BOOL, re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF"))


def read_yaml(path: str | Path) -> dict[str, Any]:
    """The mapping in a YAML file, laid over the one its `base:` names (relative to the file)."""
    path = Path(path)
    values = _read_one(path)
    base = values.pop("base", None)
    if base is None:
        return values
    if not isinstance(base, str):
        raise UserError(f"{path}: 'base' names one other file, found {base!r}")
    parent = _read_one(path.parent / base)
    if "base" in parent:
        raise UserError(f"{path.parent / base}: a base may not have a base of its own")
    return merge(parent, values)


def _read_one(path: Path) -> dict[str, Any]:
    if not path.is_file():
        near = did_you_mean(path.name, [other.name for other in path.parent.glob("*.yaml")])
        raise UserError(f"there is no file {path}{near}")
    try:
        values = yaml.load(path.read_text(encoding="utf-8"), Loader=_Loader)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is not valid YAML: {' '.join(str(error).split())}") from None
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise UserError(f"{path}: expected a mapping of settings, found {type(values).__name__}")
    return values


def merge(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`over` laid on `under`. Choosing another `name` in a section drops what belonged to the old one.

    `model: vit` is short for `model: {name: vit}`, on either side.
    """
    merged = dict(under)
    for key, value in over.items():
        old = merged.get(key)
        if isinstance(old, str) and isinstance(value, Mapping):
            old = {"name": old}
        elif isinstance(old, Mapping) and isinstance(value, str):
            value = {"name": value}
        if isinstance(old, Mapping) and isinstance(value, Mapping):
            renamed = "name" in old and "name" in value and value["name"] != old["name"]
            merged[key] = dict(value) if renamed else merge(old, value)
        else:
            merged[key] = value
    return merged


def parse_words(words: Iterable[str]) -> dict[str, Any]:
    """`["train.epochs=5", "model=vit"]` as a nested mapping; values are read as YAML."""
    values: dict[str, Any] = {}
    for word in words:
        path, equals, text = word.partition("=")
        if not equals or not path:
            raise UserError(f"'{word}' is not of the form key=value")
        try:
            value: Any = yaml.load(text, Loader=_Loader)
        except yaml.YAMLError:
            value = text
        for key in reversed(path.strip().split(".")):
            value = {key: value}
        values = merge(values, value)
    return values


def nested(words: Mapping[str, Any]) -> dict[str, Any]:
    """`{"train.epochs": 5}` as `{"train": {"epochs": 5}}`."""
    values: dict[str, Any] = {}
    for path, value in words.items():
        for key in reversed(path.split(".")):
            value = {key: value}
        values = merge(values, value)
    return values


# ---------------------------------------------------------------- mappings to dataclasses


def build(cls: type, values: Mapping[str, Any], *, path: str = "") -> Any:
    """An instance of the dataclass `cls` from plain values; any fault is a UserError naming its path."""
    if not isinstance(values, Mapping):
        raise UserError(f"{path or 'the configuration'}: expected a mapping of settings, found {values!r}")
    hints = _hints(cls)
    for key in values:
        if key not in hints:
            hint = did_you_mean(key, hints) or f"; known keys: {', '.join(hints)}"
            raise UserError(f"unknown key '{_join(path, key)}'{hint}")
    defaults = {item.name: item.default for item in dataclasses.fields(cls)}
    filled = {key: _value(hints[key], value, _join(path, key), defaults[key]) for key, value in values.items()}
    for item in dataclasses.fields(cls):
        required = item.default is dataclasses.MISSING and item.default_factory is dataclasses.MISSING
        if item.init and required and item.name not in filled:
            example = getattr(hints[item.name], "EXAMPLE", None)
            raise UserError(f"'{_join(path, item.name)}' is missing" + (f", say {example}" if example else ""))
    try:
        return cls(**filled)
    except UserError as error:
        raise UserError(f"{path}: {error}" if path else str(error)) from None


def choose(registry: Registry, value: Any, *, path: str = "", default: Any = None) -> Any:
    """An entry of a registry with its settings, from `"pgd"` or `{"name": "pgd", "steps": 20}`.

    `{"steps": 20}` alone is the default with other steps, where there is one.
    """
    if isinstance(value, str):
        value = {"name": value}
    if not isinstance(value, Mapping):
        if isinstance(value, bool | int | float | list | tuple):
            wanted = f"the name of a {registry.kind} or a mapping of its settings"
            raise UserError(f"'{path}': expected {wanted}, found {value!r}")
        return value  # an instance made in Python
    if "name" not in value:
        value = _changed(registry, default, value, path)
    try:
        entry = registry.get(value["name"])
    except UserError as error:
        raise UserError(f"{path}: {error}" if path else str(error)) from None
    settings = {key: item for key, item in value.items() if key != "name"}
    return build(typing.cast(type, entry.make), {**entry.presets, **settings}, path=path)


def _changed(registry: Registry, default: Any, value: Mapping[str, Any], path: str) -> dict[str, Any]:
    """The default of a section of which some settings are given."""
    name, known = registry.name_of(default), ", ".join(registry.names())
    if name is None:
        raise UserError(f"'{_join(path, 'name')}' is missing; {registry.kind}s: {known}")
    under = plain(default)
    for key in value:
        if key not in under and not did_you_mean(key, under):  # a misspelt one is told what it is near to
            without = f"the default, {name}, has no '{key}'"
            raise UserError(f"'{_join(path, 'name')}' is missing: {without}; {registry.kind}s: {known}")
    return merge(under, value)


def check(instance: Any) -> None:
    """Hold a dataclass made in Python to the rules of one read from YAML; called in its `__post_init__`."""
    cls: type = type(instance)
    for name, hint in _hints(cls).items():
        object.__setattr__(instance, name, _value(hint, getattr(instance, name), name))


def _value(hint: Any, value: Any, path: str, default: Any = None) -> Any:
    choice = _chosen(hint)
    if choice is not None:
        return None if value is None else choose(choice.registry, value, path=path, default=default)
    plain = [arm for arm in _arms(hint) if dataclasses.is_dataclass(arm)]
    if plain and not (value is None and type(None) in _arms(hint)):
        cls = typing.cast(type, plain[0])
        if isinstance(value, cls):
            return value
        if hasattr(cls, "parse") and isinstance(value, str):
            return _parsed(cls, value, path)
        if isinstance(value, str) and "name" in _hints(cls):
            value = {"name": value}
        return build(cls, value, path=path)
    several = typing.get_args(hint) if typing.get_origin(hint) is tuple else ()
    if len(several) == 2 and several[1] is Ellipsis and (dataclasses.is_dataclass(several[0]) or _chosen(several[0])):
        items = value.split(",") if isinstance(value, str) else value
        if not isinstance(items, list | tuple):
            raise UserError(f"'{path}': expected a list, found {value!r}")
        return tuple(_value(several[0], item, f"{path}[{number}]") for number, item in enumerate(items))
    if isinstance(value, bool) and _is_number(hint):  # to Python True is 1; to a person it is a mistake
        raise UserError(f"'{path}': input should be a number, found {value!r}")
    try:
        return _adapter(hint).validate_python(value)
    except ValidationError as error:
        raise UserError(f"'{path}': {_first_fault(error, hint)}, found {value!r}") from None
    except UserError as error:
        raise UserError(f"'{path}': {error}") from None


def _chosen(hint: Any) -> Choice | None:
    marks = typing.get_args(hint)[1:] if typing.get_origin(hint) is Annotated else ()
    return next((mark for mark in marks if isinstance(mark, Choice)), None)


def _parsed(cls: Any, text: str, path: str) -> Any:
    try:
        return cls.parse(text)
    except UserError as error:
        raise UserError(f"'{path}': {error}") from None


def _arms(hint: Any) -> tuple[Any, ...]:
    return typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)


def _is_number(hint: Any) -> bool:
    arms = [typing.get_args(arm)[0] if typing.get_origin(arm) is Annotated else arm for arm in _arms(hint)]
    return bool not in arms and (int in arms or float in arms)


@functools.cache
def _hints(cls: type) -> dict[str, Any]:
    hints = typing.get_type_hints(cls, include_extras=True)
    return {item.name: hints[item.name] for item in dataclasses.fields(cls) if item.init}


@functools.cache
def _adapter(hint: Any) -> TypeAdapter[Any]:
    return TypeAdapter(hint, config=ConfigDict(arbitrary_types_allowed=True))


def _first_fault(error: ValidationError, hint: Any) -> str:
    fault = error.errors()[0]
    length = next((len(arm) for arm in map(_places, _arms(hint)) if arm), 0)
    if length and fault["type"] in ("missing", "too_long", "tuple_type"):
        return f"expected a list of {length} numbers"
    message = fault["msg"].replace("Tuple", "List").replace("valid tuple", "list")
    return message[0].lower() + message[1:]


def _places(hint: Any) -> tuple[Any, ...]:
    """What stands in each place of a tuple of fixed length; nothing for any other hint."""
    bare = typing.get_args(hint)[0] if typing.get_origin(hint) is Annotated else hint
    several = typing.get_args(bare) if typing.get_origin(bare) is tuple else ()
    return several if Ellipsis not in several and all(map(_is_number, several)) else ()


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else str(key)


# ---------------------------------------------------------------- dataclasses to plain values


def plain(value: Any) -> Any:
    """The configuration as plain mappings, lists, numbers and text, ready for YAML or JSON."""
    if hasattr(value, "parse") and dataclasses.is_dataclass(value):
        return str(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        items = {item.name: plain(getattr(value, item.name)) for item in dataclasses.fields(value)}
        registry = getattr(type(value), "registry", None)
        name = registry.name_of(value) if isinstance(registry, Registry) else None
        return {"name": name, **items} if name else items
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, Path):
        return str(value)
    return value


def flat(values: Any, path: str = "") -> dict[str, Any]:
    """Nested plain mappings as one: `{"train.epochs": 5, …}`."""
    if not isinstance(values, Mapping) or (path and not values):
        return {path: values}
    return {inner: leaf for key, item in values.items() for inner, leaf in flat(item, _join(path, key)).items()}


def write_yaml(path: str | Path, values: Any) -> None:
    write_text(path, yaml.dump(plain(values), Dumper=_Dumper, sort_keys=False, allow_unicode=True))
