"""Small images that a model is shown enlarged: corrupted at their stored size, then resized as the clean ones are."""

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import hardtack as ht
from hardtack.base.errors import UserError
from hardtack.data.corrupted_copy import corrupt_data
from hardtack.data.corruptions import corrupt
from hardtack.data.decode import Size
from hardtack.data.original import Original, enlarged_from, stored_at
from hardtack.data.perturbations import sequence
from hardtack.evaluation.settings import EvaluationConfig
from hardtack.evaluation.suites import SuiteContext, make_suite

SIZE = {"image_size": 84, "crop": 0.875, "test": 1.0, "workers": 0}  # the shorter side to 96, then the centre 84
PIXELS = np.random.default_rng(0).integers(0, 256, (10, 32, 32, 3), dtype=np.uint8)
LABELS = np.arange(10) % 2
INDEX = torch.arange(10)
FEW = {"suite": "corruptions", "types": ("gaussian_noise", "pixelate"), "severities": (1, 5)}


class Sums(nn.Module):
    """Logits that change with every pixel."""

    num_classes = 2

    def forward(self, x):
        waves = torch.sin(torch.arange(x[0].numel(), dtype=torch.float64) * 0.37).view(x.shape[1:])
        margin = 40 * (x.double() * waves).mean(dim=(1, 2, 3))
        return torch.stack([-margin, margin], dim=1).float()


def npz(path, pixels=PIXELS):
    np.savez(path, images=pixels, labels=LABELS)
    return f"npz:{path}"


@pytest.fixture
def name(tmp_path):
    return npz(tmp_path / "small.npz")


def as_bytes(x):
    return (x * 255).round().byte().permute(0, 2, 3, 1).numpy()


def unit(pixels):
    return torch.from_numpy(pixels).permute(0, 3, 1, 2).float() / 255


def made(type_, severity):
    """The corrupted images at the stored size."""
    return as_bytes(corrupt(unit(PIXELS), INDEX, type_, severity, constants="cifar"))


def resized(pixels, folder):
    """What a data set of these images shows at the size of the model."""
    return ht.load_data(npz(folder / "expected.npz", pixels), "test", **SIZE).batch(range(len(pixels))).x


def views_of(data, **settings):
    config = EvaluationConfig(**settings)
    return make_suite(config).views(config, SuiteContext(Sums(), data.image_shape, 0, data.original))


# ---------------------------------------------------------------- corruptions


def test_regenerated_corruptions_are_made_at_the_stored_size_with_its_constants(name, tmp_path):
    data = ht.load_data(name, "test", **SIZE)
    for view in views_of(data, **FEW):
        assert view.settings["constants"] == "cifar"
        assert view.settings["corrupted_at"] == "32×32, as stored"
        assert "shorter side to 96" in view.settings["resized"] and "84×84" in view.settings["resized"]
        expected = resized(made(view.settings["type"], view.settings["severity"]), tmp_path)
        assert torch.equal(view.show(data.batch(range(10)).x, INDEX), expected)
        assert torch.equal(view.show(torch.zeros(3, 3, 84, 84), torch.tensor([7, 0, 2])), expected[[7, 0, 2]])


def test_official_files_are_enlarged_as_the_clean_images_are(name, tmp_path):
    """Files that hold the regenerated images give the verdicts of the regenerated images."""
    files = tmp_path / "CIFAR-10-C"
    files.mkdir()
    for type_ in FEW["types"]:
        np.save(files / f"{type_}.npy", np.concatenate([made(type_, severity) for severity in range(1, 6)]))
    np.save(files / "labels.npy", np.tile(LABELS, 5))
    data = ht.load_data(name, "test", **SIZE)
    official = ht.evaluate(Sums(), data, files=str(files), folder=tmp_path / "run", quiet=True, **FEW)
    regenerated = ht.evaluate(Sums(), data, folder=tmp_path / "run", quiet=True, **FEW)
    columns = [column for column in official.verdicts if "@" in column]
    assert len(columns) == 12
    assert all(np.array_equal(official.verdicts[column], regenerated.verdicts[column]) for column in columns)
    for measured in (official, regenerated):
        mean = measured.results[-1]
        assert mean.attack_settings["constants"] == "cifar"
        assert mean.attack_settings["corrupted_at"] == "32×32, as stored"
        assert "shorter side to 96" in mean.attack_settings["resized"]
        assert "shorter side to 96" in mean.data_description
    assert official.results[-1].extra["source"] == "official"


def test_another_crop_is_another_evaluation(name, tmp_path):
    ids = set()
    for crop in (0.875, 1.0):
        data = ht.load_data(name, "test", **{**SIZE, "crop": crop})
        (view,) = views_of(data, **{**FEW, "types": ("contrast",), "severities": (1,)})
        ids.add(ht.evaluate(Sums(), data, folder=tmp_path / "run", quiet=True, **FEW).id)
        assert f"shorter side to {round(84 / crop)}" in view.settings["resized"]
    assert len(ids) == 2


def test_files_of_another_size_are_refused(name, tmp_path):
    files = tmp_path / "files"
    files.mkdir()
    np.save(files / "fog.npy", np.zeros((50, 16, 16, 3), dtype=np.uint8))
    np.save(files / "labels.npy", np.tile(LABELS, 5))
    (files / "hardtack.json").write_text('{"source": "regenerated"}')
    data = ht.load_data(name, "test", **SIZE)
    with pytest.raises(UserError, match=r"images of 16×16, the data of 84×84; files must have the size .* stored at"):
        ht.evaluate(Sums(), data, suite="corruptions", types=("fog",), files=str(files), quiet=True)


@pytest.mark.parametrize("settings", [{}, {"image_size": 32}, {"image_size": 16}, {"image_size": 24, "crop": 0.75}])
def test_images_that_are_not_enlarged_keep_their_settings_and_so_their_ids(name, settings):
    data = ht.load_data(name, "test", **{"test": 1.0, "workers": 0, **settings})
    (view,) = views_of(data, suite="corruptions", types=("contrast",), severities=(3,))
    assert view.settings == {"type": "contrast", "severity": 3, "constants": "cifar", "seed": 0}
    x = data.batch(range(10)).x
    assert torch.equal(view.show(x, INDEX), corrupt(x, INDEX, "contrast", 3, constants="cifar"))


# ---------------------------------------------------------------- stored formats


def folder_of(path, sizes):
    for number, (height, width) in enumerate(sizes):
        (path / f"class{number % 2}").mkdir(parents=True, exist_ok=True)
        pixels = np.resize(PIXELS[number], (height, width, 3))
        Image.fromarray(pixels).save(path / f"class{number % 2}" / f"{number}.png")
    return ht.load_data(f"folder:{path}", "test", **SIZE)


def test_image_files_of_one_size_are_corrupted_as_stored(tmp_path):
    data = folder_of(tmp_path / "small", [(32, 32)] * 4)
    stored = enlarged_from(data.original)
    assert stored is not None and stored.shape == (32, 32)
    assert torch.equal(stored.resize(stored.fetch(data.index)), data.batch(range(4)).x), "the clean images"
    assert torch.equal(stored.fetch(data.index[[1, 3]]), unit(PIXELS[[2, 3]])), "by class: images 0, 2, 1 and 3"


@pytest.mark.parametrize("sizes", [[(32, 32), (32, 32), (33, 32)], [(120, 100), (90, 130)], [(120, 120)] * 2])
def test_photographs_are_corrupted_after_they_were_resized(sizes, tmp_path):
    """Of many sizes, or larger than the model takes: ImageNet-C's way, with ImageNet's constants."""
    data = folder_of(tmp_path / "photographs", sizes)
    assert enlarged_from(data.original) is None
    (view,) = views_of(data, suite="corruptions", types=("contrast",), severities=(3,))
    assert view.settings == {"type": "contrast", "severity": 3, "constants": "imagenet", "seed": 0}
    x = data.batch(range(len(sizes))).x
    assert torch.equal(view.show(x, data.index), corrupt(x, data.index, "contrast", 3, constants="imagenet"))


class Walked:
    """Images that can only be read from the first to the last."""

    def __init__(self, arrays):
        self.arrays = arrays

    def __len__(self):
        return len(self.arrays)

    def walk(self):
        yield from self.arrays


def test_images_that_are_read_in_order(name):
    size = Size(84, 96)
    stored = enlarged_from(Original(Walked(list(PIXELS)), size, 0.875))
    assert torch.equal(stored.resize(stored.fetch(INDEX)), ht.load_data(name, "test", **SIZE).batch(range(10)).x)
    assert enlarged_from(Original(Walked([PIXELS[0], PIXELS[1][:, :30]]), size, 0.875)) is None


def test_a_subset_knows_its_stored_images(name):
    data = ht.load_data(name, "test", **SIZE).subset([8, 3])
    stored = stored_at(data.original, (32, 32))
    assert stored is not None and stored_at(data.original, (16, 16)) is None
    assert torch.equal(stored.fetch(data.index), unit(PIXELS[[8, 3]]))


def test_floating_point_images_are_resized_as_the_clean_ones_are(tmp_path):
    data = ht.load_data(npz(tmp_path / "float.npz", PIXELS.astype(np.float32) / 255), "test", **SIZE)
    stored = enlarged_from(data.original)
    assert torch.equal(stored.resize(stored.fetch(INDEX)), data.batch(range(10)).x)


# ---------------------------------------------------------------- sequences


def test_frames_are_made_at_the_stored_size(name, tmp_path):
    data = ht.load_data(name, "test", **SIZE)
    found = ht.evaluate(Sums(), data, suite="perturbations", types=("rotate",), quiet=True)
    frames = [resized(as_bytes(frame), tmp_path) for frame in sequence(unit(PIXELS), INDEX, "rotate")]
    classes = torch.stack([Sums()(frame).argmax(dim=1) for frame in frames])
    flips = (classes[1:] != classes[:-1]).double().mean(dim=0)
    assert np.allclose(found.verdicts["flips@rotate"], flips) and flips.sum() > 0
    for result in found.results[1:]:
        assert result.attack_settings["constants"] == "cifar"
        assert result.attack_settings["corrupted_at"] == "32×32, as stored"


def test_official_videos_are_enlarged_too(name, tmp_path):
    files = tmp_path / "CIFAR-10-P"
    files.mkdir()
    frames = [as_bytes(frame) for frame in sequence(unit(PIXELS), INDEX, "rotate")]
    np.save(files / "rotate.npy", np.stack(frames, axis=1))
    data = ht.load_data(name, "test", **SIZE)
    few = {"suite": "perturbations", "types": ("rotate",), "quiet": True}
    official = ht.evaluate(Sums(), data, files=str(files), batch_size=50, folder=tmp_path / "run", **few)
    regenerated = ht.evaluate(Sums(), data, **few)
    assert np.array_equal(official.verdicts["flips@rotate"], regenerated.verdicts["flips@rotate"])
    assert official.results[-1].attack_settings["corrupted_at"] == "32×32, as stored"


# ---------------------------------------------------------------- a corrupted copy


def test_a_copy_at_another_size_is_corrupted_at_the_stored_one(name, tmp_path):
    settings = {"types": ["pixelate"], "layout": "npy", "data": SIZE}
    corrupt_data(name, tmp_path / "copy", settings, quiet=True)
    rows = np.load(tmp_path / "copy" / "pixelate.npy")
    assert rows.shape == (50, 84, 84, 3)
    assert np.array_equal(rows[40:], as_bytes(resized(made("pixelate", 5), tmp_path)))
    data = ht.load_data(name, "test", **SIZE)
    few = {"suite": "corruptions", "types": ("pixelate",), "severities": (5,), "quiet": True}
    read = ht.evaluate(Sums(), data, files=str(tmp_path / "copy"), **few)
    assert read.results[-1].attack_settings["constants"] == "cifar"
    assert read.results[-1].attack_settings["corrupted_at"] == "32×32, as stored"
    again = ht.evaluate(Sums(), data, **few)
    assert np.array_equal(read.verdicts["correct@pixelate/5"], again.verdicts["correct@pixelate/5"])
