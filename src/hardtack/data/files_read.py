"""Which files and folders a data set is read from, before any of them is opened.

A reader says so by `files=FUNCTION` where it registers itself. The images of a set whose reader does not say it, or
that lies at a URL, can be known only by reading them.
"""

from __future__ import annotations

from pathlib import Path

from hardtack.base.registry import datasets
from hardtack.data.datasets import parse_name
from hardtack.data.paths import searched_paths
from hardtack.data.remote import is_url
from hardtack.data.settings import DataConfig


def files_read(config: DataConfig) -> list[Path] | None:
    """The files and folders whose state decides the images and labels of a data set; None if they are not known."""
    name, path = parse_name(config.name)
    files = datasets.get(name).presets.get("files")
    if files is None or (config.root is not None and is_url(config.root)):
        return None
    found = files(config, path)
    if found is None or config.test_list is None:
        return found
    return None if is_url(config.test_list) else [*found, *searched_paths(config.test_list, config.root)]
