"""The kernels of training against PyTorch's own layers, by Triton's interpreter: no GPU is needed."""

import os
import subprocess
import sys

import pytest

pytest.importorskip("triton")

PROGRAM = """
import torch
import torch.nn.functional as F
from hardtack.models import attention_kernel, kernels

torch.manual_seed(0)

def gradients(function, *leaves):
    out = function(*leaves)
    weights = torch.randn(out.shape, generator=torch.Generator().manual_seed(1))
    return out, *torch.autograd.grad((out * weights).sum(), [leaf for leaf in leaves if leaf is not None])

def compare(ours, theirs, *leaves, tolerance=1e-5):
    for number, (mine, wanted) in enumerate(zip(gradients(ours, *leaves), gradients(theirs, *leaves), strict=True)):
        assert mine.shape == wanted.shape and mine.dtype == wanted.dtype, number
        assert torch.allclose(mine, wanted, rtol=1e-4, atol=tolerance), (number, (mine - wanted).abs().max())

def leaf(*shape):
    return torch.randn(shape, requires_grad=True)

for width, shape in ((192, (70, 5, 192)), (7, (1500, 7)), (300, (2, 3, 4, 300)), (1, (9, 1))):
    layer = lambda x, w, b: kernels.layer_norm(x, w, b, 1e-6, torch.float32)
    torchs = lambda x, w, b: F.layer_norm(x, (width,), w, b, 1e-6)
    compare(layer, torchs, leaf(*shape), leaf(width), leaf(width), tolerance=1e-4)
    compare(layer, torchs, leaf(*shape), leaf(width), None, tolerance=1e-4)

x = torch.randn(3, 8, 16)
x.requires_grad_()
normed = kernels.layer_norm(x, torch.ones(16), None, 1e-5, torch.float32)
first, = torch.autograd.grad(normed.square().sum(), x, create_graph=True)
try:
    first.square().sum().backward()
    raise SystemExit("a second derivative through a kernel would be wrong, and was computed")
except RuntimeError as error:
    assert "twice" in str(error)
x.requires_grad_(False)
half = kernels.layer_norm(x, torch.ones(16), None, 1e-5, torch.bfloat16)
assert half.dtype == torch.bfloat16 and torch.allclose(half.float(), F.layer_norm(x, (16,)), rtol=2**-7)

for rows, width in ((1, 1), (5, 3), (700, 130), (9000, 24)):
    matrix = torch.randn(rows, width)
    assert torch.allclose(kernels.column_sums(matrix), matrix.sum(0), atol=1e-3), (rows, width)
    assert torch.equal(kernels.column_sums(matrix), kernels.column_sums(matrix))

linear = lambda x, w, b: kernels.linear(x, w, b, torch.float32)
for shape in ((6, 5), (3, 4, 5), (2, 3, 2, 5)):
    compare(linear, F.linear, leaf(*shape), leaf(7, 5), leaf(7))
    compare(linear, F.linear, leaf(*shape), leaf(7, 5), None)

# the parts of one tensor, as networks cut them; float32 here, which only the check of `fits` keeps from the kernel
theirs = lambda *x: F.scaled_dot_product_attention(*x, scale=0.3)
ours = lambda *x: attention_kernel.attention(*x, 0.3)
for tokens, width in ((1, 4), (16, 16), (17, 8), (40, 24), (65, 64), (128, 12)):
    parts = lambda x: [part.transpose(1, 2) for part in x.unbind(2)]
    compare(lambda x: ours(*parts(x)), lambda x: theirs(*parts(x)), leaf(2, tokens, 3, 2, width))
compare(ours, theirs, *[leaf(1, 2, 5, 4).transpose(2, 3).detach().requires_grad_() for _ in range(3)])
"""


def test_kernels_equal_the_layers_they_replace():
    environment = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    ended = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM], env=environment, capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stderr[-2000:]
