"""Kernels are launched as they are, or compiled together before the computation that needs them."""

import threading
from types import SimpleNamespace

import pytest
import torch

from hardtack.base.kernel_launch import _Compiler, as_in_forward, compile_ahead, compiling, launch
from hardtack.models import attention_kernel, kernels


class Kernel:
    """What Triton's kernels look like; a launch doubles the first tensor into the second."""

    def __init__(self, error=None):
        self.launches, self.compiled, self.threads, self.error = [], [], set(), error

    def __getitem__(self, grid):
        def run(x, y, size, *, warps):
            self.launches.append((grid, size, warps))
            y.copy_(2 * x)

        return run

    def warmup(self, x, y, size, *, grid, warps):
        self.threads.add(threading.current_thread())
        if self.error is not None:
            raise self.error
        self.compiled.append((grid, size, warps))
        return type("Compiled", (), {"run": None})


def double(kernel, x):
    y = torch.full_like(x, torch.nan)
    launch(kernel, (1,), x, y, 4, writes=(y,), warps=2)
    return y


def test_a_launch_is_the_kernels_own():
    kernel = Kernel()
    assert double(kernel, torch.ones(4)).tolist() == [2, 2, 2, 2]
    assert kernel.launches == [((1,), 4, 2)] and not kernel.compiled


def test_ahead_kernels_are_compiled_in_threads_and_not_launched():
    first, second, results = Kernel(), Kernel(), []
    compile_ahead(lambda: results.append(double(second, double(first, torch.ones(4)))))
    assert results[0].tolist() == [0, 0, 0, 0], "never what lay in memory: it may be used as an index"
    for kernel in (first, second):
        assert kernel.compiled == [((1,), 4, 2)] and not kernel.launches
        assert threading.main_thread() not in kernel.threads
    assert double(first, torch.ones(4)).tolist() == [2, 2, 2, 2], "afterwards launches are launches again"


def on_another_thread(work):
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def test_launches_of_other_threads_stay_launches():
    mine, other, results = Kernel(), Kernel(), []

    def compute():
        double(mine, torch.ones(4))
        on_another_thread(lambda: results.append(double(other, torch.ones(4))))

    compile_ahead(compute)
    assert results[0].tolist() == [2, 2, 2, 2] and not other.compiled
    assert len(mine.compiled) == 1 and not mine.launches


def test_a_backward_pass_on_another_thread_does_as_its_forward_pass():
    kernel = Kernel()
    backward = as_in_forward(lambda ctx, gradient: double(kernel, gradient))
    ahead, launched = SimpleNamespace(), SimpleNamespace()

    def compute():
        ahead.compiler = compiling()
        on_another_thread(lambda: backward(ahead, torch.ones(4)))
        on_another_thread(lambda: double(kernel, torch.ones(4)))

    compile_ahead(compute)
    assert len(kernel.compiled) == len(kernel.launches) == 1
    launched.compiler = compiling()
    assert backward(launched, torch.ones(4)).tolist() == [2, 2, 2, 2]


@pytest.mark.skipif(not kernels.available(), reason="Triton is not installed")
@pytest.mark.parametrize("backward_of_other_thread", [False, True])
def test_every_function_hands_over_its_kernels_forward_and_backward(monkeypatch, backward_of_other_thread):
    """Those of our autograd functions; what they would have computed is zeros, on any device."""
    handed = []
    monkeypatch.setattr(_Compiler, "add", lambda self, kernel, *_: handed.append(kernel.fn.__name__))
    x, weight = torch.randn(6, 24, requires_grad=True), torch.randn(24, 24, requires_grad=True)
    norm, bias = (torch.randn(24, requires_grad=True) for _ in range(2))
    image, channels = torch.randn(2, 3, 4, 4, requires_grad=True), torch.ones(3)
    heads = [torch.randn(1, 2, 5, 16, dtype=torch.bfloat16, requires_grad=True) for _ in range(3)]

    def compute():
        results = [
            kernels.layer_norm(x, norm, bias, 1e-5, torch.bfloat16),
            kernels.layer_norm(x, norm.detach(), None, 1e-5, torch.float32),
            kernels.linear(x, weight, bias, torch.bfloat16),
            kernels.affine(image, channels, channels),
            attention_kernel.attention(*heads, 0.25),
        ]
        assert not any(bool(results[number].any()) for number in (0, 1, 3, 4))
        loss = sum(result.float().sum() for result in results)
        if backward_of_other_thread:
            on_another_thread(loss.backward)
        else:
            loss.backward()

    compile_ahead(compute)
    assert sorted(handed) == sorted([
        *["_normalise"] * 2, "_normalise_back_all", "_normalise_back", "_column_sums", *["_affine"] * 2, "_forward",
        "_backward",
    ])  # fmt: skip


def test_a_kernel_that_does_not_compile_is_left_to_its_launch():
    kernel = Kernel(RuntimeError("no such instruction"))
    compile_ahead(lambda: double(kernel, torch.ones(4)))
    assert double(kernel, torch.ones(4)).tolist() == [2, 2, 2, 2]


def test_a_computation_that_fails_leaves_launches_as_they_were():
    with pytest.raises(ZeroDivisionError):
        compile_ahead(lambda: 1 / 0)
    assert compiling() is None


@pytest.mark.gpu
def test_ahead_and_at_once_give_the_same(monkeypatch, tmp_path):
    from triton import knobs

    from hardtack.base.new_kernels import new_kernels
    from hardtack.base.runtime import Runtime
    from hardtack.models.fast_layers import FastLayers, compile_layers

    monkeypatch.setattr(knobs.cache, "dir", str(tmp_path))  # nothing is compiled yet
    layers = torch.nn.Sequential(torch.nn.Linear(40, 24), torch.nn.LayerNorm(24), torch.nn.Linear(24, 8)).cuda()
    x = torch.randn(6, 5, 40, device="cuda")

    def gradients():
        layers.zero_grad()
        with FastLayers(), Runtime(precision="bf16").arithmetic():
            layers(x).square().sum().backward()
        return [parameter.grad.clone() for parameter in layers.parameters()]

    with new_kernels() as ahead:
        compile_layers(layers, torch.bfloat16)
    with new_kernels() as later:
        found = gradients()
    assert ahead.count > 0 and later.count == 0
    layers.double()
    x = x.double()
    wanted = torch.autograd.grad(layers(x).square().sum(), list(layers.parameters()))
    for got, want in zip(found, wanted, strict=True):
        assert torch.allclose(got.double(), want, rtol=0.05, atol=0.05 * float(want.abs().max()))
