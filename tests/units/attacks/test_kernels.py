"""Kernels of a double against the layers they replace, by Triton's interpreter: no GPU is needed."""

import os
import subprocess
import sys

import pytest

pytest.importorskip("triton")

PROGRAM = """
import torch
from torch import nn
from hardtack.attacks.pool.kernels import quicken

torch.manual_seed(0)

def compare(layer, x):
    for value in (*layer.parameters(), *layer.buffers()):
        if value.is_floating_point():
            value.data.uniform_(0.3, 2)
    net, weights, found = nn.Sequential(layer).eval(), torch.randn(x.shape), []
    for _ in range(2):
        y = net(x)
        found.append((y, torch.autograd.grad((y * weights).sum(), x)[0]))
        quicken(net)
    assert type(net[0]) is not type(layer), "nothing was replaced"
    for ours, theirs in zip(*found):
        assert torch.allclose(ours, theirs, atol=1e-5), (ours - theirs).abs().max()
    assert found[1][0].stride() == found[0][0].stride()

for width, shape in ((192, (3, 5, 192)), (7, (11, 7)), (300, (2, 3, 4, 300))):
    compare(nn.LayerNorm(width, eps=1e-6), torch.randn(shape, requires_grad=True))
    compare(nn.LayerNorm(width, bias=False), torch.randn(shape, requires_grad=True))
compare(nn.LayerNorm(6), torch.randn(4, 6, 5).transpose(1, 2).requires_grad_())
for form in (torch.contiguous_format, torch.channels_last):
    compare(nn.BatchNorm2d(6), torch.randn(3, 6, 5, 4).contiguous(memory_format=form).requires_grad_())
    compare(nn.BatchNorm2d(6, affine=False), torch.randn(3, 6, 5, 4).contiguous(memory_format=form).requires_grad_())

kept = nn.Sequential(nn.LayerNorm((5, 4)), nn.BatchNorm2d(6, track_running_stats=False), nn.LayerNorm(9000))
kinds = [type(layer) for layer in kept]
quicken(kept)
assert [type(layer) for layer in kept] == kinds, "layers that the kernels do not fit stay"
"""


def test_kernels_equal_the_layers_they_replace():
    environment = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    ended = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr[-2000:]
