"""ImageNet-A and similar data: only the classes that occur can be predicted, and photographs are cropped as usual."""

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import hardtack as ht
from hardtack.base.errors import UserError
from hardtack.data.official.synsets import subset, synsets

CHOSEN = subset("imagenet_a")


class Sees(nn.Module):
    """Class by the red of the middle pixel; a class that does not occur in ImageNet-A is always the first."""

    def __init__(self, classes=1000):
        super().__init__()
        self.classes = classes

    def forward(self, x):
        red = (x[:, 0, x.shape[2] // 2, x.shape[3] // 2] * 255).round().long()
        logits = torch.zeros(len(x), self.classes)
        logits[:, 0] = 5  # tench, which is not in ImageNet-A; of 200 classes it is stingray
        answer = CHOSEN[red] if self.classes == 1000 else red
        return logits.scatter(1, answer[:, None], 3.0 if self.classes == 1000 else 9.0)


@pytest.fixture
def folder(tmp_path):
    """Photographs of the first three classes, 300×260: the red of the centre is the class's place."""
    for place, name in enumerate(synsets("imagenet_a")[:3]):
        (tmp_path / "imagenet-a" / name).mkdir(parents=True)
        pixels = np.full((260, 300, 3), (place, 90, 200), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / "imagenet-a" / name / "0.png")
    return tmp_path / "imagenet-a"


def test_a_model_of_all_classes_predicts_only_classes_that_occur(folder):
    data = ht.load_data(f"imagenet_a:{folder}", "test", image_size=224)
    assert data.labels.tolist() == CHOSEN[:3].tolist()
    found = ht.evaluate(Sees(), data, suite="clean", quiet=True)
    assert found.clean_accuracy == 1.0  # class 0 would have been the answer of all
    assert found.verdicts["label"].tolist() == [0, 1, 2]
    assert "among its 200 classes" in found.results[0].data_description
    assert len(found.results[0].extra["per_class"]["classes"]) == 200


def test_a_model_made_for_the_200_classes_is_not_changed(folder):
    data = ht.load_data(f"imagenet_a:{folder}", "test", image_size=224)
    found = ht.evaluate(Sees(200), data, suite="clean", quiet=True)
    assert found.clean_accuracy == 1.0 and found.verdicts["clean_prediction"].tolist() == [0, 1, 2]
    with pytest.raises(UserError, match="a model of 1000 or of 200 can be measured on it, found 10"):
        ht.evaluate(ht.load_model("resnet8_cifar", num_classes=10), data, suite="clean", quiet=True)


def test_the_centre_is_cropped_from_256_pixels(folder):
    data = ht.load_data(f"imagenet_a:{folder}", "test", image_size=224)
    assert data.image_shape == (3, 224, 224) and "shorter side to 256" in data.description
    whole = ht.load_data(f"imagenet_a:{folder}", "test", image_size=224, crop=1.0)
    assert "shorter side to 224" in whole.description
    with pytest.raises(UserError, match="crop must be a share"):
        ht.load_data(f"imagenet_a:{folder}", "test", image_size=224, crop=2)


def test_the_crop_is_centred(tmp_path):
    ramp = np.repeat(np.arange(256, dtype=np.uint8)[None, :, None], 256, axis=0).repeat(3, axis=2)
    (tmp_path / "a").mkdir()
    Image.fromarray(ramp).save(tmp_path / "a" / "0.png")
    data = ht.load_data(f"folder:{tmp_path}", "test", image_size=224, crop=0.875, test=1.0)
    row = (data.batch([0]).x[0, 0, 5] * 255).round().int()
    assert row[0] == 16 and row[-1] == 239  # 256 pixels are kept as they are
    assert ht.load_data(f"folder:{tmp_path}", "test", image_size=224, test=1.0).batch([0]).x.min() < 2 / 255
