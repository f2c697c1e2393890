"""Settings as plain mappings: read from YAML files and from `a.b=c` words, merged in layers, written back.

A YAML file may name one other file as its `base:`. Words on the command line win over the file, the file over its base.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from hardtack.base.errors import UserError, did_you_mean
from hardtack.base.files import write_text
from hardtack.base.limits import DEPTH, YAML_BYTES, YAML_NODES, shorten


class _PlainParts(yaml.reader.Reader, yaml.scanner.Scanner, yaml.parser.Parser):
    """Text to events in Python, where PyYAML was built without libyaml."""

    def __init__(self, text: str) -> None:
        yaml.reader.Reader.__init__(self, text)
        yaml.scanner.Scanner.__init__(self)
        yaml.parser.Parser.__init__(self)


# libyaml reads events ten times as fast; its own composer has no limits, so nodes are composed in Python
_Events: Any = vars(yaml.cyaml)["CParser"] if yaml.__with_libyaml__ else _PlainParts


class _Loader(yaml.composer.Composer, _Events, yaml.constructor.SafeConstructor, yaml.resolver.Resolver):
    """Reads `1e-3` as a number, where PyYAML by itself reads text and asks for `1.0e-3`.

    Nesting and aliases are limited: a few lines of aliases to aliases stand for billions of values.
    """

    def __init__(self, text: str) -> None:
        _Events.__init__(self, text)
        yaml.composer.Composer.__init__(self)
        yaml.constructor.SafeConstructor.__init__(self)
        yaml.resolver.Resolver.__init__(self)
        self._depth = self._nodes = 0
        self._sizes: dict[int, int] = {}  # nodes below a node, aliases expanded

    def compose_node(self, parent: Any, index: Any) -> Any:
        before = self._nodes
        self._depth += 1
        if self._depth > DEPTH:
            raise UserError(f"it is nested deeper than {DEPTH} levels, the limit")
        node = super().compose_node(parent, index)
        self._depth -= 1
        self._nodes += self._sizes.get(id(node), 1)
        self._sizes[id(node)] = self._nodes - before
        if self._nodes > YAML_NODES:
            raise UserError(f"it has more than {YAML_NODES} values (aliases expanded), the limit")
        return node


def parse_yaml(text: str) -> Any:
    """The value of a YAML text; raises a ValueError if it is not valid, and a UserError if it is beyond the limits."""
    if len(text) > YAML_BYTES:
        raise UserError(f"it has {len(text)} characters, and the limit for settings is {YAML_BYTES}")
    try:
        return yaml.load(text, Loader=_Loader)
    except (yaml.YAMLError, RecursionError, OverflowError) as error:
        raise ValueError(" ".join(str(error).split())) from None


class _Dumper(yaml.SafeDumper):
    """Quotes text that `_Loader` would read as a number."""


_EXPONENT = re.compile(r"^[-+]?\d+(\.\d*)?[eE][-+]?\d+$")
_BOOL = "tag:yaml.org,2002:bool"
for _kind in (_Loader, _Dumper):
    _kind.add_implicit_resolver("tag:yaml.org,2002:float", _EXPONENT, list("-+0123456789"))
    # on, off, yes and no are text, as in YAML 1.2; a bool setting accepts them nevertheless
    _kind.yaml_implicit_resolvers = {
        letter: [pair for pair in pairs if pair[0] != _BOOL] for letter, pairs in _kind.yaml_implicit_resolvers.items()
    }
    _kind.add_implicit_resolver(_BOOL, re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF"))


def read_one_yaml(path: str | Path) -> dict[str, Any]:
    """The mapping in a YAML file, in which `base:` has no special meaning."""
    return _read_file(Path(path))


def read_yaml(path: str | Path, *, alone: bool = False) -> dict[str, Any]:
    """The mapping in a YAML file, merged over that of the file named by its `base:` (relative to the file).

    `alone`: the file may not name a base. Files inside run folders are read so, because a run folder may not say which
    other files are opened.
    """
    path = Path(path)
    values = _read_file(path)
    base = values.pop("base", None)
    if alone and base is not None:
        raise UserError(f"{path}: the configuration of a run names no 'base', found {str(base)[:100]!r}; remove it")
    if base is None:
        return values
    if not isinstance(base, str):
        raise UserError(f"{path}: 'base' names one other file, found {base!r}")
    parent = _read_file(path.parent / base)
    if "base" in parent:
        raise UserError(f"{path.parent / base}: a base may not have a base of its own")
    return merge(parent, values)


def _read_file(path: Path) -> dict[str, Any]:
    if not path.is_file():
        near = did_you_mean(path.name, [other.name for other in path.parent.glob("*.yaml")])
        raise UserError(f"there is no file {path}{near}")
    try:
        if path.stat().st_size > YAML_BYTES:
            raise UserError(f"it has {path.stat().st_size} bytes, and the limit for settings is {YAML_BYTES}")
        values = parse_yaml(path.read_text(encoding="utf-8"))
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
    except ValueError as error:  # bytes that are not UTF-8, too
        raise UserError(f"{path} is not valid YAML: {shorten(error, 400)}") from None
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise UserError(f"{path}: expected a mapping of settings, found {type(values).__name__}")
    return values


def merge(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`over` merged over `under`. Another `name` in a section drops the settings of the old one.

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
            raise UserError(f"'{shorten(word)}' is not of the form key=value")
        if path.count(".") >= DEPTH:
            raise UserError(f"{shorten(path)} is nested deeper than {DEPTH} levels, the limit")
        try:
            value: Any = parse_yaml(text)
        except UserError as error:
            raise UserError(f"{shorten(path)}: {error}") from None
        except ValueError:
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


def flat(values: Any, path: str = "") -> dict[str, Any]:
    """Nested plain mappings as one: `{"train.epochs": 5, …}`."""
    if not isinstance(values, Mapping) or (path and not values):
        return {path: values}
    return {inner: leaf for key, item in values.items() for inner, leaf in flat(item, join_path(path, key)).items()}


def join_path(path: str, key: Any) -> str:
    return f"{path}.{key}" if path else str(key)


def write_plain(path: str | Path, values: Any) -> None:
    """Plain mappings, lists, numbers and text as a YAML file."""
    write_text(path, yaml.dump(values, Dumper=_Dumper, sort_keys=False, allow_unicode=True))
