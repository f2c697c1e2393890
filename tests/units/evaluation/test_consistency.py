"""Models that answer otherwise in the search than in the verification, or later than before, carry a red flag."""

import time

import pytest
import torch
from torch import nn

import hardtack as ht
from hardtack.base.runtime import Runtime
from hardtack.evaluation.consistency import Consistency
from hardtack.results import read_results
from tiny_runs import Linear, images, labels


def measure(model, count=96, **settings):
    with torch.no_grad():
        y = Linear()(images(count)).argmax(dim=1)
    settings = {"threat": "linf:0.01", "attack": {"steps": 3}, "batch_size": 32, **settings}
    if settings.get("suite", "pgd") == "clean":
        settings.pop("threat"), settings.pop("attack")
    return ht.evaluate(model, (images(count), y), quiet=True, **settings)


def codes(measured):
    return {flag["code"]: flag["level"] for flag in measured.flags}


class Cheat(Linear):
    """Other logits whenever `is_cheating`; `calls` are counted outside of the buffers."""

    def __init__(self):
        super().__init__()
        self.calls = 0

    def is_cheating(self, x):
        raise NotImplementedError

    def forward(self, x):
        self.calls += 1
        logits = super().forward(x)
        return logits.detach() * 0 + logits.roll(1, dims=1) if self.is_cheating(x) else logits


class WithGradients(Cheat):
    def is_cheating(self, x):
        return torch.is_grad_enabled()


class WhenInputNeedsGradients(Cheat):
    def is_cheating(self, x):
        return x.requires_grad


class InLargeBatches(Cheat):
    def is_cheating(self, x):
        return len(x) > 8


class InFullBatches(Cheat):
    def is_cheating(self, x):
        return len(x) >= 80


class InSmallBatches(Cheat):
    def is_cheating(self, x):
        return len(x) < 3


class AfterCalls(Cheat):
    def __init__(self, calls):
        super().__init__()
        self.limit = calls

    def is_cheating(self, x):
        return self.calls > self.limit


class AfterSeconds(Cheat):
    def __init__(self):
        super().__init__()
        self.end = time.monotonic() + 0.3

    def forward(self, x):
        time.sleep(0.01)
        return super().forward(x)

    def is_cheating(self, x):
        return time.monotonic() > self.end


class OnTheOriginalOnly(Cheat):
    def __init__(self):
        super().__init__()
        self.address = id(self)

    def is_cheating(self, x):
        return id(self) != self.address


class CountsInABuffer(Linear):
    """The count is restored after every piece, as all buffers are."""

    def __init__(self, limit):
        super().__init__()
        self.limit = limit
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))

    def forward(self, x):
        self.count += 1
        logits = super().forward(x)
        return logits.roll(1, dims=1) if self.count > self.limit else logits


class DependsOnOneImage(Linear):
    """The mean of the batch matters only beside an image that is far from the first ones."""

    def __init__(self, mark):
        super().__init__()
        self.mark = mark

    def forward(self, x):
        logits = super().forward(x)
        marked = (x.flatten(1)[:, :4] - self.mark).abs().amax(dim=1) < 1e-6
        return torch.where(marked.any(), logits.roll(1, dims=1), logits)


CHEATS = {
    "gradients on": (WithGradients, "grad_dependent"),
    "input requires gradients": (WhenInputNeedsGradients, "grad_dependent"),
    "more than 8 images": (InLargeBatches, "batch_dependent"),
    "full batches": (InFullBatches, "batch_dependent"),
    "small batches": (InSmallBatches, "batch_dependent"),
    "3 calls": (lambda: AfterCalls(3), "call_dependent"),
    "8 calls": (lambda: AfterCalls(8), "call_dependent"),
    "30 calls": (lambda: AfterCalls(30), "call_dependent"),
    "60 calls": (lambda: AfterCalls(60), "call_dependent"),
    "some time": (AfterSeconds, "call_dependent"),
    "a copy": (OnTheOriginalOnly, "copy_dependent"),
    "9 calls in a buffer": (lambda: CountsInABuffer(9), "call_dependent"),
    "20 calls in a buffer": (lambda: CountsInABuffer(20), "call_dependent"),
}


@pytest.mark.parametrize("name", CHEATS)
def test_a_model_that_answers_otherwise_under_some_condition_is_flagged_red(name):
    make, code = CHEATS[name]
    settings = {"batch_size": 96} if name == "full batches" else {}
    settings |= {"attack": {"steps": 25}} if name[:2] in ("20", "60") else {}
    flags = codes(measure(make(), **settings))
    assert flags.get(code) == "red", flags


def test_batch_dependence_far_from_the_first_images_is_found_at_the_end_of_its_piece():
    model = DependsOnOneImage(images(96)[70].flatten()[:4])
    assert codes(measure(model))["batch_dependent"] == "red"
    assert codes(measure(model, suite="clean"))["batch_dependent"] == "red"


@pytest.mark.parametrize("suite", ["clean", "pgd"])
def test_an_ordinary_model_is_consistent(suite):
    assert codes(measure(Linear(), suite=suite)) == {}


@pytest.mark.parametrize("name", ["vit_digits", "resnet8_cifar"])
def test_ordinary_networks_are_consistent_before_and_after(name):
    model = ht.load_model(
        name, num_classes=4, seed=0, **({"depth": 1, "width": 16, "heads": 2} if "vit" in name else {})
    )
    x = images(32, side=32)
    checks = Consistency(model.eval(), Runtime(device="cpu"), batch_size=48)
    assert checks.before(x, radius=0.03) == []
    with torch.no_grad():
        logits = model(x)
    columns = {"clean_prediction": logits.argmax(1).numpy(), "clean_confidence": logits.softmax(1)[:, 0].numpy()}
    assert checks.after(x, torch.zeros(32, dtype=torch.int64), columns) == []
    other = {**columns, "clean_prediction": (columns["clean_prediction"] + 1) % 4}
    assert [flag["code"] for flag in checks.after(x, torch.zeros(32, dtype=torch.int64), other)] == ["call_dependent"]


def test_the_sample_is_random_over_all_images_and_the_same_at_every_call():
    checks = Consistency(Linear(), Runtime(device="cpu"), batch_size=32)
    rows = checks.sample(10_000, 192)
    assert torch.equal(rows, checks.sample(10_000, 192)) and len(rows.unique()) == 32
    assert rows.max() > 8000 and (rows < 1000).sum() < 16
    assert len(checks.sample(5, 192)) == 5 and len(checks.sample(10_000, 3 * 224 * 224)) == 8


def test_noise_is_called_random_and_nothing_else():
    class Noise(Linear):
        def forward(self, x):
            logits = super().forward(x)
            return logits + (len(x) > 8) * 0.1 * torch.randn_like(logits)

    assert codes(measure(Noise())) == {"random_outputs": "red"}, "the first eight images alone show no noise"


def test_a_flag_of_a_piece_survives_a_kill(tmp_path, monkeypatch):
    """The process that ends the evaluation need not be the one that saw the inconsistency."""
    model, data = DependsOnOneImage(images(96)[70].flatten()[:4]), (images(96), labels(96))
    from hardtack.evaluation import suite

    def killed(*args, **kwargs):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(suite, "summarise", killed)
        with pytest.raises(KeyboardInterrupt):
            ht.evaluate(model, data, suite="clean", batch_size=32, folder=tmp_path, quiet=True)
    measured = ht.evaluate(model, data, suite="clean", batch_size=32, folder=tmp_path, quiet=True)
    assert codes(measured)["batch_dependent"] == "red"
    assert all(any(flag["code"] == "batch_dependent" for flag in result.flags) for result in read_results(tmp_path))


def test_bf16_that_changes_the_answers_is_flagged():
    class InBf16(Linear):
        def forward(self, x):
            logits = super().forward(x)
            return logits.roll(1, dims=1) if torch.is_autocast_enabled("cpu") else logits

    flags = codes(measure(InBf16(), runtime=Runtime(device="cpu", precision="bf16")))
    assert flags["dtype_dependent"] == "red"
    assert "dtype_dependent" not in codes(measure(Linear(), runtime=Runtime(device="cpu", precision="bf16")))
    assert "dtype_dependent" not in codes(measure(InBf16()))


def test_a_model_without_a_deep_copy_is_measured_without_that_check():
    class NoCopy(Linear):
        def __deepcopy__(self, memo):
            raise TypeError("no copies")

    assert codes(measure(NoCopy())) == {}


def test_the_mode_of_the_model_is_as_before():
    model = nn.Sequential(Linear(), nn.Dropout(0.5)).train()
    measure(model)
    assert all(module.training for module in model.modules())


@pytest.mark.parametrize("suite, most", [("clean", 300), ("pgd", 520)])
def test_the_checks_cost_a_few_hundred_passes_of_one_image(suite, most, monkeypatch):
    class Counting(Linear):
        shown = 0

        def forward(self, x):
            self.shown += len(x)
            return super().forward(x)

    checked, plain = Counting(), Counting()
    measure(checked, suite=suite)
    with monkeypatch.context() as patch:
        for check in ("before", "piece", "after"):
            patch.setattr(Consistency, check, lambda *args, **kwargs: [])
        measure(plain, suite=suite)
    assert 0 < checked.shown - plain.shown <= most


def test_validation_in_training_pays_for_no_checks(monkeypatch):
    from hardtack.data import load_data
    from hardtack.evaluation.validation import make_validator

    def fails(*args, **kwargs):
        raise AssertionError("compared")

    monkeypatch.setattr(Consistency, "compare", fails)
    data = load_data("digits", "validation").subset(range(16))
    scores = make_validator(data, batch_size=8, runtime=Runtime(device="cpu"))(Linear(classes=10, side=32))
    assert 0 <= scores["clean_accuracy"] <= 1
    with pytest.raises(AssertionError, match="compared"):
        ht.evaluate(Linear(classes=10, side=32), data, suite="clean", quiet=True)
