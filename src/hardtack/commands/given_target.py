"""`ht.evaluate_run` with a module or data of Python: they get names that settings can hold, for one call."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from torch import nn

from hardtack.base.errors import UserError
from hardtack.data.given.kept import is_object, kept
from hardtack.models.given import takes_one_channel
from hardtack.models.kept import kept_module


@contextlib.contextmanager
def given_target(run: str | Path | None, values: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The settings, in which data has a name that holds inside; the run's weights go into a copy of the module."""
    named, module, data = dict(values), values.get("model"), values.get("data")
    with contextlib.ExitStack() as stack:
        takes_grey = None
        if isinstance(module, nn.Module):
            if run is None:
                raise UserError("evaluate_run measures a run; for the module as it is: ht.evaluate(model, data)")
            stack.enter_context(kept_module(module))
            takes_grey = functools.partial(takes_one_channel, module)
            del named["model"]
        if is_object(data):
            images = stack.enter_context(kept(data, single="whole", takes_grey=takes_grey))
            named["data"] = {"name": images.name, "test": 1.0}
        yield named
