"""The styles and scripts that the pages of a site share, as files named by their digests.

A new version has new names, so that pages that were not written again keep the files that they were written for.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from hardtack.base.registry import kinds
from hardtack.report.page import Shared, report_script, report_style, scripts

FOLDER = "assets"
INDEX_SCRIPTS = ("base", "scales", "index_state", "index_table", "index_scatter", "index_controls")


@dataclass(frozen=True, kw_only=True)
class Assets:
    """`files`: their texts by path in the site; the rest are paths of those that a report and the index use."""

    files: dict[str, str]
    report_style: str
    report_script: str
    index_style: str
    index_script: str

    @property
    def inner(self) -> Shared:
        """For a page in a folder of the site."""
        return Shared(style=f"../{self.report_style}", script=f"../{self.report_script}", home="../index.html")

    @property
    def index(self) -> Shared:
        """For the index."""
        return Shared(style=self.index_style, script=self.index_script)


def make_assets() -> Assets:
    """The shared files of this version, with every kind of chart that is registered."""
    texts = {
        "report.css": report_style(["study"]),
        "report.js": report_script(sorted(kinds.names())),
        "index.css": report_style(["study", "index"]),
        "index.js": scripts(INDEX_SCRIPTS),
    }
    paths = {name: _path(name, str(text)) for name, text in texts.items()}
    return Assets(
        files={paths[name]: str(text) for name, text in texts.items()},
        report_style=paths["report.css"],
        report_script=paths["report.js"],
        index_style=paths["index.css"],
        index_script=paths["index.js"],
    )


def _path(name: str, text: str) -> str:
    stem, _, ending = name.partition(".")
    return f"{FOLDER}/{stem}-{hashlib.sha256(text.encode('utf-8')).hexdigest()[:12]}.{ending}"
