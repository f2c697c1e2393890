"""One image alone has the gradient that it has among others, also where torch's batch norm gets it wrong."""

import threading

import pytest
import torch
from torch import nn

import hardtack as ht
from hardtack.attacks import preserve_state as preserve_state
from hardtack.base.runtime import Runtime
from tiny_runs import images


class Permuted(nn.Module):
    """Convolution, batch norm, then tokens: the gradient comes back to the norm permuted."""

    def __init__(self, norm=None):
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.norm, self.head = nn.Conv2d(3, 6, 3), norm or nn.BatchNorm2d(6), nn.Linear(6, 4)
        self.places = nn.Parameter(torch.randn(36, 6))
        for name in ("running_mean", "weight", "bias"):
            if getattr(self.norm, name) is not None:
                nn.init.normal_(getattr(self.norm, name))
        if self.norm.running_var is not None:
            nn.init.uniform_(self.norm.running_var, 0.5, 2)

    def forward(self, x):
        tokens = self.norm(self.conv(x)).flatten(2).transpose(1, 2).contiguous()
        return self.head((tokens * self.places).relu()).mean(dim=1)


def gradient(model, x):
    x = x.clone().requires_grad_()
    return torch.autograd.grad(model(x).logsumexp(dim=1).sum(), x)[0]


@pytest.mark.parametrize("norm", [None, nn.BatchNorm2d(6, affine=False), nn.BatchNorm2d(6, eps=0.1)])
def test_one_image_has_the_gradient_it_has_in_a_pair(norm):
    model, x = Permuted(norm).eval(), images(2)
    with preserve_state(model):
        pair, alone = gradient(model, x), torch.cat([gradient(model, one[None]) for one in x])
        assert torch.allclose(pair, alone, atol=1e-6)
        through = torch.func.grad(lambda one: model(one[None]).logsumexp(dim=1).sum())(x[0])
        assert torch.allclose(through, pair[0], atol=1e-6)
    with torch.no_grad():
        assert torch.allclose(model(x)[:1], model(x[:1]), atol=1e-6)


@pytest.mark.parametrize("mode, tracked", [("train", True), ("eval", False)])
def test_statistics_of_the_image_itself_are_left_to_torch(mode, tracked):
    norm = nn.BatchNorm2d(6, track_running_stats=tracked)
    model, x = Permuted(norm).train(mode == "train"), images(1)
    expected = model(x).detach()
    with preserve_state(model, mode=mode):
        assert torch.equal(model(x), expected)


def test_robust_accuracy_does_not_depend_on_the_batch():
    x = images(6)
    model = Permuted().eval()
    with torch.no_grad():
        model.head.weight.mul_(5)
        model.head.bias.sub_(model(x).mean(dim=0))
        y = model(x).argmax(dim=1)
    settings = {"suite": "pgd", "threat": "linf:0.03", "runtime": Runtime(device="cpu"), "quiet": True}
    one, all_ = (ht.evaluate(model, (x, y), batch_size=size, **settings) for size in (1, 6))
    assert one.robust.tolist() == all_.robust.tolist() and not all_.robust.all()


@pytest.mark.parametrize("name", ["levit_128s_32", "ceit_tiny_32"])
def test_networks_that_norm_before_their_tokens(name):
    model, x = ht.load_model(name, num_classes=10, seed=0).eval(), images(2, side=32)
    with preserve_state(model):
        assert torch.allclose(gradient(model, x)[:1], gradient(model, x[:1]), rtol=1e-3, atol=1e-6)


def test_attacks_of_several_threads_do_not_meet_in_the_model():
    """What is done about batch norm while one attack runs must not end while another one does."""
    model, x, y = Permuted().eval(), torch.rand(3, 3, 8, 8), torch.tensor([0, 1, 2])
    found = []

    def attacked(i):
        return ht.attack(model, x[i : i + 1], y[i : i + 1], "pgd", threat="linf:8/255", steps=5, keys=[i])

    def run(i):
        found.extend((i, attacked(i)) for _ in range(5))

    wanted = [attacked(i) for i in range(3)]
    threads = [threading.Thread(target=run, args=(i,)) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 15, "an attack ended with an error"
    assert all(torch.equal(adversarial, wanted[i]) for i, adversarial in found)
