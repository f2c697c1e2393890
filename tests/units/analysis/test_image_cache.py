"""ImageCache: where images are kept, repeated iteration, and regrouped batches."""

import pytest
import torch

from hardtack.analysis.image_cache import ON_DEVICE, ImageCache
from hardtack.analysis.landscape.loss import _regrouped

DEVICE = torch.device("meta")  # one that is not main memory


def batches():
    for part in torch.arange(10).split(4):
        yield part.reshape(-1, 1, 1, 1).expand(-1, 3, 2, 2) / 10, part % 3, part


@pytest.mark.parametrize("size, home", [(ON_DEVICE, "meta"), (ON_DEVICE + 1, "cpu")])
def test_small_caches_are_on_the_device_and_large_ones_in_main_memory(size, home):
    kept = ImageCache(batches(), DEVICE, size)
    assert {x.device.type for x, _, _ in kept._batches} == {home}
    assert {x.device.type for x, _, _ in kept} == {"meta"}


def test_a_cache_can_be_iterated_again_and_has_indices_and_labels():
    kept = ImageCache(batches(), torch.device("cpu"), 0)
    assert len(kept) == 10 and [len(x) for x, _, _ in kept] == [4, 4, 2] == [len(x) for x, _, _ in kept]
    assert kept.each()["index"].tolist() == list(range(10))
    assert kept.each()["label"].tolist() == [number % 3 for number in range(10)]


@pytest.mark.parametrize("size", [1, 3, 4, 5, 10, 20])
def test_regrouped_batches_have_one_size_and_the_same_rows(size):
    parts = list(_regrouped((x for x, _, _ in batches()), size))
    assert [len(part) for part in parts] == [len(part) for part in torch.arange(10).split(size)]
    assert torch.equal(torch.cat(parts), torch.cat([x for x, _, _ in batches()]))
