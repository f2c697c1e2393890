"""Launch Triton kernels; or compile those that a computation needs, several at a time, before it runs.

Triton compiles a kernel on its first launch, which takes a core up to a second, and its launcher with a C compiler. A
model needs a handful. `compile_ahead` runs the computation once without launching anything, and compiles in threads
what would have been launched: most of the work is done outside of Python. Triton keeps compiled kernels on disk.

Launches of other threads stay launches. A backward pass runs on a thread of its own: an autograd function keeps
`compiling()` of its forward pass, and its backward pass is decorated `as_in_forward`.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import functools
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

from hardtack.base.cores import share_of_cores

Backward = TypeVar("Backward", bound=Callable[..., Any])


class _Thread(threading.local):
    """What launches of this thread are handed to; None: they are launched."""

    compiler: _Compiler | None = None


_THREAD = _Thread()


def launch(kernel: Any, grid: tuple[int, ...], *arguments: Any, writes: Sequence[Tensor], **constants: Any) -> None:
    """`kernel[grid](*arguments, **constants)`. `writes` are the tensors that the kernel fills."""
    if _THREAD.compiler is None:
        kernel[grid](*arguments, **constants)
        return
    for tensor in writes:  # what follows may use them as indices
        tensor.zero_()
    _THREAD.compiler.add(kernel, grid, arguments, constants, writes[0].device)


def compile_ahead(compute: Callable[[], object]) -> None:
    """Compile the kernels of `compute`. It is run with zeros for their results, so it must change nothing that stays.

    A kernel that cannot be compiled is left to its launch, which says why.
    """
    with concurrent.futures.ThreadPoolExecutor(max(2, share_of_cores())) as pool, _handing_to(_Compiler(pool)):
        compute()


def compiling() -> _Compiler | None:
    """What launches of this thread are handed to at the moment."""
    return _THREAD.compiler


def as_in_forward(backward: Backward) -> Backward:
    """A backward pass whose launches are treated as those of its forward pass, which has kept `ctx.compiler`."""

    @functools.wraps(backward)
    def run(ctx: Any, *gradients: Tensor) -> Any:
        with _handing_to(ctx.compiler):
            return backward(ctx, *gradients)

    return cast(Backward, run)


@contextlib.contextmanager
def _handing_to(compiler: _Compiler | None) -> Iterator[None]:
    before, _THREAD.compiler = _THREAD.compiler, compiler
    try:
        yield
    finally:
        _THREAD.compiler = before


class _Compiler:
    """Hands each launch to a thread. Triton itself knows which of them it has compiled."""

    def __init__(self, pool: concurrent.futures.Executor) -> None:
        self.pool = pool

    def add(self, kernel: Any, grid: Any, arguments: Any, constants: Any, device: torch.device) -> None:
        self.pool.submit(_compile, kernel, grid, arguments, constants, device)


def _compile(kernel: Any, grid: Any, arguments: Any, constants: Any, device: torch.device) -> None:
    on_device = torch.cuda.device(device) if device.type == "cuda" else contextlib.nullcontext()
    with contextlib.suppress(Exception), on_device:
        _ = kernel.warmup(*arguments, grid=grid, **constants).run  # asking for `run` builds the launcher
