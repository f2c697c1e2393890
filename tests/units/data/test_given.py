"""What people have: arrays in several layouts and types, loaders and data sets of torch and Hugging Face."""

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, Subset, TensorDataset

from hardtack.base.errors import UserError
from hardtack.data import Dataset
from hardtack.data.given import take, unit_images

BYTES = np.random.default_rng(0).integers(0, 256, (6, 10, 14, 3), dtype=np.uint8)  # N×H×W×3, wider than high
UNIT = torch.from_numpy(BYTES).permute(0, 3, 1, 2).float() / 255
LABELS = torch.tensor([0, 2, 1, 1, 0, 2])


def both(data, **settings):
    """Images and labels of what `take` gives, and what it says about them."""
    taken = take(data, **settings)
    if isinstance(taken, tuple):
        return *taken, ""
    batch = taken.batch(range(len(taken)))
    return batch.x, batch.y, taken.description


# ---------------------------------------------------------------- arrays


@pytest.mark.parametrize(
    "x, said",
    [
        (UNIT, ""),
        (UNIT.double(), "float64 as float32"),
        (UNIT.numpy(), ""),
        (UNIT.permute(0, 2, 3, 1).numpy(), "channels last"),
        (BYTES, "channels last; uint8 0 … 255 divided by 255"),
        (BYTES.astype(np.int32), "int32 0 … 255 divided by 255"),
        (BYTES.transpose(0, 3, 1, 2).astype(np.uint16), "int64 0 … 255"),
        (torch.from_numpy(BYTES), "uint8"),
        (BYTES.tolist(), "int64"),
        (list(UNIT), ""),
        (UNIT.requires_grad_(False), ""),
        (UNIT.numpy().astype(">f4"), ""),
    ],
)
def test_the_same_images_whatever_the_layout_and_type(x, said):
    images, labels, description = both((x, LABELS))
    assert images.dtype == torch.float32 and labels.dtype == torch.int64
    assert torch.equal(images, UNIT) and torch.equal(labels, LABELS)
    assert said in description


def test_half_images_are_rounded_and_bool_images_are_0_and_1():
    assert torch.allclose(unit_images(UNIT.half()), UNIT, atol=1e-3)
    assert torch.equal(unit_images(UNIT > 0.5), (UNIT > 0.5).float())


@pytest.mark.parametrize("grey", [BYTES[..., 0], BYTES[..., :1], BYTES.transpose(0, 3, 1, 2)[:, :1]])
def test_grey_images_get_three_equal_channels_unless_the_model_takes_one(grey):
    images, _, description = both((grey, LABELS))
    assert torch.equal(images, UNIT[:, :1].expand(-1, 3, -1, -1)) and "grey as three equal channels" in description
    images, _, description = both((grey, LABELS), takes_grey=lambda image: image.shape == (1, 1, 10, 14))
    assert torch.equal(images, UNIT[:, :1]) and "three" not in description


@pytest.mark.parametrize("y", [LABELS.int(), LABELS.numpy().astype(np.uint8), LABELS.tolist(), LABELS[:, None].float()])
def test_labels_of_other_types(y):
    _, labels, description = both((UNIT, y))
    assert torch.equal(labels, LABELS) and labels.dtype == torch.int64
    assert isinstance(y, list) or "as class numbers" in description


@pytest.mark.parametrize(
    "x, told",
    [
        (np.zeros((6, 3, 5, 3)), "N×C×H×W or N×H×W×C"),
        (torch.rand(6, 4, 10, 14), r"x\[:, :3\]"),
        (torch.rand(6, 10, 14, 4), r"x\[\.\.\., :3\]"),
        (torch.rand(6, 420), "reshape"),
        (UNIT * 255, "divide values of 0 … 255 by 255"),
        (UNIT * 4 - 2, r"wrap\(module, mean=…, std=…\)"),
        (UNIT.where(UNIT < 0.9, torch.nan), "NaN"),
        (BYTES > 128, None),
        ((BYTES > 128).astype(np.uint8), "only 0 and 1"),
        (BYTES.astype(np.int32) * 257, "x / 65535"),
        (BYTES.astype(np.int32) - 100, "from -100 to"),
        (BYTES.astype(complex), "numbers"),
        ([BYTES[0], BYTES[1, :5]] * 3, "several sizes"),
        (list("abcdef"), "array of numbers"),
    ],
)
def test_images_with_two_readings_or_none_are_refused(x, told):
    if told is None:
        assert take((x, LABELS)).batch([0]).x.unique().tolist() == [0, 1]
        return
    with pytest.raises(UserError, match=told):
        take((x, LABELS))


@pytest.mark.parametrize(
    "y, told",
    [
        (torch.eye(3)[LABELS], "argmax"),
        (LABELS + 0.5, "whole numbers"),
        (list("abcabc"), "array of numbers"),
        (LABELS[:4], "one label for each image, found 6 and 4"),
    ],
)
def test_labels_that_name_no_class_are_refused(y, told):
    with pytest.raises(UserError, match=told):
        take((UNIT, y))


def test_one_image_needs_an_axis_for_the_batch():
    with pytest.raises(UserError, match=r"x\[None\]"):
        take((UNIT[0], LABELS[0]))
    assert torch.equal(take((UNIT[:1], 2))[1], torch.tensor([2]))


def test_n_takes_the_first_images_and_evenly_by_class_where_they_are_stored_by_class():
    assert torch.equal(both((UNIT, LABELS), n=2)[1], LABELS[:2])
    assert both((UNIT, LABELS.sort().values), n=3)[1].tolist() == [0, 1, 2]
    assert len(take((UNIT, LABELS), n=60)[1]) == 6
    for wrong in (0, -1, 2.5, True):
        with pytest.raises(UserError, match="n must be"):
            take((UNIT, LABELS), n=wrong)


# ---------------------------------------------------------------- data sets and loaders


class Stored(torch.utils.data.Dataset):
    """As torchvision's: PIL images or tensors, targets and classes."""

    classes = ("cat", "dog", "hen")

    def __init__(self, transform=None):
        self.transform, self.targets, self.read = transform, LABELS.tolist(), []

    def __len__(self):
        return len(self.targets)

    def __getitem__(self, row):
        from PIL import Image

        self.read.append(row)
        image = Image.fromarray(BYTES[row])
        return (image if self.transform is None else self.transform(image)), self.targets[row]


class Stream(IterableDataset):
    def __iter__(self):
        yield from zip(UNIT, LABELS, strict=True)


def to_tensor(image):
    return torch.from_numpy(np.array(image)).permute(2, 0, 1).float() / 255


@pytest.mark.parametrize(
    "data",
    [
        Stored(),
        Stored(to_tensor),
        TensorDataset(UNIT, LABELS),
        Subset(Stored(), range(6)),
        Stream(),
        [(image, int(label)) for image, label in zip(BYTES, LABELS, strict=True)],
        [{"image": image, "label": label} for image, label in zip(UNIT, LABELS, strict=True)],
        DataLoader(TensorDataset(UNIT, LABELS), batch_size=4),
        DataLoader(Stored(to_tensor), batch_size=4, shuffle=True, drop_last=True),
        DataLoader(Stream(), batch_size=4),
        DataLoader(TensorDataset(UNIT, LABELS), batch_size=None),
        DataLoader(TensorDataset(UNIT, LABELS), batch_size=None, shuffle=True),
        DataLoader(TensorDataset(UNIT, LABELS), batch_size=4, drop_last=True),
        DataLoader(
            Stored(to_tensor), batch_size=4, sampler=torch.utils.data.WeightedRandomSampler([1.0] * 5 + [9], 20)
        ),
        DataLoader(Stored(to_tensor), batch_sampler=[[0, 1, 2, 3], [4, 5]]),
    ],
)
def test_whatever_yields_images_and_labels(data):
    taken = take(data)
    assert isinstance(taken, Dataset)
    images, labels, _ = both(data)
    assert torch.equal(images, UNIT) and torch.equal(labels, LABELS)
    assert [len(take(data, n=n)) for n in (1, 4, 5)] == [1, 4, 5]


def test_names_of_classes_come_along_and_a_few_images_read_no_others():
    data = Stored()
    taken = take(data, n=2)
    assert taken.classes == ("cat", "dog", "hen") and taken.name == "Stored" and set(data.read) == {0, 1}


def test_a_loader_of_a_part_keeps_to_it():
    sampler = torch.utils.data.SubsetRandomSampler([1, 3])
    labels = both(DataLoader(Stored(to_tensor), batch_size=2, sampler=sampler))[1]
    assert labels.tolist() == [2, 1]  # in stored order


@pytest.mark.parametrize("loaded", [False, True])
@pytest.mark.parametrize("shuffle", [False, True])
def test_a_few_images_of_a_set_that_is_stored_by_class_are_of_every_class(loaded, shuffle):
    y = LABELS.sort().values
    stored = Stored(to_tensor)
    stored.targets = y.tolist()
    for data in (
        TensorDataset(UNIT, y),
        stored,
        Subset(stored, range(6)),
        Subset(TensorDataset(UNIT, y), [0, 1, 3, 5]),
    ):
        data = DataLoader(data, batch_size=4, shuffle=shuffle) if loaded else data
        assert both(data, n=3)[1].tolist() == [0, 1, 2]


def test_one_nearly_black_image_among_others_is_taken():
    dark = [(BYTES[0], 0), (np.eye(10, 14, dtype=np.uint8)[..., None].repeat(3, axis=2), 1)]
    assert both([*dark, dark[0]])[0].amax(dim=(1, 2, 3))[1] == 1 / 255
    with pytest.raises(UserError, match="only 0 and 1"):
        take([dark[1]] * 3)


def test_random_transforms_are_refused_and_normalising_ones_say_what_to_do():
    from torchvision import transforms

    with pytest.raises(UserError, match="another image when it is asked twice"):
        take(Stored(lambda image: torch.rand(3, 10, 14)))
    flip = transforms.Compose([transforms.RandomHorizontalFlip(), to_tensor])  # leaves half of the images as they are
    many = torch.utils.data.ConcatDataset([Stored(flip)] * 5)
    for seed in range(5):
        torch.manual_seed(seed)
        for data in (many, DataLoader(many, batch_size=4), DataLoader(many, batch_sampler=[[0, 1], [2]])):
            with pytest.raises(UserError, match="another image when it is asked twice"):
                take(data)
    grey = transforms.Compose([to_tensor, lambda x: x[:1], transforms.Normalize((0.1307,), (0.3081,))])
    with pytest.raises(UserError, match=r"wrap\(module, mean=\[0\.1307\], std=\[0\.3081\], channels=1\)"):
        take(Stored(grey))
    steps = transforms.Compose([to_tensor, transforms.Normalize((0.5, 0.4, 0.3), (0.2, 0.2, 0.2))])
    with pytest.raises(UserError, match=r"wrap\(module, mean=\[0\.5, 0\.4, 0\.3\], std=\[0\.2, 0\.2, 0\.2\]\)"):
        take(DataLoader(Stored(steps), batch_size=4))


@pytest.mark.parametrize(
    "data, told",
    [
        (TensorDataset(UNIT), "images without labels|pairs"),
        ([(BYTES[0], 0), (BYTES[1][:5], 1)], "several sizes"),
        ([(BYTES[0], "cat"), (BYTES[1], "dog"), (BYTES[2], "dog")], "found 'cat'"),
        ([{"photo": BYTES[0], "kind": 0}] * 3, "photo, kind"),
        (DataLoader([]), "no images"),
        (lambda: 0, "found function"),
    ],
)
def test_data_sets_that_cannot_be_measured_are_refused(data, told):
    with pytest.raises(UserError, match=told):
        take(data)


def test_too_many_images_for_the_memory_are_refused_before_they_are_read():
    class Endless(Stored):
        def __len__(self):
            return 10**9

        def __getitem__(self, row):
            return super().__getitem__(row % 6)

    with pytest.raises(UserError, match=r"GiB in memory.*n=…"):
        take(Endless())
    assert len(take(Endless(), n=3)) == 3


# ---------------------------------------------------------------- Hugging Face


def hugging_face(**columns):
    datasets = pytest.importorskip("datasets")
    from PIL import Image

    images = [Image.fromarray(image) for image in BYTES]
    features = {"image": datasets.Image(), "label": datasets.ClassLabel(names=["cat", "dog", "hen"])}
    features |= {name: datasets.Value("int64") for name in columns}
    return datasets.Dataset.from_dict(
        {"image": images, "label": LABELS.tolist(), **columns}, features=datasets.Features(features)
    )


def test_a_data_set_of_hugging_face():
    data = hugging_face(row=list(range(6)))
    for each in (data, data.with_format("torch"), data.to_iterable_dataset()):
        images, labels, description = both(each)
        assert torch.equal(images, UNIT) and torch.equal(labels, LABELS)
        assert take(each).classes == ("cat", "dog", "hen") and "columns image, label" in description
        assert len(take(each, n=4)) == 4


def test_columns_that_are_not_clear_must_be_named():
    datasets = pytest.importorskip("datasets")
    data = hugging_face()
    with pytest.raises(UserError, match=r"several columns of images \(image, mask\).*remove_columns"):
        masks = data.remove_columns("label").rename_column("image", "mask")
        take(datasets.concatenate_datasets([data, masks], axis=1))
    with pytest.raises(UserError, match="no column of labels among image; rename it to 'label'"):
        take(data.remove_columns("label"))
    with pytest.raises(UserError, match=r"data\['test'\]"):
        take(datasets.DatasetDict({"train": data, "test": data}))


def test_a_model_that_images_do_not_fit_is_an_error_in_one_line():
    import hardtack as ht

    images, grey = torch.rand(4, 3, 8, 8), torch.rand(4, 8, 8)
    wrong = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(5, 2))
    for call in (
        lambda: ht.evaluate(wrong, (images, [0, 1, 0, 1]), quiet=True),
        lambda: ht.evaluate(wrong, (images, [0, 1, 0, 1]), suite="clean", quiet=True),
        lambda: ht.attack(wrong, images, [0, 1, 0, 1], threat="linf:0.1"),
        lambda: ht.analyze(wrong, (images, [0, 1, 0, 1]), "landscape", quiet=True),
    ):
        with pytest.raises(UserError, match=r"cannot take images of 3×8×8 \(RuntimeError: .*cannot be multiplied"):
            call()
    one = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 8), torch.nn.Flatten())
    told = r"no grey images of 8×8 \(with one channel: .*ht\.wrap\(module, channels=1\); with three equal ones: Runtime"
    with pytest.raises(UserError, match=told):
        ht.evaluate(ht.wrap(one, mean=0.1), (grey, [0, 1, 0, 1]), quiet=True)
    wrapped = ht.wrap(one, mean=0.1, std=0.3, channels=1)
    assert torch.allclose(wrapped(grey[:, None]), one((grey[:, None] - 0.1) / 0.3))
    assert ht.evaluate(wrapped, (grey, [0, 1, 0, 1]), suite="clean", quiet=True).verdicts["index"].size == 4
    for model in (one.double(), ht.wrap(one)):
        with pytest.raises(UserError, match=r"are float64.*model\.float\(\)"):
            ht.evaluate(model, (grey if model is one else images, [0, 1, 0, 1]), quiet=True)
    with pytest.raises(UserError, match="channels must be 3"):
        ht.wrap(one, channels=2)
