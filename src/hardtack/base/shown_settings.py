"""What `help()` and notebooks show of a call that takes its settings as further keywords."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

Call = TypeVar("Call", bound=Callable[..., Any])


def shows_settings(config: type, keywords: type) -> Callable[[Call], Call]:
    """The signature names the settings in place of `**keywords`, with the defaults that the dataclass `config` has.

    `keywords` is the TypedDict that says their types to type checkers.
    """
    defaults = {item.name: _default(item) for item in dataclasses.fields(config)}

    def decorate(call: Call) -> Call:
        signature = inspect.signature(call)
        own = [each for each in signature.parameters.values() if each.kind is not inspect.Parameter.VAR_KEYWORD]
        taken = {each.name for each in own}
        named = {name: getattr(hint, "__forward_arg__", hint) for name, hint in keywords.__annotations__.items()}
        settings = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=defaults[name], annotation=hint)
            for name, hint in named.items()
            if name not in taken
        ]
        call.__signature__ = signature.replace(parameters=[*own, *settings])  # type: ignore[attr-defined]
        return call

    return decorate


def _default(item: dataclasses.Field[Any]) -> Any:
    """Short defaults as they are; sections, which are long, as `...`."""
    if item.default_factory is not dataclasses.MISSING:
        value = item.default_factory()
    else:
        value = item.default
    return ... if dataclasses.is_dataclass(value) else value
