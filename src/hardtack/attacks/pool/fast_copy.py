"""The model as searches run it: a copy of the real one, made for speed. Verdicts never come from it.

On the GPU the copy has its weights in bf16 (casting them at every pass, as autocast does, costs a quarter of the
speed of a small transformer), its convolutions channels-last, its normalisation and its last linear layer in fp32,
so that logits keep differences that bf16 would round away. Normalisation layers become kernels that know that their
parameters are fixed, and attention over short sequences is a kernel of ours (models/fast_layers.py). For finer threats
the weights are in fp16, which rounds eight times finer at the same speed, with gradients scaled image by image. A model
that cannot be copied, or that fails after the conversion, is run through autocast as it is.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from hardtack.attacks.pool.gradient_scale import GradientScale
from hardtack.base.kernel_launch import compile_ahead
from hardtack.base.runtime import Runtime, SearchPrecision
from hardtack.models import cpu_layers
from hardtack.models.compiled_blocks import compile_blocks
from hardtack.models.fast_layers import FastLayers


class FastCopy(nn.Module):
    """`body` in bf16 or fp16, from fp32 pixels to fp32 logits; `layers` is entered around its passes."""

    def __init__(
        self,
        body: nn.Module,
        layers: Callable[[], contextlib.AbstractContextManager[Any]] = FastLayers,
        *,
        scaled: bool = False,
    ) -> None:
        """`scaled`: gradients are scaled on their way through the layers, as fp16 needs it."""
        super().__init__()
        self.body, self.layers, self.scaled = body, layers, scaled

    def compile_blocks(self) -> None:
        """Compile the repeated blocks; the compiler has its own kernels then."""
        self.layers = contextlib.nullcontext
        compile_blocks(self.body)

    @torch.no_grad()
    def follow(self, model: nn.Module) -> None:
        """Take over the weights that `model`, of which this is a copy, has now. It has no host synchronisation."""
        from hardtack.attacks.pool.kernels import FrozenBatchNorm

        theirs = {**dict(model.named_parameters()), **dict(model.named_buffers())}
        mine = {**dict(self.body.named_parameters()), **dict(self.body.named_buffers())}
        torch._foreach_copy_(list(mine.values()), [theirs[name].detach() for name in mine])
        for name, module in self.body.named_modules():
            if isinstance(module, FrozenBatchNorm):
                norm = model.get_submodule(name)
                assert isinstance(norm, nn.BatchNorm2d)
                module.follow(norm)

    def forward(self, x: Tensor) -> Tensor:
        scale = GradientScale() if self.scaled and torch.is_grad_enabled() and x.requires_grad else None
        with self.layers():
            logits = _logits(self.body(x if scale is None else scale.pixels(x)))
        return logits if scale is None else scale.logits(logits)


class SearchModel(NamedTuple):
    """The model that searches call, the arithmetic to call it in, and the precision that this amounts to."""

    model: nn.Module
    arithmetic: SearchPrecision
    precision: SearchPrecision


_FINER: dict[SearchPrecision, SearchPrecision] = {"bf16": "tf32", "fp16": "tf32", "tf32": "fp32"}
_DTYPES: dict[SearchPrecision, torch.dtype] = {"bf16": torch.bfloat16, "fp16": torch.float16}
_LIKE, _SAME = 0.2, 1e-3  # how far logits may be off, in units of their spread: with rounding, in fp32
_COMPILED: set[torch.dtype | None] = set()  # types whose kernels this process has compiled
_GAIN = 0.9  # honest networks in bf16: above 0.97; a ripple on the input, which keeps all logits: below 0.8


def search_model(model: nn.Module, runtime: Runtime, precision: SearchPrecision, probe: Tensor) -> SearchModel:
    """What searches run on. `probe`: a few images, on which a copy must have the model's logits and gradient.

    Where rounding spoils the gradient, a finer precision is tried: TF32, then fp32 on the model. On a CPU a model that
    cannot be copied is searched in fp32, too: autocast would be slower.
    """
    on_cpu = runtime.torch_device.type == "cpu"
    while precision != "fp32":
        found = _in_precision(model, runtime, precision, probe)
        if on_cpu and not isinstance(found.model, FastCopy):
            break
        with runtime.arithmetic("fp32"):
            exact = _gradient(model, probe)
        with runtime.arithmetic(found.arithmetic):
            rounded = _gradient(found.model, probe)
        if gradient_gain(exact, rounded) >= _GAIN:
            return found
        precision = _FINER.get(precision, "fp32")
        if precision == "tf32" and runtime.torch_device.type != "cuda":
            precision = "fp32"
    return _in_precision(model, runtime, "fp32", probe)


def _in_precision(model: nn.Module, runtime: Runtime, precision: SearchPrecision, probe: Tensor) -> SearchModel:
    """A fast copy, where it saves time and has the model's logits; else the model itself."""
    dtype = _DTYPES.get(precision)
    saves = {"cuda": True, "cpu": cpu_layers.saves_time(model, dtype)}.get(runtime.torch_device.type, False)
    fast = fast_copy(model, runtime, dtype, probe) if saves else None
    if fast is None:
        return SearchModel(model, precision, precision)
    return SearchModel(fast, precision if dtype is None else "fp32", precision)


def training_model(model: nn.Module, runtime: Runtime, probe: Tensor) -> SearchModel:
    """What attacks in training run on: a copy that rounds about as autocast does, or the model itself.

    Weights that have not been trained yet amplify rounding, in autocast as in a copy. So a copy is compared with what
    autocast makes of the model, where searches of evaluations ask for more.
    """
    own = SearchModel(model, runtime.precision, runtime.precision)
    dtype = _DTYPES.get(own.precision)
    with runtime.arithmetic("fp32"), torch.no_grad():
        exact = _logits(model(probe))
    with runtime.arithmetic(), torch.no_grad():
        rounded = _logits(model(probe))
    fast = fast_copy(model, runtime, dtype, probe, like=1.5 * _distance(rounded, exact))
    if fast is None:
        return own
    found = SearchModel(fast, own.precision if dtype is None else "fp32", own.precision)
    with runtime.arithmetic("fp32"):
        slope = _gradient(model, probe)
    with runtime.arithmetic():
        theirs = gradient_gain(slope, _gradient(model, probe))
    with runtime.arithmetic(found.arithmetic):
        mine = gradient_gain(slope, _gradient(fast, probe))
    return found if mine >= min(_GAIN, theirs - (1 - _GAIN)) else own


def fast_copy(
    model: nn.Module, runtime: Runtime, dtype: torch.dtype | None, probe: Tensor, *, like: float = 0.0
) -> FastCopy | None:
    """A copy with weights in `dtype` (None: as they are); None if the model cannot be copied or the logits differ.

    `like`: they may differ by so much in any case, in units of their spread.
    """
    try:
        with torch.no_grad(), runtime.arithmetic("fp32"):
            fast = _convert(model, dtype, probe)
            _compile_once(fast, dtype, probe)
            wanted, got = _logits(model(probe)), fast(probe)
    except (RuntimeError, TypeError, AttributeError):  # it cannot be copied, or mixes types by hand
        return None
    tolerance = _SAME if dtype is None and probe.device.type == "cpu" else max(_LIKE, like)
    return fast if got.isfinite().all() and _distance(got, wanted) <= tolerance else None


def _compile_once(fast: FastCopy, dtype: torch.dtype | None, probe: Tensor) -> None:
    """Compile the kernels of a copy together, the first time that this process makes one of this type."""
    if probe.device.type == "cuda" and dtype not in _COMPILED:
        _COMPILED.add(dtype)
        random = torch.random.fork_rng([probe.device])  # of models that draw numbers
        with contextlib.suppress(Exception), random:  # a model without a gradient is still one to predict with
            compile_ahead(lambda: _gradient(fast, probe))


def _distance(logits: Tensor, wanted: Tensor) -> float:
    """How far logits are from those wanted, in units of their spread."""
    return float((logits - wanted).abs().mean() / wanted.std(dim=1).mean().clamp_min(1e-6))


def _gradient(model: nn.Module, x: Tensor) -> Tensor:
    """Of the largest logit against the second largest, with respect to the images."""
    with torch.enable_grad():
        image = x.detach().clone().requires_grad_()
        logits = _logits(model(image))
        if not logits.requires_grad:
            return torch.zeros_like(x)
        top = logits.topk(2, dim=1).values
        return torch.autograd.grad((top[:, 0] - top[:, 1]).sum(), image, materialize_grads=True)[0]


def gradient_gain(exact: Tensor, rounded: Tensor) -> float:
    """What a step along the signs of the rounded gradient gains, as a share of what the exact signs would gain."""
    exact, rounded = (part.float().nan_to_num(0.0, 0.0, 0.0) for part in (exact, rounded))
    most = exact.abs().sum()
    return float((exact * rounded.sign()).sum() / most) if most > 0 else 1.0


def _convert(model: nn.Module, dtype: torch.dtype | None, probe: Tensor) -> FastCopy:
    twin = copy.deepcopy(model).eval().requires_grad_(False).to(memory_format=torch.channels_last)
    head = last_layer(twin, probe)
    if probe.device.type == "cpu":
        if dtype is not None:
            _cast(twin, head, dtype)
        cpu_layers.pack(twin)
        layers = contextlib.nullcontext if dtype is None else cpu_layers.OwnAttention
        return FastCopy(twin, layers, scaled=dtype == torch.float16)
    from hardtack.attacks.pool.kernels import quicken  # imports Triton, which takes long

    quicken(twin)
    if dtype is not None:
        _cast(twin, head, dtype)
    return FastCopy(twin, scaled=dtype == torch.float16)


def _cast(twin: nn.Module, head: nn.Module | None, dtype: torch.dtype) -> None:
    """Everything between the normalisation and the last linear layer, which stay in fp32."""
    twin.to(dtype)
    entrance = getattr(twin, "normalise", None)
    if entrance is not None:
        entrance.float()
        entrance.register_forward_hook(lambda module, given, out: out.to(dtype))
    else:
        twin.register_forward_pre_hook(lambda module, given: (given[0].to(dtype), *given[1:]))
    if head is not None:
        head.float()
        head.register_forward_pre_hook(lambda module, given: (given[0].float(),))


def last_layer(model: nn.Module, probe: Tensor) -> nn.Linear | None:
    """The linear layer whose output is the model's."""
    seen: list[tuple[nn.Linear, Tensor]] = []
    hooks = [
        module.register_forward_hook(lambda module, given, out: seen.append((module, out)))
        for module in model.modules()
        if isinstance(module, nn.Linear)
    ]
    try:
        logits = _logits(model(probe))
    finally:
        for hook in hooks:
            hook.remove()
    last, out = seen[-1] if seen else (None, None)
    return last if out is not None and out.shape == logits.shape and torch.equal(out, logits) else None


def _logits(out: Any) -> Tensor:
    return (out if isinstance(out, Tensor) else out.logits).float()
