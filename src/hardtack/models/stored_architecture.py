"""What a weights file says about its network, checked before a network is built from it.

The file may come from anybody. Numbers in it cannot exceed what its own tensors could fill: a depth of a billion, or a
hundred billion classes, would otherwise build until the memory is full.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import register_module_parameter_registration_hook

from hardtack.base.errors import UserError
from hardtack.base.limits import shorten

LEAST_LIMIT = 65536  # numbers up to this are never questioned: sizes of images, heads, ratios
LARGEST_IMAGE = 16384
SPARE_PARAMETERS, SPARE_NUMBERS = 1000, 50_000_000  # parts that are built and thrown away, such as a replaced head


def check_metadata(values: Any, shapes: Sequence[Sequence[int]], file: Path) -> dict[str, Any]:
    """The metadata of a weights file with tensors of these shapes; a UserError names what cannot be right."""
    if not isinstance(values, dict):
        raise UserError(f"the metadata of {file} must be an object, found {shorten(repr(values))}")
    architecture = values.get("architecture")
    if architecture is not None:
        _check_architecture(architecture, shapes, file)
    classes = values.get("classes")
    if classes is not None and not (isinstance(classes, list) and all(isinstance(name, str) for name in classes)):
        raise UserError(f"the metadata of {file}: 'classes' must be a list of names, found {shorten(repr(classes))}")
    return values


def _check_architecture(values: Any, shapes: Sequence[Sequence[int]], file: Path) -> None:
    where = f"the metadata of {file}: architecture"
    if not isinstance(values, dict):
        raise UserError(f"{where} must be an object, found {shorten(repr(values))}")
    if not values:
        return
    for key, kind in (("name", str), ("source", str), ("options", dict)):
        if not isinstance(values.get(key), kind):
            raise UserError(f"{where}.{key} is {shorten(repr(values.get(key)))}, expected {_called(kind)}")
    for key in ("mean", "std"):
        triple = values.get(key)
        if not (isinstance(triple, list) and len(triple) == 3 and all(_is_number(number) for number in triple)):
            raise UserError(f"{where}.{key} is {shorten(repr(triple))}, expected three numbers")
    limit = max([LEAST_LIMIT, len(shapes), *(side for shape in shapes for side in shape)])
    for key, largest in (("num_classes", limit), ("image_size", LARGEST_IMAGE)):
        count = values.get(key)
        if count is not None and (not isinstance(count, int) or isinstance(count, bool) or not 0 < count <= largest):
            raise UserError(f"{where}.{key} is {shorten(repr(count))}, expected a whole number from 1 to {largest}")
    _check_numbers(values["options"], limit, f"{where}.options")


def _check_numbers(value: Any, limit: int, where: str) -> None:
    if isinstance(value, dict):
        for key, item in value.items():
            _check_numbers(item, limit, f"{where}.{shorten(key)}")
    elif isinstance(value, list):
        if len(value) > limit:
            raise UserError(f"{where} has {len(value)} entries, and the limit for a file with these tensors is {limit}")
        for item in value:
            _check_numbers(item, limit, where)
    elif isinstance(value, int | float) and not (math.isfinite(value) and abs(value) <= limit):
        raise UserError(f"{where} is {shorten(value)}, and the limit for a file with these tensors is {limit}")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _called(kind: type) -> str:
    return "a text" if kind is str else "an object"


@contextlib.contextmanager
def limited_size(shapes: Sequence[Sequence[int]], file: Path) -> Iterator[None]:
    """Inside, a network is built on the meta device; one far larger than the file's tensors is refused at once."""
    count = numbers = 0
    most_count, most_numbers = 4 * len(shapes) + SPARE_PARAMETERS, _most_numbers(shapes)

    def check(module: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
        nonlocal count, numbers
        count, numbers = count + 1, numbers + (0 if parameter is None else parameter.numel())
        if count > most_count or numbers > most_numbers:
            raise _too_large(shapes, file)

    hook = register_module_parameter_registration_hook(check)
    try:
        with torch.device("meta"):
            yield
    finally:
        hook.remove()


def check_numbers(numbers: int, shapes: Sequence[Sequence[int]], file: Path) -> None:
    """The same limit for a network whose number of parameters is known."""
    if numbers > _most_numbers(shapes):
        raise _too_large(shapes, file)


def _most_numbers(shapes: Sequence[Sequence[int]]) -> int:
    return 4 * sum(math.prod(shape) for shape in shapes) + SPARE_NUMBERS


def _too_large(shapes: Sequence[Sequence[int]], file: Path) -> UserError:
    return UserError(f"{file} describes a network far larger than the {len(shapes)} tensors in it; it was not built")
