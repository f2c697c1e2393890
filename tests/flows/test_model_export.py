"""A trained run as an ONNX file, a program of torch.export and a folder in Hugging Face's layout."""

import dataclasses
import json
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
import torch
import yaml

import hardtack as ht
from hardtack.base.errors import UserError
from hardtack.commands.cli import main
from hardtack.exports import comparison, hub_folder, job
from hardtack.exports.public import names_paths, without_paths
from hardtack.results import append_results, read_results
from processes import environment
from tiny_runs import Linear, images, labels, settings, write_data

OTHERS = ["data=digits", "runtime.device=cpu", "n=4"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run with an evaluation that broke some images."""
    base = tmp_path_factory.mktemp("export")
    file = write_data(base / "data.npz", test=24)
    values = settings(base / "vit", file, objective="standard", output=str(base / "vit"))
    ht.train(None, quiet=True, **{**values, "train": {"epochs": 3, "batch_size": 6}})
    assert main(["evaluate", str(base / "vit"), "suite=pgd", "threat=linf:0.3", "runtime.device=cpu"]) == 0
    return base / "vit"


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def export(capsys, *words, code=0):
    found = main(["export", *map(str, words)])
    text = "".join(capsys.readouterr())
    assert found == code, text
    return text


def record(path):
    return json.loads(path.read_text())


def test_onnx(trained, home, capsys):
    """The file alone gives the model's predictions, in onnxruntime, for any number of [0,1] images."""
    onnx, runtime = pytest.importorskip("onnx"), pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    text = export(capsys, trained, "format=onnx")
    assert re.search(r"24 images of npz:data\.npz/test: same predictions|24 images of .*/test: same predictions", text)
    assert re.search(r"\d+ stored adversarial images of 1 evaluation: same predictions", text)
    session = runtime.InferenceSession("vit.onnx")
    (taken,) = session.get_inputs()
    assert (taken.name, taken.shape, taken.type) == ("images", ["batch", 3, 8, 8], "tensor(float)")
    model = ht.load_run(trained)
    for count in (1, 7):
        x = images(count)
        (found,) = session.run(["logits"], {"images": x.numpy()})
        with torch.no_grad():
            assert np.allclose(found, model(x).numpy(), atol=1e-5), "normalisation is inside"
    proto = onnx.load("vit.onnx")
    assert [item.version for item in proto.opset_import if item.domain == ""] == [18]
    facts = json.loads(proto.metadata_props[0].value)
    kept = record(home / "vit.onnx.check.json")
    assert facts["weights_sha256"] == kept["weights_sha256"] == read_results(trained)[-1].weights_sha256
    clean, adversarial = next(iter(kept["checked"].values()))
    assert clean["n"] == clean["same"] == 24 and adversarial["same"] == adversarial["n"] > 0


def test_torch_program_runs_without_hardtack(trained, home, capsys):
    text = export(capsys, trained, "format=torch")
    assert "stored adversarial images of 1 evaluation: same predictions" in text
    x = images(5)
    torch.save(x, "x.pt")
    code = (
        "import sys, torch; x = torch.load('x.pt'); y = torch.export.load('vit.pt2').module()(x); "
        "torch.save(y.detach(), 'y.pt'); sys.exit('hardtack' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=home, env=environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    with torch.no_grad():
        assert torch.allclose(torch.load("y.pt"), ht.load_run(trained)(x), atol=1e-5)


def test_hub_folder_and_its_card(trained, home, capsys):
    text = export(capsys, trained, "format=hub")
    assert text.count("checked with hardtack") == 2 and "timm" not in text
    assert "vit-hub/evidence names paths of this machine" in text
    model, x = ht.load_run("vit-hub"), images(5)
    with torch.no_grad():
        assert torch.equal(model(x), ht.load_run(trained)(x))
    assert main(["evaluate", "vit-hub", f"data=npz:{trained.parent / 'data.npz'}", "suite=clean"]) == 0
    card = (home / "vit-hub/README.md").read_text()
    head = yaml.safe_load(card.split("---")[1])
    results = {result.metric: result for result in read_results(trained)}
    listed = {entry["metrics"][0]["name"]: entry["metrics"][0] for entry in head["model-index"][0]["results"]}
    robust = listed["Robust accuracy, ℓ∞ ≤ 0.3"]
    assert robust["value"] == round(results["robust_accuracy"].value, 6) and robust["args"]["n"] == 24
    assert robust["verified"] is False and robust["args"]["attack"].startswith("pgd")
    hub = pytest.importorskip("huggingface_hub")
    read = {
        result.metric_name: result.metric_value for result in hub.ModelCard.load("vit-hub/README.md").data.eval_results
    }
    assert read["Robust accuracy, ℓ∞ ≤ 0.3"] == robust["value"]
    id = results["robust_accuracy"].evaluation
    digest = record(trained / "evidence" / f"{id}.json")["digest"]
    assert f"| `{id}` | `{digest}` |" in card and record(home / f"vit-hub/evidence/{id}.json")["digest"] == digest
    assert 'ht.load_run("path/to/this/folder")' in card and "npz:data.npz/test" in card
    assert str(trained.parent) not in card, "a card is published, and where data lies here is nobody's business"
    config = record(home / "vit-hub/config.json")
    assert config["library_name"] == "hardtack" and config["num_classes"] == 4


def test_what_hugging_face_is_told(trained, home, capsys):
    """Neither single corruptions, which would all have one name, nor errors as accuracies, nor what has no evidence."""
    shutil.copytree(trained, home / "run")
    words = ["suite=corruptions", "types=[fog,contrast]", "severities=[1,2]", "runtime.device=cpu"]
    assert main(["evaluate", "run", *words]) == 0
    (genuine,) = [result for result in read_results(home / "run") if result.metric == "robust_accuracy"]
    append_results(home / "run", [dataclasses.replace(genuine, evaluation="pgd-made-up", verdicts=None, value=0.99)])
    export(capsys, "run", "format=hub")
    head = yaml.safe_load((home / "run-hub/README.md").read_text().split("---")[1])
    told = [metric for entry in head["model-index"][0]["results"] for metric in entry["metrics"]]
    names = [metric["name"] for metric in told]
    assert "Accuracy under corruptions" not in names and "Mean accuracy under corruptions" in names
    assert 0.99 not in [metric["value"] for metric in told] and names.count("Robust accuracy, ℓ∞ ≤ 0.3") == 1
    assert all(("ccuracy" in metric["name"]) == (metric["type"] == "accuracy") for metric in told)


@pytest.mark.parametrize(
    "text, shown",
    [
        ("npz:/home/me/x.npz", "npz:x.npz"), ("~/data/x.npz", "x.npz"), ("see /a/b and /c/d", "see b and d"),
        ("folder:file:///home/me/images", "folder:file://images"), ("/home/me/net.py:build", "net.py:build"),
        ("data=npz:/home/John Smith/my data.npz", "data=npz:my data.npz"), ("https://h.org/a/b", "https://h.org/a/b"),
        ("linf:8/255", "linf:8/255"), ("cifar10/test", "cifar10/test"),
    ],
)  # fmt: skip
def test_names_without_the_folders_of_this_machine(text, shown):
    assert without_paths(text) == shown and names_paths(text) == (shown != text)


def test_a_record_is_about_the_file_beside_it(trained, home, capsys, monkeypatch):
    """An export that ends in the middle leaves no record of an earlier file beside a new one."""
    export(capsys, trained, "format=torch", "output=net.pt2")
    replace = job._replace

    def stop(made, path):
        if path.suffix == ".json":
            raise KeyboardInterrupt
        replace(made, path)

    monkeypatch.setattr(job, "_replace", stop)
    with pytest.raises(KeyboardInterrupt):
        ht.export(trained, format="torch", output="net.pt2", checkpoint="last", overwrite=True)
    assert [path.name for path in home.iterdir()] == ["net.pt2"]


def test_results_of_other_weights_are_not_on_the_card(trained, home, capsys):
    export(capsys, trained, "format=hub", "checkpoint=last", "output=last")
    same = ht.load_run(trained).state_dict(), ht.load_run(trained, checkpoint="last").state_dict()
    shown = (
        "robust_accuracy" in (home / "last/README.md").read_text() or "Robust" in (home / "last/README.md").read_text()
    )
    assert shown == all(torch.equal(a, b) for a, b in zip(*(state.values() for state in same), strict=True))


@pytest.mark.parametrize(
    "words, loads",
    [
        (["model=timm:resnet18"], True),
        (["model=timm:vit_tiny_patch16_224", "model.image_size=32", "model.options={patch_size: 8, depth: 2}"], True),
        (["model=levit_128s_32"], False),  # timm's class, changed by us: timm would build another network
        (["model=resnet8_cifar"], False),
    ],
)
def test_timm_loads_what_is_timms(home, capsys, words, loads):
    import timm

    text = export(capsys, *words, *OTHERS, "format=hub", "output=out")
    assert "RED FLAG untrained" in text
    assert ("checked with timm: 4 images of digits/test: same predictions" in text) == loads
    if loads:
        body, x = timm.create_model("local-dir:out", pretrained=True).eval(), images(2, side=32)
        with torch.no_grad():
            assert torch.equal(body((x - 0.5) / 0.5), ht.load_run("out")(x))
        assert body.pretrained_cfg["mean"] == [0.5, 0.5, 0.5] and body.num_classes == 10
    assert record(home / "out/config.json")["library_name"] == ("timm" if loads else "hardtack")
    assert "> **red: untrained.**" in (home / "out/README.md").read_text()


def test_models_of_one_s_own(home, capsys):
    """A function in a file, of torchvision's; a module and data in Python."""
    (home / "mine.py").write_text(
        "import torchvision\n\n"
        "def build(num_classes=10):\n    return torchvision.models.resnet18(num_classes=num_classes)\n"
    )
    text = export(capsys, "model=mine.py:build", *OTHERS, "format=hub", "output=out")
    assert "checked with hardtack: 4 images" in text
    assert 'ht.load_model("mine.py:build", weights="path/to/this/folder")' in (home / "out/README.md").read_text()
    with torch.no_grad():
        x = images(2, side=32)
        assert torch.equal(ht.load_model("mine.py:build", weights="out")(x), ht.load_run("out")(x))
    net = ht.wrap(Linear(), mean=0.4, std=0.2, image_size=8)
    exported = ht.export(net, (images(6), labels(6)), format="torch", output="net.pt2")
    assert exported.path.is_file() and [item.n for items in exported.comparisons.values() for item in items] == [6]
    assert "random images" in str(ht.export(net, format="hub", output="net", n=5))
    with torch.no_grad():
        assert torch.equal(ht.load_run("net", model=Linear(seed=1))(images(2)), net(images(2)))
    grey = torch.nn.Sequential(torch.nn.Conv2d(1, 3, 3), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten())
    x = torch.rand(6, 1, 20, 12)
    ht.export(lambda x: 2 * grey(x), (x, labels(6, classes=3)), format="torch", output="grey.pt2")
    found = torch.export.load("grey.pt2").module()(x[:1])
    with torch.no_grad():
        assert torch.allclose(found, 2 * grey(x[:1]), atol=1e-6)
    with pytest.raises(UserError, match="the model cannot take images of 3×8×8"):
        ht.export(torch.nn.Linear(3, 3), (images(6), labels(6)), format="torch", output="odd.pt2")
    with pytest.raises(UserError, match=r"needs to know the normalisation.*ht\.wrap"):
        ht.export(Linear(), (images(4), labels(4)), format="hub", output="bare")
    assert not (home / "bare").exists()


class Branching(Linear):
    def forward(self, x):
        return super().forward(x if x.mean() > 0.1 else -x)


MISTAKES = [
    (["format=onxx"], "input should be 'csv', 'latex', 'robustbench', 'onnx', 'torch' or 'hub', found 'onxx'"),
    (["format=onnx", "opset=11"], "torch writes ONNX opsets 18 to"),
    (["format=onnx", "opset=99"], "torch writes ONNX opsets 18 to"),
    (["format=torch", "opsett=18"], "did you mean 'opset'?"),
    (["format=torch", "output=taken.pt2"], "taken.pt2 exists; overwrite=true replaces it"),
    (["format=hub", "output=full", "overwrite=true"], "full is a folder that no export has written"),
    (["format=torch", "output=full"], "full is a folder, and format=torch writes a file"),
    (["format=hub", "output=taken.pt2"], "taken.pt2 is a file, and format=hub writes a folder"),
    (["format=torch", "checkpoint=bst"], "holds no checkpoint 'bst'; it holds: best, last"),
    (["format=torch", "data=npz:nowhere.npz"], "nowhere.npz"),
]


@pytest.mark.parametrize("words, said", MISTAKES)
def test_mistakes_are_one_line_and_leave_everything(trained, home, capsys, words, said):
    if "format=onnx" in words:
        pytest.importorskip("onnxruntime")
    (home / "taken.pt2").write_text("mine")
    (home / "full").mkdir()
    (home / "full/mine").touch()
    text = export(capsys, trained, *words, code=2)
    assert said in text and "Traceback" not in text and text.count("\n") == 1
    assert sorted(path.name for path in home.rglob("*")) == ["full", "mine", "taken.pt2"]


def test_a_run_without_weights_or_two_runs(trained, home, capsys):
    (home / "empty").mkdir()
    (home / "empty/config.yaml").write_text("name: x")
    assert "holds no checkpoint 'best'" in export(capsys, "empty", "format=torch", code=2)
    assert "one run at a time" in export(capsys, trained, "empty", "format=onnx", code=2)
    assert "there is no weights file or run folder nowhere" in export(capsys, "nowhere", "format=torch", code=2)


def test_packages_that_are_missing(trained, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    assert "pip install 'hardtack[export]'" in export(capsys, trained, "format=onnx", code=2)


def test_a_file_that_is_not_the_model_is_not_kept(trained, home, capsys, monkeypatch):
    read = hub_folder.read

    def wrong(subject, folder):
        predict = read(subject, folder)
        return lambda x: predict(x).roll(1, dims=1)

    monkeypatch.setattr(hub_folder, "read", wrong)
    text = export(capsys, trained, "format=hub", code=2)
    assert "the folder as hardtack loads it was not kept: " in text and not list(home.iterdir())
    with pytest.raises(UserError, match=r"torch\.export cannot follow .*must not depend on values of the images"):
        ht.export(Branching(), (images(4), labels(4)), format="torch")


def test_what_counts_as_the_same():
    """Equal logits are a tie that rounding may decide; anything else is another prediction."""

    def compare(theirs):
        sets = [comparison.ImageSet("images", torch.zeros(2, 3, 4, 4))]
        reference = comparison.Reference(torch.nn.Flatten(), sets)
        reference.logits = [torch.tensor([[1.0, 1.0 + 1e-6], [3.0, 0.0]])]
        (found,) = reference.compare(lambda x: torch.tensor(theirs), "it")
        return found.same, found.ties

    assert compare([[1.0, 1.0 + 1e-6], [3.0, 0.0]]) == (2, 0)
    assert compare([[1.0 + 2e-6, 1.0], [3.0, 0.0]]) == (1, 1)
    for wrong in ([[1.0, 1.0], [0.0, 3.0]], [[1.0, 1.0], [float("nan"), 0.0]], [[1.0, 1.0], [3.1, 0.0]]):
        with pytest.raises(UserError, match="it was not kept"):
            compare(wrong)
