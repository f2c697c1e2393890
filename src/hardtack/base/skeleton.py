"""Classes of this package read from its source, without importing the modules that define them.

Most modules import torch, which takes seconds; what is listed and described has to be there at once. A skeleton is a
class with the fields, annotations, defaults, constants and docstrings of the original, and without its methods:

    SourceReader().value("hardtack.objectives.trades", "TradesConfig")

Annotations and defaults are expressions over names of the same module, of other modules of this package, or of a few
libraries that are imported as they are (typing, pydantic). What comes from elsewhere (torch, a function) is `Unknown`.
A test compares every skeleton with the class itself.
"""

from __future__ import annotations

import ast
import builtins
import dataclasses
import functools
import importlib
import importlib.util
import operator
import typing
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from hardtack.base.annotations import WrittenAsText
from hardtack.base.registry import parse_file

LIBRARIES = ("typing", "dataclasses", "fractions", "pathlib", "math", "collections", "pydantic", "functools")
OWN = tuple(f"hardtack.base.{name}" for name in ("annotations", "config", "errors", "layers", "registry"))
_OPERATORS: Mapping[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.Pow: operator.pow, ast.BitOr: operator.or_, ast.FloorDiv: operator.floordiv,
}  # fmt: skip


class Unreadable(Exception):
    """An expression that cannot be known without running its module."""


class Unknown:
    """Something that only an import would show: `torch.Tensor`, the outcome of a function."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __getattr__(self, name: str) -> Unknown:
        if name.startswith("__"):
            raise AttributeError(name)
        return Unknown(f"{self.text}.{name}")

    def __call__(self, *_: Any, **__: Any) -> Unknown:
        return self

    def __getitem__(self, _: Any) -> Unknown:
        return self

    def __or__(self, other: Any) -> Any:
        return typing.Union[self, other]  # noqa: UP007  # `|` is what is defined here

    def __ror__(self, other: Any) -> Any:
        return typing.Union[other, self]  # noqa: UP007

    def __repr__(self) -> str:
        return self.text


@dataclasses.dataclass(frozen=True)
class Registration:
    """What a decorator `@registry.register(name, **presets)` says."""

    registry: str
    name: str
    presets: Mapping[str, Any]


class SourceReader:
    """Reads each module once, and only what is asked for."""

    def __init__(self) -> None:
        self._names: dict[str, dict[str, ast.stmt]] = {}
        self._values: dict[tuple[str, str], Any] = {}

    def value(self, module: str, name: str) -> Any:
        """What a module calls `name`; raises Unreadable."""
        key = module, name
        if key not in self._values:
            self._values[key] = self._read(module, name)
        return self._values[key]

    def docstring(self, module: str) -> str:
        """Of the module itself."""
        return ast.get_docstring(self.tree(module)) or ""

    def tree(self, module: str) -> ast.Module:
        path = source_file(module)
        if path is None:
            raise Unreadable(module)
        return parse_file(path)

    def registered(self, module: str, registry: str, name: str) -> tuple[Any, Mapping[str, Any]]:
        """The class or function that is registered under `name` in a module, and its presets."""
        for node in self._defined(module).values():
            if isinstance(node, ast.ClassDef | ast.FunctionDef):
                for entry in self._registrations(module, node):
                    if (entry.registry, entry.name) == (registry, name):
                        return self.value(module, node.name), entry.presets
        raise Unreadable(f"{registry} {name}")

    # ------------------------------------------------------------ names of a module

    def _defined(self, module: str) -> dict[str, ast.stmt]:
        if module not in self._names:
            self._names[module] = dict(_definitions(self.tree(module).body))
        return self._names[module]

    def _read(self, module: str, name: str) -> Any:
        if module.partition(".")[0] in LIBRARIES or module in OWN:
            return getattr(importlib.import_module(module), name)
        if not module.startswith("hardtack"):
            return Unknown(f"{module}.{name}")
        node = self._defined(module).get(name)
        if node is None:
            inner = f"{module}.{name}"
            if source_file(inner) is not None:
                return _Module(self, inner)
            raise Unreadable(inner)
        match node:
            case ast.ClassDef():
                return self._class(module, node)
            case ast.FunctionDef():
                return _function(node)
            case ast.Import():
                return importlib.import_module(name) if name in LIBRARIES else Unknown(name)
            case ast.ImportFrom():
                alias = next(alias for alias in node.names if (alias.asname or alias.name) == name)
                return self.value(node.module or "", alias.name)
            case ast.Assign() | ast.AnnAssign() if node.value is not None:
                return self.evaluate(module, node.value)
        raise Unreadable(f"{module}.{name}")

    # ------------------------------------------------------------ classes

    def _class(self, module: str, node: ast.ClassDef) -> type:
        bases = [base for base in (self._try(module, base) for base in node.bases) if isinstance(base, type)]
        body: dict[str, Any] = {"__doc__": ast.get_docstring(node), "__module__": module, "__annotations__": {}}
        for item in node.body:
            if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
                body["__annotations__"][item.target.id] = self._try(module, item.annotation)
                if item.value is not None:
                    body[item.target.id] = self._try(module, item.value)
            elif isinstance(item, ast.Assign) and isinstance(item.targets[0], ast.Name):
                body[item.targets[0].id] = self._try(module, item.value)
        if any(issubclass(base, WrittenAsText) for base in bases):
            body |= {"parse": classmethod(_parsed), "__str__": _as_text}
        body["registrations"] = self._registrations(module, node)
        made = type(node.name, tuple(base for base in bases if base not in (Any, object)), body)
        for decorator in node.decorator_list:
            called = decorator.func if isinstance(decorator, ast.Call) else decorator
            if ast.unparse(called).removeprefix("dataclasses.") == "dataclass":
                given = decorator.keywords if isinstance(decorator, ast.Call) else []
                options = {word.arg: self.evaluate(module, word.value) for word in given if word.arg}
                made = dataclasses.dataclass(**options)(made)
        return made

    def _registrations(self, module: str, node: ast.ClassDef | ast.FunctionDef) -> list[Registration]:
        found = []
        for call in node.decorator_list:
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "register":
                registry = ast.unparse(call.func.value).rpartition(".")[2]
                name = self._try(module, call.args[0]) if call.args else ""
                found.append(Registration(registry, name, self._presets(module, call)))
        return found

    def _presets(self, module: str, call: ast.Call) -> dict[str, Any]:
        presets: dict[str, Any] = {}
        for word in call.keywords:
            value = self._try(module, word.value)
            presets |= {word.arg: value} if word.arg else value if isinstance(value, dict) else {}
        return presets

    # ------------------------------------------------------------ expressions

    def _try(self, module: str, node: ast.expr) -> Any:
        try:
            return self.evaluate(module, node)
        except Exception:  # whatever an expression raises: it stays as it is written
            return Unknown(ast.unparse(node))

    def evaluate(self, module: str, node: ast.expr) -> Any:
        """The value of an expression in a module; raises Unreadable."""

        def of(inner: ast.expr) -> Any:
            return self.evaluate(module, inner)

        match node:
            case ast.Constant(value):
                return value
            case ast.Name(name):
                return self._name(module, name)
            case ast.Attribute(value, attr):
                return getattr(of(value), attr)
            case ast.Subscript(value, index):
                return of(value)[of(index)]
            case ast.Tuple(items):
                return tuple(map(of, items))
            case ast.List(items):
                return [*map(of, items)]
            case ast.Set(items):
                return {*map(of, items)}
            case ast.Dict(keys, values):
                return self._mapping(module, keys, values)
            case ast.UnaryOp(ast.USub(), inner):
                return -of(inner)
            case ast.BinOp(left, kind, right) if type(kind) in _OPERATORS:
                return _OPERATORS[type(kind)](of(left), of(right))
            case ast.Lambda(_, body):
                return lambda *_: of(body)
            case ast.Call(function, arguments, words):
                named = {word.arg: of(word.value) for word in words if word.arg}
                return of(function)(*map(of, arguments), **named)
        raise Unreadable(ast.unparse(node))

    def _mapping(self, module: str, keys: list[ast.expr | None], values: list[ast.expr]) -> dict[Any, Any]:
        made: dict[Any, Any] = {}
        for key, value in zip(keys, values, strict=True):
            item = self.evaluate(module, value)
            made |= item if key is None else {self.evaluate(module, key): item}
        return made

    def _name(self, module: str, name: str) -> Any:
        if name in self._defined(module):
            return self.value(module, name)
        if hasattr(builtins, name):
            return getattr(builtins, name)
        raise Unreadable(f"{module}.{name}")


class _Module:
    """A module of this package, of which attributes are asked."""

    def __init__(self, reader: SourceReader, name: str) -> None:
        self._reader, self._module = reader, name

    def __getattr__(self, name: str) -> Any:
        return self._reader.value(self._module, name)


def _definitions(body: list[ast.stmt]) -> Iterator[tuple[str, ast.stmt]]:
    """Names that statements of a module define, also inside `if` and `try`."""
    for node in body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            yield node.name, node
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from ((alias.asname or alias.name.partition(".")[0], node) for alias in node.names)
        elif isinstance(node, ast.Assign):
            yield from ((target.id, node) for target in node.targets if isinstance(target, ast.Name))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id, node
        elif isinstance(node, ast.If | ast.Try):
            yield from _definitions([*node.body, *node.orelse])


@functools.cache
def source_file(module: str) -> Path | None:
    """Where the source of a module of this package lies; nothing is imported."""
    spec = importlib.util.find_spec("hardtack")
    assert spec is not None and spec.submodule_search_locations is not None
    base = Path(spec.submodule_search_locations[0]).joinpath(*module.split(".")[1:])
    return next((path for path in (base.with_suffix(".py"), base / "__init__.py") if path.is_file()), None)


def _function(node: ast.FunctionDef) -> Unknown:
    made = Unknown(node.name)
    made.__doc__ = ast.get_docstring(node)
    return made


def _parsed(cls: type, text: Any) -> Any:
    made: Any = object.__new__(cls)
    values = {item.name: text for item in dataclasses.fields(cls)} if dataclasses.is_dataclass(cls) else {}
    for name, value in {**values, "_text": str(text)}.items():
        object.__setattr__(made, name, value)
    return made


def _as_text(self: Any) -> str:
    """As `parse` read it; of an instance made otherwise, its values."""
    if "_text" in vars(self):
        return str(vars(self)["_text"])
    return ":".join(str(getattr(self, item.name)) for item in dataclasses.fields(self))
