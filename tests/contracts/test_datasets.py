"""Every registered data set keeps the batch contract: range, types, identities, determinism."""

from __future__ import annotations

import contextlib
import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
import torch

from hardtack.base.errors import UserError
from hardtack.base.registry import datasets
from hardtack.data import batches, load_data
from hardtack.data.given.kept import kept


def _beside_the_units(name: str) -> ModuleType:
    path = Path(__file__).parents[1] / "units" / "data" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"contract_{name}", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


tiny, tiny_official = _beside_the_units("tiny"), _beside_the_units("tiny_official")


def _timm(root: Path) -> str:
    pytest.importorskip("webdataset", reason="timm's wds reader needs webdataset")
    return f"timm:wds/{tiny.web_shards(root / 'shards')}"


HELD = contextlib.ExitStack()  # images that Python gives are known as long as the call lasts
MAKERS = {
    "digits": lambda root: "digits",
    "cifar10": lambda root: tiny.cifar10(root) and "cifar10",
    "cifar100": lambda root: tiny.cifar100(root) and "cifar100",
    "parquet": lambda root: f"parquet:{tiny.parquet(root / 'images.parquet')}",
    "folder": lambda root: f"folder:{tiny.folder(root / 'pictures')}",
    "npz": lambda root: f"npz:{tiny.npz(root / 'arrays.npz')}",
    "timm": _timm,
    "given": lambda root: HELD.enter_context(kept((tiny.pixels(8), [0, 1] * 4))).name,
    "random_network": lambda root: f"random_network:folder:{tiny.folder(root / 'pictures')}",
}


def _tree(root: Path, **options: object) -> Path:
    return tiny_official.imagenet_c(root, **options)


def _classes(root: Path, names: tuple[str, ...]) -> Path:
    return tiny_official.class_folders(root, names, each=4, side=32)


MEASURED = {  # official files have a test split only: the name that opens one of them, and who made its images
    "cifar10c": lambda root: (f"{tiny_official.cifar_c(root)}/fog/3", "official"),
    "cifar100c": lambda root: (f"{tiny_official.cifar_c(root, classes=100)}/fog/3", "official"),
    "imagenet_c": lambda root: (f"{_tree(root, each=4)}/fog/3", "official"),
    "tiny_imagenet_c": lambda root: (
        f"{_tree(root, names=[f'n{n:08d}' for n in range(200)], side=64)}/fog/3",
        "official",
    ),
    "corrupted": lambda root: (f"{_tree(root, names=['cat', 'dog'], side=32, each=4)}/fog/3", "own"),
    "imagenet_a": lambda root: (_classes(root, ("n01498041", "n01531178")), "official"),
    "imagenet_r": lambda root: (_classes(root, ("n01443537", "n01484850")), "official"),
    "imagenet_v2": lambda root: (_classes(root, ("0", "999")), "official"),
    "imagenet_sketch": lambda root: (_classes(root, tiny_official.SYNSETS), "official"),
}


def test_every_registered_dataset_is_in_a_table() -> None:
    assert set(datasets.names()) == set(MAKERS) | set(MEASURED)
    assert all(datasets.get(name).help for name in datasets.names())


@pytest.mark.parametrize("stream", [None, True], ids=["resident", "streamed"])
@pytest.mark.parametrize("name", MAKERS)
def test_contract(name: str, stream: bool | None, tmp_path: Path) -> None:
    config = {
        "name": MAKERS[name](tmp_path),
        "root": str(tmp_path),
        "stream": stream,
        "workers": 0,
        "validation": 0.25,
    }
    train = load_data(config.pop("name"), "train", **config)
    assert train.image_shape == (3, 32, 32) and train.description and train.streamed == bool(stream)
    assert train.labels.dtype == torch.int64 and len(train.labels) == len(train) > 0
    assert len(train.classes) == train.num_classes > int(train.labels.max())

    state = torch.get_rng_state()
    size = max(3, len(train) // 4)
    seen = list(batches(train, size, device="cpu", shuffle_seed=1))
    assert torch.equal(torch.get_rng_state(), state)
    for batch in seen:
        assert batch.x.dtype == torch.float32 and batch.x.shape[1:] == (3, 32, 32)
        assert batch.x.min() >= 0 and batch.x.max() <= 1
        assert batch.y.dtype == batch.index.dtype == torch.int64
    assert sorted(torch.cat([batch.index for batch in seen]).tolist()) == train.index.tolist()

    again = list(batches(load_data(train.name, "train", **config), size, device="cpu", shuffle_seed=1))
    assert all(torch.equal(a, b) for one, two in zip(seen, again, strict=True) for a, b in zip(one, two, strict=True))

    some = train.subset([1, 0])
    direct = some.batch(torch.tensor([0, 1]))
    assert torch.equal(direct.index, train.index[[1, 0]]) and torch.equal(direct.y, train.labels[[1, 0]])
    by_index = {int(i): x for batch in seen for i, x in zip(batch.index, batch.x, strict=True)}
    assert torch.equal(direct.x[0], by_index[int(direct.index[0])])

    validation = load_data(train.name, "validation", **config)
    assert not set(validation.index.tolist()) & set(train.index.tolist())
    assert validation.classes == train.classes


@pytest.mark.parametrize("stream", [None, True], ids=["resident", "streamed"])
@pytest.mark.parametrize("name", MEASURED)
def test_official_contract(name: str, stream: bool | None, tmp_path: Path) -> None:
    path, source = MEASURED[name](tmp_path / "set")
    dataset = load_data(f"{name}:{path}", "test", stream=stream, workers=0)
    assert dataset.source == source and dataset.split == "test" and dataset.streamed == bool(stream)
    assert ("official" in dataset.description) == (source == "official")
    assert dataset.num_classes > int(dataset.labels.max()) and dataset.labels.dtype == torch.int64
    assert dataset.class_subset is None or set(dataset.labels.tolist()) <= set(dataset.class_subset.tolist())
    seen = list(batches(dataset, 3, device="cpu"))
    assert torch.cat([batch.index for batch in seen]).tolist() == list(range(len(dataset)))
    assert torch.equal(torch.cat([batch.y for batch in seen]), dataset.labels)
    assert all(batch.x.dtype == torch.float32 and 0 <= batch.x.min() <= batch.x.max() <= 1 for batch in seen)
    some = dataset.subset([2, 0])
    assert torch.equal(some.batch([0]).x[0], seen[0].x[2]) and some.source == source
    with pytest.raises(UserError, match="only test; it is for measuring"):
        load_data(f"{name}:{path}", "train")
