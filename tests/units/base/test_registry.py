"""One table of names."""

import subprocess
import sys

import pytest

from hardtack.base import registry as tables
from hardtack.base.errors import UserError, did_you_mean
from hardtack.base.registry import Registry

ALL = [value for value in vars(tables).values() if isinstance(value, Registry)]


def grind():
    """Turn the mill."""


def strew():
    """From above."""


def filled(**entries):
    registry = Registry("spices", "spice")
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
    with pytest.raises(UserError, match="spice 'pepper' is registered twice"):
        registry.register("pepper")(strew)
    assert registry.get("pepper").make is grind


def test_one_class_under_several_names_differs_by_presets():
    registry = Registry("spices", "spice")

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


def test_names_are_read_from_source_and_a_module_is_imported_when_its_entry_is_wanted(tmp_path, monkeypatch):
    room = tmp_path / "hardtack_test_room"
    (room / "inner").mkdir(parents=True)
    (room / "__init__.py").write_text("")
    (room / "inner" / "__init__.py").write_text("")
    head = "from hardtack_test_table import spices\n"
    (tmp_path / "hardtack_test_table.py").write_text(
        "from hardtack.base.registry import Registry\nspices = Registry('spices', 'spice', 'hardtack_test_room')\n"
    )
    (room / "inner" / "pepper.py").write_text(
        head + "@spices.register('pepper', papers=('rspc',))\ndef grind():\n    'Black.'\n"
    )
    (room / "loop.py").write_text(
        head + "for name in ('salt', 'sugar'):\n    spices.register(name, help=name)(print)\n"
    )
    (room / "other.py").write_text("raise RuntimeError('registers nothing, so nobody imports it')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    from hardtack_test_table import spices

    assert spices.names() == ["pepper", "salt", "sugar"]
    assert "hardtack_test_room.inner.pepper" not in sys.modules, "listing a name needs no import"
    assert next((one.name, one.help, one.papers) for one in spices.listing()) == ("pepper", "Black.", ("rspc",))
    assert spices.get("pepper").make.__name__ == "grind" and spices.get("salt").help == "salt"
    with pytest.raises(UserError, match="registered twice"):
        spices.register("pepper")(strew)


@pytest.mark.parametrize("registry", ALL, ids=lambda r: r.name)
def test_registries_explain_themselves_and_list_what_they_hold(registry):
    listed = {one.name: one for one in registry.listing()}
    assert listed and [entry.name for entry in registry.entries()] == sorted(listed)
    for entry in registry.entries():
        # charts and kinds of charts are chosen by results, not by name, and are in no list
        assert entry.help or registry.name in ("charts", "kinds"), f"{registry.kind} {entry.name} has no line of help"
        told = listed[entry.name]
        assert (told.help, told.family, told.papers) == (entry.help, entry.family, entry.papers)


def test_listing_needs_no_torch():
    code = (
        "import sys; from hardtack.base import registry as r; "
        "[x.listing() for x in (r.attacks, r.objectives, r.analyses)]; sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


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
