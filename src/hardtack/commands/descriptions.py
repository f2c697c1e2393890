"""What `hardtack describe NAME` says: what a thing is, its paper, settings, an example and the page of the docs.

The text is that of the docstrings: of the class or function and, where the module is about this thing alone, of the
module. A line `Paper: …` in a docstring is shown as its paper; `Paper: fgsm: …` belongs to one of several names.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from hardtack.base import registry, user_files
from hardtack.base.flag_meanings import FLAGS
from hardtack.base.setting_rows import without_entries
from hardtack.base.skeleton import Unreadable
from hardtack.commands.examples import examples_of
from hardtack.commands.model_options import descriptions, docstring_of
from hardtack.commands.settings_table import Section, SettingRow, find_sections, reader, section_rows
from hardtack.commands.things import Kind, Thing, kinds

# the four papers whose experiments are studies here
PAPERS = {
    "rspc": "Guo, Stutz and Schiele 2023, Improving Robustness of Vision Transformers by Reducing Sensitivity to Patch "
    "Corruptions (CVPR)",
    "xcit": "Debenedetti 2022, Adversarially Robust Vision Transformers (thesis, EPFL)",
    "arg": "Tang et al. 2022, Exploring the Relationship between Architecture and Adversarially Robust Generalization",
    "cauchy": "Wang and Ruan 2022, Understanding Adversarial Robustness of Vision Transformers via Cauchy Problem",
}
_PAPER = re.compile(r"^Paper: (.+(?:\n +.+)*)", re.M)
# kinds whose modules are about one thing
ALONE = ("attack", "objective", "suite", "analysis", "executor", "package", "chart", "dataset")


@dataclass(frozen=True)
class Description:
    """`facts` are further lines with a label, `settings` the rows of what it can be given."""

    kind: str
    name: str
    help: str
    text: str = ""
    how: str = ""
    papers: Sequence[str] = ()
    facts: Sequence[tuple[str, str]] = ()
    examples: Sequence[str] = ()
    page: str = ""
    module: str = ""
    settings: Sequence[SettingRow] = field(default_factory=tuple)


def description_of(thing: Thing) -> Description:
    """Everything that is known about a thing."""
    kind = kinds()[thing.kind]
    made, presets, module = _made(kind, thing)
    text, how = _texts(thing, made, module)
    papers = [*_papers(thing.name, f"{text}\n\n{how}"), *_four_papers(kind, thing)]
    examples = examples_of(thing)
    if module and not module.startswith("hardtack."):  # of a file of the user's
        file = getattr(sys.modules.get(module), "__file__", None)
        named = next((path for path in user_files.of_this_command() if str(path) == file), None)
        lead = f"hardtack --import {named.name}" if named else "hardtack"
        examples, module = [example.replace("hardtack", lead, 1) for example in examples], file or module
    return Description(
        kind=thing.kind, name=thing.name, help=_help(thing), text=_clean(text), how=_clean(how),
        papers=list(dict.fromkeys(papers)), facts=list(_facts(thing, presets)), examples=examples,
        page=kind.page_of(thing.name), module=module, settings=_settings(thing),
    )  # fmt: skip


# ---------------------------------------------------------------- what is registered


def _made(kind: Kind, thing: Thing) -> tuple[Any, dict[str, Any], str]:
    """The class or function that is registered, or its skeleton; its presets; its module."""
    if thing.kind == "model":
        row = descriptions().get(thing.name)
        if row is None:
            own = {entry.name: entry for entry in registry.models.registered()}
            entry = own.get(thing.name)
            return (entry.make, dict(entry.presets), entry.make.__module__) if entry else (None, {}, "")
        return None, {}, row["made_by"].partition(":")[0]
    if kind.table is None:
        return None, {}, ""
    if thing.module.startswith("hardtack."):
        try:
            made, presets = reader.registered(thing.module, kind.table.name, thing.name)
            return made, dict(presets), thing.module
        except Unreadable:
            pass
    entry = kind.table.get(thing.name)
    return entry.make, dict(entry.presets), entry.make.__module__


def _texts(thing: Thing, made: Any, module: str) -> tuple[str, str]:
    """The docstring of the thing, and that of its module if it is about this thing."""
    row = descriptions().get(thing.name) if thing.kind == "model" else None
    if row is not None:
        own, name = row["made_by"].split(":")
        return docstring_of(own, name, reader), reader.docstring(own)
    text = inspect.cleandoc(getattr(made, "__doc__", None) or "")
    if ":" in thing.name and thing.kind == "attack":  # of another package: what that says
        return inspect.cleandoc(getattr(getattr(made, "kind", None), "__doc__", None) or ""), ""
    if thing.kind == "chart":
        text = ""  # about the arguments of its function
    if thing.kind not in ALONE or not module or (thing.kind == "dataset" and text):
        return text, ""
    if module.startswith("hardtack."):
        return text, reader.docstring(module)
    return text, inspect.cleandoc(getattr(sys.modules.get(module), "__doc__", None) or "")


def _clean(text: str) -> str:
    """Without the lines about settings and papers, which are shown by themselves, and without markup."""
    text = _PAPER.sub("", without_entries(text))
    text = re.sub(r"^The settings of (objective=\w+|`?--on \w+`?)\.\s*", "", text)
    text = re.sub(r"\[/?(?:bold|dim)\]", "", text)
    return re.sub(r"\n{3,}", "\n\n", text).strip()


def _help(thing: Thing) -> str:
    if thing.kind == "flag":
        return FLAGS[thing.name].means
    return _clean(thing.help)


def _papers(name: str, text: str) -> Iterator[str]:
    for match in _PAPER.finditer(text):
        paper = " ".join(match[1].split())
        names, colon, rest = paper.partition(": ")
        if not colon or not re.fullmatch(r"\w+(, \w+)*", names):
            yield paper
        elif name in names.split(", "):
            yield rest


def _four_papers(kind: Kind, thing: Thing) -> Iterator[str]:
    """Those of the four that a registration names."""
    named: Sequence[str] = ()
    if thing.kind == "model":
        from hardtack.commands.things import facts_of_models

        named = facts_of_models().get(thing.name, {}).get("papers", ())
    elif kind.table is not None:
        named = next((entry.papers for entry in kind.table.listing() if entry.name == thing.name), ())
    yield from (PAPERS.get(paper, paper) for paper in named)


def _settings(thing: Thing) -> list[SettingRow]:
    if thing.kind == "dataset":
        return section_rows(Section("recipe", "data"))
    if thing.kind in ("recipe", "study", "protocol", "flag"):
        return []
    named = [section for section in find_sections(f"{thing.kind}:{thing.name}") if section.kind == thing.kind]
    return [row for section in named for row in section_rows(section)]


# ---------------------------------------------------------------- facts by kind


def _facts(thing: Thing, presets: dict[str, Any]) -> Iterator[tuple[str, str]]:
    from hardtack.commands import described_files

    if thing.kind == "flag":
        meaning = FLAGS[thing.name]
        trust = "do not believe the number as it stands" if meaning.level == "red" else "look again"
        yield "level", f"{meaning.level}: {trust}"
        yield "what to do", meaning.action
    elif thing.kind == "metric":
        lower = presets.get("lower_is_better", thing.name.endswith(("error", "loss", "_rate", "flip_probability")))
        yield "better", "lower" if lower else "higher"
    elif thing.kind == "dataset" and isinstance(presets.get("path"), str):
        yield "typed as", f"{thing.name}:{presets['path']}"
    elif thing.kind == "package":
        yield "attacks", f"{thing.name}:NAME; hardtack list settings {thing.name}:NAME shows what one takes"
    elif thing.kind == "recipe":
        yield from described_files.recipe_facts(thing.name)
    elif thing.kind == "study":
        yield from described_files.study_facts(thing.name)
    elif thing.kind == "protocol":
        yield from described_files.protocol_facts(thing.name)
