"""Spectra and growth on a CUDA device are those of the CPU."""

import pytest
import torch

import hardtack as ht
from hardtack.base.runtime import Runtime
from hardtack.models import load_model

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]

X = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
Y = torch.arange(2)


def on(device, name, model="vit_digits", **settings):
    network = load_model(model, num_classes=10, seed=0)
    return ht.analyze(network, (X, Y), name, runtime=Runtime(device=device), quiet=True, **settings)


@pytest.mark.parametrize("model", ["vit_digits", "covit_t2_32", "pvtv2_b0_32"])
def test_spectra_are_those_of_the_cpu(model):
    of = ("block", "residual", "network")
    quick, slow = (on(device, "jacobian", model, of=of, top=2) for device in ("cuda", "cpu"))
    for kind in of:
        assert quick.arrays[f"sigma_{kind}"] == pytest.approx(slow.arrays[f"sigma_{kind}"], rel=1e-3)


def test_bounds_vectors_and_other_methods_run_there():
    for settings in (
        {"bound": True, "n": 1, "of": ("block",)},
        {"method": "power", "vectors": True},
        {"vectors": True},
    ):
        found = on("cuda", "jacobian", **settings)
        assert found.of("sigma_max", "block").value > 1
    exact = on("cuda", "jacobian", method="dense", n=1, of=("block",)).arrays["sigma_block"]
    assert on("cuda", "jacobian", n=1, of=("block",)).arrays["sigma_block"] == pytest.approx(exact, rel=1e-3)


def test_growth_is_that_of_the_cpu():
    quick, slow = (on(device, "growth", attack="fgsm") for device in ("cuda", "cpu"))
    for name in ("first order", "random", "adversarial"):
        assert quick.of("log10_growth", name).value == pytest.approx(slow.of("log10_growth", name).value, abs=0.01)
