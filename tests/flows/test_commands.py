"""The installed command from an empty folder: every verb, and a model and images that nobody here made."""

import numpy as np
import pytest
from PIL import Image

import hardtack as ht
from hardtack.results import read_results
from processes import hardtack, installed, python
from tiny_runs import files_below

SMALL = ["model.name=vit_digits", "model.options={depth: 1, width: 16, heads: 2}", "runtime.device=cpu"]


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """An empty folder in which a run was trained on the bundled digits."""
    folder = tmp_path_factory.mktemp("home")
    words = [
        "data.limit=128",
        "train.epochs=3",
        "train.batch_size=16",
        "output=runs/first",
        "optimiser.lr=5e-3",
    ]
    done = hardtack("train", "digits/adversarial", *SMALL, *words, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "trained: runs/first\n"
    assert "epoch 3/3" in done.stderr and "robust_accuracy" in done.stderr
    return folder


def test_a_run_is_trained_by_the_name_of_a_recipe(home):
    assert set(files_below(home)) >= {"runs/first/config.yaml", "runs/first/checkpoints/best.safetensors"}
    text = (home / "runs/first/config.yaml").read_text()
    assert "linf:0.1" in text and "limit: 128" in text


def test_evaluate_attack_report_follow_each_other(home):
    done = hardtack("evaluate", "runs/first", "suite=pgd,sweep", "threat=linf:0.1", "n=64", cwd=home)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    assert done.stdout.count("clean accuracy") == 2 and "robust accuracy linf:0.1 " in done.stdout
    results = read_results(home / "runs/first")
    assert {r.run for r in results} == {"first"} and {r.checkpoint for r in results} == {"best"}
    assert all(r.weights_sha256 and r.n == 64 and r.model == "vit_digits" for r in results)

    made = hardtack("attack", "runs/first", "attack=fgsm", "threat=linf:0.1", "n=32", "output=adv", cwd=home)
    assert made.returncode == 0, made.stderr
    assert made.stdout.startswith("32 images: ") and "adv/adversarial.npz" in made.stdout
    arrays = np.load(home / "adv/adversarial.npz")
    assert arrays["x_adv"].shape == (32, 32, 32, 3) and len(arrays["label"]) == 32
    difference = np.abs(arrays["x_adv"] - arrays["x"]).max(axis=(1, 2, 3))
    right = arrays["clean_prediction"] == arrays["label"]
    assert right.any() and difference[right] == pytest.approx(0.1, abs=1e-5), "one step of length eps"
    assert (difference[~right] < 1e-6).all(), "what is wrong already needs no attack"
    assert Image.open(home / "adv/adversarial.png").size[0] > 100

    page = hardtack("report", "runs", "--output", "out/page.html", cwd=home)
    assert page.returncode == 0, page.stderr
    assert page.stdout == "report: out/page.html\n"
    assert "first" in (home / "out/page.html").read_text()


def test_python_finds_the_run_again(home):
    model = ht.load_run(home / "runs/first")
    measured = ht.evaluate(model, ht.load_data("digits", "test", limit=16), suite="clean", quiet=True)
    assert measured.results[0].n == 16


def test_the_module_is_the_command(home):
    done = python("-m", "hardtack", "list", "suites", cwd=home)
    assert done.returncode == 0 and done.stdout == installed("list", "suites", cwd=home).stdout
    assert "sweep" in done.stdout


def test_the_doctor_finds_this_installation_healthy(home):
    done = hardtack("doctor", cwd=home)
    assert done.returncode == 0, done.stdout
    assert "broken" not in done.stdout and "torch" in done.stdout and done.stderr == ""


def test_a_mistake_in_the_real_command_is_one_line(home):
    done = installed("evaluate", "runs/frist", cwd=home)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr == "hardtack: there is no weights file or run folder runs/frist (did you mean 'first'?)\n"
    debug = hardtack("evaluate", "runs/frist", "--debug", cwd=home)
    assert debug.returncode != 0 and "Traceback" in debug.stderr and "UserError" in debug.stderr


# ---------------------------------------------------------------- what importing costs


def test_importing_the_package_imports_no_torch(tmp_path):
    code = """
import sys, hardtack, hardtack.commands.cli, hardtack.report, hardtack.results
assert "torch" not in sys.modules, "torch"
hardtack.evaluate, hardtack.analyze, hardtack.train
assert "torch" in sys.modules
late = {"torchvision", "timm", "torch._dynamo", "triton", "sklearn", "matplotlib"} & set(sys.modules)
assert not late, f"{late} are for those who need them: every command would wait for them"
"""
    done = python("-c", code, cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_reports_are_written_without_torch(home):
    """A laptop without torch reads results: here torch is hidden, not only unused."""
    code = """
import sys
sys.modules["torch"] = None
from hardtack.commands.cli import main
sys.exit(main(["report", "runs/first", "--output", "without.html"]))
"""
    done = python("-c", code, cwd=home)
    assert done.returncode == 0 and (home / "without.html").exists(), done.stderr


# ---------------------------------------------------------------- a model and images nobody here made


@pytest.fixture
def photographs(tmp_path):
    """Sixteen PNG files of all shapes, one of them grey and one with transparency, in two class folders."""
    generator = np.random.default_rng(0)
    for number in range(16):
        height, width = int(generator.integers(40, 300)), int(generator.integers(40, 300))
        pixels = generator.integers(0, 256, (height, width, 3), dtype=np.uint8)
        image = Image.fromarray(pixels)
        image = image.convert("L") if number == 3 else image.convert("RGBA") if number == 5 else image
        path = tmp_path / "photos" / ("cat" if number % 2 else "dog") / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        image.save(path)
    return tmp_path


def test_a_timm_model_is_measured_on_a_folder_of_photographs(photographs):
    words = ["model=timm:vit_tiny_patch16_224", "model.options.depth=2", "data=folder:photos"]
    done = hardtack("evaluate", *words, "suite=pgd", "attack.steps=2", "batch_size=8", cwd=photographs)
    assert done.returncode == 0, done.stderr
    clean, robust = read_results(photographs / "runs/timm-vit_tiny_patch16_224")
    assert clean.n == 16 and robust.value <= clean.value and robust.threat == "linf:8/255"
    assert "224" in clean.data_description and clean.model == "timm:vit_tiny_patch16_224"
    shown = np.load(photographs / f"runs/timm-vit_tiny_patch16_224/examples/{robust.evaluation}.npz")
    assert shown["x"].shape == (12, 224, 224, 3) and list(shown["classes"]) == ["cat", "dog"]


def test_a_timm_model_is_trained_on_a_folder_of_photographs(photographs, monkeypatch):
    words = [
        "model=timm:resnet10t", "data=folder:photos", "data.image_size=32", "data.validation=0.25",
        "train.epochs=1", "train.batch_size=6", "objective=adversarial",
        "objective.attack={name: rfgsm, threat: 'linf:4/255'}", "output=mine",
    ]  # fmt: skip
    done = hardtack("train", *words, cwd=photographs)
    assert done.returncode == 0, done.stderr
    monkeypatch.chdir(photographs)
    ((result, *_),) = (measured.results for measured in ht.evaluate_run("mine", suite="clean", quiet=True))
    assert result.model == "timm:resnet10t" and "32" in result.data_description
