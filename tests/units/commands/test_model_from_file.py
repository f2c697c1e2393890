"""A model named by where it stands, `mine.py:build`, works wherever a model is named; mistakes in it are one line."""

import json
import sys

import pytest
import torch
from PIL import Image

import hardtack as ht
from hardtack.commands.cli import main
from hardtack.models import user_code
from hardtack.results import read_results
from tiny_runs import write_data

NET = """
from torch import nn

class Net(nn.Module):
    def __init__(self, scale=1.0, num_classes=4):
        super().__init__()
        self.head, self.scale = nn.Linear(192, num_classes), scale
    def forward(self, x):
        return self.head(x.flatten(1)) * self.scale
"""
MINE = """
import torch
from torch import nn
from net import Net

def build(scale=1.0):
    torch.manual_seed(7)
    return Net(scale)

def random(num_classes, scale=1.0):
    return Net(scale, num_classes)

def sized(image_size=8):
    assert image_size == 8
    return build()

def needs(width):
    return build()

def fails():
    return {}["weights"]

class Misspelt(Net):
    def forward(self, x):
        return super().forward(x) + missing

def misspelt():
    return Misspelt()

def soft():
    return nn.Sequential(build(), nn.Softmax(1))

def maps():
    return nn.Conv2d(3, 4, 1)

def text():
    return "a network"

ready = build()
number = 3
"""


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text(NET)
    (tmp_path / "mine.py").write_text(MINE)
    for label in range(4):
        (tmp_path / f"pictures/{label}").mkdir(parents=True)
        for number in range(2):
            Image.new("RGB", (8, 8), (60 * label, 30 * number, 90)).save(tmp_path / f"pictures/{label}/{number}.png")
    return tmp_path


def evaluate(model, *words):
    return main(["evaluate", f"model={model}", "data=folder:pictures", "suite=clean", "runtime.device=cpu", *words])


def test_a_function_is_measured_under_its_short_name(home, capsys):
    (home / "below").mkdir()
    (home / "mine.py").rename(home / "below/mine.py")
    (home / "net.py").rename(home / "below/net.py")
    assert evaluate("below/mine.py:build", "suite=pgd", "attack.steps=2", "threat=linf:0.1") == 0
    found = read_results("runs/mine-build")
    assert {result.model for result in found} == {"mine.py:build"}
    assert {result.n for result in found} == {8} and found[0].run == "mine-build"
    assert "untrained" not in capsys.readouterr().out  # the function settles its weights itself


@pytest.mark.parametrize("place", ["mine.py:random", "net.py:Net", "mine.py:ready", "mine:build", "mine.py:sized"])
def test_classes_networks_and_modules_are_places_too(place):
    assert evaluate(place) == 0


def test_random_weights_are_said(capsys):
    assert evaluate("mine.py:random") == 0
    assert "RED FLAG untrained" in capsys.readouterr().out


def test_changed_code_is_measured_again(home):
    for text in (NET, NET, NET.replace("* self.scale", "* -self.scale")):  # beside the file that is named
        (home / "net.py").write_text(text)
        assert evaluate("mine.py:build") == 0
    assert len({result.evaluation for result in read_results("runs/mine-build")}) == 2


def test_normalisation_goes_in_front(home):
    x = torch.rand(2, 3, 8, 8)
    plain = ht.load_model("mine.py:build", image_size=8)
    normalised = ht.load_model("mine.py:build", image_size=8, mean=0.4, std=0.2)
    assert torch.equal(plain(x), plain.body(x))
    assert torch.allclose(normalised(x), plain.body((x - 0.4) / 0.2))
    (home / "wrapped.py").write_text(
        "import hardtack as ht\nfrom mine import build\nmodel = ht.wrap(build(), mean=0.4, std=0.2)"
    )
    assert torch.equal(ht.load_model("wrapped.py:model", image_size=8)(x), normalised(x))


def test_options_and_weights(home):
    doubled = ht.load_model("mine.py:build", image_size=8, scale=2.0)
    x = torch.rand(2, 3, 8, 8)
    assert torch.equal(doubled(x), 2 * ht.load_model("mine.py:build", image_size=8)(x))
    torch.save({key: torch.zeros_like(value) for key, value in doubled.body.state_dict().items()}, "zeros.pt")
    assert not ht.load_model("mine.py:build", image_size=8, weights="zeros.pt")(x).any()
    assert evaluate("mine.py:build", "model.weights=zeros.pt", "model.options.scale=3.0") == 0
    assert read_results("runs/mine-build")[0].checkpoint == "zeros"


def test_files_of_the_same_name_beside_two_files_do_not_mix(home):
    (home / "other").mkdir()
    (home / "other/net.py").write_text(NET.replace("num_classes=4", "num_classes=7"))
    (home / "other/mine.py").write_text(MINE)
    models = [ht.load_model(f"{folder}mine.py:build", image_size=8) for folder in ("", "other/", "")]
    assert [model.num_classes for model in models] == [4, 7, 4]
    assert str(home) not in sys.path


MISTAKES = {
    "no file": ("min.py:build", "did you mean 'mine.py'"),
    "no function": ("mine.py", "it has: build, random"),
    "misspelt": ("mine.py:biuld", "did you mean 'build'"),
    "misspelt inside": ("mine.py:misspelt", "failed on its first image (NameError: name 'missing' is not defined)"),
    "no module": ("nomodule:build", "no module 'nomodule'"),
    "a number": ("mine.py:number", "mine.py:number is of type int"),
    "no network": ("mine.py:text", "must return a torch.nn.Module, found str"),
    "an exception": ("mine.py:fails", "mine.py:fails failed (line 21): KeyError: 'weights'; --debug"),
    "no logits": ("mine.py:maps", "one 8×8 image gave 1×4×8×8"),
    "probabilities": ("mine.py:soft", "remove its final softmax"),
    "an argument": ("mine.py:needs", "give model.options.width=VALUE"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_one_line(name, home, capsys):
    place, said = MISTAKES[name]
    assert evaluate(place) == 2
    found = capsys.readouterr().err
    assert said in found and found.count("\n") == 1
    assert not (home / "runs").exists()


@pytest.mark.parametrize(
    "words, said",
    [
        (["model.options.scael=2"], "did you mean 'scale'"),
        (["model.num_classes=9"], "has 4 classes, not 9"),
        (["model.pretrained=true"], "no published weights"),
        (["model.image_size=16", "data.image_size=16"], "cannot take 16×16 images"),
    ],
)
def test_settings_that_do_not_fit(words, said, capsys):
    assert evaluate("mine.py:build", *words) == 2
    assert said in capsys.readouterr().err


def test_debug_shows_where_the_code_failed():
    with pytest.raises(ht.UserError) as caught:
        main(["--debug", "evaluate", "model=mine.py:fails", "data=folder:pictures"])
    assert isinstance(caught.value.__cause__, KeyError)


def test_every_verb_takes_it(capsys):
    words = ["model=mine.py:build", "data=folder:pictures", "runtime.device=cpu"]
    assert main(["describe", "mine.py:build", "image_size=8"]) == 0
    assert main(["plan", *words, "suite=pgd"]) == 0
    assert main(["attack", *words, "n=2", "attack=fgsm"]) == 0
    assert main(["evaluate", *words, "suite=pgd", "attack=fgsm", "threat=linf:0.1"]) == 0
    assert main(["verify", "runs/mine-build"]) == 0
    assert main(["selftest", *words, "n=2", "suite=pgd", "threat=linf:0.2"]) in (0, 1)
    assert "Net" in capsys.readouterr().out


def test_weights_never_run_code_unless_it_was_named(home, capsys, monkeypatch):
    write_data(home / "data.npz")
    words = ["data=npz:data.npz", "data.validation=0", "train.epochs=1", "train.batch_size=8", "runtime.device=cpu"]
    assert main(["train", "model=mine.py:random", "output=runs/trained", *words]) == 0
    again = ["evaluate", "runs/trained", "suite=clean", "runtime.device=cpu"]
    assert main(again) == 0  # this process was told to run it
    monkeypatch.setattr(user_code, "_codes", {})  # another was not
    assert main(again) == 2
    assert "--import mine.py" in capsys.readouterr().err
    assert main(["--import", "mine.py", *again]) == 0
    (home / "mine.py").write_text(MINE + "# changed\n")
    with pytest.warns(UserWarning, match="has changed since"):
        ht.load_run("runs/trained")


def test_a_weights_file_cannot_name_code(home):
    (home / "evil.py").write_text("def build():\n    open('ran', 'w')\n")
    model = ht.load_model("mine.py:build", image_size=8)
    for name in (f"{home}/evil.py:build", "evil.py:build", "evil:build"):
        for source in ("own", "hardtack"):
            model.architecture |= {"name": name, "source": source}
            ht.save_weights(home / "given.safetensors", model)
            with pytest.raises(ht.UserError, match="never runs code"):
                ht.load_run(home / "given.safetensors")
    assert not (home / "ran").exists()


def test_the_record_says_which_code_it_was(home):
    first = ht.load_model("mine.py:build", image_size=8).architecture
    (home / "mine.py").write_text(MINE + "\n")
    second = ht.load_model("mine.py:build", image_size=8).architecture
    assert first["name"] == second["name"] == "mine.py:build"
    assert first["code_sha256"] != second["code_sha256"]
    assert str(home) not in json.dumps(second)


def test_a_network_that_insists_on_normalised_images_is_tried_with_one(tmp_path):
    (tmp_path / "strict.py").write_text(
        "import torch\n\n\nclass Net(torch.nn.Module):\n"
        "    def forward(self, x):\n        assert x.min() < 0, 'normalise first'\n        return x.mean(dim=(2, 3))\n"
    )
    model = ht.load_model(f"{tmp_path / 'strict.py'}:Net", num_classes=3, mean=0.5, std=0.25, image_size=32)
    assert model(torch.rand(2, 3, 32, 32)).shape == (2, 3)
