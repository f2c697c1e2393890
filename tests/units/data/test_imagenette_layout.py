"""ImageNette as it is published: imagenette2/{train,val}/WNID/*.JPEG, with a table of labels beside the folders."""

import numpy as np
import pytest
from PIL import Image

from hardtack.data import DataConfig, load_data

WNIDS = ("n01440764", "n02102040", "n02979186")


@pytest.fixture
def root(tmp_path):
    random = np.random.default_rng(0)
    for split, images in (("train", 5), ("val", 2)):
        for label, wnid in enumerate(WNIDS):
            folder = tmp_path / "imagenette2" / split / wnid
            folder.mkdir(parents=True)
            for number in range(images):
                pixels = random.integers(0, 255, (40, 60, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(folder / f"ILSVRC2012_{split}_{label}{number}.JPEG")
    (tmp_path / "imagenette2" / "noisy_imagenette.csv").write_text("path,noisy_labels_0\n")
    return tmp_path


def test_val_is_the_test_set_and_validation_is_cut_from_train(root):
    config = DataConfig(name="folder:imagenette2", root=str(root), image_size=32, crop=0.875, validation=0.2, workers=0)
    sizes = {split: len(load_data(config, split)) for split in ("train", "validation", "test")}
    assert sizes == {"train": 12, "validation": 3, "test": 6}
    test = load_data(config, "test")
    assert test.num_classes == 3
    assert tuple(test.image_shape[-2:]) == (32, 32)
