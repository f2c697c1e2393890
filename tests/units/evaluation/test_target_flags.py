"""What is wrong with a target before it is measured is a flag of the result."""

import numpy as np
import pytest
import torch
from PIL import Image

import hardtack as ht
from hardtack.base.config import choose
from hardtack.base.registry import attacks
from hardtack.commands.cli import main
from hardtack.evaluation.job import evaluate_run


def photographs(folder, names):
    for number, name in enumerate(names):
        (folder / name).mkdir(parents=True)
        for image in range(5):
            pixels = np.full((32, 32, 3), 40 + 60 * number + image, dtype=np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{image}.png")
    return f"folder:{folder}"


def codes(result):
    return {flag["code"] for flag in result.flags}


@pytest.fixture
def run(tmp_path):
    data = photographs(tmp_path / "photos", ["cat", "dog", "eel"])
    small = {"name": "vit_digits", "options": {"depth": 1, "width": 16, "heads": 2}}
    settings = {"epochs": 1, "batch_size": 3}
    folder = ht.train(None, quiet=True, data=data, model=small, train=settings, output=str(tmp_path / "run"))
    return folder, tmp_path


def test_random_weights_are_flagged_on_every_number(tmp_path):
    data = photographs(tmp_path / "photos", ["cat", "dog"])
    (measured,) = evaluate_run(
        None, model="vit_digits", data=data, suite="clean", output=str(tmp_path / "r"), quiet=True
    )
    assert codes(measured.results[0]) == {"untrained"} and "model.weights" in str(measured)


def test_a_run_is_tested_on_what_it_never_saw_however_the_path_is_spelt(run):
    folder, home = run
    spellings = (
        {},
        {"data": f"folder:{home}/photos/../photos"},
        {"data": {"name": "folder:photos", "root": str(home)}},
    )
    for words in spellings:
        (measured,) = evaluate_run(folder, suite="clean", quiet=True, **words)
        assert measured.results[0].n == 3 and not codes(measured.results[0])


def test_the_same_images_under_other_class_names_are_flagged(run):
    folder, home = run
    other = photographs(home / "swapped", ["a_eel", "b_dog", "c_cat"])
    (measured,) = evaluate_run(folder, suite="clean", data=other, quiet=True)
    assert measured.results[0].n == 15 and codes(measured.results[0]) == {"class_names"}


def test_a_target_may_be_given_as_labels():
    model = ht.load_model("vit_digits", seed=0)
    x, y, _ = ht.load_data("digits", "test").batch(range(6))
    aimed = ht.attack(model, x, y, "pgd", threat="linf:0.5", steps=20, target=(y + 1) % 10)
    assert (model(aimed).argmax(dim=1) == (y + 1) % 10).float().mean() > 0.5


def test_an_attack_may_be_named_or_handed_over():
    model = ht.load_model("vit_digits", seed=0)
    x, y, _ = ht.load_data("digits", "test").batch(range(8))
    named = ht.evaluate(model, (x, y), attack="fgsm", threat="linf:0.1", quiet=True)
    handed = ht.evaluate(model, (x, y), attack=choose(attacks, {"name": "fgsm", "threat": "linf:0.1"}), quiet=True)
    assert named.results[-1].attack == handed.results[-1].attack
    assert np.array_equal(named.robust, handed.robust)


def test_a_file_of_the_users_own_can_be_imported(tmp_path, capsys):
    plugin = tmp_path / "mine.py"
    plugin.write_text(
        "from dataclasses import dataclass\nimport hardtack as ht\nfrom hardtack.base.registry import attacks\n"
        "@attacks.register('stand_still_for_test')\n@dataclass(frozen=True, kw_only=True)\nclass Still:\n"
        "    threat: ht.Threat\n    def __call__(self, model, x, y):\n        return x\n"
    )
    assert main(["list", "attacks", "--import", str(plugin)]) == 0
    assert "stand_still_for_test" in capsys.readouterr().out
    assert main(["list", "attacks", "--import", "nowhere.py"]) == 2


def test_the_published_statistics_come_with_a_downloaded_file(tmp_path):
    import timm

    torch.save(timm.create_model("resnet10t", num_classes=7).state_dict(), tmp_path / "published.pt")
    model = ht.load_model("timm:resnet10t", weights=tmp_path / "published.pt", num_classes=7)
    assert model.architecture["mean"] == pytest.approx([0.485, 0.456, 0.406])


def test_nothing_is_trained_or_measured_by_default(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["train"]) == 2
    assert main(["evaluate", "model=vit_digits", "data.image_size=32"]) == 2
    said = capsys.readouterr().err
    assert "hardtack train digits/trades" in said and "data.name" in said and not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "model, size", [("resnet8_cifar", 32), ("vit_digits", 32), ("resnet18_224", 224), ("timm:resnet18", 224)]
)
def test_photographs_of_many_sizes_are_cut_to_what_the_model_is_meant_for(model, size, tmp_path):
    for number, name in enumerate(("cat", "dog")):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for image in range(3):
            pixels = np.full((40 + 7 * image, 50 + 3 * number, 3), 90, dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "photos" / name / f"{image}.png")
    settings = {"data": f"folder:{tmp_path / 'photos'}", "suite": "clean", "n": 2, "output": str(tmp_path / "r")}
    (measured,) = evaluate_run(None, model=model, quiet=True, **settings)
    assert f"crop {size}×{size}" in measured.results[0].data_description


def test_a_run_meets_photographs_of_many_sizes_at_its_own(run):
    folder, home = run
    (home / "odd" / "cat").mkdir(parents=True)
    (home / "odd" / "dog").mkdir()
    for place, (name, edge) in enumerate((("cat", 41), ("dog", 63), ("cat", 35))):
        Image.fromarray(np.full((edge, 50, 3), 90, dtype=np.uint8)).save(home / "odd" / name / f"{place}.png")
    (measured,) = evaluate_run(folder, data=f"folder:{home / 'odd'}", suite="clean", quiet=True, **{"data.test": 1})
    assert "crop 32×32" in measured.results[0].data_description


def test_photographs_wider_than_high_are_cut_to_what_the_network_is_meant_for(tmp_path):
    for name in ("cat", "dog"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        Image.new("RGB", (40, 30)).save(tmp_path / "photos" / name / "one.png")
    (measured,) = evaluate_run(
        None,
        model="resnet8_cifar",
        data=f"folder:{tmp_path}/photos",
        suite="clean",
        output=str(tmp_path / "r"),
        quiet=True,
    )
    assert measured.results[0].n == 2 and "32" in measured.results[0].data_description
