"""The options of an architecture as rows: `hardtack list settings vit_digits`, `hardtack describe vit_digits`.

Of this package's own models they come from the table of descriptions and the source of the class; of a
file of the user's, from the signature.
"""

from __future__ import annotations

import ast
import inspect
import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from hardtack.base import registry
from hardtack.base.layers import parse_yaml
from hardtack.base.setting_rows import Setting, allowed_text, default_text, entries_of, type_text
from hardtack.base.skeleton import SourceReader, Unreadable

TABLE = Path(__file__).resolve().parents[1] / "models" / "descriptions.json"
OPTIONS = ("hardtack.models.options", "OPTIONS")


@cache
def descriptions() -> Mapping[str, Any]:
    """The table that `python -m hardtack.models.describe` writes."""
    table: Mapping[str, Any] = json.loads(TABLE.read_text(encoding="utf-8"))
    return table


def option_rows(name: str, reader: SourceReader) -> Iterator[Setting]:
    """The options of a registered model, as they are typed: `model.options.depth`."""
    row, of_user = descriptions().get(name), False
    own = registry.models.registered() if row is None else []
    entry = next((entry for entry in own if entry.name == name), None)
    if row is not None:
        module, _, made_by = row["made_by"].partition(":")
        sentences = entries_of(docstring_of(module, made_by, reader))
        defaults = {key: _default(text) for key, text in row["options"].items()}
        hints = {key: reader.evaluate(module, hint) for key, hint in _annotations(module, made_by, reader).items()}
    elif entry is not None:
        of_user = not entry.make.__module__.startswith("hardtack.")
        parameters = inspect.signature(entry.make, eval_str=True).parameters
        sentences = entries_of(inspect.cleandoc(entry.make.__doc__ or ""))
        kept = {key: item for key, item in parameters.items() if key != "num_classes" and item.kind != item.VAR_KEYWORD}
        defaults = {key: default_text(entry.presets.get(key, item.default)) for key, item in kept.items()}
        hints = {key: item.annotation for key, item in kept.items() if item.annotation is not item.empty}
    else:
        return
    known: Mapping[str, str] = reader.value(*OPTIONS)
    for key, default in defaults.items():
        hint = hints.get(key, Any)
        sentence = sentences.get(key) or ("" if of_user else known.get(key, ""))
        yield Setting(f"model.options.{key}", type_text(hint), default, allowed_text(hint), sentence)


def docstring_of(module: str, name: str, reader: SourceReader) -> str:
    """Of a class or function of this package."""
    node = _definition(module, name, reader)
    return ast.get_docstring(node) or ""


def _definition(module: str, name: str, reader: SourceReader) -> ast.ClassDef | ast.FunctionDef:
    for node in reader.tree(module).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == name:
            return node
    raise Unreadable(f"{module}.{name}")


def _annotations(module: str, name: str, reader: SourceReader) -> dict[str, ast.expr]:
    """The annotations of what a class or function takes."""
    node: ast.AST = _definition(module, name, reader)
    if isinstance(node, ast.ClassDef):
        node = next(item for item in node.body if isinstance(item, ast.FunctionDef) and item.name == "__init__")
    assert isinstance(node, ast.FunctionDef)
    arguments = [*node.args.args, *node.args.kwonlyargs]
    return {item.arg: item.annotation for item in arguments if item.annotation is not None}


def _default(text: str) -> str:
    """A default of the table, which holds Python's texts, as it is typed: null, true, [2, 2]."""
    try:
        return default_text(ast.literal_eval(text))
    except (ValueError, SyntaxError):
        return default_text(parse_yaml(text))
