"""A stopped evaluation is resumed after its finished chunks; a finished evaluation is not measured again."""

import pytest
import torch

import hardtack as ht
from hardtack.data import load_data
from hardtack.evaluation.consistency import Consistency
from hardtack.results import read_results
from tiny_runs import Linear, images, labels, write_data

CHUNKS, SIZE = 5, 4


class Counting(Linear):
    """Counts the images it is shown, and fails when it has been shown too many."""

    def __init__(self, limit=None, **options):
        super().__init__(**options)
        self.shown, self.limit = 0, limit

    def forward(self, x):
        self.shown += len(x)
        if self.limit is not None and self.shown > self.limit:
            raise RuntimeError("out of power")
        return super().forward(x)


def pair():
    x = images(CHUNKS * SIZE - 1)
    return x, Linear()(x).argmax(dim=1)


def measure(model, data, folder, **settings):
    sizes = {"batch_size": SIZE, "chunk_size": SIZE, "examples": 6}
    settings = {"threat": "linf:0.01", "attack": {"steps": 3}, **sizes, **settings}
    return ht.evaluate(model, data, folder=folder, quiet=True, **settings)


def same(a, b):
    assert a.id == b.id
    for name in b.verdicts:
        assert a.verdicts[name].tolist() == pytest.approx(b.verdicts[name].tolist(), nan_ok=True), name
    for name in a.examples:  # a finished clean or sweep suite keeps none
        assert (a.examples[name] == b.examples[name]).all() or name == "size", name
    numbers = [(r.metric, r.value, r.low, r.high, r.n, r.threat, r.flags) for r in a.results]
    assert numbers == [(r.metric, r.value, r.low, r.high, r.n, r.threat, r.flags) for r in b.results]


@pytest.mark.parametrize("suite", ["clean", "pgd", "sweep"])
@pytest.mark.parametrize("streamed", [False, True])
def test_a_stopped_evaluation_ends_with_the_same_numbers(tmp_path, suite, streamed):
    data = pair()
    if streamed:
        file = write_data(tmp_path / "d.npz", test=CHUNKS * SIZE - 1)
        data = load_data(f"npz:{file}", "test", workers=0, stream=True)
    whole = Counting()
    expected = measure(whole, data, tmp_path / "whole", suite=suite)
    for share in (0.3, 0.6, 0.9):
        folder = tmp_path / f"stopped-{share}"
        with pytest.raises(RuntimeError, match="out of power"):
            measure(Counting(limit=int(whole.shown * share)), data, folder, suite=suite)
        assert not read_results(folder), "an unfinished evaluation has no result"
        done = len(list((folder / "verdicts").glob(".*/*.parquet"))) if folder.exists() else 0
        rest = Counting()
        found = measure(rest, data, folder, suite=suite)
        same(found, expected)
        assert rest.shown < whole.shown or done == 0, "finished chunks were computed again"
    assert done >= 3, "the last stop must have come after several chunks, or nothing was resumed"


@pytest.fixture
def without_consistency_checks(monkeypatch):
    """Passes of the consistency checks are counted in test_consistency.py, not here."""
    for check in ("before", "piece", "after"):
        monkeypatch.setattr(Consistency, check, lambda *args, **kwargs: [])


def test_a_finished_chunk_is_never_computed_again(tmp_path, without_consistency_checks):
    """Counted exactly: what the first part and the second part showed the model adds up to one whole run."""
    data, checks = pair(), Counting()
    measure(checks, (data[0][:SIZE], data[1][:SIZE]), None, suite="clean")
    manners = checks.shown - SIZE  # passes of the first checks, which every call makes
    whole = Counting()
    measure(whole, data, tmp_path / "whole", suite="clean")
    heads = whole.shown - len(data[0])
    assert heads > 0 and manners > 0
    stopped = Counting(limit=heads + 2 * SIZE)  # enough for the checks and two chunks
    with pytest.raises(RuntimeError):
        measure(stopped, data, tmp_path / "stopped", suite="clean")
    rest = Counting()
    measure(rest, data, tmp_path / "stopped", suite="clean")
    assert rest.shown == heads + len(data[0]) - 2 * SIZE


@pytest.mark.parametrize("suite", ["clean", "pgd", "sweep"])
def test_a_finished_evaluation_is_read_from_disk(tmp_path, suite):
    first = measure(Counting(), pair(), tmp_path, suite=suite)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    idle = Counting()
    again = measure(idle, pair(), tmp_path, suite=suite)
    assert idle.shown == 0, "nothing had to be computed"
    same(again, first)
    assert again.results == first.results, "the time it took and the day it was made belong to the number"
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_lost_results_are_written_again_from_the_verdicts(tmp_path):
    first = measure(Counting(), pair(), tmp_path)
    (tmp_path / "results.jsonl").unlink()
    again = measure(Counting(), pair(), tmp_path)
    same(again, first)
    assert len(read_results(tmp_path)) == 2


@pytest.mark.parametrize(
    "change",
    [
        lambda m, d: (Counting(seed=1), d, {}),
        lambda m, d: (m, (d[0] * 0.99, d[1]), {}),
        lambda m, d: (m, (d[0], (d[1] + 1) % 4), {}),
        lambda m, d: (m, d, {"threat": "linf:0.02"}),
        lambda m, d: (m, d, {"attack": {"steps": 4}}),
        lambda m, d: (m, d, {"attack": {"steps": 3, "seed": 1}}),
        lambda m, d: (m, d, {"runtime": ht.Runtime(seed=1)}),
        lambda m, d: (ht.wrap(m, num_classes=4), d, {}),
    ],
    ids=[
        "weights",
        "pixels",
        "labels",
        "threat",
        "steps",
        "attack seed",
        "seed",
        "architecture",
    ],
)
def test_everything_that_decides_the_verdicts_changes_the_id(tmp_path, change):
    first = measure(Counting(), pair(), tmp_path)
    model, data, settings = change(Counting(), pair())
    second = measure(model, data, tmp_path, **settings)
    assert second.id != first.id
    assert {result.evaluation for result in read_results(tmp_path)} == {first.id, second.id}


@pytest.mark.parametrize("settings", [{"batch_size": 5}, {"chunk_size": 3}])
def test_batch_and_chunk_sizes_do_not_change_the_id(tmp_path, settings):
    first = measure(Counting(), pair(), tmp_path)
    idle = Counting()
    assert measure(idle, pair(), tmp_path, **settings).id == first.id and idle.shown == 0


@pytest.mark.parametrize("size", [3, 7, 100])
def test_a_stopped_evaluation_is_resumed_with_another_chunk_size(tmp_path, size, without_consistency_checks):
    expected = measure(Counting(), pair(), tmp_path / "whole")
    with pytest.raises(RuntimeError, match="out of power"):
        measure(Counting(limit=90), pair(), tmp_path / "stopped")
    spans = [path.stem for path in (tmp_path / "stopped" / "verdicts").glob(".*/*.parquet")]
    assert spans, "nothing was finished before the stop"
    same(measure(Counting(), pair(), tmp_path / "stopped", chunk_size=size), expected)


def test_another_normalisation_is_another_model(tmp_path):
    """Mean and std are no part of a state dict, but they decide every verdict."""
    models = [ht.wrap(Linear(), mean=mean, std=0.5, num_classes=4) for mean in (0.2, 0.7)]
    ids = {measure(model, (images(), labels()), tmp_path, suite="clean").id for model in models}
    assert len(ids) == 2


def test_equal_weights_in_another_architecture_are_another_model(tmp_path):
    """Two heads or four: not one tensor of the state differs."""
    options = {"num_classes": 4, "image_size": 8, "patch_size": 4, "depth": 1, "width": 16, "seed": 0}
    models = [ht.load_model("vit_digits", heads=heads, **options) for heads in (2, 4)]
    assert all(map(torch.equal, *(model.state_dict().values() for model in models)))
    assert len({measure(model, (images(), labels()), tmp_path, suite="clean").id for model in models}) == 2


def test_buffers_outside_the_state_are_part_of_the_model(tmp_path):
    class Scaled(Linear):
        def __init__(self, scale):
            super().__init__()
            self.register_buffer("factor", torch.tensor(scale), persistent=False)

        def forward(self, x):
            return super().forward(x) * self.factor

    ids = {measure(Scaled(s), (images(), labels()), tmp_path, suite="clean").id for s in (1.0, -1.0)}
    assert len(ids) == 2


def test_images_replaced_under_the_same_name_are_measured_again(tmp_path):
    ids = set()
    for seed in (0, 1):
        file = write_data(tmp_path / "d.npz", seed=seed)  # same labels, other pixels
        data = load_data(f"npz:{file}", "test", workers=0)
        ids.add(measure(Linear(), data, tmp_path / "run", suite="clean").id)
    assert len(ids) == 2


def test_without_a_folder_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert measure(Linear(), pair(), None).clean_accuracy == 1
    assert list(tmp_path.iterdir()) == []


def test_no_grad_around_the_call_does_not_disable_gradients_of_the_attack(tmp_path):
    with torch.no_grad():
        blind = measure(Linear(), pair(), None, threat="linf:0.05")
    assert blind.robust_accuracy == measure(Linear(), pair(), None, threat="linf:0.05").robust_accuracy < 1
