"""Every setting can be found: it is listed with its type, default, allowed values and one sentence."""

import dataclasses
import importlib

import pytest

from hardtack.base import registry
from hardtack.base.setting_rows import settings_of
from hardtack.commands import settings_table
from hardtack.commands.settings_table import KINDS


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
