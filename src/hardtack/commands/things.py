"""Everything that has a name: `hardtack describe NAME`, completion and nearest names look here.

    find_things("pgd")            the attack and the suite of this name
    find_things("attack:pgd")     the attack

Nothing is imported that imports torch, but for what files of the user's have registered, which is there already.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hardtack.base import registry
from hardtack.base.config import first_comment
from hardtack.base.flag_meanings import FLAGS
from hardtack.base.registry import Registry
from hardtack.commands.settings_table import words_of_kind

FACTS = Path(__file__).resolve().parents[1] / "models" / "facts.json"


# what `hardtack list KIND` lists
LISTED: Mapping[str, str] = {
    "models": "architectures, of this package and of timm",
    "attacks": "searches for adversarial images",
    "losses": "what attacks maximise",
    "objectives": "what training minimises",
    "datasets": "where images come from",
    "corruptions": "common corruptions, of suite=corruptions",
    "suites": "what an evaluation measures",
    "analyses": "why a model is robust or not",
    "protocols": "all numbers of a paper's table row",
    "recipes": "complete trainings",
    "studies": "papers' tables and figures",
    "metrics": "numbers that results have",
    "flags": "warnings that numbers carry",
    "charts": "kinds of charts of the report",
    "executors": "where commands compute",
    "mechanisms": "defences of hardtack gauntlet",
    "evaluators": "evaluators of hardtack gauntlet",
    "trackers": "what a training's metrics are sent to, besides the run folder",
    "settings": "types, defaults, allowed values and a sentence of each; of NAME with hardtack list settings NAME",
}


@dataclass(frozen=True)
class Thing:
    """Something that can be described: `kind` is the noun that stands before a colon, `attack:pgd`."""

    kind: str
    name: str
    help: str
    module: str = ""  # where it is registered


@dataclass(frozen=True)
class Kind:
    """A kind of things. `table` is its registry, if it has one; `rare` kinds are looked at last.

    `page` is the page of the documentation, `pages` those of some of them.
    """

    noun: str
    list: Callable[[], Iterator[Thing]]
    page: str
    pages: Mapping[str, str]
    table: Registry | None = None
    rare: bool = False

    def page_of(self, name: str) -> str:
        return f"docs/{self.pages.get(name, self.page)}"


def kinds() -> dict[str, Kind]:
    """By noun, in the order in which `describe` shows things that share a name."""
    of_attacks = {"occlusion": "patches.md", "patch_fool": "patches.md"}
    of_suites = {name: f"{name}.md" for name in ("autoattack", "corruptions", "patches", "perturbations")}
    of_suites["smoothing"] = "certified.md"
    alone = ("train", "evaluate", "attack", "corrupt", "report", "export", "gauntlet")
    of_verbs = {
        **{name: f"{name}.md" for name in alone},
        "corrupt": "corruptions.md", "study": "studies.md", "analyze": "analyze.md", "compare": "report.md",
        "import": "report.md", **dict.fromkeys(("adapt", "verify", "bundle", "selftest", "plan"), "trust.md"),
    }  # fmt: skip
    found = [
        _registered("attack", registry.attacks, "attack.md", of_attacks),
        _registered("objective", registry.objectives, "train.md"),
        _registered("suite", registry.suites, "evaluate.md", of_suites),
        _registered("analysis", registry.analyses, "analyze.md"),
        Kind("model", _models, "models.md", {}, registry.models),
        _registered("dataset", registry.datasets, "your_own.md", _pages_of_data()),
        _registered("executor", registry.executors, "more_gpus.md"),
        _registered("verb", registry.verbs, "settings.md", of_verbs),
        Kind("recipe", _recipes, "train.md", {}),
        Kind("study", _studies, "studies.md", {}),
        Kind("protocol", _protocols, "protocols.md", {}),
        Kind("flag", _flags, "trust.md", {}),
        _registered("corruption", registry.corruptions, "corruptions.md"),
        _registered("loss", registry.losses, "attack.md"),
        _registered("metric", registry.metrics, "report.md"),
        _registered("package", registry.packages, "attack.md"),
        _registered("tracker", registry.trackers, "train.md"),
        _registered("mechanism", registry.mechanisms, "gauntlet.md", rare=True),
        _registered("evaluator", registry.evaluators, "gauntlet.md", rare=True),
        Kind("chart", _kinds_of_chart, "report.md", {}, registry.kinds),
        _registered("section", registry.charts, "report.md", rare=True),
    ]
    return {kind.noun: kind for kind in found}


def find_things(word: str) -> list[Thing]:
    """What has this name, or `KIND:NAME`. Of kinds that few people name, only where nothing else has the name."""
    every = kinds()
    noun, colon, name = word.partition(":")
    if colon and noun in every:
        return [thing for thing in every[noun].list() if thing.name == name]
    if colon and noun in registry.packages:
        return [Thing("attack", word, f"an attack of the package {noun}")]
    for rare in (False, True):
        named = [thing for kind in every.values() if kind.rare == rare for thing in kind.list() if thing.name == word]
        if named:
            return named
    return []


def all_names() -> list[str]:
    """Every name, once."""
    return list(dict.fromkeys(thing.name for kind in kinds().values() for thing in kind.list()))


# ---------------------------------------------------------------- what the kinds hold


def _registered(
    noun: str, table: Registry, page: str, pages: Mapping[str, str] | None = None, *, rare: bool = False
) -> Kind:
    def listed() -> Iterator[Thing]:
        yield from (Thing(noun, entry.name, entry.help, entry.module) for entry in table.listing())

    return Kind(noun, listed, page, pages or {}, table, rare)


def _pages_of_data() -> dict[str, str]:
    official = ("cifar10c", "cifar100c", "imagenet_c", "tiny_imagenet_c", "corrupted")
    return {**dict.fromkeys(official, "corruptions.md"), "random_network": "train.md"}


@functools.cache
def facts_of_models() -> dict[str, Any]:
    """The rows of the table that `python -m hardtack.models.facts` writes."""
    table: dict[str, Any] = json.loads(FACTS.read_text(encoding="utf-8"))
    return table


def _models() -> Iterator[Thing]:
    """The built-in models, from the table of facts, and those of the user's files."""
    table = facts_of_models()
    yield from (Thing("model", name, row["help"]) for name, row in table.items())
    for entry in registry.models.registered():
        if entry.name not in table:
            yield Thing("model", entry.name, entry.help, entry.make.__module__)


def _recipes() -> Iterator[Thing]:
    from hardtack.commands.recipe_files import list_recipes, recipe_folder

    folder = recipe_folder()
    yield from (Thing("recipe", name, first_comment(folder / f"{name}.yaml")) for name in list_recipes())


def _studies() -> Iterator[Thing]:
    from hardtack.studies.study_files import list_studies, study_folder

    folder = study_folder()
    yield from (Thing("study", name, first_comment(folder / f"{name}.yaml")) for name in list_studies())


def _protocols() -> Iterator[Thing]:
    from hardtack.studies.protocol import list_protocols

    yield from (Thing("protocol", name, help) for name, help in list_protocols().items())


def _flags() -> Iterator[Thing]:
    yield from (Thing("flag", code, meaning.means) for code, meaning in FLAGS.items())


def _kinds_of_chart() -> Iterator[Thing]:
    yield from (Thing("chart", entry.name, words_of_kind(entry), entry.module) for entry in registry.kinds.listing())
