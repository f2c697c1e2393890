"""The first images that a model is shown: an error that it raises there says what it was shown."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch import Tensor

from hardtack.base.errors import UserError

DTYPE_WORDS = ("dtype", "scalar type", "Input type")  # of torch's errors about types that do not match
_OF_IMAGES = (RuntimeError, ValueError, TypeError, AssertionError, IndexError)


@contextlib.contextmanager
def first_images(x: Tensor) -> Iterator[None]:
    """Around a call of the model on these images: whatever does not fit them is an error in one line."""
    try:
        yield
    except (UserError, torch.OutOfMemoryError):
        raise
    except _OF_IMAGES as error:
        if any(word in str(error) for word in DTYPE_WORDS):  # explained where the types of the weights are known
            raise
        raise UserError(f"the model cannot take images of {size_of(x)} ({reason(error)})") from error


def size_of(x: Tensor) -> str:
    return "×".join(map(str, x.shape[1:]))


def reason(error: Exception) -> str:
    """What an exception says, short and in one line."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:200]}{'…' if len(text) > 200 else ''}"
