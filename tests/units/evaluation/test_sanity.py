"""Attack successes that are verified, inputs that are refused, and results that carry a flag."""

import pytest
import torch
from torch import nn

import hardtack as ht
from hardtack.attacks import Ascent
from hardtack.base.errors import UserError
from hardtack.results import read_results
from tiny_runs import Linear, images, labels


@pytest.fixture
def model():
    return ht.wrap(Linear(), num_classes=4)


def right_labels(model, count=12):
    with torch.no_grad():
        return model(images(count)).argmax(dim=1)


def measure(model, data, **settings):
    return ht.evaluate(model, data, quiet=True, **{"threat": "linf:0.01", **settings})


def codes(measured):
    return {flag["code"]: flag["level"] for flag in measured.flags}


# ---------------------------------------------------------------- a search may lie


def lying_search(lie):
    """A search that claims to have fooled every image, with points that `lie` makes from the clean ones."""
    honest = Ascent.search

    def search(self, model, x, y, **kwargs):
        outcome = honest(self, model, x, y, **kwargs)
        everywhere = torch.ones_like(outcome.fooled)
        return outcome._replace(x_adv=lie(x), fooled=everywhere, broken_at=torch.zeros_like(outcome.broken_at))

    return search


@pytest.mark.parametrize(
    "lie",
    [
        pytest.param(lambda x: x, id="not misclassified"),
        pytest.param(lambda x: 1 - x, id="outside the ball"),
        pytest.param(lambda x: x.clamp(0.4, 0.6), id="outside the ball a little"),
        pytest.param(lambda x: x - 2, id="outside the box"),
        pytest.param(lambda x: x * torch.nan, id="not a number"),
    ],
)
def test_claimed_successes_are_verified(model, monkeypatch, lie):
    data = images(), right_labels(model)
    monkeypatch.setattr(Ascent, "search", lying_search(lie))
    monkeypatch.setattr(Ascent, "pooled", False)
    measured = measure(model, data)
    assert measured.robust_accuracy == measured.clean_accuracy == 1
    assert measured.verdicts["unverified"].all() and measured.results[-1].extra["unverified"] == 12


def test_a_true_success_is_counted_even_where_the_search_missed_it(model, monkeypatch):
    """Low precision may call a success a failure; the fp32 check decides both ways."""
    honest = Ascent.search

    def modest(self, *args, **kwargs):
        outcome = honest(self, *args, **kwargs)
        return outcome._replace(fooled=torch.zeros_like(outcome.fooled))

    data = images(), right_labels(model)
    expected = measure(model, data, threat="linf:0.05").robust_accuracy
    monkeypatch.setattr(Ascent, "search", modest)
    assert measure(model, data, threat="linf:0.05").robust_accuracy == expected < 1


# ---------------------------------------------------------------- refusals


class Returns(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.linear, self.function = Linear(), function

    def forward(self, x):
        return self.function(self.linear(x))


def nan_image():
    x = images()
    x[3, 0, 0, 0] = torch.nan
    return x


@pytest.mark.parametrize(
    "x, y, told",
    [
        (images() * 255, labels(), r"\[0,1\].*divide values of 0 … 255 by 255"),
        (images() - 0.5, labels(), r"\[0,1\].*undo any normalisation"),
        (images().clamp(max=0.5) + 0.5001, labels(), r"\[0,1\]"),
        (nan_image(), labels(), r"\[0,1\], found \[nan"),
        (images()[:0], labels()[:0], "no images"),
        (images()[:, :2], labels(), "no axis of 1 or 3 channels"),
        (images()[0], labels()[:1], r"x\[None\]"),
        (images().round().byte(), labels(), "only 0 and 1"),
        (images(), labels() + 4, r"0 … 3, found 4 … "),
        (images(), labels() - 5, "found -5"),
        (images(), labels() + 0.5, "whole numbers"),
        (images(), torch.eye(4)[labels()], "argmax"),
        (images(), labels()[:11], "one label for each image"),
        (images(20)[:10], labels(12), "one label for each image"),
        (images(14), labels(12), "one label for each image"),
        (images(14).numpy(), labels(12).numpy(), "one label for each image"),
    ],
)
def test_invalid_inputs_are_refused(model, tmp_path, x, y, told):
    with pytest.raises(UserError, match=told):
        measure(model, (x, y), folder=tmp_path / "run")
    assert not (tmp_path / "run").exists(), "a refused evaluation leaves nothing"


def test_invalid_images_beyond_the_first_ones_are_refused(model):
    x = images(40)
    x[37] = 7.0
    with pytest.raises(UserError, match=r"\[0,1\]"):
        measure(model, (x, labels(40)), batch_size=8)
    y = labels(40)
    y[39] = 9
    with pytest.raises(UserError, match="0 … 3"):
        measure(model, (images(40), y), batch_size=8)


def test_rounding_errors_at_0_and_1_are_accepted(model):
    x = images()
    x[0, 0, 0, 0], x[1, 0, 0, 0] = -5e-7, 1 + 5e-7
    assert measure(model, (x, labels())).clean_accuracy >= 0


def test_negative_labels_are_named_even_where_the_classes_are_not_known():
    with pytest.raises(UserError, match=r"labels must lie in 0 … C−1, found -1"):
        measure(Linear(), (images(), labels() - 1))


def test_a_label_without_a_logit_is_refused_where_the_model_does_not_say():
    with pytest.raises(UserError, match="4 classes"):
        measure(Linear(), (images(), labels() + 2))


@pytest.mark.parametrize(
    "function, told",
    [
        (lambda z: z.softmax(dim=1), "probabilities.*softmax"),
        (lambda z: z * torch.nan, "NaN"),
        (lambda z: z / 0, "infinite"),
        (lambda z: z[:, :, None], "N×classes"),
        (lambda z: z.mean(dim=0, keepdim=True), "N×classes"),
    ],
)
def test_outputs_that_are_not_logits_are_refused(function, told):
    with pytest.raises(UserError, match=told):
        measure(ht.wrap(Returns(function), num_classes=4), (images(), labels()))


@pytest.mark.parametrize(
    "data, told",
    [
        (None, "pair"),
        ("digit", "no dataset 'digit'"),
        ((images(),), "pair"),
        (images(), "pair"),
        ({"train": 1, "test": 2}, r"data\['test'\]"),
        (3, "found int"),
        ([images()], "images without labels"),
    ],
)
def test_data_of_another_shape_is_refused(model, data, told):
    with pytest.raises(UserError, match=told):
        measure(model, data)


@pytest.mark.parametrize(
    "settings, told",
    [
        ({"suite": "pdg"}, "did you mean 'pgd'"),
        ({"threat": "linf:8"}, r"linf:8/255"),
        ({"threat": "8/255"}, "norm:eps"),
        ({"attack": {"stps": 3}}, r"did you mean 'attack\.steps'"),
        ({"attack": {"name": "fgms"}}, "did you mean 'fgsm'"),
        ({"batch_size": 0}, "batch_size"),
        ({"sute": "pgd"}, "did you mean 'suite'"),
        ({"examples": -1}, "examples"),
    ],
)
def test_invalid_settings_are_refused(model, settings, told):
    with pytest.raises(UserError, match=told):
        measure(model, (images(), labels()), **settings)


# ---------------------------------------------------------------- flags


class Quantised(nn.Module):
    """Rounds its input: right answers, no gradients. The classic way to look robust."""

    def __init__(self, how):
        super().__init__()
        self.linear, self.how = Linear(), how

    def forward(self, x):
        return self.linear(self.how(x))


class Saturated(Linear):
    def forward(self, x):
        return super().forward(x).mul(1e4).tanh() * 50


class Noisy(Linear):
    def forward(self, x):
        logits = super().forward(x)
        return logits + 0.1 * torch.randn_like(logits)


class AlwaysDropping(Linear):
    def forward(self, x):
        return super().forward(nn.functional.dropout(x, 0.3, training=True))


class MeanOfBatch(Linear):
    def forward(self, x):
        return super().forward(x - x.mean(dim=0, keepdim=True))


@pytest.mark.parametrize("how", [lambda x: (x * 4).round() / 4, lambda x: x.detach()], ids=["rounding", "detached"])
def test_masked_gradients_are_flagged_red(how):
    model = Quantised(how)
    measured = measure(model, (images(), right_labels(model)))
    assert codes(measured)["zero_gradient"] == "red" and "ZERO" not in str(measured)
    assert "RED FLAG zero_gradient" in str(measured)


def test_saturated_outputs_are_flagged():
    model = Saturated()
    measured = measure(model, (images(), right_labels(model)))
    assert "zero_gradient" in codes(measured) and measured.robust_accuracy > 0.5


@pytest.mark.parametrize("model", [Noisy(), AlwaysDropping()], ids=["noise", "dropout"])
def test_random_outputs_are_flagged_red_on_every_number(model):
    measured = measure(model, (images(), labels()))
    assert codes(measured)["random_outputs"] == "red"
    assert all("random_outputs" in {flag["code"] for flag in result.flags} for result in measured.results)
    assert "batch_dependent" not in codes(measured), "noise explains the difference already"


def test_logits_that_depend_on_the_batch_are_flagged_red():
    assert codes(measure(MeanOfBatch(), (images(), labels())))["batch_dependent"] == "red"
    assert "batch_dependent" in codes(measure(MeanOfBatch(), (images(), labels()), suite="clean"))


def test_dlr_with_two_classes_is_flagged_yellow():
    model = Linear(classes=2)
    y = right_labels(model)
    assert codes(measure(model, (images(), y), attack={"loss": "dlr"})) == {"few_classes": "yellow"}
    assert codes(measure(model, (images(), y), attack={"loss": "margin"})) == {}


def test_a_loss_that_never_rises_is_flagged_yellow():
    class Repelling(torch.autograd.Function):
        """Right logits, gradients that lead the wrong way."""

        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            return -gradient

    model = Quantised(Repelling.apply)
    measured = measure(model, (images(), right_labels(model)), attack={"start": "clean"})
    assert codes(measured) == {"flat_loss": "yellow", "gradient_mismatch": "red", "unconstrained_failure": "red"}
    assert "YELLOW FLAG flat_loss" in str(measured)


def test_flags_are_stored_with_the_numbers(tmp_path):
    model = Noisy()
    measured = measure(model, (images(), labels()), folder=tmp_path)
    stored = read_results(tmp_path)
    assert [result.flags for result in stored] == [result.flags for result in measured.results]
    (flag,) = [flag for flag in stored[0].flags if flag["code"] == "random_outputs"]
    assert flag["level"] == "red" and "differ" in flag["message"]


@pytest.mark.parametrize("loss", ["ce", "margin", "dlr"])
@pytest.mark.parametrize("name", ["linear", "vit", "resnet"])
def test_an_ordinary_model_carries_no_flag(name, loss):
    model = {
        "linear": lambda: ht.wrap(Linear(scale=0.02), num_classes=4),
        "vit": lambda: ht.load_model("vit_digits", num_classes=4, depth=1, width=16, heads=2, seed=0),
        "resnet": lambda: ht.load_model("resnet8_cifar", num_classes=4, seed=0),
    }[name]()
    x = images(16, side=8 if name == "linear" else 32)
    y = model(x).argmax(dim=1)
    measured = measure(model, (x, y), threat="linf:1/255", attack={"loss": loss})
    assert measured.flags == ()
    assert measure(model, (x, y), suite="clean").flags == ()
