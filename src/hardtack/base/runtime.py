"""Where and how a job computes: device, precision, compilation, seed and rank. A value, no global state.

Ranks are read from the environment that `torchrun` sets; joining the process group is the trainer's and
the evaluation’s business and goes through `join`.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import torch

from hardtack.base.annotations import Shown
from hardtack.base.errors import UserError

Precision = Literal["fp32", "tf32", "bf16"]
SearchPrecision = Literal["fp32", "tf32", "fp16", "bf16"]


@dataclass(frozen=True, kw_only=True)
class Runtime:
    """Section `runtime:`: where and how precisely everything is computed.

    device      auto (the GPU where there is one), cpu, cuda, cuda:N or mps
    precision   what the network computes in; the verdicts of an evaluation are confirmed in fp32 in any case
    compile     null: CUDA graphs on the GPU and no compiler, so that work starts at once; true: torch.compile, which
                takes a minute or more; false: neither
    shard       divide the weights of a model in training over the processes of torchrun (FSDP2), which otherwise each
                hold all of them
    seed        of all random numbers: initial weights, order of images, augmentations, attacks

    With `compile: null` only the updates of a training in several processes are compiled.
    """

    device: Annotated[str, Shown("word", "auto, cpu, cuda, cuda:N, mps")] = "auto"
    precision: Precision = "fp32"
    compile: bool | None = None
    shard: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        kind = self.device.split(":")[0]
        if not re.fullmatch(r"auto|cpu|mps|cuda(:\d+)?", self.device):
            raise UserError(f"device '{self.device}' is none of auto, cpu, cuda, cuda:N, mps")
        if kind == "cuda" and not torch.cuda.is_available():
            raise UserError("device 'cuda' was asked for, but torch sees none; use runtime.device=cpu or auto")

    @property
    def rank(self) -> int:
        return int(os.environ.get("RANK", 0))

    @property
    def world_size(self) -> int:
        return int(os.environ.get("WORLD_SIZE", 1))

    @property
    def is_main(self) -> bool:
        return self.rank == 0

    @property
    def torch_device(self) -> torch.device:
        if self.device == "auto":
            if not (torch.cuda.is_initialized() or torch.cuda.is_available()):  # the second takes a millisecond
                return torch.device("cpu")
            return torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)))
        if self.device == "cuda":  # asking for the current device wakes CUDA, so only without a rank
            local = os.environ.get("LOCAL_RANK")
            return torch.device("cuda", torch.cuda.current_device() if local is None else int(local))
        return torch.device(self.device)

    @property
    def compiles(self) -> bool:
        """Whether the updates of a training are compiled. Graphs cannot hold the exchange between processes."""
        several = self.world_size > 1 and self.torch_device.type == "cuda"
        return several if self.compile is None else self.compile

    @property
    def captures(self) -> bool:
        """Whether fixed-shape functions are worth recording as CUDA graphs."""
        return self.compile is not False and self.torch_device.type == "cuda"

    @property
    def shards(self) -> bool:
        return self.shard and self.world_size > 1

    @contextlib.contextmanager
    def arithmetic(self, precision: SearchPrecision | None = None, *, autocast: bool = True) -> Iterator[None]:
        """Compute in this precision inside the block; the process's own settings return afterwards.

        fp32 means true fp32, convolutions included (cuDNN would otherwise use TF32 silently). Backward passes
        take `autocast=False`: their types were settled by the forward pass.
        """
        chosen = precision or self.precision
        dtype = torch.float16 if chosen == "fp16" else torch.bfloat16
        half = torch.autocast(self.torch_device.type, dtype, enabled=autocast and chosen in ("fp16", "bf16"))
        with _tf32(chosen != "fp32"), half:
            yield

    def compiled(self, function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
        """`function` through torch.compile where this runtime compiles, and itself elsewhere."""
        return torch.compile(function, **options) if self.compiles else function

    def join(self) -> None:
        """Join the process group of torchrun, once for the life of the process; a single process has none."""
        if self.world_size == 1 or torch.distributed.is_initialized():
            return
        backend = "nccl" if self.torch_device.type == "cuda" else "gloo"
        if backend == "nccl":
            torch.cuda.set_device(self.torch_device)
        torch.distributed.init_process_group(backend)
        atexit.register(_leave)  # not earlier: torchrun's store does not take a second joining

    def wait(self) -> None:
        """Until every process has come this far."""
        if self.world_size > 1:
            torch.distributed.barrier()

    def share(self, value: bool) -> bool:
        """The value of the main process, in every process."""
        if self.world_size == 1:
            return value
        holder = torch.tensor([int(value)], device=self.torch_device)
        torch.distributed.broadcast(holder, src=0)
        return bool(holder.item())


def _leave() -> None:
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


@contextlib.contextmanager
def _tf32(allowed: bool) -> Iterator[None]:
    """Allow or forbid TF32 inside the block.

    torch keeps two generations of switches: one for each kind of kernel, and an older pair that refuses to be
    read once the two disagree. Both are set, so that they agree inside the block, and both are put back.
    """
    backends: Any = torch.backends
    cudnn, mkldnn = backends.cudnn, backends.mkldnn
    kernels = [backends.cuda.matmul, cudnn.conv, cudnn.rnn, mkldnn.matmul, mkldnn.conv]
    before = [kernel.fp32_precision for kernel in kernels]
    matmul, convolution = _readable(torch.get_float32_matmul_precision), _readable(lambda: cudnn.allow_tf32)
    torch.set_float32_matmul_precision("high" if allowed else "highest")
    cudnn.allow_tf32 = allowed
    for kernel in kernels:
        kernel.fp32_precision = "tf32" if allowed else "ieee"
    try:
        yield
    finally:
        if matmul is not None:
            torch.set_float32_matmul_precision(matmul)
        if convolution is not None:
            cudnn.allow_tf32 = convolution
        for kernel, precision in zip(kernels, before, strict=True):
            kernel.fp32_precision = precision


def _readable(switch: Callable[[], Any]) -> Any:
    try:
        return switch()
    except RuntimeError:
        return None
