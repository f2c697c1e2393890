"""The first images that a model is shown: an error that it raises there says what it was shown."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from hardtack.base.errors import UserError

DTYPE_WORDS = ("dtype", "scalar type", "Input type")  # of torch's errors about types that do not match
_OF_IMAGES = (RuntimeError, ValueError, TypeError, AssertionError, IndexError)


def first_logits(model: Callable[[Tensor], Any], x: Tensor) -> Tensor:
    """What a model returns for its first images; what does not fit them, or is no tensor, is an error in one line."""
    try:
        out = model(x)
    except (UserError, torch.OutOfMemoryError):
        raise
    except _OF_IMAGES as error:
        if any(word in str(error) for word in DTYPE_WORDS):  # explained where the types of the weights are known
            raise
        raise UserError(f"the model cannot take images of {size_of(x)} ({reason(error)})") from error
    if not isinstance(out, Tensor):
        raise no_tensor(out)
    return out


def no_tensor(out: Any) -> UserError:
    """The error for a model that returns something else than logits, with how to mend it."""
    has_logits = isinstance(getattr(out, "logits", None), Tensor)  # Hugging Face's output records
    how = "ht.wrap(model, mean=…, std=…) takes its logits" if has_logits else "put a module around it that returns them"
    return UserError(f"a model must return a tensor of logits N×classes, found {type(out).__name__}; {how}")


def size_of(x: Tensor) -> str:
    return "×".join(map(str, x.shape[1:]))


def reason(error: Exception) -> str:
    """What an exception says, short and in one line."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:200]}{'…' if len(text) > 200 else ''}"
