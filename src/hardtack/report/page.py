"""The report as one HTML file that opens anywhere, offline, and sends nothing anywhere.

The pages of a site (`report.site`) have the same content; they share their styles and their script, which are files
beside them.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from markupsafe import Markup

from hardtack.base.files import write_text
from hardtack.report import kinds
from hardtack.report.damage import with_sound_runs
from hardtack.report.view import view
from hardtack.results import read_runs

# One script: what all use, then the kinds of chart that are on the page, then what draws them.
BEFORE_KINDS = ("base", "tables", "scales", "heat_colours", "line_frame", "rows")
AFTER_KINDS = ("plots", "pair", "save")
STYLES = ("page", "charts")
IN_TABLES = ("numbers", "sums", "sortable")  # what a template writes and no script needs


@dataclass(frozen=True, kw_only=True)
class Shared:
    """Where a page of a site finds the style and the script that it shares with others, and the index (`home`)."""

    style: str
    script: str
    home: str = ""


def write_page(run_dirs: str | Path | Iterable[str | Path], output: str | Path) -> Path:
    """Write the page over these runs (or folders of runs) to `output`."""
    output = Path(output)
    runs = read_runs(run_dirs)
    return write_text(output, with_sound_runs(runs, lambda kept: render_page(view(kept, output))))


def render_page(
    values: Mapping[str, Any],
    template: str = "page.html",
    *,
    styles: Sequence[str] = (),
    shared: Shared | None = None,
) -> str:
    """The HTML for the values of `view`, with `styles` beside those that every page has."""
    environment = templates()
    sections = [part["section"] for part in values["parts"] if part["section"]]
    charts = [chart for section in sections for chart in section["charts"]] + values["training"]
    drawn = {chart["id"]: {key: value for key, value in chart.items() if key not in IN_TABLES} for chart in charts}
    data = {"charts": drawn, "pair": values["pair"], "settings": {name: values[name] for name in ("coloured", "solid")}}
    if shared is not None:
        return render_shared(template, values, data, shared)
    script = report_script(sorted({chart["kind"] for chart in charts}))
    return environment.get_template(template).render(
        **values,
        shared=None,
        style=report_style(styles),
        script=script,
        # Only this very script may run: even a hole in the escaping could not start another.
        script_hash=base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii"),
        data=_json(data),
    )


def render_shared(template: str, values: Mapping[str, Any], data: Mapping[str, Any], shared: Shared) -> str:
    """The HTML of a page whose style and script are files of its site.

    Only these files may be loaded: their elements carry a nonce, which is the digest of the page itself, so that no
    text on the page can know it.
    """
    mark = secrets.token_hex(16)
    text = templates().get_template(template).render(**values, shared=shared, nonce=mark, data=_json(data))
    digest = hashlib.sha256(text.replace(mark, "").encode("utf-8", "replace")).digest()
    return text.replace(mark, base64.b64encode(digest[:18]).decode("ascii"))


def report_style(styles: Sequence[str] = ()) -> Markup:
    """The style of a report, with `styles` beside those that every page has."""
    environment = templates()
    return Markup("").join(_source(environment, f"{name}.css") for name in (*STYLES, *styles))


def report_script(kinds_shown: Sequence[str]) -> Markup:
    """The script of a report with charts of these kinds."""
    return scripts(BEFORE_KINDS, [Markup(kinds.script(kind)) for kind in kinds_shown], scripts(AFTER_KINDS))


def scripts(names: Sequence[str], *more: Sequence[Markup] | Markup) -> Markup:
    """Scripts of our own by name, and what follows them."""
    environment = templates()
    after = [part for parts in more for part in ([parts] if isinstance(parts, Markup) else parts)]
    return Markup("\n").join([*(_source(environment, f"scripts/{name}.js") for name in names), *after])


@functools.cache
def templates() -> Environment:
    """The room's templates; everything put into HTML is escaped."""
    return Environment(
        loader=PackageLoader("hardtack.report"),
        autoescape=select_autoescape(["html"]),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _source(environment: Environment, name: str) -> Markup:
    """A style or script of our own, verbatim."""
    assert environment.loader is not None
    source, _, _ = environment.loader.get_source(environment, name)
    return Markup(source)


def _json(data: Mapping[str, Any]) -> Markup:
    """JSON that may stand inside <script>: no name in it can close the element."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    escapes: dict[str, str | int | None] = {
        "<": "\\u003c",
        ">": "\\u003e",
        "&": "\\u0026",
        "\u2028": "\\u2028",
        "\u2029": "\\u2029",
    }
    return Markup(text.translate(str.maketrans(escapes)))
