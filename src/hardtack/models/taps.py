"""Token features and attention maps of any ViT-like model, as it computes, differentiable.

    with tap(model) as taps:
        logits = model(x)
    taps.features[3]     # N×T×D, output of the fourth block
    taps.attention[3]    # N×heads×T×T, rows sum to one

Blocks are recognised by their shape, not by a list of names: a module with an attention child (`attn`,
`self_attention`, …) beside a norm or MLP. Attention is overheard: while an attention module runs, a
torch-function mode listens for `scaled_dot_product_attention`, whose softmax it recomputes from the very
queries, keys, scale and mask that go in, and for explicit `softmax` calls, whose result it keeps. Rotary
positions, query norms, relative biases and window masks are therefore included whatever the architecture.

Checked: our ViT; timm's vit, deit, beit, eva, cait, swin, xcit; torchvision's ViT; `nn.TransformerEncoder`.
- swin: the maps are per window, (N·windows)×heads×window²×window².
- cait: the softmax before its talking heads mix; class attention gives N×heads×1×T.
- xcit: cross-covariance attention mixes channels, not tokens; only its class attention has maps.
- convolutional networks: no blocks, empty lists, and `taps.note` says so.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from hardtack.errors import UserError

_ATTENTION_NAMES = ("attn", "self_attn", "attention", "self_attention")
_BLOCK_SIGNS = ("norm", "ln", "layernorm", "mlp", "ffn")
_CHANNEL_ATTENTION = ("XCA", "Channel")  # softmax over channel pairs: nothing a token looks at
_SOFTMAX = (torch.softmax, Tensor.softmax, F.softmax)


@dataclass
class Taps:
    """What the latest forward pass of the tapped model showed, in the order of computation.

    `prefix_tokens` says how many leading tokens (class, registers) are not image patches.
    """

    features: list[Tensor] = field(default_factory=list)
    attention: list[Tensor] = field(default_factory=list)
    feature_names: list[str] = field(default_factory=list)
    attention_names: list[str] = field(default_factory=list)
    prefix_tokens: int = 0
    note: str = ""

    def clear(self) -> None:
        self.features, self.feature_names = [], []
        self.attention, self.attention_names = [], []


@contextlib.contextmanager
def tap(model: nn.Module, *, features: bool = True, attention: bool = True) -> Iterator[Taps]:
    """Listen to `model` inside the block. Its outputs, weights, flags and random state stay the same.

    Every forward pass replaces what the one before left in the taps.
    """
    _require_eager(model)
    blocks = find_blocks(model)
    taps = Taps(prefix_tokens=_prefix_tokens(model), note=_note(model, blocks))
    with contextlib.ExitStack() as hooks:
        handle = model.register_forward_pre_hook(lambda module, args: taps.clear())
        hooks.callback(handle.remove)
        if attention and blocks:
            hooks.callback(model.register_forward_hook(functools.partial(_note_silence, taps)).remove)
        for name, (block, attending) in blocks.items():
            if features:
                handle = block.register_forward_hook(functools.partial(_keep_feature, taps, name))
                hooks.callback(handle.remove)
            if attention and _mixes_tokens(attending):
                _listen(taps, name, attending, hooks)
        yield taps


def find_blocks(model: nn.Module) -> dict[str, tuple[nn.Module, nn.Module]]:
    """Transformer blocks by dotted name, each with its attention module, in order of definition."""
    blocks = {}
    for name, module in model.named_modules():
        children = dict(module.named_children())
        attending = next((children[word] for word in _ATTENTION_NAMES if word in children), None)
        if attending is not None and any(child.startswith(_BLOCK_SIGNS) for child in children):
            blocks[name] = (module, attending)
    return blocks


# ---------------------------------------------------------------- features


def _keep_feature(taps: Taps, name: str, block: nn.Module, args: Any, output: Any) -> None:
    output = output[0] if isinstance(output, tuple) else output
    taps.features.append(_as_tokens(output, block))
    taps.feature_names.append(name)


def _as_tokens(output: Tensor, block: nn.Module) -> Tensor:
    """N×T×D from N×T×D (the very tensor), N×H×W×D or N×D×H×W."""
    if output.ndim != 4:
        return output
    norm = next((module for module in block.modules() if isinstance(module, nn.LayerNorm)), None)
    width = output.shape[-1] if norm is None else norm.normalized_shape[-1]
    return output.flatten(1, 2) if output.shape[-1] == width else output.flatten(2).transpose(1, 2)


# ---------------------------------------------------------------- attention


def _listen(taps: Taps, name: str, attending: nn.Module, hooks: contextlib.ExitStack) -> None:
    """Record the attention maps that `attending` computes, until `hooks` is closed."""

    def keep(weights: Tensor) -> None:
        taps.attention.append(weights)
        taps.attention_names.append(name)

    if isinstance(attending, nn.MultiheadAttention):
        again = functools.partial(_ask_again, keep)
        hooks.callback(attending.register_forward_hook(again, with_kwargs=True).remove)
        return
    listening: list[_Overhear] = []

    def start(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        x = next((value for value in (*args, *kwargs.values()) if isinstance(value, Tensor)), None)
        listening.append(_Overhear(keep, x))
        listening[-1].__enter__()

    def stop(module: nn.Module, args: Any, output: Any) -> None:
        if listening:
            listening.pop().__exit__(None, None, None)

    hooks.callback(attending.register_forward_pre_hook(start, with_kwargs=True).remove)
    # Modes are a stack: of two taps the one that started last must stop first, hence `prepend`.
    hooks.callback(attending.register_forward_hook(stop, prepend=True, always_call=True).remove)


class _Overhear(TorchFunctionMode):
    def __init__(self, keep: Callable[[Tensor], None], x: Tensor | None) -> None:
        super().__init__()
        self.keep, self.x = keep, x

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        if func is F.scaled_dot_product_attention:
            weights = attention_weights(*args, **kwargs)
        elif func in _SOFTMAX and result.ndim >= 4:
            weights = result
        else:
            return result
        if not _between_channels(weights, self.x):
            self.keep(weights)
        return result


def _between_channels(weights: Tensor, x: Tensor | None) -> bool:
    """Whether a map N×heads×d×d from input N×T×D is one of channels: d = D/heads, and not T."""
    if x is None or weights.ndim != 4 or weights.shape[-1] != weights.shape[-2]:
        return False
    side, tokens = weights.shape[-1], x.shape[1:-1].numel()
    return side != tokens and side * weights.shape[1] == x.shape[-1]


def attention_weights(
    query: Tensor,
    key: Tensor,
    value: Tensor | None = None,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """softmax(q kᵀ·scale + mask) of `F.scaled_dot_product_attention`, N×heads×T×T, in at least fp32."""
    with torch.autocast(query.device.type, enabled=False):
        exact = torch.promote_types(query.dtype, torch.float32)
        query, key = query.to(exact), key.to(exact)
        if enable_gqa:
            key = key.repeat_interleave(query.shape[-3] // key.shape[-3], dim=-3)
        scores = query @ key.transpose(-2, -1) * (query.shape[-1] ** -0.5 if scale is None else scale)
        if is_causal:
            attn_mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
        if attn_mask is not None and attn_mask.dtype == torch.bool:
            scores = scores.masked_fill(~attn_mask, float("-inf"))
        elif attn_mask is not None:
            scores = scores + attn_mask
        return torch.special.softmax(scores, dim=-1)  # not a name that an outer tap listens for


def _ask_again(
    keep: Callable[[Tensor], None], module: nn.MultiheadAttention, args: Any, kwargs: Any, output: Any
) -> None:
    """torch's own attention module runs one opaque kernel, so it is called once more for its weights."""
    dropout, module.dropout = module.dropout, 0.0  # drawing here would move the random state
    try:
        asked = {**kwargs, "need_weights": True, "average_attn_weights": False}
        _, weights = nn.MultiheadAttention.forward(module, *args, **asked)
        assert weights is not None
        keep(weights)
    finally:
        module.dropout = dropout


def _mixes_tokens(attending: nn.Module) -> bool:
    return not any(word in type(attending).__name__ for word in _CHANNEL_ATTENTION)


# ---------------------------------------------------------------- what can be tapped


def _require_eager(model: nn.Module) -> None:
    compiled = any(hasattr(module, "_orig_mod") or module._compiled_call_impl is not None for module in model.modules())
    if compiled:  # compiled code does not see hooks that come later: the taps would stay silently empty
        raise UserError("a compiled model cannot be tapped; tap the model that was given to torch.compile")


def _prefix_tokens(model: nn.Module) -> int:
    said = (getattr(module, "num_prefix_tokens", None) for module in model.modules())
    return next((count for count in said if isinstance(count, int)), 0)


def _note_silence(taps: Taps, model: nn.Module, args: Any, output: Any) -> None:
    if not taps.attention and not taps.note:
        taps.note = "the attention modules called neither scaled_dot_product_attention nor softmax"


def _note(model: nn.Module, blocks: dict[str, tuple[nn.Module, nn.Module]]) -> str:
    name = type(getattr(model, "body", model)).__name__
    if not blocks:
        return f"{name} has no transformer blocks: neither token features nor attention"
    if not any(_mixes_tokens(attending) for _, attending in blocks.values()):
        return f"the attention of {name} is not between tokens: features only"
    return ""
