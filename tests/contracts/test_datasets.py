"""Every registered data set keeps the batch contract: range, types, identities, determinism."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import torch

from hardtack.data import batches, load_data
from hardtack.registry import datasets

_spec = importlib.util.spec_from_file_location(
    "tiny_datasets", Path(__file__).parents[1] / "units" / "data" / "tiny.py"
)
assert _spec and _spec.loader
tiny = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(tiny)


def _timm(root: Path) -> str:
    pytest.importorskip("webdataset", reason="timm's wds reader needs webdataset")
    return f"timm:wds/{tiny.web_shards(root / 'shards')}"


MAKERS = {
    "digits": lambda root: "digits",
    "cifar10": lambda root: tiny.cifar10(root) and "cifar10",
    "cifar100": lambda root: tiny.cifar100(root) and "cifar100",
    "parquet": lambda root: f"parquet:{tiny.parquet(root / 'images.parquet')}",
    "folder": lambda root: f"folder:{tiny.folder(root / 'pictures')}",
    "npz": lambda root: f"npz:{tiny.npz(root / 'arrays.npz')}",
    "timm": _timm,
}


def test_every_registered_dataset_is_in_the_table() -> None:
    assert set(datasets.names()) == set(MAKERS)
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
