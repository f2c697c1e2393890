"""Every mechanism on a GPU: the same answers as on the CPU, a gradient, and a copy in bf16 that runs."""

import copy
import dataclasses

import pytest
import torch

from hardtack.base.registry import mechanisms
from hardtack.evaluation.gauntlet import build_defence, find_truth, run_gauntlet
from hardtack.evaluation.gauntlet.truth import share_correct

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def gpu_core(core):
    """The core and its images on the GPU."""
    model, robust = (copy.deepcopy(part).cuda() for part in (core.model, core.robust))
    tensors = {name: getattr(core, name).cuda() for name in ("x", "y", "train_x", "train_y")}
    return dataclasses.replace(core, model=model, robust=robust, **tensors)


@pytest.mark.parametrize("name", mechanisms.names())
def test_a_mechanism_answers_on_the_gpu_as_on_the_cpu(core, gpu_core, defences, name):
    defence = build_defence(name, gpu_core, seed=0)
    assert defence.parameters == defences[name].parameters
    gpu = share_correct(defence.target, gpu_core.x, gpu_core.y, draws=16).mean()
    cpu = share_correct(defences[name].target, core.x, core.y, draws=16).mean()
    assert abs(gpu.item() - cpu.item()) <= 0.2
    leaf = gpu_core.x.clone().requires_grad_()
    assert torch.autograd.grad(defence.model(leaf).float().sum(), leaf)[0].device.type == "cuda"
    truth = find_truth(gpu_core, defence, steps=5, thorough=False)
    assert gpu_core.threat.contains(truth.x_adv, gpu_core.x).all()


@pytest.mark.parametrize("name", ["undefended", "ripple", "jpeg", "thermometer", "noise", "cheat_dtype", "cheat_calls"])
def test_fast_runs_on_the_gpu(gpu_core, name):
    (row,) = run_gauntlet(gpu_core, evaluators=["fast"], mechanisms=[name], quiet=True).rows
    assert row.verdict not in ("failed", "FALSE ALARM"), row
