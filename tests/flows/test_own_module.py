"""`ht.train` with a module and data of one's own: as a newcomer has them, without a recipe or files."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import hardtack as ht
from hardtack.commands.cli import main
from processes import Started, environment, free_port

RNG = np.random.default_rng(0)
LABELS = np.arange(60) % 3
GREY = (RNG.integers(0, 90, (60, 8, 12)) + 80 * LABELS[:, None, None]).astype(np.uint8)  # N×H×W, wider than high
COLOUR = np.repeat(GREY[..., None], 3, axis=3)
SHORT = {"epochs": 2, "batch_size": 18, "quiet": True}


class Net(nn.Module):
    """Takes images of any size; `classes` logits."""

    def __init__(self, channels=1, classes=3, seed=0):
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.conv, self.head = nn.Conv2d(channels, 4, 3, stride=2), nn.Linear(4, classes)

    def forward(self, x):
        return self.head(self.conv(x).relu().mean((2, 3)))


def frozen(net):
    net.head.requires_grad_(False)
    return net


def same(one, other):
    return all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))


def test_a_module_of_grey_images_is_trained_resumed_extended_and_measured(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    given = {"data": (GREY, LABELS), "objective": "trades", "threat": "linf:4/255", **SHORT}
    net, start = frozen(Net()), Net()
    folder = ht.train(model=net, output="runs/net", **given)
    assert not same(net, start) and net.training and not net.head.weight.requires_grad
    config = yaml.safe_load((folder / "config.yaml").read_text())
    assert re.fullmatch(r"given:arrays-60x1x8x12-[0-9a-f]{16}", config["data"]["name"])
    assert re.fullmatch(r"given:Net-[0-9a-f]{16}", config["model"]["name"])
    assert config["objective"]["attack"]["threat"] == "linf:4/255" and config["data"]["validation"] == 0.1
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert lines[0]["kind"] == "start" and len(lines[0]["weights_sha256"]) == 64
    assert {"clean_accuracy", "robust_accuracy"} <= lines[-1].keys()

    # the module has the weights of the best checkpoint
    best = ht.load_run(folder, model=Net(seed=5))
    assert same(best.body, net)
    (stored,) = ht.evaluate_run(folder, model=Net(), data=(GREY, LABELS), threat="linf:4/255", n=30, quiet=True)
    own = ht.evaluate(net, (GREY, LABELS), threat="linf:4/255", n=30, quiet=True)
    assert stored.robust_accuracy == own.robust_accuracy and (stored.robust == own.robust).all()

    # stopped in the middle, and repeated: the same weights
    def stop(event):
        if event.step == 3:
            raise KeyboardInterrupt

    again, repeated = frozen(Net()), {**given, "train": {"checkpoint_every_s": 0}, "output": "runs/again"}
    with pytest.raises(KeyboardInterrupt):
        ht.train(model=again, on_step=stop, **repeated)
    assert same(again, start), "a run that was stopped leaves the module as it was"
    ht.train(model=again, **repeated)
    assert same(again, net)

    # a finished run: nothing is trained, and a line says so where the module began elsewhere; then it is extended
    capsys.readouterr()
    other = frozen(Net(seed=1))
    ht.train(model=other, output="runs/net", **given)
    assert same(other, net) and "began with other weights" in capsys.readouterr().err
    ht.train(model=other, output="runs/net", **{**given, "epochs": 3})
    assert not capsys.readouterr().err
    assert json.loads((folder / "metrics.jsonl").read_text().splitlines()[-1])["epoch"] == 3

    for change, told in (
        ({"data": (GREY[:-1], LABELS[:-1])}, r"\(data.name: given[^,]*\); give the same images to continue it"),
        ({"model": frozen(Net(classes=4))}, r"\(model.name: given[^,]*\); give the same module to continue it"),
    ):
        change = {"model": other, "epochs": 3, **change}
        with pytest.raises(ht.UserError, match=told):
            ht.train(**{"output": "runs/net", **given, **change})


def data_sets():
    x, y = torch.from_numpy(COLOUR).permute(0, 3, 1, 2).contiguous(), torch.from_numpy(LABELS)
    yield "arrays", lambda: (COLOUR.astype(np.int32), LABELS.astype(np.uint8))
    yield "loader", lambda: DataLoader(TensorDataset(x, y), batch_size=7, shuffle=True)
    yield "samples", lambda: [(image, int(label)) for image, label in zip(COLOUR, LABELS, strict=True)]
    yield "hugging face", lambda: hugging_face()


def hugging_face():
    datasets = pytest.importorskip("datasets")
    from PIL import Image

    columns = {"image": [Image.fromarray(image) for image in COLOUR], "label": LABELS.tolist()}
    features = datasets.Features(
        {"image": datasets.Image(), "label": datasets.ClassLabel(names=["dark", "grey", "light"])}
    )
    return datasets.Dataset.from_dict(columns, features=features)


@pytest.fixture(scope="module")
def of_a_dataset(tmp_path_factory):
    """A module trained on a torch data set."""
    x, y = torch.from_numpy(COLOUR).permute(0, 3, 1, 2).contiguous(), torch.from_numpy(LABELS)
    net = Net(3)
    folder = ht.train(model=net, data=TensorDataset(x, y), output=str(tmp_path_factory.mktemp("run")), **SHORT)
    return net, yaml.safe_load((folder / "config.yaml").read_text())["data"]["name"]


@pytest.mark.parametrize("kind, make", list(data_sets()), ids=lambda value: value if isinstance(value, str) else "")
def test_the_same_images_from_elsewhere_train_the_same_weights(kind, make, of_a_dataset, tmp_path):
    net = Net(3)
    folder = ht.train(model=net, data=make(), output=str(tmp_path), **SHORT)
    trained, name = of_a_dataset
    assert same(net, trained)
    mine = yaml.safe_load((folder / "config.yaml").read_text())["data"]["name"]
    assert kind == "hugging face" or mine.rpartition("-")[2] == name.rpartition("-")[2]


def test_splits_and_settings_of_data(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    seen = []
    splits = {"train": (COLOUR[:50], LABELS[:50]), "val": (COLOUR[50:], LABELS[50:])}
    ht.train(
        model=Net(3), data=splits, on_validation=lambda event: seen.append(event.metrics["clean_accuracy"]), **SHORT
    )
    assert all(round(share * 10) == pytest.approx(share * 10) for share in seen), "ten images are validated"
    # an architecture by its name on arrays, with settings of the data; ours on a named set
    folder = ht.train(
        model="vit_digits", data=(COLOUR, LABELS), output="named", **SHORT,
        settings={"data.image_size": 8, "data.validation": 0.3, "model.options": {"depth": 1}},
    )  # fmt: skip
    model = ht.load_run(folder)
    assert model.num_classes == 3 and model.image_size == 8
    mine = ht.load_model("vit_digits", num_classes=10)
    ht.train(model=mine, data={"name": "digits", "limit": 40}, output="mine", **SHORT)
    assert main(["evaluate", "mine", "suite=clean", "n=10"]) == 0, "a model by its name is rebuilt by any command"


def test_a_module_in_a_recipe_made_in_python_or_named(tmp_path, monkeypatch):
    from hardtack.objectives import StandardConfig
    from hardtack.training import Recipe, TrainConfig

    class Smooth(StandardConfig):
        """An objective that no registry knows."""

    monkeypatch.chdir(tmp_path)
    recipe = Recipe(objective=Smooth(label_smoothing=0.1), train=TrainConfig(batch_size=18, clip=1.0), output="made")
    config = ht.train(recipe, model=Net(), data=(GREY, LABELS), epochs=1, quiet=True) / "config.yaml"
    stored = yaml.safe_load(config.read_text())
    assert stored["objective"]["label_smoothing"] == 0.1
    assert stored["train"]["clip"] == 1.0 and stored["train"]["epochs"] == 1 and stored["train"]["batch_size"] == 18
    assert stored["data"]["name"].startswith("given:") and stored["model"]["name"].startswith("given:")
    named = {"output": "named", "threat": "linf:1/255", "augment": {"crop_padding": 1}, "settings": {"train.ema": None}}
    stored = yaml.safe_load(
        (ht.train("digits/trades", model=Net(3), data=(COLOUR, LABELS), **SHORT, **named) / "config.yaml").read_text()
    )
    assert stored["objective"]["name"] == "trades" and stored["objective"]["attack"]["threat"] == "linf:1/255"
    assert stored["augment"]["crop_padding"] == 1 and stored["train"]["ema"] is None and stored["name"] == "trades"


@pytest.mark.parametrize(
    "change, told",
    [
        ({"model": Net}, r"found the class Net; make one: Net\(…\)"),
        ({"model": lambda x: x}, "must be a torch.nn.Module, whose weights are trained.*found function"),
        ({"model": Net(3)}, None),
        ({"model": nn.Conv2d(1, 2, 3)}, "logits N×classes, found"),
        ({"model": nn.Linear(5, 3)}, "cannot take images of 3×8×12|takes no grey images"),
        ({"model": Net().double()}, r"are float64.*module\.float\(\)"),
        ({"model": Net().half()}, r"are float16.*module\.float\(\)"),
        ({"model": Net(classes=2)}, "returns 2 logits, but there is a label 2"),
        ({"model": nn.Sequential(Net(), nn.Softmax(1))}, "remove its final softmax"),
        ({"model": Net().requires_grad_(False)}, "nothing to train"),
        ({"settings": {"model.pretrained": True}}, r"model\.pretrained belongs to a model that is named"),
        ({"threat": "linf:1/255"}, "'standard' attacks nothing; one that does is 'adversarial'"),
        ({"data": None}, "name the images to train on"),
        ({"epoch": 3}, "did you mean 'epochs'"),
        ({"on_epoch": 3}, "on_epoch must be a function of a TrainingEvent, found int"),
        ({"data": {"trian": (GREY, LABELS)}}, "did you mean 'train'"),
        ({"data": {"test": (GREY, LABELS)}}, "needs the split 'train'"),
        ({"data": (GREY, LABELS[:5])}, "one label for each image"),
        ({"data": (GREY / 127.5 - 1, LABELS)}, r"ht\.wrap\(module, mean=…, std=…\)"),
        ({"augment": {"color_jitter": 0.2}}, "changes colours, and these images are grey"),
        ({"recipe": Net()}, r"ht\.train\(model=net, data=\(x, y\)"),
    ],
)
def test_what_cannot_be_trained_is_said_in_a_sentence(change, told, tmp_path):
    values = {"model": Net(), "data": (GREY, LABELS), "output": str(tmp_path), **SHORT, **change}
    if told is None:
        ht.train(**{**values, "epochs": 1})  # grey images as three equal channels
        return
    with pytest.raises(ht.UserError, match=told):
        ht.train(values.pop("recipe", None), **values)
    assert not list(tmp_path.iterdir())


def test_commands_say_what_they_cannot_rebuild(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    ht.train(model=Net(3), data=(COLOUR, LABELS), output="run", **{**SHORT, "epochs": 1})
    np.savez("images.npz", images=COLOUR, labels=LABELS)
    tmp_path.joinpath("mine.py").write_text(
        "from torch import nn\nclass Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.conv, self.head = nn.Conv2d(3, 4, 3, stride=2), nn.Linear(4, 3)\n"
        "    def forward(self, x):\n        return self.head(self.conv(x).relu().mean((2, 3)))\n"
    )
    for words, told in (
        (
            ["evaluate", "run", "data=npz:images.npz"],
            "your own module .*Net, and no file says how to make it.*model=FILE.py",
        ),
        (["analyze", "run", "sparsity"], "no file says how to make it"),
        (["train", "run/config.yaml"], "were given in Python and are in no file: name the data"),
        (["evaluate", "model=given:Net-0", "data=digits"], "was given in Python, and no file says how to make it"),
    ):
        assert main(words) == 2
        line = capsys.readouterr().err.strip()
        assert "\n" not in line and re.search(told, line), line
    with pytest.raises(ht.UserError, match=r"weights of a .*Net, and what is given is: Linear"):
        ht.load_run("run", model=nn.Linear(2, 2))
    with pytest.raises(ht.UserError, match="were given in Python"):
        ht.evaluate_run("run", model=Net(3))
    words = ["evaluate", "model=mine.py:Net", "model.weights=run", "data=npz:images.npz", "data.test=1", "suite=clean"]
    assert main(words) == 0
    (measured,) = ht.evaluate_run("run", model=Net(3), data=(COLOUR, LABELS), suite="clean", quiet=True)
    assert f"{measured.clean_accuracy:.2%}" in capsys.readouterr().out


def test_the_page_about_python_runs_from_the_first_line_to_the_last(tmp_path, monkeypatch):
    page = Path(__file__).parents[2].joinpath("docs", "python.md").read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    names = {}
    for block in re.findall(r"^```python\n(.*?)^```", page, re.M | re.S):
        exec(block, names)
    assert names["stored"].robust_accuracy == names["again"].robust_accuracy
    assert (
        names["again"].robust_accuracy
        == ht.evaluate(names["model"], (names["x"], names["y"]), threat="linf:4/255", quiet=True).robust_accuracy
    )


RANK = """
import os, sys
import numpy as np, torch
import hardtack as ht

torch.manual_seed(int(sys.argv[1]) * int(os.environ["RANK"]))
net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(48, 3))
x, y = np.random.default_rng(0).random((20, 3, 4, 4)), np.arange(20) % 3
try:
    ht.train(model=net, data=(x, y), epochs=1, batch_size=8, output=f"run{sys.argv[1]}", quiet=True)
except ht.UserError as error:
    sys.exit(str(error))
print(float(net[1].weight.double().sum()))
"""


@pytest.mark.parametrize("seed, told", [(0, ""), (1, "seed them alike before it is made")])
def test_under_torchrun_the_processes_need_the_same_module(seed, told, tmp_path):
    tmp_path.joinpath("rank.py").write_text(RANK)
    group = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    words = [str(tmp_path / "rank.py"), str(seed)]
    started = [
        Started(words, cwd=tmp_path, env=environment(**group, RANK=rank, LOCAL_RANK=rank), what="script")
        for rank in ("0", "1")
    ]
    ended = [each.wait() for each in started]
    if told:
        assert all(each.returncode == 1 and told in each.stderr for each in ended)
    else:
        assert all(each.returncode == 0 for each in ended), ended[0].stderr + ended[1].stderr
        assert ended[0].stdout == ended[1].stdout
