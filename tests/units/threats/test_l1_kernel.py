"""The l1 projection's kernel against the plain one, by Triton's interpreter: no GPU is needed."""

import os
import subprocess
import sys

import pytest

pytest.importorskip("triton")

PROGRAM = """
import torch
from hardtack.threats import l1_kernel
from hardtack.threats.balls import BALLS, _BISECTION_STEPS, TINY

torch.manual_seed(0)
ball = BALLS["l1"]
for shape, spread in (((5, 3, 7, 9), 1.0), ((4, 3, 8, 8), 0.01), ((3, 1, 2, 2), 30.0)):
    x = torch.rand(shape)
    z = x + spread * torch.randn(shape)
    z[0] = x[0]  # an image that has not moved
    for eps in (torch.full((1, 1), 2.0), torch.linspace(0.1, 9, shape[0])[:, None]):
        assert l1_kernel.fits(x)
        got = l1_kernel.project(z, x, eps, steps=_BISECTION_STEPS, tiny=TINY).clamp(0, 1)
        wanted = ball.project(z, x, eps.expand(shape[0], 1)[:, 0])
        assert torch.allclose(got, wanted, atol=1e-5), (got - wanted).abs().max()
        assert (ball.size(got - x) <= eps[:, 0] * (1 + 1e-6)).all()
assert not l1_kernel.fits(torch.rand(1, 3, 224, 224)) and not l1_kernel.fits(torch.rand(2, 3, 4, 4).double())
"""


def test_the_kernel_projects_as_the_plain_function_does():
    environment = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    ended = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr[-2000:]
