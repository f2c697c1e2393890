"""The model contract over every registered architecture and a cross-section of timm's."""

import functools

import pytest
import torch

from hardtack.models import load_model, rebuild, save_weights, tap
from hardtack.registry import models

# Full width, fewer blocks: the contract does not depend on depth, the test's time does.
SHORTER = {
    "vit_base_patch4_32": {"depth": 1},
    "vit_small_patch4_32": {"depth": 2},
    "vit_tiny_patch4_32": {"depth": 3},
    "resnet18_cifar": {"depths": (1, 1, 1, 1)},
    "resnet50_cifar": {"depths": (1, 1, 1, 1)},
    "preact_resnet18_cifar": {"depths": (1, 1, 1, 1)},
}
SMALL = {"image_size": 32, "patch_size": 4, "depth": 3}
TIMM = {
    "timm:vit_tiny_patch16_224": SMALL,
    "timm:deit_tiny_patch16_224": SMALL,
    "timm:deit_tiny_distilled_patch16_224": SMALL,
    "timm:eva02_tiny_patch14_224": SMALL,
    "timm:cait_xxs24_224": {**SMALL, "depth": 2},
    "timm:xcit_nano_12_p8_224": {"image_size": 32, "depth": 2},
    "timm:swin_tiny_patch4_window7_224": {
        "image_size": 64, "window_size": 4, "embed_dim": 24, "depths": (2, 2), "num_heads": (2, 4)
    },
    "timm:resnet18": {"image_size": 32},
    "timm:convnext_atto": {"image_size": 32},
}  # fmt: skip
CASES = {name: SHORTER.get(name, {}) for name in models.names()} | TIMM
every_model = pytest.mark.parametrize("name", CASES)


@pytest.fixture(autouse=True)
def one_thread():
    """Batches of two images: threads that wait for each other cost more than they bring."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@functools.cache
def loaded(name):
    return load_model(name, num_classes=7, seed=3, **CASES[name])


def images(name, count=2):
    size = loaded(name).image_size or 32
    return torch.rand(count, 3, size, size, generator=torch.Generator().manual_seed(0))


@every_model
def test_pixels_to_logits(name):
    model, x = loaded(name), images(name)
    with torch.no_grad():
        logits = model(x)
        assert logits.shape == (2, 7) and logits.dtype == torch.float32 and logits.isfinite().all()
        assert torch.equal(logits, model(x)), "eval mode must be deterministic"
        alone = model(x[:1])
    assert torch.allclose(alone, logits[:1], atol=1e-5), "an image's logits depend on its batch mates"
    assert model.num_classes == 7 and not model.training


@every_model
def test_input_gradient_is_finite_and_alive(name):
    x = images(name).requires_grad_()
    (gradient,) = torch.autograd.grad(loaded(name)(x).square().sum(), x)
    assert gradient.isfinite().all() and gradient.abs().sum() > 0


@every_model
def test_normalisation_is_the_first_layer(name):
    model, x = loaded(name), images(name)
    with torch.no_grad():
        assert torch.equal(model(x), model.body((x - 0.5) / 0.5))
    assert model.architecture["mean"] == [0.5] * 3


@every_model
def test_a_file_alone_brings_the_model_back(name, tmp_path):
    model, x = loaded(name), images(name)
    state = torch.get_rng_state()
    save_weights(tmp_path / "a.safetensors", model, metadata={"epoch": 3})
    again = rebuild(tmp_path / "a.safetensors")
    assert torch.equal(state, torch.get_rng_state())
    assert again.architecture == {**model.architecture, "options": again.architecture["options"]}
    with torch.no_grad():
        assert torch.equal(again(x), model(x))


@every_model
def test_taps_listen_without_a_trace(name):
    model, x = loaded(name), images(name).requires_grad_()
    hooks = [len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules()]
    plain = model(x)
    with tap(model) as taps:
        assert torch.equal(model(x), plain)
    assert hooks == [len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules()]
    assert len(taps.features) == len(taps.feature_names) and len(taps.attention) == len(taps.attention_names)
    assert bool(taps.note) == (not taps.features), "empty taps must say why"
    for feature in taps.features:
        assert feature.ndim == 3
    for weights in taps.attention:
        assert torch.allclose(weights.sum(-1), torch.ones(()), atol=1e-5)
    if taps.features:
        total = sum(f.square().mean() for f in taps.features) + sum(a.square().sum() for a in taps.attention)
        (gradient,) = torch.autograd.grad(total, x)
        assert gradient.isfinite().all() and gradient.abs().sum() > 0
