"""Which part of a resized image a model is shown: the same in all columns of a row, and stated with every number."""

import numpy as np
import pytest
import timm
import torch
from PIL import Image

import hardtack as ht
from hardtack.base.config import build, read_yaml
from hardtack.commands.recipe_files import recipe_folder
from hardtack.data import DataConfig
from hardtack.data.official.synsets import synsets
from hardtack.evaluation.crop import crop_of_model
from hardtack.evaluation.job import evaluate_run
from hardtack.evaluation.target import TargetConfig, complete, load_target
from hardtack.models import ModelConfig, load_model, save_weights
from hardtack.models.catalog import published_crop
from hardtack.studies.protocol_run import measure_protocol

TIMM = "test_vit"  # 160 pixels, a crop_pct of 0.95
HERE = {"root": "."}
ROW = (
    "folders: {imagenet_a: imagenet-a}\ncolumns: {clean: {suite: clean, metric: clean_accuracy},"
    " A: {suite: clean, metric: clean_accuracy, data: imagenet_a}}"
)


@pytest.fixture
def home(tmp_path, monkeypatch):
    """Photographs of two sizes: a folder of three classes, and ImageNet-A's first three."""
    for root, names in (("photographs/val", ("cat", "cow", "dog")), ("imagenet-a", synsets("imagenet_a")[:3])):
        for number, name in enumerate(names):
            (tmp_path / root / name).mkdir(parents=True)
            pixels = np.random.default_rng(number).integers(0, 256, (60 + 6 * number, 70, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / root / name / "0.png")
    (tmp_path / "row.yaml").write_text(ROW)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run_of(home, *, classes=3, **data):
    """A run folder of an untrained network of 32 pixels."""
    model = load_model("resnet8_cifar", num_classes=classes, image_size=32, seed=0)
    save_weights(home / "run" / "checkpoints" / "best.safetensors", model)
    settings = {"name": "folder:photographs", "root": ".", "workers": 0, "image_size": 32, **data}
    (home / "run" / "config.yaml").write_text(f"data: {settings}\n".replace("None", "null"))
    return "run"


def description(run=None, **values):
    return load_target(run, build(TargetConfig, complete(run, values))).data.description


# ---------------------------------------------------------------- a run


@pytest.mark.parametrize("crop, shorter", [(None, 32), (0.875, 36), (0.8, 40)])
def test_the_crop_of_a_recipe_reaches_every_column(home, crop, shorter):
    run = run_of(home, crop=crop)
    words = {"suite": "clean,corruptions", "types": ["contrast"], "severities": [1], "quiet": True}
    for measured in evaluate_run(run, data=HERE, **words):
        assert {result.data_description for result in measured.results} == {
            f"shorter side to {shorter} (bicubic, antialiased), centre crop 32×32; "
            "the stored validation split serves as test"
        }


@pytest.mark.parametrize("data, shorter", [("folder:other", 36), ("imagenet_a:imagenet-a", 36)])
def test_other_data_is_cropped_as_the_run_is(home, data, shorter):
    (home / "photographs" / "val").rename(home / "other")
    assert f"shorter side to {shorter} " in description(run_of(home, classes=1000, crop=0.875), data=data)
    assert "shorter side to 40 " in description("run", data={"name": data, "crop": 0.8}), "what is typed wins"


def test_a_run_that_says_nothing_leaves_other_data_to_its_reader(home):
    run = run_of(home, classes=1000)
    assert "shorter side to 36 " in description(run, data="imagenet_a:imagenet-a")
    assert "shorter side to 32 " in description(run, data={"name": "folder:photographs", **HERE})


def test_small_images_of_a_run_of_another_size_are_cropped_as_its_own(home):
    np.savez(home / "small.npz", images=np.zeros((4, 16, 16, 3), dtype=np.uint8), labels=np.arange(4) % 3)
    assert "shorter side to 36 " in description(run_of(home, crop=0.875), data="npz:small.npz")


# ---------------------------------------------------------------- a row


@pytest.mark.parametrize("crop", [None, 0.875])
def test_all_photographs_of_a_row_are_cropped_alike(home, crop):
    run = run_of(home, classes=1000, crop=crop)
    row = measure_protocol(run, protocol=home / "row.yaml", data=HERE, quiet=True)
    shorter = 32 if crop is None else 36
    assert len(row.results) == 2
    assert all(f"shorter side to {shorter} " in result.data_description for result in row.results)
    words = next(result for result in row.evaluations[1].results).extra["words"]
    assert f"data.crop={1.0 if crop is None else crop}" in words, "so that verify repeats it"


def test_the_row_of_a_timm_model_has_its_crop(home):
    model, data = {"name": f"timm:{TIMM}", "num_classes": 1000}, {"name": "folder:photographs", **HERE}
    row = measure_protocol(protocol=home / "row.yaml", model=model, data=data, output="out", quiet=True)
    assert len(row.results) == 2
    assert all("shorter side to 168 " in result.data_description for result in row.results)


# ---------------------------------------------------------------- a model without a run


def test_a_timm_model_is_shown_what_timm_shows_it(home):
    """The pixels of timm's own transform for evaluation, to within rounding."""
    for number, name in enumerate(("cat", "cow", "dog")):  # squares: timm rounds longer sides in its own way
        photograph = Image.open(home / "photographs" / "val" / name / "0.png")
        photograph.crop((0, 0, 50 + number, 50 + number)).save(photograph.filename)
    words = {"model": f"timm:{TIMM}", "data": {"name": "folder:photographs", **HERE}}
    target = load_target(None, build(TargetConfig, complete(None, words)))
    config = timm.data.resolve_data_config({}, pretrained_cfg=timm.models.get_pretrained_cfg(TIMM).to_dict())
    assert config["crop_pct"] == 0.95 and config["interpolation"] == "bicubic"
    theirs = timm.data.create_transform(**{**config, "mean": (0, 0, 0), "std": (1, 1, 1)})
    for number, name in enumerate(("cat", "cow", "dog")):
        expected = theirs(Image.open(home / "photographs" / "val" / name / "0.png").convert("RGB"))
        found = target.data.batch([number]).x[0]
        assert found.shape == expected.shape
        assert (found - expected).abs().max() < 2.5 / 255


def test_the_crop_that_is_typed_wins(home):
    data = {"name": "folder:photographs", "crop": 1.0, **HERE}
    assert "shorter side to 160 " in description(model=f"timm:{TIMM}", data=data)


def test_whose_crop_a_model_has():
    assert crop_of_model(ModelConfig(name="timm:vit_small_patch16_224"), DataConfig(name="folder:x")) == 0.9
    assert crop_of_model(ModelConfig(name="timm:xcit_small_12_p16_224"), DataConfig(name="folder:x")) == 1.0
    assert crop_of_model(ModelConfig(name="timm:vit_small_patch16_224"), DataConfig(name="folder:x", crop=0.8)) == 0.8
    own = ModelConfig(name="deit_small_patch16_224")
    assert crop_of_model(own, DataConfig(name="folder:x")) is None, "weights of the user's own say nothing"
    assert published_crop("deit_small_patch16_224", True) == 0.9
    assert published_crop("mine.py:build", False) is None


@pytest.mark.parametrize("name", ["imagenet_c:ImageNet-C/fog/3", "corrupted:copy/fog/3"])
def test_images_that_were_cropped_when_they_were_made_are_not_cropped_again(name):
    assert crop_of_model(ModelConfig(name="timm:vit_small_patch16_224"), DataConfig(name=name)) is None


# ---------------------------------------------------------------- the papers' recipes


@pytest.mark.parametrize(
    "base, crop",
    [
        ("rspc/_cifar10", 0.875), ("rspc/_cifar100", 0.875), ("rspc/_imagenet_rvt", 0.875), ("rspc/_imagenet_fan", 1.0),
        ("xcit/_imagenet", 1.0), ("xcit/_imagenet100", 1.0), ("xcit/_imagenet100_standard", 1.0),
        ("xcit/_finetune", 1.0),
    ],
)  # fmt: skip
def test_the_recipes_at_224_pixels_state_the_crop_of_the_published_code(base, crop):
    """RSPC's CIFAR and RVT resize to 256; its FAN, and XCiT, take crop_pct of the model, which is 1."""
    data = read_yaml(recipe_folder() / f"{base}.yaml")["data"]
    assert data["image_size"] == 224 and data["crop"] == crop


def test_the_side_before_the_crop_is_rounded_down_as_in_timm(home):
    data = ht.load_data("folder:photographs", "test", root=".", image_size=224, crop=0.9, workers=0)
    assert "shorter side to 248 " in data.description
    assert torch.isfinite(data.batch([0]).x).all()
