"""The nearest right name of a misspelt setting, in the section where it was typed or in another one."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterator

from hardtack.base.errors import close_matches, known_elsewhere
from hardtack.base.layers import join_path
from hardtack.base.other_names import other_names
from hardtack.base.setting_rows import section_class

CLOSE = 0.75  # likeness of a name that was surely meant
MOST = 3


def setting_hint(key: str, names: list[str], root: type | None, section: str = "") -> str:
    """`" (did you mean 'train.epochs'?)"`, or the known keys.

    `names` are those of the section and `section` is its path; `root` is the whole configuration.

    First comes what another package calls so, then a name of this section that is nearly the same, then a setting of
    another section with just this name, then whatever is alike.
    """
    lower = {name.lower(): name for name in names}
    here = known_elsewhere(key, lower) or next(iter(close_matches(key, lower, CLOSE)), None)
    elsewhere = [] if here or root is None else [*_settings_named(key, root)]
    if elsewhere:
        return f" (did you mean {' or '.join(repr(path) for path in elsewhere[:MOST])}?)"
    near = here or next(iter(close_matches(key, lower)), None)
    if near:
        return f" (did you mean '{join_path(section, lower.get(near, near))}'?)"
    return f"; known keys: {', '.join(names)}"


def _settings_named(key: str, root: type) -> Iterator[str]:
    """Paths of settings of this name anywhere below `root`, or of what the name means elsewhere."""
    wanted = key.lower().replace("-", "_")
    paths = dict.fromkeys(_paths(root))
    theirs = [ours for ours in other_names(wanted) if "=" not in ours and " " not in ours]
    yield from (ours for ours in theirs if ours in paths)
    if not any(ours in paths for ours in theirs):
        yield from (path for path in paths if path.rpartition(".")[2].lower() == wanted)


def _paths(cls: type, path: str = "", level: int = 0) -> Iterator[str]:
    hints = typing.get_type_hints(cls, include_extras=True)
    for item in dataclasses.fields(cls):
        inner = join_path(path, item.name)
        section = section_class(hints[item.name])
        yield inner
        if section is not None and level < 2:
            yield from _paths(section, inner, level + 1)
