"""A step must replay as a CUDA graph: it makes no tensor from Python numbers, reads none back, and keeps its shapes.

Recording on a GPU fails on each of these; here they are caught on the CPU, by listening to what torch is asked for.
"""

import pytest
import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from hardtack.attacks import FAB, Square
from hardtack.attacks.apgd import APGD
from hardtack.attacks.pool.search import NewItems
from hardtack.threats import Threat, balls

COPIES = (torch.tensor, torch.as_tensor, torch.asarray, torch.from_numpy, torch.Tensor.cpu, torch.Tensor.numpy)
WAITS = ("_local_scalar_dense", "nonzero", "masked_select", "unique", "is_nonzero", "equal")
THREATS = ("linf:0.03", "l2:0.5", "l1:3")


class Asked(TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function in COPIES and not isinstance(args[0], torch.Tensor):
            raise AssertionError(f"{function.__name__} of {args[0]!r} is a copy from the host")
        if function in (torch.Tensor.cpu, torch.Tensor.numpy):
            raise AssertionError("a tensor is read back")
        return function(*args, **(kwargs or {}))


class Waited(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function.overloadpacket.__name__
        assert name not in WAITS, f"{name} waits for the device"
        if name in ("index", "index_put", "index_put_"):
            assert not any(i is not None and i.dtype == torch.bool for i in args[1]), (
                "a boolean index waits for the device"
            )
        return function(*args, **(kwargs or {}))


def searches(threat):
    threat = Threat.parse(threat)
    yield APGD(threat=threat, loss="ce", steps=10)
    yield APGD(threat=threat, loss="dlr", steps=10, targets=3, official=True, widened=threat.norm == "l1")
    yield APGD(threat=threat, loss="pm", steps=10, plans=(5, 10), schedule="cosine")
    yield FAB(threat=threat, steps=5, targets=3)
    yield FAB(threat=threat, steps=5, fused=True)
    yield Square(threat=threat, steps=20)
    yield Square(threat=threat, steps=20, official=True, rescale=True)


def begin(search, count=4):
    x = torch.rand(count, 3, 9, 9, generator=torch.Generator().manual_seed(0))
    y = torch.arange(count) % 5
    return search.begin(
        NewItems(
            x=x, y=y, target=(y + 1) % 5 if search.targets else torch.full_like(y, -1), keys=y + 7, image_keys=y,
            steps=torch.full_like(y, search.steps), clean=torch.zeros(count, 5), start=x.clone(),
            warm=torch.zeros(count, dtype=torch.bool), restart=torch.zeros_like(y),
        )
    )  # fmt: skip


def network():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return nn.Sequential(nn.Conv2d(3, 4, 3), nn.GELU(), nn.Flatten(), nn.Linear(196, 5)).requires_grad_(False)


@pytest.fixture(autouse=True)
def as_on_a_gpu(monkeypatch):
    monkeypatch.setattr(balls, "can_look", lambda x: False)


@pytest.mark.parametrize("threat", THREATS)
@pytest.mark.parametrize("number", range(7))
def test_a_step_asks_nothing_of_the_host(threat, number):
    search, model = list(searches(threat))[number], network()
    state = begin(search)
    state |= search.advance(model, state)  # tables are made on the first call, before anything is recorded
    for _ in range(3):
        with Asked(), Waited():
            made = search.advance(model, state)
        for name, value in made.items():
            assert value.shape == state[name].shape and value.dtype == state[name].dtype, name
        state |= made


@pytest.mark.parametrize("threat", THREATS)
def test_neither_do_several_proposals_at_once(threat):
    search, model = Square(threat=Threat.parse(threat), steps=20, rescale=True), network()
    state = begin(search)
    drawn = search.draw(state, 8)
    for _ in range(3):
        with Asked(), Waited():
            made = search.advance_ahead(model, state, search.draw(state, 8), ahead=4, interval=5)
            again = search.draw(state | made, 8)
        state |= made
        assert {name: value.shape for name, value in again.items()} == {k: v.shape for k, v in drawn.items()}


@pytest.mark.parametrize("fault", [lambda x: x + torch.tensor(1.0), lambda x: x * x[0, 0].item(), lambda x: x[x > 0]])
def test_the_listeners_hear(fault):
    with pytest.raises(AssertionError), Asked(), Waited():
        fault(torch.ones(2, 2))
