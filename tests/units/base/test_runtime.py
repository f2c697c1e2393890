"""Where and how a job computes, without leaving a trace on the process."""

import contextlib

import pytest
import torch

from hardtack.base.errors import UserError
from hardtack.base.runtime import Runtime

without_cuda = pytest.mark.skipif(torch.cuda.is_available(), reason="a CUDA device is present")


@pytest.fixture
def environment(monkeypatch):
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


# ---------------------------------------------------------------- devices and ranks


@pytest.mark.parametrize("device", ["gpu", "cpu:x", "cpu:1", "cuda:x", "cuda:", "cuda:-1", "", "auto:1", "CPU"])
def test_unknown_devices_are_refused(device):
    with pytest.raises(UserError, match="none of auto, cpu, cuda, cuda:N, mps"):
        Runtime(device=device)


@without_cuda
@pytest.mark.parametrize("device", ["cuda", "cuda:1"])
def test_a_device_that_is_not_there_is_refused(device):
    with pytest.raises(UserError, match=r"use runtime\.device=cpu or auto"):
        Runtime(device=device)


@without_cuda
def test_auto_is_the_cpu_without_a_gpu_and_does_not_compile():
    runtime = Runtime()
    assert runtime.torch_device == torch.device("cpu")
    assert not runtime.compiles and not runtime.captures
    assert Runtime(compile=True).compiles and not Runtime(compile=True).captures


def test_auto_takes_the_gpu_of_its_local_rank(environment):
    environment.setattr(torch.cuda, "is_available", lambda: True)
    assert Runtime().torch_device == torch.device("cuda", 0)
    environment.setenv("LOCAL_RANK", "3")
    assert Runtime().torch_device == Runtime(device="cuda").torch_device == torch.device("cuda", 3)
    assert Runtime(device="cuda:1").torch_device == torch.device("cuda", 1)
    assert Runtime(device="cpu").torch_device == torch.device("cpu")
    assert Runtime().captures and not Runtime().compiles and not Runtime(compile=False).captures
    environment.setenv("WORLD_SIZE", "4")
    assert Runtime().compiles and not Runtime(compile=False).compiles


def test_rank_comes_from_torchrun(environment):
    runtime = Runtime(device="cpu")
    assert (runtime.rank, runtime.world_size, runtime.is_main) == (0, 1, True)
    environment.setenv("RANK", "2")
    environment.setenv("WORLD_SIZE", "4")
    assert (runtime.rank, runtime.world_size, runtime.is_main) == (2, 4, False)


def test_a_single_process_joins_nothing():
    Runtime(device="cpu").join()
    Runtime(device="cpu").wait()
    assert not torch.distributed.is_initialized()


def test_a_process_group_is_joined_once(monkeypatch):
    """A second job of the same process must find the group as it is: torchrun's store takes one joining."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    calls = []
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: bool(calls))
    monkeypatch.setattr(torch.distributed, "init_process_group", lambda backend: calls.append(backend))
    monkeypatch.setattr("atexit.register", lambda leave: calls.append("leaves at exit"))
    Runtime(device="cpu").join()
    Runtime(device="cpu").join()
    assert calls == ["gloo", "leaves at exit"]


def test_only_compiling_runtimes_compile():
    def function(x):
        return x + 1

    assert Runtime(device="cpu").compiled(function) is function
    compiled = Runtime(device="cpu", compile=True).compiled(function, backend="eager")
    assert compiled is not function and compiled(torch.ones(2)).tolist() == [2, 2]


# ---------------------------------------------------------------- precision


def switches():
    """All that decides how fp32 matrices and convolutions are multiplied; unreadable ones as `None`."""
    backends = torch.backends
    found = [backends.cuda.matmul.fp32_precision, backends.cudnn.conv.fp32_precision]
    found += [
        backends.cudnn.rnn.fp32_precision,
        backends.mkldnn.matmul.fp32_precision,
        backends.fp32_precision,
    ]
    for read in (torch.get_float32_matmul_precision, lambda: backends.cudnn.allow_tf32):
        with contextlib.suppress(RuntimeError):
            found.append(read())
    return found


def _older(matmul, convolution=True):
    torch.set_float32_matmul_precision(matmul)
    torch.backends.cudnn.allow_tf32 = convolution


def _newer(matmul):
    torch.backends.cuda.matmul.fp32_precision = matmul


HABITS = {
    "untouched": lambda: None,
    "highest": lambda: _older("highest", False),
    "high": lambda: _older("high"),
    "medium": lambda: _older("medium"),
    "newer ieee": lambda: _newer("ieee"),
    "newer tf32": lambda: _newer("tf32"),
}


@pytest.fixture(params=HABITS)
def habit(request):
    """A process with its own opinion about TF32; torch's defaults return afterwards."""
    before = torch.backends.cuda.matmul.fp32_precision
    HABITS[request.param]()
    yield request.param
    _older("highest", True)
    torch.backends.cuda.matmul.fp32_precision = before
    torch.backends.mkldnn.matmul.fp32_precision = "none"


@pytest.mark.parametrize("precision", ["fp32", "tf32", "bf16"])
def test_precision_holds_inside_and_returns_afterwards_even_after_an_error(habit, precision):
    before = switches()
    runtime = Runtime(device="cpu", precision=precision)
    with pytest.raises(KeyError), runtime.arithmetic():
        expected = "ieee" if precision == "fp32" else "tf32"
        assert torch.backends.cuda.matmul.fp32_precision == torch.backends.cudnn.conv.fp32_precision == expected
        assert torch.is_autocast_enabled("cpu") == (precision == "bf16")
        # whoever asks the older switches inside the block (a compiler does) gets an answer, and the same one
        assert torch.backends.cuda.matmul.allow_tf32 == torch.backends.cudnn.allow_tf32 == (precision != "fp32")
        raise KeyError
    assert switches()[:5] == before[:5]
    assert not torch.is_autocast_enabled("cpu")
    if not habit.startswith("newer"):
        assert switches() == before, "the older switches are readable and unchanged"


def test_precision_of_products():
    a, b = torch.randn(8, 8), torch.randn(8, 8)
    with Runtime(device="cpu", precision="bf16").arithmetic():
        assert (a @ b).dtype == torch.bfloat16
    with Runtime(device="cpu", precision="bf16").arithmetic(autocast=False):
        assert (a @ b).dtype == torch.float32
    with torch.autocast("cpu", torch.bfloat16), Runtime(device="cpu", precision="bf16").arithmetic("fp32"):
        assert (a @ b).dtype == torch.float32, "verification in fp32 is not to be lowered by the caller"


def test_making_a_runtime_changes_nothing(environment):
    before = switches(), torch.get_rng_state(), torch.get_num_threads(), torch.is_grad_enabled()
    Runtime(device="cpu", precision="bf16", compile=True, seed=7)
    after = switches(), torch.get_rng_state(), torch.get_num_threads(), torch.is_grad_enabled()
    assert before[0] == after[0] and torch.equal(before[1], after[1]) and before[2:] == after[2:]


def test_a_runtime_is_a_value():
    assert Runtime(device="cpu") == Runtime(device="cpu") and hash(Runtime(device="cpu"))
    with pytest.raises(AttributeError):
        Runtime().seed = 3
