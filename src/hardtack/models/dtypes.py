"""Weights that no image can pass: of another type than float32, or without values."""

from __future__ import annotations

import functools
import typing
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import torch
from torch import nn

from hardtack.base.errors import UserError
from hardtack.models.first_images import DTYPE_WORDS
from hardtack.models.given import as_module

P = ParamSpec("P")
R = TypeVar("R")


def takes_model(job: Callable[P, R]) -> Callable[P, R]:
    """A job whose first argument is a model: a function becomes a module, and what is no model is refused.

    Where types do not match, the error says which, and what to do.
    """

    @functools.wraps(job)
    def guarded(model: Any, *args: Any, **kwargs: Any) -> R:
        model = as_module(model, job.__name__)
        check_values(model)
        try:
            return typing.cast(Callable[..., R], job)(model, *args, **kwargs)
        except RuntimeError as error:
            odd = odd_dtypes(model)
            if not odd or not any(word in str(error) for word in DTYPE_WORDS):
                raise
            raise UserError(
                f"weights of this model are {odd}, but images are float32: use model.float(), or wrap it in a "
                "module that converts the images"
            ) from error

    return typing.cast(Callable[P, R], guarded)


def check_values(model: nn.Module) -> None:
    """Refuse a model whose weights have shapes but no values, as torch.device("meta") makes them."""
    tensors = [*model.named_parameters(), *model.named_buffers()]
    empty = [name for name, value in tensors if value.is_meta]
    if empty:
        more = f" and {len(empty) - 1} more" if len(empty) > 1 else ""
        raise UserError(
            f"weights of this model have no values: {empty[0]}{more} on the device 'meta'. Create it on a real device, "
            "or call model.to_empty(device='cpu') and load its weights"
        )


def odd_dtypes(model: nn.Module) -> str:
    dtypes = {weight.dtype for weight in model.parameters() if weight.is_floating_point()} - {torch.float32}
    return " and ".join(sorted(str(dtype).removeprefix("torch.") for dtype in dtypes))
