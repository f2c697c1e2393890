"""Annotations of settings: what a field of a configuration may be, beside the types of Python."""

from __future__ import annotations

import dataclasses
import types
import typing
from fractions import Fraction
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator

from hardtack.base.registry import Registry


@dataclasses.dataclass(frozen=True)
class Choice:
    """Marks a field whose value is an entry of a registry: `objective: Annotated[Any, Choice(objectives)]`.

    The value is written as a name, or as a mapping with `name` and the settings of that entry. Where the field has a
    default, a mapping without `name` changes some settings of the default; any `name` starts from that entry's own.
    """

    registry: Registry


@dataclasses.dataclass(frozen=True)
class Shown:
    """Marks a field whose annotation alone says too little: its `type` and `allowed` values as people read them.

    A field without a type is nothing that anybody types, and is not listed.
    """

    type: str = ""
    allowed: str = ""


AN_ATTACK = Shown("attack", "hardtack list attacks")
ATTACKS = Shown("list of attacks", "hardtack list attacks")
MODELS = Shown("list of models", "run folders, weights files, hardtack list models")
NOT_TYPED = Shown()


class WrittenAsText:
    """Base of dataclasses that are written as text: `parse` reads the text, `str` writes it."""

    EXAMPLE: ClassVar[str] = ""  # for the message where such a setting is missing

    @classmethod
    def parse(cls, text: Any) -> Any:
        raise NotImplementedError


def _fraction(value: Any) -> Any:
    if isinstance(value, str) and "/" in value:
        try:
            return float(Fraction(value))
        except (ValueError, ZeroDivisionError):
            return value
    return value


Number = Annotated[float, BeforeValidator(_fraction)]
"""A float that may be written as a fraction: `8/255`."""


def listed(value: Any) -> Any:
    """`a,b` and `[a, b]` as a list, and a single word or number as a list with one item; other values unchanged."""
    if isinstance(value, str):
        # a list that contains a pattern, [blocks.[0-2], head], is not YAML and arrives as text
        inner = value[1:-1] if value.startswith("[") and value.endswith("]") else value
        return [part.strip() for part in inner.split(",")]
    return [value] if isinstance(value, int | float) else value


SEVERAL = BeforeValidator(listed)
"""Marks a tuple that may be written without brackets, `a,b`, and with a single item: `a`."""


# ---------------------------------------------------------------- reading annotations


def is_number(hint: Any) -> bool:
    """Whether this annotation, or an arm of this union, is a number and none is a bool."""
    arms = [_bare(arm) for arm in _arms(hint)]
    return bool not in arms and (int in arms or float in arms)


def fixed_length(hint: Any) -> int:
    """The length of a tuple of numbers, if the annotation is one of fixed length; else 0."""
    for arm in map(_bare, _arms(hint)):
        items = typing.get_args(arm) if typing.get_origin(arm) is tuple else ()
        if items and Ellipsis not in items and all(map(is_number, items)):
            return len(items)
    return 0


def _arms(hint: Any) -> tuple[Any, ...]:
    return typing.get_args(hint) if typing.get_origin(hint) in (typing.Union, types.UnionType) else (hint,)


def _bare(hint: Any) -> Any:
    return typing.get_args(hint)[0] if typing.get_origin(hint) is Annotated else hint
