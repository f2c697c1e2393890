"""The pages of the documentation, which messages and help call `docs/NAME.md`."""

from __future__ import annotations

from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]


def docs_folder() -> Path:
    """The folder in the package. In a checkout it is a link to `docs/`, which is taken where links are not kept."""
    for folder in (PACKAGE / "docs_files", PACKAGE.parents[1] / "docs"):
        if folder.is_dir():
            return folder.resolve()
    return PACKAGE / "docs_files"
