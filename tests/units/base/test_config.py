"""Text becomes typed values; a mistake becomes one line that names its path and the nearest right word."""

from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest

from hardtack.base.config import SEVERAL, Choice, Number, build, check, merge, parse_words, plain, read_yaml, write_yaml
from hardtack.base.errors import UserError
from hardtack.base.registry import Registry
from hardtack.threats import Threat
from hardtack.training import Recipe, read_recipe

RECIPES = sorted((Path(__file__).parents[3] / "recipes").rglob("[!_]*.yaml"))
spices = Registry("spices", "spice")


@spices.register("pepper")
@dataclass(frozen=True, kw_only=True)
class Pepper:
    heat: int = 3
    threat: Threat | None = None


@spices.register("salt")
@dataclass(frozen=True, kw_only=True)
class Salt:
    grains: int

    def __post_init__(self) -> None:
        if self.grains < 0:
            raise UserError(f"grains must not be negative, found {self.grains}")


@dataclass(frozen=True, kw_only=True)
class Oven:
    name: str = "plain"
    degrees: Number = 180.0
    minutes: int = 10
    fan: bool = False
    rack: Literal["top", "bottom"] = "top"
    layers: tuple[int, ...] = ()
    timer: float | None = None
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Bread:
    flour: int
    oven: Oven = field(default_factory=Oven)
    spice: Annotated[Any, Choice(spices)] = None
    path: Path = Path(".")


def bread(**values):
    return build(Bread, {"flour": 1, **values})


# ---------------------------------------------------------------- what is refused, and how it is said


@pytest.mark.parametrize(
    "values, words",
    [
        ({"flor": 2}, r"unknown key 'flor' \(did you mean 'flour'\?\)"),
        ({"oven": {"minuts": 2}}, r"unknown key 'oven.minuts' \(did you mean 'oven.minutes'\?\)"),
        ({"oven": {"qqqq": 2}}, r"unknown key 'oven.qqqq'; known keys: name, degrees"),
        ({1: 2}, r"unknown key '1'"),
        ({"flour": "much"}, r"'flour': input should be a valid integer.*found 'much'"),
        ({"flour": 1.5}, r"'flour': input should be a valid integer.*found 1.5"),
        ({"flour": None}, r"'flour': input should be a valid integer.*found None"),
        ({"oven": {"fan": "perhaps"}}, r"'oven.fan': input should be a valid boolean"),
        ({"oven": {"rack": "tpo"}}, r"'oven.rack': input should be 'top' or 'bottom', found 'tpo'"),
        ({"oven": {"layers": [1, "x"]}}, r"'oven.layers': .*integer"),
        ({"oven": 7}, r"oven: expected a mapping of settings, found 7"),
        ({"spice": "peper"}, r"spice: there is no spice 'peper' \(did you mean 'pepper'\?\)"),
        ({"spice": "zzz"}, r"spice: there is no spice 'zzz'; known: pepper, salt"),
        ({"spice": {"heat": 3}}, r"'spice.name' is missing; spices: pepper, salt"),
        ({"spice": {"name": ["pepper"]}}, r"spice: there is no spice"),
        ({"spice": {"name": "pepper", "heta": 3}}, r"unknown key 'spice.heta' \(did you mean 'spice.heat'"),
        ({"spice": {"name": "pepper", "threat": "linf:8"}}, r"'spice.threat': .*did you mean 'linf:8/255'"),
        ({"spice": {"name": "salt"}}, r"'spice.grains' is missing"),
        ({"spice": {"name": "salt", "grains": -1}}, r"spice: grains must not be negative, found -1"),
        ({"spice": 3}, r"'spice': expected the name of a spice or a mapping of its settings, found 3"),
        ({"spice": ["pepper"]}, r"'spice': expected the name of a spice"),
        ({"spice": True}, r"'spice': expected the name of a spice"),
    ],
)
def test_a_mistake_names_its_path_and_the_nearest_right_word(values, words):
    with pytest.raises(UserError, match=words) as caught:
        bread(**values) if all(isinstance(key, str) for key in values) else build(Bread, values)
    assert "\n" not in str(caught.value)


def test_a_missing_key_is_named():
    with pytest.raises(UserError, match="'flour' is missing"):
        build(Bread, {})
    with pytest.raises(UserError, match="the configuration: expected a mapping"):
        build(Bread, ["flour"])


@pytest.mark.parametrize("key", ["minutes", "degrees", "timer"])
@pytest.mark.parametrize("value", [True, False])
def test_a_truth_is_not_a_number(key, value):
    with pytest.raises(UserError, match=rf"'oven.{key}': input should be a number, found {value}"):
        bread(oven={key: value})
    assert bread(oven={"fan": value}).oven.fan is value


# ---------------------------------------------------------------- what is understood


def test_values_take_the_type_of_their_field():
    oven = bread(oven={"degrees": "1/3", "minutes": "7", "timer": "1e-3", "layers": [1, "2"]}).oven
    assert oven == Oven(degrees=1 / 3, minutes=7, timer=1e-3, layers=(1, 2))
    assert isinstance(oven.layers, tuple) and isinstance(oven.minutes, int)
    assert bread(oven={"timer": None}).oven.timer is None
    assert bread(oven={"minutes": 7.0}).oven.minutes == 7
    assert bread(path="a/b").path == Path("a/b")
    with pytest.raises(UserError, match="number"):
        bread(oven={"degrees": "1/0"})


def test_a_path_is_its_text():
    assert build(Recipe, {"output": Path("runs") / "x", "data": {"root": Path("data")}}).output == "runs/x"


def test_a_choice_is_a_name_a_mapping_or_an_instance():
    mine = Pepper(heat=9)
    assert bread(spice="pepper").spice == Pepper()
    assert bread(spice={"name": "pepper", "heat": 5}).spice == Pepper(heat=5)
    assert bread(spice=mine).spice is mine
    assert bread(spice=None).spice is None


def test_sections_take_instances_names_and_text():
    oven = Oven(minutes=3)
    assert bread(oven=oven).oven is oven
    assert bread(oven="stone").oven == Oven(name="stone")
    threat = bread(spice={"name": "pepper", "threat": "linf:8/255"}).spice.threat
    assert threat == Threat("linf", Fraction(8, 255))
    assert bread(spice={"name": "pepper", "threat": None}).spice.threat is None


def test_a_dataclass_made_in_python_obeys_the_same_rules():
    @dataclass(frozen=True)
    class Checked:
        minutes: int = 1
        rack: Literal["top", "bottom"] = "top"
        length: Number = 0.0
        threat: Threat | None = None

        def __post_init__(self):
            check(self)

    made = Checked(length="1/4", threat="l2:0.5")
    assert made.length == 0.25 and made.threat == Threat.parse("l2:0.5")
    for wrong in ({"rack": "side"}, {"minutes": True}, {"threat": "l2"}):
        with pytest.raises(UserError, match=f"'{next(iter(wrong))}'"):
            Checked(**wrong)


# ---------------------------------------------------------------- words of the command line


@pytest.mark.parametrize(
    "text, value",
    [
        ("5", 5), ("-2", -2), ("1e-3", 1e-3), ("1E5", 1e5), ("-2e+3", -2e3), ("2.5e-4", 2.5e-4), ("0.1", 0.1),
        ("true", True), ("false", False), ("null", None), ("", None), ("8/255", "8/255"), ("[1, 2]", [1, 2]),
        ("[]", []), ("{a: 1}", {"a": 1}), ("a=b=c", "a=b=c"), ("linf:8/255", "linf:8/255"),
        ("l1:12", "l1:12"), ("'5'", "5"), ("~/data", "~/data"), ("runs/a b", "runs/a b"), ("[1, 2", "[1, 2"),
        ("e5", "e5"), ("1e", "1e"), ("timm:vit_tiny_patch16_224", "timm:vit_tiny_patch16_224"),
    ],
)  # fmt: skip
def test_a_word_is_read_as_yaml(text, value):
    parsed = parse_words([f"a.b={text}"])
    assert parsed == {"a": {"b": value}} and type(parsed["a"]["b"]) is type(value)


@pytest.mark.parametrize("word", ["epochs", "=5", "", "--epochs"])
def test_a_word_without_a_value_is_refused(word):
    with pytest.raises(UserError, match="not of the form key=value"):
        parse_words([word])


def test_later_words_win_and_neighbours_stay():
    assert parse_words(["a.b=1", "a.c=2", "a.b=3"]) == {"a": {"b": 3, "c": 2}}


@pytest.mark.parametrize("words", [["model=vit", "model.options.depth=3"], ["model.options.depth=3", "model=vit"]])
def test_the_order_of_a_name_and_its_settings_does_not_matter(words):
    assert parse_words(words) == {"model": {"name": "vit", "options": {"depth": 3}}}


# ---------------------------------------------------------------- layers


@pytest.mark.parametrize(
    "under, over, merged",
    [
        ({"a": 1, "b": 2}, {"a": 3}, {"a": 3, "b": 2}),
        ({"s": {"x": 1, "y": 2}}, {"s": {"y": 3}}, {"s": {"x": 1, "y": 3}}),
        ({"s": {"name": "a", "x": 1}}, {"s": {"name": "b"}}, {"s": {"name": "b"}}),
        ({"s": {"name": "a", "x": 1}}, {"s": {"name": "b", "z": 1}}, {"s": {"name": "b", "z": 1}}),
        ({"s": {"name": "a", "x": 1}}, {"s": {"name": "a", "z": 1}}, {"s": {"name": "a", "x": 1, "z": 1}}),
        ({"s": {"name": "a", "x": 1}}, {"s": "b"}, {"s": {"name": "b"}}),
        ({"s": {"name": "a", "x": 1}}, {"s": "a"}, {"s": {"name": "a", "x": 1}}),
        ({"s": "a"}, {"s": {"x": 1}}, {"s": {"name": "a", "x": 1}}),
        ({"s": "a"}, {"s": {"name": "b", "x": 1}}, {"s": {"name": "b", "x": 1}}),
        ({"s": "a"}, {"s": "b"}, {"s": "b"}),
        ({"s": {"threat": "l2:1"}}, {"s": "a"}, {"s": {"threat": "l2:1", "name": "a"}}),
        ({"s": {"x": 1}}, {"s": None}, {"s": None}),
        ({"s": [1, 2]}, {"s": [3]}, {"s": [3]}),
    ],
)
def test_merging(under, over, merged):
    before = repr(under), repr(over)
    assert merge(under, over) == merged
    assert (repr(under), repr(over)) == before, "the layers themselves are left alone"


def put(folder, **files):
    for name, text in files.items():
        (folder / f"{name}.yaml").write_text(text, encoding="utf-8")
    return folder


def test_words_win_over_the_file_and_the_file_over_its_base(tmp_path):
    put(tmp_path, base="name: base\ntrain: {epochs: 1, batch_size: 2, accumulate: 1}\n")
    put(tmp_path, run="base: base.yaml\ntrain: {batch_size: 4}\nname: file\n")
    recipe = read_recipe(tmp_path / "run.yaml", ["train.accumulate=2"], train={"accumulate": 4})
    assert recipe.name == "file"
    assert (recipe.train.epochs, recipe.train.batch_size, recipe.train.accumulate) == (1, 4, 2)


def test_a_base_lies_beside_its_file(tmp_path, monkeypatch):
    (tmp_path / "inner").mkdir()
    put(tmp_path, shared="a: 1\nb: 1\n")
    put(tmp_path / "inner", run="base: ../shared.yaml\nb: 2\n")
    monkeypatch.chdir("/")
    assert read_yaml(tmp_path / "inner" / "run.yaml") == {"a": 1, "b": 2}


@pytest.mark.parametrize(
    "files, words",
    [
        (
            {"run": "base: middle.yaml\n", "middle": "base: low.yaml\n"},
            r"middle.yaml: a base may not have a base",
        ),
        ({"run": "base: run.yaml\n"}, "a base may not have a base"),
        ({"run": "base: mddle.yaml\n", "middle": ""}, r"mddle.yaml \(did you mean 'middle.yaml'\?\)"),
        ({"run": "base: [middle.yaml]\n", "middle": ""}, "'base' names one other file"),
        ({"run": "- a\n- b\n"}, "expected a mapping of settings, found list"),
        ({"run": "a: [1\n"}, "is not valid YAML"),
        ({"runs": ""}, r"there is no file .*run.yaml \(did you mean 'runs.yaml'\?\)"),
    ],
)
def test_files_that_cannot_be_read_say_why(tmp_path, files, words):
    put(tmp_path, **files)
    with pytest.raises(UserError, match=words) as caught:
        read_yaml(tmp_path / "run.yaml")
    assert "\n" not in str(caught.value)


def test_bytes_that_are_no_text_and_folders_that_are_not_there(tmp_path):
    (tmp_path / "run.yaml").write_bytes(b"name: \xff\xfe\n")
    with pytest.raises(UserError, match="not valid YAML"):
        read_yaml(tmp_path / "run.yaml")
    with pytest.raises(UserError, match="there is no file"):
        read_yaml(tmp_path / "nowhere" / "run.yaml")
    (tmp_path / "empty.yaml").write_text("# nothing yet\n")
    assert read_yaml(tmp_path / "empty.yaml") == {}


# ---------------------------------------------------------------- back to text


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_every_recipe_survives_the_trip_to_plain_values_and_back(path, tmp_path):
    recipe = read_recipe(path, ["runtime.device=cpu"])
    assert build(Recipe, plain(recipe)) == recipe
    write_yaml(tmp_path / "config.yaml", recipe)
    assert build(Recipe, read_yaml(tmp_path / "config.yaml")) == recipe


def test_the_default_recipe_survives_too():
    recipe = read_recipe(objective={"name": "trades", "attack": {"name": "rfgsm", "threat": "l2:1/3"}})
    again = build(Recipe, plain(recipe))
    assert again == recipe and again.objective.attack.threat.eps == Fraction(1, 3)


def test_presets_are_written_out(tmp_path):
    recipe = read_recipe(validation={"attack": {"name": "fgsm", "threat": "linf:8/255"}})
    written = plain(recipe)["validation"]["attack"]
    assert written["steps"] == 1 and written["start"] == "clean" and written["threat"] == "linf:8/255"


def test_text_that_looks_like_a_number_stays_text(tmp_path):
    values = {"a": "1e3", "b": "yes", "c": "5", "d": "null", "e": "ä ×", "f": 1e-05, "g": None, "h": [1, 2.5]}
    write_yaml(tmp_path / "a.yaml", values)
    assert read_yaml(tmp_path / "a.yaml") == values


def test_a_list_of_things_that_are_written_as_text():
    from hardtack.evaluation import EvaluationConfig
    from hardtack.threats import Threat

    wanted = (Threat.parse("l2:1"), Threat.parse("l1:5"))
    for union in (["l2:1", "l1:5"], "l2:1,l1:5", list(wanted)):
        assert build(EvaluationConfig, {"union": union}).union == wanted
    for bad, words in (
        ("l2", r"union\[0\].*norm:eps"),
        ({"l2": 1}, "expected a list"),
        (["l2:1", "l3:2"], r"union\[1\]"),
    ):
        with pytest.raises(UserError, match=words):
            build(EvaluationConfig, {"union": bad})


@pytest.mark.parametrize("given, taken", [("3,5", (3, 5)), (3, (3,)), ("3", (3,)), ([3, 5], (3, 5))])
def test_several_may_be_written_with_commas_and_one_is_enough(given, taken):
    @dataclass
    class Units:
        channels: Annotated[tuple[int, ...], SEVERAL] = ()

    assert build(Units, {"channels": given}).channels == taken


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf"), "nan", "inf"])
def test_numbers_that_are_not_finite_are_refused(value):
    with pytest.raises(UserError, match=r"'optimiser\.lr': input should be a finite number"):
        read_recipe(None, optimiser={"lr": value})


def test_numbers_beyond_64_bits_are_refused():
    with pytest.raises(UserError, match=r"'runtime\.seed': no computer number holds 10{30}"):
        read_recipe(None, runtime={"seed": 10**30})
