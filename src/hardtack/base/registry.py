"""Registries: one table of names for each kind of thing that people add.

An addition is one file. It registers itself with a decorator, and the registry finds it:

    @attacks.register("pgd", help="projected gradient ascent from a random start")
    class Ascent: ...

A registry knows the packages that its entries may stand in. It reads their source (without importing it) to learn which
module registers which name, so that listing names needs no torch, and `get` imports one module only. A module that
registers names in a loop is imported to learn them. A file of the user's registers when it is run (`--import FILE.py`).
"""

from __future__ import annotations

import ast
import functools
import importlib
import importlib.util
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hardtack.base.errors import UserError, did_you_mean, known_elsewhere


@dataclass(frozen=True)
class Entry:
    """A registered class or function with presets, so that `fgsm` and `pgd` can be one class with two settings."""

    name: str
    make: Callable[..., Any]
    presets: dict[str, Any] = field(default_factory=dict)
    help: str = ""
    family: str = ""  # what it is a member of: the name of its file, unless given
    papers: tuple[str, ...] = ()  # of the four: rspc, xcit, arg, cauchy
    published: str = ""  # the timm model whose published weights fit


@dataclass(frozen=True)
class Listed:
    """What the source says of an entry before its module is imported."""

    name: str
    help: str
    family: str
    papers: tuple[str, ...]
    module: str


class Registry:
    """`name` is the variable that decorators use (`attacks`), `kind` the noun for messages (`attack`).

    `others`: a registry of other packages; a name such as `foolbox:LinfPGD` is looked up by its entry `foolbox`.
    """

    def __init__(self, name: str, kind: str, *packages: str, others: Registry | None = None) -> None:
        self.name, self.kind, self._packages = name, kind, packages
        self.others = others
        self._entries: dict[str, Entry] = {}
        self._elsewhere: dict[str, Entry] = {}  # of other packages, as they are named
        self._listed: dict[str, Listed] | None = None
        self._unread: list[str] = []  # modules whose names are known only after an import

    def register(
        self,
        name: str,
        *,
        help: str = "",
        family: str = "",
        papers: tuple[str, ...] = (),
        published: str = "",
        **presets: Any,
    ) -> Callable[[Any], Any]:
        """Decorator: enter a class or function under `name`, with `presets` overriding its defaults."""

        def enter(make: Any) -> Any:
            if name in self._entries or self._is_elsewhere(name, make.__module__):
                raise UserError(f"the {self.kind} '{name}' is registered twice; choose another name")
            text = help or (make.__doc__ or "").strip().split("\n")[0]
            own_family = family or make.__module__.rpartition(".")[2]
            self._entries[name] = Entry(name, make, presets, text, own_family, papers, published)
            if isinstance(make, type):
                _REGISTRY_OF[make] = self
            return make

        return enter

    def get(self, name: str) -> Entry:
        """The entry of this name; its module is imported if it has not been yet."""
        if self.others is not None and isinstance(name, str) and ":" in name:
            return self._of_another_package(name, self.others)
        if name not in self:
            hint = self._hint(name)
            raise UserError(f"there is no {self.kind} '{name}'{hint}")
        if name not in self._entries:
            importlib.import_module(self._scan()[name].module)
        return self._entries[name]

    def _hint(self, name: str) -> str:
        """Where the name belongs, if it is that of something else, or the nearest right one."""
        word = str(name).lower()
        others = [table for table in BY_NAME if table is not self and word in table]
        if others and not known_elsewhere(word, self.names()):
            said = [f"{table.article} {table.kind} ({TYPED[table.name].format(word)})" for table in others]
            return f"; {name} is {' and '.join(said)}"
        return did_you_mean(name, self.names()) or f"; known: {_listed(self.names())}"

    @property
    def article(self) -> str:
        return "an" if self.kind[0] in "aeiou" else "a"

    def _of_another_package(self, name: str, others: Registry) -> Entry:
        if name not in self._elsewhere:
            package = others.get(name.partition(":")[0]).make()
            self._elsewhere[name] = entry = package.entry(name)
            _REGISTRY_OF[entry.make] = self
        return self._elsewhere[name]

    def name_of(self, value: Any) -> str | None:
        """The name a value would be chosen by: of its class's entries the one with most presets, all of them met."""
        fitting = [
            entry
            for entry in (*self._entries.values(), *self._elsewhere.values())
            if entry.make is type(value) and all(getattr(value, key) == item for key, item in entry.presets.items())
        ]
        return max(fitting, key=lambda entry: len(entry.presets)).name if fitting else None

    def names(self) -> list[str]:
        """All names, sorted; where the source states them, nothing is imported."""
        return sorted({*self._scan(), *self._entries})

    def listing(self) -> list[Listed]:
        """Name, help, family and papers of every entry, sorted by name; nothing is imported that need not be."""
        listed = dict(self._scan())
        for entry in self._entries.values():
            module = entry.make.__module__
            listed[entry.name] = Listed(entry.name, entry.help, entry.family, entry.papers, module)
        return [listed[name] for name in sorted(listed)]

    def registered(self) -> list[Entry]:
        """The entries of modules that have been imported, those of the user's files among them; nothing is imported."""
        return [self._entries[name] for name in sorted(self._entries)]

    def entries(self) -> list[Entry]:
        """Every entry, sorted by name; imports all modules that register one."""
        return [self.get(name) for name in self.names()]

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and (name in self._entries or name in self._scan())

    def _is_elsewhere(self, name: str, module: str) -> bool:
        listed = (self._listed or {}).get(name)
        return listed is not None and listed.module != module

    def _scan(self) -> dict[str, Listed]:
        """What the packages' source registers; modules that register names in other ways are imported once."""
        if self._listed is None:
            self._listed = {}
            for module, path in self._modules():
                entries, complete = read_registrations(path, module, self.name)
                self._listed |= {entry.name: entry for entry in entries}
                self._unread += [] if complete else [module]
        while self._unread:
            importlib.import_module(self._unread.pop())
        return self._listed

    def _modules(self) -> Iterator[tuple[str, Path]]:
        for package in self._packages:
            spec = importlib.util.find_spec(package.partition(".")[0])
            assert spec is not None and spec.submodule_search_locations is not None
            folder = Path(spec.submodule_search_locations[0]).joinpath(*package.split(".")[1:])
            for path in sorted(folder.rglob("*.py")):
                parts = path.relative_to(folder).with_suffix("").parts
                yield ".".join([package, *(part for part in parts if part != "__init__")]), path


_REGISTRY_OF: dict[type, Registry] = {}


def registry_of(cls: type) -> Registry | None:
    """The registry that a class was entered in, so that a configuration can be written back with its name."""
    return _REGISTRY_OF.get(cls)


def read_registrations(path: Path, module: str, registry: str) -> tuple[list[Listed], bool]:
    """The entries that decorators in a source file state in plain text, and whether those are all.

    `@attacks.register("pgd", help="…")` above a class or function is read as it stands. Any other call of
    `attacks.register` (in a loop, with a computed name) can only be known by importing the file.
    """
    source = path.read_text(encoding="utf-8")
    count = source.count(f"{registry}.register(")
    if not count:
        return [], True
    read = [listed for node in _decorated(source) for listed in _read_node(node, module, registry)]
    if len(read) == count:
        return read, True
    return read_whole(path, module, registry)


def read_whole(path: Path, module: str, registry: str) -> tuple[list[Listed], bool]:
    """The same from the syntax tree of the whole file."""
    tree = parse_file(path)
    nodes = [node for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef)]
    read = [listed for node in nodes for listed in _read_node(node, module, registry)]
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and _registers(node, registry)]
    return read, len(calls) == len(read)


def _decorated(source: str) -> Iterator[ast.ClassDef]:
    """What decorators stand above at the left margin: their calls, the name, and the first line of the docstring.

    Bodies are left out, because parsing all of a file takes most of the time of a short command.
    """
    lines = source.splitlines()
    at = 0
    while at < len(lines):
        start = at
        at += 1
        if not lines[start].startswith("@"):
            continue
        while at < len(lines) and not lines[at].startswith(("class ", "def ")):
            at += 1
        end = next((end for end in range(at, len(lines)) if lines[end].rstrip().endswith(":")), at)
        text = lines[end + 1].strip() if end + 1 < len(lines) else ""
        doc = text[3:].split('"""')[0] if text.startswith('"""') else ""
        if text.startswith(("'", "r", '"')) and not text.startswith('"""'):
            continue  # a docstring in another form
        try:
            node = ast.parse("\n".join([*lines[start:at], "class _:", f"    {doc!r}"])).body[0]
        except SyntaxError:
            continue
        if isinstance(node, ast.ClassDef):
            yield node


def _read_node(node: ast.ClassDef | ast.FunctionDef, module: str, registry: str) -> Iterator[Listed]:
    for call in node.decorator_list:
        listed = _read_call(call, node, module, registry)
        if listed is not None:
            yield listed


@functools.cache
def parse_file(path: Path) -> ast.Module:
    """The syntax tree of a source file, which is parsed once in a process."""
    return ast.parse(path.read_text(encoding="utf-8"))


def _registers(call: ast.Call, registry: str) -> bool:
    function = call.func
    if not isinstance(function, ast.Attribute) or function.attr != "register":
        return False
    owner = function.value
    return (owner.id if isinstance(owner, ast.Name) else getattr(owner, "attr", "")) == registry


def _read_call(call: ast.expr, node: ast.ClassDef | ast.FunctionDef, module: str, registry: str) -> Listed | None:
    if not isinstance(call, ast.Call) or not _registers(call, registry):
        return None
    given = {keyword.arg: keyword.value for keyword in call.keywords}
    try:
        name = ast.literal_eval(call.args[0])
        stated = {key: ast.literal_eval(given[key]) for key in ("help", "family", "papers") if key in given}
    except (ValueError, IndexError):
        return None
    text = stated.get("help") or (ast.get_docstring(node) or "").split("\n")[0]
    family = stated.get("family") or module.rpartition(".")[2]
    return Listed(name, text, family, stated.get("papers", ()), module)


datasets = Registry("datasets", "dataset", "hardtack.data")
corruptions = Registry("corruptions", "corruption", "hardtack.data.corruptions")
models = Registry("models", "model", "hardtack.models.zoo")
packages = Registry("packages", "package of attacks", "hardtack.attacks.packages")
attacks = Registry("attacks", "attack", "hardtack.attacks", others=packages)
losses = Registry("losses", "attack loss", "hardtack.attacks")
objectives = Registry("objectives", "objective", "hardtack.objectives")
trackers = Registry("trackers", "tracker", "hardtack.training.trackers")
analyses = Registry("analyses", "analysis", "hardtack.analysis")
charts = Registry("charts", "chart", "hardtack.report.charts", "hardtack.analysis")
kinds = Registry("kinds", "kind of chart", "hardtack.report.kinds")
executors = Registry("executors", "executor", "hardtack.engine.executors")
suites = Registry("suites", "suite", "hardtack.evaluation.suites")
metrics = Registry("metrics", "metric", "hardtack.results")
verbs = Registry("verbs", "verb", "hardtack.commands")
mechanisms = Registry("mechanisms", "defence mechanism", "hardtack.evaluation.gauntlet.mechanisms")
evaluators = Registry("evaluators", "evaluator", "hardtack.evaluation.gauntlet.evaluators")
# what people choose by name, and how that is typed
TYPED = {
    "attacks": "suite=pgd attack={}", "suites": "suite={}", "objectives": "objective={}",
    "analyses": "hardtack analyze RUN {}", "losses": "attack.loss={}", "corruptions": "suite=corruptions types={}",
    "datasets": "data={}",
}  # fmt: skip
BY_NAME = (attacks, suites, objectives, analyses, losses, corruptions, datasets)


def _listed(names: list[str], most: int = 40) -> str:
    """Names for a message, of very many only the first."""
    if len(names) <= most:
        return ", ".join(names)
    return f"{', '.join(names[:most])}, … ({len(names)} in all; `hardtack list` shows them)"
