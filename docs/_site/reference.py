"""The pages of the site that are generated from the code: commands and Python.

`pages()` gives them as Markdown by their paths. Commands are read as `--help` reads them; names of Python are those of
the package root, with their signatures and docstrings. Settings have a page of docs/ that is written from the code.
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import Iterable, Iterator, Sequence


def pages() -> dict[str, str]:
    """Markdown by path, such as `reference/commands.md`."""
    return {"reference/commands.md": commands_page(), "reference/python.md": python_page()}


def commands_page() -> str:
    """Every verb with its help, arguments and options."""
    import typer.main

    from hardtack.commands.cli import build_app, verb_names

    names = verb_names()
    group = typer.main.get_command(build_app(names))
    parts = [
        "# Commands",
        "`hardtack COMMAND --help` prints the same. Settings are [words of the form key=value](../settings.md).",
    ]
    for name in names:
        command = group.commands[name]  # type: ignore[attr-defined]
        usage = " ".join(_usage_word(parameter) for parameter in command.params if parameter.name != "help")
        parts += [f"## {name}", f"```\nhardtack {name} {usage}\n```", *_help_text(command.help or "")]
        rows = [
            (f"`{_typed(parameter)}`", getattr(parameter, "help", None) or "")
            for parameter in command.params
            if parameter.name != "help"
        ]
        parts += table(("word or option", "is"), rows)
    return "\n\n".join(parts) + "\n"


def _usage_word(parameter: object) -> str:
    return _typed(parameter) if parameter.param_type_name == "argument" else f"[{_typed(parameter)}]"  # type: ignore[attr-defined]


def _typed(parameter: object) -> str:
    """An argument or option as it is typed."""
    name, metavar = parameter.name, parameter.metavar  # type: ignore[attr-defined]
    if parameter.param_type_name == "argument":  # type: ignore[attr-defined]
        return metavar or (name.upper() if parameter.required else f"[{name.upper()}]")  # type: ignore[attr-defined]
    option = max(parameter.opts, key=len)  # type: ignore[attr-defined]
    return option if getattr(parameter, "is_flag", False) else f"{option} {metavar or name.upper()}"


def _help_text(text: str) -> Iterator[str]:
    """Paragraphs of a help text: its bold words are commands."""
    for paragraph in re.split(r"\n\s*\n", inspect.cleandoc(text)):
        yield re.sub(r"\[bold\](.*?)\[/bold\]", r"`\1`", " ".join(paragraph.split()))


def python_page() -> str:
    """Every name of the package root: signature and docstring; of classes, their public methods, too."""
    import hardtack

    parts = ["# Python", "`import hardtack as ht`. Each name is imported when it is used first."]
    for name in sorted(set(hardtack.__all__) - {"__version__"}, key=lambda name: (name[0].isupper(), name)):
        value = getattr(hardtack, name)
        parts += [f"## ht.{name}", *_described(f"ht.{name}", value)]
        if inspect.isclass(value) and not issubclass(value, Exception):
            for own, method in vars(value).items():
                if not own.startswith("_") and callable(getattr(value, own)) and inspect.getdoc(method):
                    parts += [f"### {name}.{own}", *_described(f"{name}.{own}", getattr(value, own))]
    parts += ["## What they return"]
    for kind in _returned([getattr(hardtack, name) for name in hardtack.__all__]):
        text = inspect.getdoc(kind) or ""  # a dataclass without one has its signature there
        said = [] if text.startswith(f"{kind.__name__}(") else [_fenced(text)]
        parts += [f"### {kind.__name__}", *said, *table(("member", "is"), _members(kind))]
    return "\n\n".join(parts) + "\n"


def _returned(functions: Iterable[object]) -> list[type]:
    """The classes of hardtack that these functions return, by name."""
    from hardtack.evaluation.attack_call import Attacked

    found: dict[str, type] = {"Attacked": Attacked}  # of `ht.attack`, whose return depends on what it is asked for
    for function in functions:
        if inspect.isfunction(function):
            names = re.findall(r"\w+", str(function.__annotations__.get("return", "")))
            kinds = [_named(function.__module__, name) for name in names]
            found |= {kind.__name__: kind for kind in kinds if kind is not None}
    return [found[name] for name in sorted(found)]


def _named(module: str, name: str) -> type | None:
    """A class of hardtack by a name that stands in an annotation of a module, imported for types only or not."""
    value = getattr(sys.modules[module], name, None)
    for path in () if value else re.findall(rf"from (hardtack[\w.]*) import [^\n]*\b{name}\b", _source(module)):
        value = getattr(importlib.import_module(path), name)
    return value if inspect.isclass(value) and value.__module__.startswith("hardtack.") else None


def _source(module: str) -> str:
    return inspect.getsource(sys.modules[module])


def _members(kind: type) -> Iterator[tuple[str, str]]:
    """Fields of a dataclass, then properties and methods, each with the first sentence of what is said about it."""
    for name, annotation in kind.__annotations__.items():
        if not name.startswith("_"):
            yield f"`{name}`", f"`{_annotation(annotation)}`"
    for name, member in vars(kind).items():
        if name.startswith("_") or not (isinstance(member, property) or inspect.isfunction(member)):
            continue
        text = " ".join((inspect.getdoc(member) or "").split("\n\n")[0].split())
        if isinstance(member, property):
            made = f"`{_annotation(member.fget.__annotations__.get('return', 'Any'))}`"
            yield f"`{name}`", f"{made}: {text}" if text else made
        elif text:
            yield f"`{name}()`", text


def _described(name: str, value: object) -> Iterator[str]:
    try:
        signature = inspect.signature(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        signature = None
    if signature is not None and not (inspect.isclass(value) and issubclass(value, Exception)):
        yield f"```python\n{_broken_lines(name, signature)}\n```"
    yield _fenced(inspect.getdoc(value) or "")


def _broken_lines(name: str, signature: inspect.Signature) -> str:
    """`name(a, *, b=1) -> float`; one parameter in each line where it is long."""
    words, keyword_only = [], False
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and not keyword_only:
            words.append("*")
        keyword_only |= parameter.kind in (parameter.KEYWORD_ONLY, parameter.VAR_POSITIONAL)
        words.append(_parameter(parameter))
    returned = signature.return_annotation
    end = ")" if returned is signature.empty else f") -> {_annotation(returned)}"
    whole = f"{name}({', '.join(words)}{end}"
    return whole if len(whole) <= 90 else "\n".join([f"{name}(", *(f"    {word}," for word in words), end])


def _parameter(parameter: inspect.Parameter) -> str:
    star = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
    typed = "" if parameter.annotation is parameter.empty else f": {_annotation(parameter.annotation)}"
    equals = " = " if typed else "="
    default = (
        ""
        if parameter.default is parameter.empty
        else f"{equals}{'...' if parameter.default is ... else repr(parameter.default)}"
    )
    return f"{star}{parameter.name}{typed}{default}"


def _annotation(annotation: object) -> str:
    annotation = getattr(annotation, "__forward_arg__", annotation)  # of a NamedTuple
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return re.sub(r"\b(typing|collections\.abc|pathlib|torch)\.", "", text)


def _fenced(text: str) -> str:
    """A docstring as Markdown: what is indented is code, or a list of names that keeps its columns."""
    parts = []
    for block in re.split(r"\n\s*\n", text):
        indented = all(line.startswith("    ") for line in block.splitlines())
        parts.append(f"```text\n{inspect.cleandoc(block)}\n```" if indented and block else block)
    return "\n\n".join(parts)


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """A Markdown table, or nothing where there are no rows."""
    lines = [[_cell(cell) for cell in row] for row in rows]
    text = [f"| {' | '.join(row)} |" for row in [list(header), ["---"] * len(header), *lines]]
    return ["\n".join(text)] if lines else []


def _cell(text: str) -> str:
    """Bars and angle brackets stand as they are in code, and are escaped elsewhere."""
    parts = re.split(r"(`[^`]*`)", text.replace("\n", " "))
    return "".join(part if part.startswith("`") else part.replace("|", "\\|").replace("<", "&lt;") for part in parts)
