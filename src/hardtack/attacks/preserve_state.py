"""An attack leaves the model and the random state as they were: everything it changes is restored here."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Literal

import torch
from torch import nn

from hardtack.attacks.batchnorm_fix import single_image_batchnorm

Mode = Literal["eval", "train"]


@contextlib.contextmanager
def preserve_state(model: nn.Module, *, mode: Mode = "eval") -> Iterator[None]:
    """Freeze the parameters and set the mode inside the block; afterwards every training flag (of every
    submodule), `requires_grad`, buffer and the global random states are what they were, bit for bit.

    Gradients are enabled inside and new tensors are float32, whatever the caller's settings, as attacks need it.
    """
    modules = list(model.modules())
    flags = [module.training for module in modules]
    parameters = list(model.parameters())
    wanted = [parameter.requires_grad for parameter in parameters]
    # the version counter tells which buffers were written, except that batch norm writes behind its back
    written = [(buffer, buffer.clone(), buffer._version) for buffer in model.buffers()]
    # … and `self.count = self.count + 1` puts another tensor in its place
    places = [(module._buffers, dict(module._buffers)) for module in modules]
    default_dtype = torch.get_default_dtype()
    devices = sorted({parameter.device.index for parameter in parameters if parameter.device.type == "cuda"})
    try:
        torch.set_default_dtype(torch.float32)
        model.train(mode == "train")
        for parameter in parameters:
            parameter.requires_grad_(False)
        with (
            torch.random.fork_rng(devices),
            torch.inference_mode(False),
            torch.enable_grad(),
            single_image_batchnorm(model),
        ):
            yield
    finally:
        torch.set_default_dtype(default_dtype)
        for module, flag in zip(modules, flags, strict=True):
            module.training = flag
        for parameter, want in zip(parameters, wanted, strict=True):
            parameter.requires_grad_(want)
        for place, buffers in places:
            place.update(buffers)
        with torch.no_grad():
            for buffer, before, version in written:
                if mode == "train" or buffer._version != version:
                    buffer.copy_(before)
