"""One table of names."""

import sys
import types

import pytest

from hardtack.errors import UserError, did_you_mean
from hardtack.registry import Registry, attacks, datasets, models, objectives


def grind():
    """Turn the mill."""


def strew():
    """From above."""


def filled(**entries):
    registry = Registry("spice")
    for name, make in entries.items():
        registry.register(name)(make)
    return registry


def test_an_unknown_name_gets_the_nearest_or_the_list():
    registry = filled(pepper=grind, salt=strew)
    with pytest.raises(UserError, match=r"there is no spice 'Peper' \(did you mean 'pepper'\?\)"):
        registry.get("Peper")
    with pytest.raises(UserError, match="there is no spice 'qqq'; known: pepper, salt"):
        registry.get("qqq")
    for strange in (None, 3, ["pepper"], {}):
        with pytest.raises(UserError, match="there is no spice"):
            registry.get(strange)
        assert strange not in registry


def test_a_name_is_taken_once():
    registry = filled(pepper=grind)
    with pytest.raises(ValueError, match="spice 'pepper' is registered twice"):
        registry.register("pepper")(strew)
    assert registry.get("pepper").make is grind


def test_one_class_under_several_names_differs_by_presets():
    registry = Registry("spice")

    @registry.register("hot", heat=9, help="burns")
    @registry.register("mild")
    class Pepper:
        """Grows on a vine.

        More words.
        """

    assert registry.names() == ["hot", "mild"] and "hot" in registry and "cold" not in registry
    assert registry.get("hot").make is registry.get("mild").make is Pepper
    assert registry.get("hot").presets == {"heat": 9} and registry.get("mild").presets == {}
    assert registry.get("hot").help == "burns" and registry.get("mild").help == "Grows on a vine."
    mild, hot = Pepper(), Pepper()
    mild.heat, hot.heat = 1, 9
    assert registry.name_of(mild) == "mild" and registry.name_of(hot) == "hot" and registry.name_of(3) is None


def test_rooms_are_imported_on_first_use(monkeypatch):
    registry = Registry("spice", "hardtack_test_room")
    with pytest.raises(ModuleNotFoundError):
        registry.names()
    with pytest.raises(ModuleNotFoundError):
        registry.get("pepper")  # a failed import is not taken for an empty room
    room = types.ModuleType("hardtack_test_room")
    monkeypatch.setitem(sys.modules, "hardtack_test_room", room)
    registry.register("pepper")(grind)
    assert registry.names() == ["pepper"]
    monkeypatch.delitem(sys.modules, "hardtack_test_room")
    assert registry.names() == ["pepper"], "filled once"


@pytest.mark.parametrize("registry", [datasets, models, attacks, objectives], ids=lambda r: r.kind)
def test_the_four_registries_are_filled_and_explain_themselves(registry):
    assert registry.names()
    for name in registry.names():
        assert registry.get(name).help, f"{registry.kind} {name} has no line of help"


@pytest.mark.parametrize(
    "word, candidates, hint",
    [
        ("pdg", ["pgd", "fgsm"], " (did you mean 'pgd'?)"),
        ("PGD", ["pgd"], " (did you mean 'pgd'?)"),
        ("xyz", ["pgd"], ""),
        ("pgd", [], ""),
        (3, ["pgd"], ""),
    ],
)
def test_did_you_mean(word, candidates, hint):
    assert did_you_mean(word, candidates) == hint
