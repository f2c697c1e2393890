"""Every setting can be found: it is listed with its type, default, allowed values and one sentence."""

import dataclasses
import importlib

import pytest

from hardtack.base import registry
from hardtack.base.setting_rows import default_text, settings_of
from hardtack.commands import settings_table
from hardtack.commands.settings_table import KINDS, settings_rows

SECTIONS = (
    "recipe", "data", "augment", "model", "optimiser", "schedule", "sharpness", "penalty", "train", "validation",
    "runtime",
)  # fmt: skip


def real(module, name):
    return getattr(importlib.import_module(module), name)


def classes():
    """Every class that settings are read from, by module and name."""
    yield settings_table.RECIPE
    for verb in registry.verbs.names():
        named = settings_table.verb_presets(verb).get("settings", ())
        yield from (tuple(place.split(":")) for place in ([named] if isinstance(named, str) else named))


@pytest.mark.parametrize("place", sorted(set(classes())))
def test_a_skeleton_says_what_the_class_says(place):
    made, skeleton = real(*place), settings_table.reader.value(*place)
    assert [*settings_of(skeleton)] == [*settings_of(made)]


@pytest.mark.parametrize("kind", KINDS)
def test_registered_things_are_read_as_they_are(kind):
    for entry in KINDS[kind][0].entries():
        read, presets = settings_table.thing(kind, entry.name)
        made = entry.make.settings if kind == "executor" and hasattr(entry.make, "settings") else entry.make
        read = read.settings if kind == "executor" and hasattr(read, "settings") else read
        assert type(read) is type(made) and read.__name__ == made.__name__, entry.name
        if dataclasses.is_dataclass(made):
            own = {key: value for key, value in presets.items() if key in entry.presets}
            assert [*settings_of(read, presets=own)] == [*settings_of(made, presets=entry.presets)], entry.name


def test_every_setting_has_a_sentence():
    missing = sorted({(row.section, row.name) for row in settings_rows() if not row.sentence})
    assert not missing, (
        f"{missing}: say what each does in a line `name   sentence` of the docstring of the class that it is a field "
        "of (base/setting_rows.py)"
    )


def test_sentences_and_types_are_for_people():
    for row in settings_rows():
        assert len(row.sentence) < 400 and "None" not in row.sentence, f"{row.section} {row.name}: {row.sentence}"
        unclear = [word for word in ("any", "typing", "<", "class ") if word in f"{row.type} ".split(" or ")]
        assert not unclear and "typing" not in row.type, f"{row.section} {row.name}: its type reads {row.type!r}"


def test_defaults_are_those_that_are_used():
    """What is listed as default is what a configuration without settings has."""
    from hardtack.base.config import flat, plain
    from hardtack.training import Recipe

    rows = {row.name: row.default for row in settings_rows() if row.section in SECTIONS}
    used = {path: value for path, value in flat(plain(Recipe())).items() if not path.startswith("objective")}
    assert {name: rows[name] for name in used if name in rows} == {
        name: default_text(value) for name, value in used.items() if name in rows
    }
    assert used.keys() <= rows.keys()


def test_the_page_of_settings_is_current():
    """docs/settings.md has what `hardtack list settings` shows."""
    from hardtack.commands.settings_page import PAGE, page

    text = PAGE.read_text(encoding="utf-8")
    assert page(text) == text, "write it again: python -m hardtack.commands.settings_page"
    assert text.count("\n| `") > 400 and "`objective.beta`" in text
