"""Typed settings: dataclasses filled from plain mappings and checked by pydantic, in one place.

`build` makes an instance of a dataclass from a mapping. pydantic checks every value against the annotation of its
field. Three kinds of annotation are special: another dataclass is a section of its own, a `Choice` is an entry of a
registry (`{name: trades, beta: 6}`), and a `WrittenAsText` is parsed from text (`linf:8/255`). Any fault is a
`UserError` in one line that names the path of the setting and, where a name is wrong, the nearest right one.
"""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Annotated, Any

from pydantic import BeforeValidator, ConfigDict, PlainValidator, TypeAdapter, ValidationError

from hardtack.base.annotations import SEVERAL, Choice, Number, WrittenAsText, fixed_length, is_number, listed
from hardtack.base.errors import UnknownSetting, UserError, did_you_mean
from hardtack.base.layers import flat, join_path, merge, nested, parse_words, read_one_yaml, read_yaml, write_plain
from hardtack.base.nearest import setting_hint
from hardtack.base.registry import Registry, registry_of

__all__ = [
    "SEVERAL", "Choice", "Number", "WrittenAsText", "build", "check", "choose", "first_comment", "flat", "listed",
    "merge", "nested", "parse_words", "plain", "read_one_yaml", "read_yaml", "write_yaml",
]  # fmt: skip


# ---------------------------------------------------------------- mappings to dataclasses


class _Fault(UserError):
    """A fault at `path`, whose message has `{path}` for it, so that an outer section can prefix its own path."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(message.replace("{path}", path) if path else message.removeprefix("{path}: "))
        self.path, self.message = path, message

    def inside(self, outer: str) -> _Fault:
        path = f"{outer}{self.path}" if self.path.startswith("[") else join_path(outer, self.path)
        return _Fault(path.rstrip("."), self.message)


class _UnknownKey(_Fault):
    """A key that a section does not have. The nearest right one is found by `named`, where all sections are known."""

    def __init__(self, path: str, key: str, names: list[str], owner: str = "") -> None:
        super().__init__(path, f"unknown key '{{path}}'{setting_hint(key, names, None)}")
        self.key, self.names, self.owner = key, names, owner

    def inside(self, outer: str) -> _UnknownKey:
        return _UnknownKey(super().inside(outer).path, self.key, self.names, self.owner)

    def named(self, root: type | None) -> UserError:
        hint = setting_hint(self.key, self.names, root, self.path.rpartition(".")[0])
        return UnknownSetting(f"unknown key '{self.path}'{hint}", path=self.path, owner=self.owner)


def _told(fault: _Fault, root: type | None = None) -> UserError:
    """What is raised of a fault in the end."""
    return fault.named(root) if isinstance(fault, _UnknownKey) else UserError(str(fault))


def _about_section(error: object) -> _Fault:
    return _Fault("", f"{{path}}: {error}")


def _about_value(error: object) -> _Fault:
    return _Fault("", f"'{{path}}': {error}")


def build(cls: type, values: Mapping[str, Any], *, path: str = "") -> Any:
    """An instance of the dataclass `cls` from plain values; any fault is a UserError that names its path."""
    if not isinstance(values, Mapping):
        raise UserError(f"{path or 'the configuration'}: expected a mapping of settings, found {values!r}")
    try:
        return _build(cls, values)
    except _Fault as fault:
        raise _told(fault.inside(path), cls) from None


def choose(registry: Registry, value: Any, *, path: str = "", default: Any = None) -> Any:
    """An entry of a registry with its settings, from `"pgd"` or `{"name": "pgd", "steps": 20}`.

    `{"steps": 20}` alone is the default with other steps, where there is a default.
    """
    try:
        return _choose(value, registry=registry, default=default)
    except _Fault as fault:
        raise _told(fault.inside(path)) from None


def check(instance: Any) -> None:
    """Apply the rules of `build` to a dataclass made in Python; call it in `__post_init__`."""
    cls: type = type(instance)
    for name, setting in _settings(cls).items():
        object.__setattr__(instance, name, setting.validate(getattr(instance, name)))


def _build(cls: type, values: Mapping[str, Any]) -> Any:
    settings = _settings(cls)
    for key in values:
        if key not in settings:
            raise _UnknownKey(str(key), str(key), [*settings])
    filled = {key: settings[key].validate(value) for key, value in values.items()}
    for name, setting in settings.items():
        if setting.required and name not in filled:
            example = f", for example {setting.example}" if setting.example else ""
            raise _Fault(name, f"'{{path}}' is missing{example}")
    try:
        return cls(**filled)
    except UserError as error:
        raise _about_section(error) from None


def _choose(value: Any, *, registry: Registry, default: Any) -> Any:
    if value is None or not isinstance(value, str | Mapping | bool | int | float | list | tuple):
        return value  # nothing, or an instance made in Python
    if isinstance(value, str):
        value = {"name": value}
    if not isinstance(value, Mapping):
        wanted = f"the name of a {registry.kind} or a mapping of its settings"
        raise _about_value(f"expected {wanted}, found {value!r}")
    if "name" not in value:
        value = _changed_default(registry, default, value)
    try:
        entry = registry.get(value["name"])
    except UserError as error:
        raise _about_section(error) from None
    settings = {key: item for key, item in value.items() if key != "name"}
    try:
        return _build(typing.cast(type, entry.make), {**entry.presets, **settings})
    except _UnknownKey as fault:
        fault.owner = fault.owner or f"{registry.kind}:{entry.name}"
        raise


def _changed_default(registry: Registry, default: Any, value: Mapping[str, Any]) -> dict[str, Any]:
    """The default of a section, with some settings changed."""
    name, names = registry.name_of(default), ", ".join(registry.names())
    if name is None:
        raise _Fault("name", f"'{{path}}' is missing; {registry.kind}s: {names}")
    under = plain(default)
    for key in value:
        if key not in under and not did_you_mean(key, under):  # for a misspelt key the nearest one is named later
            reason = f"the default, {name}, has no '{key}'; {registry.kind}s: {names}"
            raise _Fault("name", f"'{{path}}' is missing: {reason}")
    return merge(under, value)


# ---------------------------------------------------------------- values by pydantic


@dataclasses.dataclass(frozen=True)
class _Setting:
    """One field of a dataclass: pydantic's validator for its annotation, and what messages need to know."""

    name: str
    hint: Any
    adapter: TypeAdapter[Any]
    required: bool

    @property
    def example(self) -> str:
        return self.hint.EXAMPLE if isinstance(self.hint, type) and issubclass(self.hint, WrittenAsText) else ""

    def validate(self, value: Any) -> Any:
        if isinstance(value, PurePath):  # in a file or on the command line it would be text
            value = str(value)
        if isinstance(value, bool) and is_number(self.hint):  # True is 1 in Python, but a mistake in a configuration
            raise _about_value(f"input should be a number, found {value!r}").inside(self.name)
        if isinstance(value, int) and not -_INT64 <= value < _INT64:
            raise _about_value(f"no computer number holds {value}").inside(self.name)
        try:
            return self.adapter.validate_python(value)
        except ValidationError as error:
            raise self._fault(error, value).inside(self.name) from None
        except UserError as error:
            raise _about_value(error).inside(self.name) from None

    def _fault(self, error: ValidationError, value: Any) -> _Fault:
        first = error.errors()[0]
        raised = first.get("ctx", {}).get("error")
        if isinstance(raised, _Fault):
            item = next((f"[{part}]" for part in first["loc"] if isinstance(part, int)), "")
            return raised.inside(item)
        if isinstance(raised, UserError):
            return _about_value(raised)
        length = fixed_length(self.hint)
        if length and first["type"] in ("missing", "too_long", "tuple_type"):
            return _about_value(f"expected a list of {length} numbers, found {value!r}")
        message = first["msg"].removeprefix("Value error, ").replace("Tuple", "List").replace("valid tuple", "list")
        return _about_value(f"{message[0].lower()}{message[1:]}, found {value!r}")


_INT64 = 2**63
_RULES = ConfigDict(arbitrary_types_allowed=True, allow_inf_nan=False)


@functools.cache
def _settings(cls: type) -> dict[str, _Setting]:
    hints = typing.get_type_hints(cls, include_extras=True)
    settings = {}
    for item in dataclasses.fields(cls):
        if item.init:
            hint = _with_validators(hints[item.name], item.default)
            adapter: TypeAdapter[Any] = TypeAdapter(hint, config=_RULES)
            required = item.default is dataclasses.MISSING and item.default_factory is dataclasses.MISSING
            settings[item.name] = _Setting(item.name, hints[item.name], adapter, required)
    return settings


def _with_validators(hint: Any, default: Any = None) -> Any:
    """The annotation for pydantic: sections and choices, also inside unions and tuples, become validators."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        choice = next((mark for mark in arguments[1:] if isinstance(mark, Choice)), None)
        chosen = functools.partial(_choose, registry=choice.registry, default=default) if choice else None
        return Annotated[Any, PlainValidator(chosen)] if chosen else hint
    if dataclasses.is_dataclass(hint):
        return Annotated[Any, PlainValidator(functools.partial(_section, typing.cast(type, hint)))]
    if origin in (typing.Union, types.UnionType):
        return typing.Union[tuple(_with_validators(arm) for arm in arguments)]  # noqa: UP007
    if origin is tuple and arguments[1:] == (Ellipsis,) and _with_validators(arguments[0]) is not arguments[0]:
        return Annotated[tuple[_with_validators(arguments[0]), ...], BeforeValidator(_items)]  # type: ignore[misc]
    return hint


def _section(cls: type, value: Any) -> Any:
    if isinstance(value, cls):
        return value
    if isinstance(value, str) and issubclass(cls, WrittenAsText):
        try:
            return cls.parse(value)
        except UserError as error:
            raise _about_value(error) from None
    if issubclass(cls, WrittenAsText) and not isinstance(value, Mapping):
        such = f" such as '{cls.EXAMPLE}'" if cls.EXAMPLE else ""
        raise _about_value(f"expected text{such}, found {value!r}")
    if isinstance(value, str) and "name" in _settings(cls):
        value = {"name": value}
    if not isinstance(value, Mapping):
        raise _about_section(f"expected a mapping of settings, found {value!r}")
    return _build(cls, value)


def _items(value: Any) -> Any:
    items = value.split(",") if isinstance(value, str) else value
    if not isinstance(items, list | tuple):
        raise _about_value(f"expected a list, found {value!r}")
    return tuple(items)


# ---------------------------------------------------------------- dataclasses to plain values


def plain(value: Any) -> Any:
    """The configuration as plain mappings, lists, numbers and text, ready for YAML or JSON."""
    if isinstance(value, WrittenAsText):
        return str(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        items = {item.name: plain(getattr(value, item.name)) for item in dataclasses.fields(value)}
        registry = registry_of(type(value))
        name = registry.name_of(value) if registry is not None else None
        return {"name": name, **items} if name else items
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return str(value) if isinstance(value, Path) else value


def first_comment(path: Path) -> str:
    """The comment in the first line of a YAML file: what it is, in a few words."""
    with path.open(encoding="utf-8") as file:
        first = file.readline()
    return first.removeprefix("#").strip() if first.startswith("#") else ""


def write_yaml(path: str | Path, values: Any) -> None:
    """A configuration, or plain values, as a YAML file."""
    write_plain(path, plain(values))
