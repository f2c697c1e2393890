"""What README.md and docs/*.md tell people to type exists: verbs, options, settings, recipes, studies, Python names."""

import functools
import re
import shlex
import textwrap
from pathlib import Path

import pytest
import typer.main

import hardtack
from hardtack.base.errors import did_you_mean
from hardtack.commands.cli import build_app, verb_names
from hardtack.commands.recipe_files import list_recipes
from hardtack.commands.settings_table import settings_rows
from hardtack.studies.study_files import list_studies

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
FENCE = re.compile(r"^ *```(\w*)\n(.*?)^ *```", re.M | re.S)
SHELL = ("", "bash", "console")
COMMAND = re.compile(r"^(?:\$ )?hardtack (.+)$", re.M)
REMARK = re.compile(r"\s+#\s.*|\s….*")
SETTING = re.compile(r"([a-z_]+(?:\.[a-z0-9_]+)*)=")
# words of these verbs that are no settings: columns of a table, parameters of a query
FREE = {"list", "query"}
# sections whose keys are the user's
OPEN = ("model.options.", "folders.", "recipe.", "objective.attack.")


@functools.cache
def options():
    """The options of each verb."""
    everywhere = {"--help", "--import", "--debug"}
    commands = typer.main.get_command(build_app(verb_names())).commands
    return {
        verb: everywhere | {name for parameter in command.params for name in parameter.opts}
        for verb, command in commands.items()
    }


@functools.cache
def settings():
    return {row.name for row in settings_rows()}


def blocks(text, *languages):
    """The code blocks of a page in one of these languages."""
    return [textwrap.dedent(code) for language, code in FENCE.findall(text) if language in languages]


def commands(text):
    """The commands in the code blocks of a page, word by word, without remarks; lines that end with \\ are one."""
    for block in blocks(text, *SHELL):
        for line in COMMAND.findall(re.sub(r"\\\n\s*", "", block)):
            line = REMARK.sub("", line)
            # a value in quotes may span lines: it is no setting of its own
            yield shlex.split(
                line if line.count("'") % 2 == 0 and line.count('"') % 2 == 0 else re.split("['\"]", line)[0]
            )


def problem(words):
    """What is wrong with a command, or None."""
    while words[:1] == ["--import"]:
        words = words[2:]
    verbs, rest = words[0].split("|"), words[1:]
    if words[0].isupper():  # COMMAND
        return None
    for verb in verbs:
        if verb not in options():
            return f"there is no verb '{verb}'"
        for word in rest:
            wrong = _problem_of_word(verb, word)
            if wrong:
                return f"{verb}: {wrong}"
    return None


def _problem_of_word(verb, word):
    if word.startswith("-"):
        name = word.partition("=")[0]
        return None if name in options()[verb] else f"there is no option {name}"
    setting = SETTING.match(word)
    if setting and verb not in FREE:
        return (
            None
            if _is_setting(setting[1])
            else f"there is no setting {setting[1]}{did_you_mean(setting[1], settings())}"
        )
    folder = word.partition("/")[0]
    families = {name.partition("/")[0] for name in (*list_recipes(), *list_studies())}
    if folder in families and "/" in word and "*" not in word:
        name = word.partition(":")[0]
        return None if name in (*list_recipes(), *list_studies()) else f"there is no recipe or study {name}"
    return None


def _is_setting(name):
    """Settings of sections within sections (`growth.attack.steps`) are those of the inner one."""
    if name in settings() or name.startswith(OPEN):
        return True
    parts = name.split(".")
    return len(parts) > 2 and (".".join(parts[-2:]) in settings() or parts[1] in ("attack", "objective"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_exist(page):
    wrong = [(" ".join(words)[:80], told) for words in commands(page.read_text()) if (told := problem(words))]
    assert not wrong


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_compiles_and_names_exist(page):
    for block in blocks(page.read_text(), "python"):
        compile(block, page.name, "exec")
        assert not set(re.findall(r"\bht\.(\w+)", block)) - set(hardtack.__all__)


def test_wrong_commands_are_noticed():
    lines = ["trian digits/trades", "train digits/tardes # x", "evaluate a suit=pgd", "report \\\n  --opne"]
    text = "```\n" + "".join(f"hardtack {line}\n" for line in lines) + "```\n"
    told = [problem(words) for words in commands(text)]
    assert told[0] == "there is no verb 'trian'" and "no recipe or study digits/tardes" in told[1]
    assert "there is no setting suit (did you mean 'suite'?)" in told[2] and "no option --opne" in told[3]
    assert sum(1 for page in PAGES for _ in commands(page.read_text())) > 150
