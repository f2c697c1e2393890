"""`hardtack corrupt`: what is written is what the suite sees, in every layout, and is never taken for official."""

import json

import numpy as np
import pytest
from PIL import Image

import hardtack as ht
from hardtack.commands.cli import main
from hardtack.data.corruptions import corrupt
from hardtack.data.official import open_official
from hardtack.evaluation.job import evaluate_run

FEW = ["types=[contrast,brightness]", "n=6"]


def run(*words):
    return main(["corrupt", "digits", *map(str, words)])


def test_the_layout_of_cifar_c_holds_what_the_suite_computes(tmp_path):
    assert run(tmp_path / "c", *FEW) == 0
    made = np.load(tmp_path / "c" / "contrast.npy")
    assert made.shape == (30, 32, 32, 3) and made.dtype == np.uint8
    x, y, index = ht.load_data("digits", "test").first(6).batch(range(6))
    for severity in (1, 5):
        wanted = (corrupt(x, index, "contrast", severity) * 255).round().byte().permute(0, 2, 3, 1).numpy()
        assert np.array_equal(made[(severity - 1) * 6 : severity * 6], wanted)
    assert np.array_equal(np.load(tmp_path / "c" / "labels.npy"), np.tile(y.numpy(), 5))
    assert open_official(tmp_path / "c").source == "regenerated"
    width, height = Image.open(tmp_path / "c" / "contact_sheet.png").size
    assert width > 6 * 96 and height > 2 * 96


@pytest.mark.parametrize("layout", ["npy", "folder"])
def test_files_and_regenerated_images_give_the_same_numbers(layout, tmp_path):
    """A folder is sorted by class, as ImageNet's is, so that places agree in both layouts."""
    generator = np.random.default_rng(0)
    for name in ("cat", "dog"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for number in range(3):
            pixels = generator.integers(0, 256, (32, 32, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "photos" / name / f"{number}.png")
    source = f"folder:{tmp_path / 'photos'}"
    assert (
        main(
            [
                "corrupt",
                source,
                str(tmp_path / "c"),
                "types=[contrast,fog]",
                f"layout={layout}",
                "jpeg=0",
                "data.test=1",
            ]
        )
        == 0
    )
    asked = {
        "model": "vit_digits", "data": {"name": source, "test": 1}, "suite": "corruptions", "quiet": True,
        "types": ["contrast", "fog"],
    }  # fmt: skip
    (fresh,) = evaluate_run(None, output=str(tmp_path / "a"), **asked)
    (filed,) = evaluate_run(None, output=str(tmp_path / "b"), files=str(tmp_path / "c"), **asked)
    names = [name for name in fresh.verdicts if name.startswith("confidence@")]
    assert len(names) == 10
    assert all(np.allclose(fresh.verdicts[name], filed.verdicts[name], atol=1e-6) for name in names)
    assert filed.id != fresh.id and filed.results[-1].extra["source"] == "regenerated"


def test_parquet_can_be_read_back(tmp_path):
    assert run(tmp_path / "c", *FEW, "layout=parquet", "jpeg=0", "severities=3") == 0
    data = ht.load_data(f"parquet:{tmp_path / 'c' / 'contrast-3.parquet'}", "test", test=1)
    x, _, index = ht.load_data("digits", "test").first(6).batch(range(6))
    assert np.allclose(data.batch(range(6)).x, corrupt(x, index, "contrast", 3), atol=1e-6)


def test_a_stopped_copy_goes_on_and_another_one_is_not_mixed_in(tmp_path, capsys):
    assert run(tmp_path / "c", *FEW) == 0
    before = (tmp_path / "c" / "contrast.npy").stat().st_mtime_ns
    (tmp_path / "c" / "brightness.npy").unlink()
    assert run(tmp_path / "c", *FEW) == 0
    assert (tmp_path / "c" / "contrast.npy").stat().st_mtime_ns == before
    assert (tmp_path / "c" / "brightness.npy").exists()
    assert run(tmp_path / "c", *FEW, "seed=1") == 2
    assert "holds another corrupted copy (seed: 0 → 1)" in capsys.readouterr().err
    assert json.loads((tmp_path / "c" / "hardtack.json").read_text())["seed"] == 0


@pytest.mark.parametrize(
    "words, hint",
    [
        (["types=fgo"], "did you mean 'fog'"),
        (["severities=[1,2]"], "layout=npy holds all five"),
        (["layout=zip"], "layout"),
        (["tpyes=fog"], "did you mean 'types'"),
        (["severities=9"], "less than or equal to 5"),
    ],
)
def test_mistakes(words, hint, tmp_path, capsys):
    assert run(tmp_path / "c", "n=2", *words) == 2
    assert hint in capsys.readouterr().err


def test_files_of_other_images_are_refused(tmp_path):
    assert run(tmp_path / "c", *FEW) == 0
    labels = np.load(tmp_path / "c" / "labels.npy")
    np.save(tmp_path / "c" / "labels.npy", (labels + 1) % 10)
    with pytest.raises(ht.UserError, match="another label in the files"):
        evaluate_run(
            None, model="vit_digits", data="digits", n=6, suite="corruptions", types="contrast", quiet=True,
            files=str(tmp_path / "c"), output=str(tmp_path / "r"),
        )  # fmt: skip


@pytest.fixture
def surveyed(tmp_path):
    asked = {"model": "vit_digits", "data": "digits", "n": 6, "suite": "corruptions", "types": ["contrast"]}
    evaluate_run(None, output=str(tmp_path / "r"), quiet=True, **asked)
    return tmp_path / "r"


def test_a_survey_is_verified_by_its_verdicts(surveyed, capsys):
    assert main(["verify", str(surveyed)]) == 0
    path = surveyed / "results.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    lines[1]["value"] = 0.987
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert main(["verify", str(surveyed)]) == 1
    assert "NOT VERIFIED" in capsys.readouterr().out


def test_the_plan_of_a_survey_counts_every_view(capsys):
    words = ["model=vit_digits", "data=digits", "n=6", "suite=corruptions", "types=[contrast,fog]"]
    assert main(["plan", *words]) == 0
    out = capsys.readouterr().out
    assert "10 views of every image" in out and " 66 " in out
