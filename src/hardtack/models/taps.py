"""Features and attention maps of any model with blocks, as it computes, differentiable.

    with tap(model) as taps:
        logits = model(x)
    taps.features[3]           # N×T×D, output of the fourth block
    taps.attention[3]          # N×heads×T×T, rows sum to one
    taps.attention_kinds[3]    # "token"

Attention is overheard: while an attention module runs, a torch-function mode listens for
`scaled_dot_product_attention`, whose softmax it recomputes from the very queries, keys, scale and mask that go in,
and for explicit `softmax` calls, whose result it keeps. Rotary positions, query norms, relative biases and window
masks are therefore included whatever the architecture.

- `token`: between all tokens, N×heads×T×T; `reduced`: keys on a coarser grid, N×heads×T×K.
- `window`: between some of the tokens, (N·windows)×heads×window²×window²; so are MobileViT's, which lie between equal
  places in its patches.
- `class`: from the class token alone, N×heads×1×T.
- Attention between channels (XCiT, FAN) is kept apart, in `channel_attention`.
- Networks without attention have features only, and `taps.note` says so.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from hardtack.base.errors import UserError
from hardtack.models.blocks import Attending, Block, Kind, class_name, find_blocks

_SOFTMAX = (torch.softmax, Tensor.softmax, F.softmax)


@dataclass(repr=False)
class Taps:
    """What the latest forward pass of the tapped model showed, in the order of computation.

    Names are those of blocks. `prefixes` say for each feature how many leading tokens (class, registers) are not
    patches of the image; `prefix_tokens` is what the model says of itself, which need not hold in all of its stages.
    """

    features: list[Tensor] = field(default_factory=list)
    attention: list[Tensor] = field(default_factory=list)
    channel_attention: list[Tensor] = field(default_factory=list)
    feature_names: list[str] = field(default_factory=list)
    prefixes: list[int] = field(default_factory=list)
    attention_names: list[str] = field(default_factory=list)
    attention_kinds: list[Kind] = field(default_factory=list)
    channel_attention_names: list[str] = field(default_factory=list)
    prefix_tokens: int = 0
    note: str = ""
    images: int = 0  # in the batch

    def __repr__(self) -> str:
        kinds = ", ".join(dict.fromkeys(self.attention_kinds)) or "none"
        channels = f", {len(self.channel_attention)} between channels" if self.channel_attention else ""
        note = f"; {self.note}" if self.note else ""
        return f"Taps({len(self.features)} features, {len(self.attention)} attention maps ({kinds}){channels}{note})"

    def clear(self) -> None:
        self.features, self.feature_names, self.prefixes = [], [], []
        self.attention, self.attention_names, self.attention_kinds = [], [], []
        self.channel_attention, self.channel_attention_names = [], []

    def keep(self, name: str, kind: Kind, weights: Tensor) -> None:
        """Enter an attention map. One that does not have a row for each image is not between all of its tokens."""
        if kind == "token" and self.images and len(weights) != self.images:
            kind = "window"
        if kind == "channel":
            self.channel_attention.append(weights)
            self.channel_attention_names.append(name)
            return
        self.attention.append(weights)
        self.attention_names.append(name)
        self.attention_kinds.append(kind)


@contextlib.contextmanager
def tap(model: nn.Module, *, features: bool = True, attention: bool = True) -> Iterator[Taps]:
    """Listen to `model` inside the block. Its outputs, weights, flags and random state stay the same.

    Every forward pass replaces what the one before left in the taps.
    """
    if is_compiled(model):
        raise UserError("a compiled model cannot be tapped; tap the model before torch.compile")
    blocks = find_blocks(model)
    taps = Taps(prefix_tokens=_prefix_tokens(model), note=_note(model, blocks))
    with contextlib.ExitStack() as hooks:
        hooks.callback(model.register_forward_pre_hook(functools.partial(_begin, taps), with_kwargs=True).remove)
        if attention and any(block.attending for block in blocks):
            hooks.callback(model.register_forward_hook(functools.partial(_note_silence, taps)).remove)
        for block in blocks:
            if features:
                handle = block.module.register_forward_hook(functools.partial(_keep_feature, taps, block))
                hooks.callback(handle.remove)
            for attending in block.attending if attention else ():
                _listen(functools.partial(taps.keep, block.name, attending.kind), attending, hooks)
        yield taps


# ---------------------------------------------------------------- features


def _begin(taps: Taps, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    taps.clear()
    x = next((value for value in (*args, *kwargs.values()) if isinstance(value, Tensor)), None)
    taps.images = 0 if x is None else len(x)


def _keep_feature(taps: Taps, block: Block, module: nn.Module, args: Any, output: Any) -> None:
    output = output[0] if isinstance(output, tuple) else output
    feature = _as_tokens(output, block, taps.images)
    taps.features.append(feature)
    taps.feature_names.append(block.name)
    taps.prefixes.append(_prefix(feature.shape[1], block, taps.prefix_tokens))


def _as_tokens(output: Tensor, block: Block, images: int) -> Tensor:
    """N×T×D from N×T×D (the very tensor), N×H×W×D or N×D×H×W; an image that went in as several rows is one again."""
    if output.ndim == 4:
        output = output.flatten(1, 2) if block.channels_last(output.shape) else output.flatten(2).transpose(1, 2)
    if images and len(output) != images and len(output) % images == 0:  # MobileViT: a row for each place in a patch
        output = output.reshape(images, -1, output.shape[-1])
    return output


def _prefix(tokens: int, block: Block, declared: int) -> int:
    """How many tokens stand before the square grid of patches; what the model says, where there is no square."""
    if tokens == 1 and any(attending.kind == "class" for attending in block.attending):
        return 1
    fitting = (count for count in (0, declared, 1) if math.isqrt(tokens - count) ** 2 == tokens - count)
    return next(fitting, declared) if tokens > 1 else 0


# ---------------------------------------------------------------- attention


def _listen(keep: Callable[[Tensor], None], attending: Attending, hooks: contextlib.ExitStack) -> None:
    """Hand the maps that a module computes to `keep`, until `hooks` is closed."""
    module = attending.module
    if attending.says:
        hooks.callback(module.register_forward_hook(lambda module, args, output: keep(output)).remove)
        return
    if isinstance(module, nn.MultiheadAttention):
        again = functools.partial(_ask_again, keep)
        hooks.callback(module.register_forward_hook(again, with_kwargs=True).remove)
        return
    if hasattr(module, "get_attention"):  # ConViT's gated sum of two softmaxes is neither of them
        hooks.callback(
            module.register_forward_hook(lambda module, args, output: keep(module.get_attention(args[0]))).remove
        )
        return
    listening: list[_Overhear] = []

    def start(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        x = next((value for value in (*args, *kwargs.values()) if isinstance(value, Tensor)), None)
        unsure = not _is_ours_or_known(module) and attending.kind == "token"
        listening.append(_Overhear(keep, x if unsure else None))
        listening[-1].__enter__()

    def stop(module: nn.Module, args: Any, output: Any) -> None:
        if listening:
            listening.pop().__exit__(None, None, None)

    hooks.callback(module.register_forward_pre_hook(start, with_kwargs=True).remove)
    # Modes are a stack: of two taps the one that started last must stop first, hence `prepend`.
    hooks.callback(module.register_forward_hook(stop, prepend=True, always_call=True).remove)


def _is_ours_or_known(module: nn.Module) -> bool:
    return isinstance(getattr(module, "attention", None), str) or type(module).__module__.startswith("timm.")


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
    """Whether a map N×heads×d×d of a stranger's module is one of channels: d = D/heads of its input N×T×D, not T."""
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
    with torch.autocast("cpu" if query.is_meta else query.device.type, enabled=False):
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


# ---------------------------------------------------------------- what can be tapped


def is_compiled(model: nn.Module) -> bool:
    """Compiled code does not see hooks that come later: taps would stay silently empty."""
    return any(hasattr(module, "_orig_mod") or module._compiled_call_impl is not None for module in model.modules())


def _prefix_tokens(model: nn.Module) -> int:
    counts = (getattr(module, "num_prefix_tokens", None) for module in model.modules())
    return next((count for count in counts if isinstance(count, int)), 0)


def _note_silence(taps: Taps, model: nn.Module, args: Any, output: Any) -> None:
    if not taps.attention and not taps.channel_attention and not taps.note:
        taps.note = "the attention modules called neither scaled_dot_product_attention nor softmax"


def _note(model: nn.Module, blocks: list[Block]) -> str:
    name = class_name(model)
    if not blocks:
        return f"no blocks are known in {name}: neither features nor attention"
    kinds = {attending.kind for block in blocks for attending in block.attending}
    if not kinds:
        return f"{name} has no attention: features only"
    if kinds == {"channel"}:
        return f"the attention of {name} is between channels, not between tokens"
    return ""
