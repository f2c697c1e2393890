"""The copy that searches run on: the model's own logits and gradients, up to the rounding of its precision."""

import pytest
import torch
from torch import nn

import hardtack as ht
from hardtack.attacks.pool.fast_copy import FastCopy, gradient_gain, search_model, training_model
from hardtack.evaluation.settings import EvaluationConfig
from hardtack.evaluation.suites import search_precision
from hardtack.models import cpu_layers
from hardtack.threats import Threat

pytestmark = pytest.mark.skipif(not cpu_layers.available(), reason="this torch has no oneDNN")
RUNTIME = ht.Runtime(device="cpu")


@pytest.fixture(scope="module")
def vit():
    torch.manual_seed(0)
    return ht.load_model("vit_digits", num_classes=10).eval().requires_grad_(False)


@pytest.fixture(scope="module")
def convolutions():
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 128, 3, stride=4), nn.BatchNorm2d(128), nn.ReLU(), nn.Conv2d(128, 256, 3), nn.ReLU()]
    return ht.wrap(nn.Sequential(*layers, nn.Flatten(), nn.Linear(256 * 36, 10))).eval().requires_grad_(False)


def images(count, side=32):
    return torch.rand(count, 3, side, side, generator=torch.Generator().manual_seed(1))


def gradient(model, x):
    image = x.clone().requires_grad_()
    (value,) = torch.autograd.grad(model(image).logsumexp(dim=1).sum(), image)
    return value


def weights_of(model):
    return {name: value.clone() for name, value in model.state_dict().items()}


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("network", ["vit", "convolutions"])
def test_a_copy_has_the_models_logits_and_gradients(request, network, precision, monkeypatch):
    monkeypatch.setitem(cpu_layers._FEWEST, "bf16", 0)
    model, x = request.getfixturevalue(network), images(24)
    before = weights_of(model)
    found = search_model(model, RUNTIME, precision, x[:8])
    assert isinstance(found.model, FastCopy) and found.precision == precision
    assert found.arithmetic == "fp32"  # the copy has its own types; autocast would only cost time
    logits, wanted = found.model(x), model(x)
    error = float((logits - wanted).norm() / wanted.norm())
    assert logits.dtype == torch.float32 and error < (1e-5 if precision == "fp32" else 0.05)
    gain = gradient_gain(gradient(model, x), gradient(found.model, x))
    assert gain > (0.9999 if precision == "fp32" else 0.97)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_a_small_model_is_not_copied():
    torch.manual_seed(0)
    model = ht.wrap(nn.Sequential(nn.Flatten(), nn.Linear(3 * 64, 10))).eval()
    for precision in ("fp32", "bf16"):
        assert search_model(model, RUNTIME, precision, images(4, side=8)) == (model, "fp32", "fp32")


class Lazy(nn.Module):
    """Cannot be copied."""

    def __init__(self, body):
        super().__init__()
        self.body = body

    def forward(self, x):
        return self.body(x)

    def __deepcopy__(self, memo):
        raise TypeError("no copies")


def test_a_model_that_cannot_be_copied_is_searched_in_fp32(vit):
    model = Lazy(vit)
    assert search_model(model, RUNTIME, "bf16", images(4)) == (model, "fp32", "fp32")


class Ripple(nn.Module):
    """Adds a fine wave, whose slope rounding destroys, to the pixels."""

    def __init__(self, body):
        super().__init__()
        self.body = body

    def forward(self, x):
        return self.body(x + 2e-4 * torch.sin(x * 2e4))


def test_where_bf16_loses_the_gradient_fp32_is_taken(vit, monkeypatch):
    monkeypatch.setitem(cpu_layers._FEWEST, "bf16", 0)
    found = search_model(Ripple(vit), RUNTIME, "bf16", images(8))
    assert found.precision == "fp32"


@pytest.mark.parametrize(
    ("threat", "tier", "named", "has", "wanted"),
    [
        ("linf:8/255", "verified", "fp32", True, "bf16"),
        ("linf:8/255", "fast", "fp32", True, "bf16"),
        ("linf:8/255", "verified", "fp32", False, "fp32"),
        ("linf:8/255", "exact", "fp32", True, "fp32"),
        ("linf:1/255", "verified", "fp32", True, "fp32"),
        ("linf:1/255", "verified", "bf16", False, "bf16"),
    ],
)
def test_a_cpu_searches_in_bf16_where_it_has_instructions_for_it(monkeypatch, threat, tier, named, has, wanted):
    monkeypatch.setattr(cpu_layers, "has_bf16", lambda: has)
    config = EvaluationConfig(suite="autoattack", threat=Threat.parse(threat), tier=tier)
    assert search_precision(config, ht.Runtime(device="cpu", precision=named), 3 * 32 * 32) == wanted


@pytest.mark.parametrize(
    ("threat", "wanted"),
    [("linf:8/255", "bf16"), ("linf:1/255", "fp16"), ("linf:0.25/255", "fp16"), ("linf:0.2/255", "tf32"),
     ("l2:0.5", "bf16"), ("l2:0.3", "fp16"), ("l1:12", "bf16")],
)  # fmt: skip
def test_a_gpu_searches_as_coarsely_as_the_threat_is(monkeypatch, threat, wanted):
    runtime = ht.Runtime(device="cpu")
    monkeypatch.setattr(ht.Runtime, "torch_device", torch.device("cuda"))
    config = EvaluationConfig(suite="autoattack", threat=Threat.parse(threat), tier="verified")
    assert search_precision(config, runtime, 3 * 32 * 32) == wanted


class Coarse(nn.Module):
    """Has another slope in bf16, as rounding gives it to weights that are not trained yet."""

    def __init__(self, body):
        super().__init__()
        self.body = body

    def forward(self, x):
        logits = self.body(x)
        rounds = torch.is_autocast_enabled("cpu") or x.dtype == torch.bfloat16
        return logits - 300 * logits.detach().argsort(dim=1) * x.float().mean(dim=(1, 2, 3))[:, None] * rounds


def test_training_takes_a_copy_that_rounds_as_autocast_does(vit, monkeypatch):
    monkeypatch.setitem(cpu_layers._FEWEST, "bf16", 0)
    bf16, x = ht.Runtime(device="cpu", precision="bf16"), images(8)
    assert isinstance(training_model(vit, bf16, x).model, FastCopy)
    coarse = Coarse(vit)
    assert search_model(coarse, bf16, "bf16", x).precision == "fp32"  # verdicts want more
    assert isinstance(training_model(coarse, bf16, x).model, FastCopy)
    for own in (Lazy(vit), Ripple(vit)):  # autocast keeps the ripple, the copy does not
        assert training_model(own, bf16, x) == (own, "bf16", "bf16")


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_verdicts_on_a_copy_do_not_depend_on_the_batch(vit, precision, monkeypatch):
    monkeypatch.setitem(cpu_layers._FEWEST, "bf16", 0)
    x = images(12)
    y = vit(x).argmax(dim=1)
    found = []
    for batch_size, order in ((12, slice(None)), (5, slice(None)), (12, torch.arange(11, -1, -1))):
        measured = ht.evaluate(
            vit, (x[order], y[order]), suite="autoattack", tier="fast", threat="linf:2/255", quiet=True, audit=0,
            batch_size=batch_size, runtime=ht.Runtime(device="cpu", precision=precision),
        )  # fmt: skip
        found.append(measured.robust[order] if not isinstance(order, slice) else measured.robust)
    assert 0 < found[0].sum() < 12
    assert (found[0] == found[1]).all() and (found[0] == found[2]).all()
