"""Every setting of hardtack as rows: what `list settings`, `describe`, `--help`, completion and the documentation show.

    settings_rows()                every setting, section by section
    find_sections("trades")        the sections of this name: an objective here
    section_rows(section)          its settings

Nothing is imported that imports torch: classes are read from their source (base/skeleton.py). What a file of the user's
has registered is there already, and is read as it is.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
from collections.abc import Container, Iterator, Mapping
from typing import Any

from hardtack.base import registry
from hardtack.base.registry import Listed, Registry
from hardtack.base.setting_rows import SECTION, Setting, settings_of
from hardtack.base.skeleton import SourceReader, Unreadable
from hardtack.commands.model_options import option_rows

RECIPE = ("hardtack.training.recipe", "Recipe")
EVALUATION = ("hardtack.evaluation.settings", "EvaluationConfig")
GRADIENTS = ("hardtack.attacks.adaptive", "GradientConfig")
# kinds of registered things that have settings, and how those are typed
KINDS: Mapping[str, tuple[Registry, str]] = {
    "objective": (registry.objectives, "objective"),
    "attack": (registry.attacks, "attack"),
    "suite": (registry.suites, "{name}"),
    "analysis": (registry.analyses, "{name}"),
    "executor": (registry.executors, "{name}"),
}
reader = SourceReader()


@dataclasses.dataclass(frozen=True)
class SettingRow:
    """A setting of a section. `name` is typed as it stands, such as objective.beta."""

    section: str
    name: str
    type: str
    default: str
    allowed: str
    sentence: str


@dataclasses.dataclass(frozen=True)
class Section:
    """Something that has settings: a part of a recipe, a verb, or a registered thing. `kind` says which."""

    kind: str
    name: str

    @property
    def title(self) -> str:
        """`train` of a recipe, `hardtack train`, `objective trades`."""
        if self.kind == "verb":
            return f"hardtack {self.name}"
        if self.kind == "gradients":
            return "attack.… of attacks by gradients"
        return f"{self.kind} {self.name}" if self.kind in (*KINDS, "model") else self.name


def settings_rows() -> list[SettingRow]:
    """Every setting: the sections of a recipe, the verbs, and all that is registered."""
    return [row for section in all_sections() for row in section_rows(section)]


def all_sections() -> list[Section]:
    """Everything that has settings, in the order of the documentation."""
    parts = [Section("recipe", item) for item in ("recipe", *_recipe_sections())]
    verbs = [Section("verb", name) for name in registry.verbs.names()]
    things = [Section(kind, name) for kind, (table, _) in KINDS.items() for name in table.names()]
    return [*parts, Section("gradients", "gradients"), *verbs, *things]


def find_sections(name: str) -> list[Section]:
    """The sections of this name; `objective:trades` is the objective only."""
    kind, colon, own = name.partition(":")
    if colon:
        elsewhere = kind == "attack" and own.partition(":")[0] in registry.packages
        found = [Section(kind, own)] if elsewhere or own in _names_of(kind) else []
    else:
        found = [Section(kind, name) for kind in ("recipe", "gradients", "verb", *KINDS) if name in _names_of(kind)]
        found = [item for item in found if item.kind != "recipe" or name in ("recipe", *_recipe_sections())]
    if (kind == "model" and colon) or not found:
        found += [Section("model", model) for model in [own or name] if [*option_rows(model, reader)]]
    if not found and colon and kind in registry.packages:
        found = [Section("attack", name)]
    return found


def rows_named(setting: str) -> list[SettingRow]:
    """The settings of exactly this name, in all sections that have one, such as `train.ema` and `attack.steps`."""
    if setting.startswith("objective.attack."):  # the attack of an objective has the settings of any attack
        setting = setting.removeprefix("objective.")
    first, dot, _ = setting.partition(".")
    if not dot:
        rows = [row for verb in registry.verbs.names() for row in words_rows(verb)]
        rows += [row for name in registry.executors.names() for row in section_rows(Section("executor", name))]
        return [row for row in rows if row.name == setting]
    kinds = [kind for kind, (_, path) in KINDS.items() if path == first]
    sections = [item for item in find_sections(first) if item.kind != "verb"]
    sections += [Section(kind, name) for kind in kinds for name in registry_of_kind(kind).names()]
    sections += [Section("gradients", "gradients")] if first == "attack" else []
    return [row for section in sections for row in section_rows(section) if row.name == setting]


def words_of(verb: str) -> list[str]:
    """The settings that a verb takes, those of its sections and of the objective's or attack's usual choice too."""
    rows = list(_verb_rows(verb))
    sections = [row.name for row in rows if row.type == SECTION and row.name in _recipe_sections()]
    names = [row.name for row in rows] + [row.name for name in sections for row in _recipe_rows(name)]
    if "objective" in names:
        names += [row.name for row in section_rows(Section("objective", "trades"))]
    if "attack" in names:
        names += [row.name for row in section_rows(Section("attack", "pgd"))]
    return [name for name in dict.fromkeys(names) if not name.startswith("--")]


def _names_of(kind: str) -> Container[str]:
    """The names of the sections of a kind."""
    if kind == "recipe":
        return ("recipe", *_fields_of_recipes())
    if kind in KINDS:
        return KINDS[kind][0]
    return registry.verbs if kind == "verb" else ("gradients",) if kind == "gradients" else ()


def section_rows(section: Section) -> list[SettingRow]:
    """The settings of a section; those of sections that others share stand once, in their own."""
    if section.kind == "recipe":
        rows = _recipe_rows(section.name)
    elif section.kind == "verb":
        rows = _verb_rows(section.name)
    elif section.kind == "gradients":
        rows = settings_of(reader.value(*GRADIENTS), path="attack")
    elif section.kind == "model":
        rows = option_rows(section.name, reader)
    else:
        rows = _thing_rows(section)
    return [SettingRow(section.title, **dataclasses.asdict(row)) for row in rows]


# ---------------------------------------------------------------- recipes


@functools.cache
def _recipe_sections() -> dict[str, type]:
    """The sections of a recipe by name; the objective has those of its kind."""
    from hardtack.base.setting_rows import section_class

    recipe = reader.value(*RECIPE)
    classes = {item.name: section_class(item.type) for item in dataclasses.fields(recipe)}
    return {name: cls for name, cls in classes.items() if cls is not None}


def _fields_of_recipes() -> list[str]:
    """The fields of a recipe, most of which are sections, without reading what is in them."""
    module, name = RECIPE
    node = next(node for node in reader.tree(module).body if isinstance(node, ast.ClassDef) and node.name == name)
    return [ast.unparse(item.target) for item in node.body if isinstance(item, ast.AnnAssign)]


def _recipe_rows(name: str) -> Iterator[Setting]:
    sections = _recipe_sections()
    if name in sections:
        yield from settings_of(sections[name], path=name)
        return
    yield from settings_of(reader.value(*RECIPE), closed=[*sections.values()])


# ---------------------------------------------------------------- verbs


def _verb_rows(verb: str) -> Iterator[Setting]:
    """The words of a verb (the classes that `settings=` of its registration names), then its options."""
    yield from _word_rows(verb)
    yield from _options(verb)


def words_rows(verb: str) -> list[SettingRow]:
    """The words of a verb without its options, whose help only typer knows; `--on` is among them if it takes it."""
    listed = next((entry for entry in registry.verbs.listing() if entry.name == verb), None)
    rows = [SettingRow(f"hardtack {verb}", **dataclasses.asdict(row)) for row in _word_rows(verb)]
    if listed is not None and listed.module.startswith("hardtack."):
        function = reader.tree(listed.module).body
        takes = [
            ast.unparse(node.args) for node in function if isinstance(node, ast.FunctionDef) and node.decorator_list
        ]
        if any("on: On" in arguments for arguments in takes):
            rows.append(SettingRow(f"hardtack {verb}", "--on", "option", "", "", ""))
    return rows


def _word_rows(verb: str) -> Iterator[Setting]:
    named = verb_presets(verb).get("settings", ())
    rows: dict[str, Setting] = {}
    for place in [named] if isinstance(named, str) else named:
        module, _, name = place.partition(":")
        rows |= {row.name: row for row in settings_of(_class(module, name), closed=[*_recipe_sections().values()])}
    yield from rows.values()


def verb_presets(verb: str) -> Mapping[str, Any]:
    """What a verb's registration says beside its name."""
    listed = next((entry for entry in registry.verbs.listing() if entry.name == verb), None)
    if listed is not None and listed.module.startswith("hardtack."):
        try:
            return reader.registered(listed.module, "verbs", verb)[1]
        except Unreadable:
            pass
    return registry.verbs.get(verb).presets


def _options(verb: str) -> Iterator[Setting]:
    """Options such as `--on`, with the help that typer shows."""
    import typer.main

    app = typer.Typer(add_completion=False)
    app.command(verb)(registry.verbs.get(verb).make)
    for parameter in typer.main.get_command(app).params:
        if parameter.param_type_name == "option" and parameter.name != "help":
            is_flag = getattr(parameter, "is_flag", False)
            default = "" if parameter.default is None else str(parameter.default).lower()
            kind, values = ("option", "") if is_flag else ("option with a value", parameter.metavar or "")
            help = getattr(parameter, "help", None) or ""
            yield Setting(max(parameter.opts, key=len), kind, default, values, help)


def _class(module: str, name: str) -> type:
    try:
        made: type = reader.value(module, name)
    except Unreadable:  # of a file of the user's, or of a module that is written in an unusual way
        import importlib

        made = getattr(importlib.import_module(module), name)
    return made


# ---------------------------------------------------------------- registered things


def thing(kind: str, name: str) -> tuple[Any, Mapping[str, Any]]:
    """The class or function that is registered, or its skeleton, and its presets."""
    table = registry_of_kind(kind)
    listed = next((entry for entry in table.listing() if entry.name == name), None)
    if listed is not None and listed.module.startswith("hardtack."):
        try:
            return reader.registered(listed.module, table.name, name)
        except Unreadable:
            pass
    entry = table.get(name)
    return entry.make, entry.presets


def registry_of_kind(kind: str) -> Registry:
    return KINDS[kind][0]


def _thing_rows(section: Section) -> Iterator[Setting]:
    made, presets = thing(section.kind, section.name)
    path = KINDS[section.kind][1].format(name=section.name)
    if section.kind == "suite":
        yield from suite_takes(section.name)
    if section.kind == "executor":
        made, presets = getattr(made, "settings", None), {}
    if not (isinstance(made, type) and dataclasses.is_dataclass(made)):
        return
    for row in settings_of(made, presets=presets, path=path):
        shared = section.kind == "executor" and row.name.rpartition(".")[2] in ("workers", "per_gpu")
        yield dataclasses.replace(row, name=row.name.rpartition(".")[2]) if shared else row


def suite_takes(name: str) -> list[Setting]:
    """The settings of an evaluation that a suite uses, beside its own."""
    made, _ = thing("suite", name)
    shared = reader.value(EVALUATION[0], "_SHARED")
    taken = {*made.takes, *shared} - {"suite", "suite_settings", *(() if made.attacks else ("audit", "keep"))}
    settings = settings_of(reader.value(*EVALUATION))
    return [row for row in settings if row.name.partition(".")[0] in taken and row.type != SECTION]


def words_of_kind(entry: Listed) -> str:
    """What a kind of chart draws, in words: `bars with intervals`."""
    try:
        return str(reader.registered(entry.module, "kinds", entry.name)[1].get("words", entry.help))
    except Unreadable:  # of a file of the user's
        return str(registry.kinds.get(entry.name).presets.get("words", entry.help))
