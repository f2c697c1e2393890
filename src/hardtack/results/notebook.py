"""How results look in a notebook: a small table, and a curve where accuracy was measured at several radii.

The HTML needs nothing else and takes the notebook's colours, light or dark. Names may be anybody's and are escaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from hardtack.base.printable import printable
from hardtack.results.metrics import is_share
from hardtack.results.record import Result
from hardtack.results.threat_text import parse_threat

MOST_ROWS = 40
_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _TOP, _RIGHT = 360, 200, 42, 36, 10, 14
_BLUE, _LEVEL = "#2a78b8", {"red": "#c62828", "yellow": "#b8860b"}


def table_html(
    title: str, rows: Sequence[tuple[str, Result]], *, flags: Iterable[Mapping[str, Any]] = (),
    notes: Iterable[str] = (), curve: Sequence[Result] = (),
) -> str:  # fmt: skip
    """A title, a row for each named result, flags and notes, and the curve of those in `curve`."""
    shown = [(name, result) for name, result in rows[:MOST_ROWS]]
    columns = [[_value(result, result.value) for _, result in shown], *_uncertainty([result for _, result in shown])]
    heads = [head for head, cells in zip(_heads(shown), columns, strict=True) if any(cells)]
    columns = [cells for cells in columns if any(cells)]
    lines = [f"<div><strong>{_text(title)}</strong>", "<table><thead><tr><th></th>"]
    lines.append("".join(f"<th {_RIGHT_CELL}>{head}</th>" for head in heads) + "</tr></thead><tbody>")
    for number, (name, _) in enumerate(shown):
        cells = "".join(f"<td {_RIGHT_CELL}>{cells[number]}</td>" for cells in columns)
        lines.append(f'<tr><td style="text-align:left">{_text(name)}</td>{cells}</tr>')
    lines.append("</tbody></table>")
    if len(rows) > MOST_ROWS:
        lines.append(f"<div>… and {len(rows) - MOST_ROWS} more: to_frame() has all of them</div>")
    for flag in flags:
        level, message = str(flag.get("level")), _text(f"{flag.get('code')}: {flag.get('message')}")
        colour = _LEVEL.get(level, "inherit")
        lines.append(f'<div><strong style="color:{colour}">{_text(level)} flag</strong> {message}</div>')
    lines += [f"<div>{_text(note)}</div>" for note in notes]
    return "\n".join([*lines, curve_svg(curve), "</div>"])


_RIGHT_CELL = 'style="text-align:right;padding:2px 8px"'


def _value(result: Result, value: float) -> str:
    return f"{value:{'.2%' if is_share(result.metric) else '.4g'}}"


def _uncertainty(results: Sequence[Result]) -> tuple[list[str], list[str]]:
    """The intervals and the numbers of images, empty where there are none."""
    intervals = [
        ""
        if result.low is None or result.high is None
        else f"{_value(result, result.low)} … {_value(result, result.high)}"
        for result in results
    ]
    return intervals, [f"{result.n:,}" if result.n else "" for result in results]


def _heads(rows: Sequence[tuple[str, Result]]) -> tuple[str, str, str]:
    all_95 = all("95" in result.interval for _, result in rows if result.low is not None)
    return "value", "95 % interval" if all_95 else "interval", "n"


def curve_svg(results: Sequence[Result]) -> str:
    """Accuracy over the radius, with the band of its intervals; nothing for fewer than three radii of one norm."""
    if any(result.threat is None or "+" in result.threat for result in results):
        return ""
    threats = [parse_threat(str(result.threat)) for result in results]
    points = {radius: result for (_, radius), result in zip(threats, results, strict=True)}
    norms = sorted({norm for norm, _ in threats})
    if len(points) < 3 or len(norms) != 1:
        return ""
    radii = sorted(points)
    least, most = radii[0], radii[-1]

    def at(radius: float, share: float) -> str:
        x = _LEFT + (radius - least) / (most - least) * (_WIDTH - _LEFT - _RIGHT)
        return f"{x:.1f},{_TOP + (1 - share) * (_HEIGHT - _TOP - _BOTTOM):.1f}"

    parts = [
        f'<svg width="{_WIDTH}" height="{_HEIGHT}" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        'style="font:11px sans-serif;fill:currentColor" aria-label="accuracy over the radius of the attack">'
    ]
    for share in (0.0, 0.5, 1.0):
        left, y = at(least, share).split(",")
        right = at(most, share).partition(",")[0]
        parts.append(f'<path d="M{left} {y}H{right}" stroke="currentColor" stroke-opacity="0.2"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{float(y) + 4:.1f}" text-anchor="end">{share:.0%}</text>')
    band = [(r, points[r].low, points[r].high) for r in radii]
    if all(low is not None and high is not None for _, low, high in band):
        edge = [at(r, high) for r, _, high in band] + [at(r, low) for r, low, _ in reversed(band)]  # type: ignore[arg-type]
        parts.append(f'<polygon points="{" ".join(edge)}" fill="{_BLUE}" fill-opacity="0.18"/>')
    line = " ".join(at(r, points[r].value) for r in radii)
    parts.append(f'<polyline points="{line}" fill="none" stroke="{_BLUE}" stroke-width="2"/>')
    for radius in radii:
        x, y = at(radius, points[radius].value).split(",")
        title = f"{points[radius].threat}: {points[radius].value:.2%}"
        parts.append(f'<circle cx="{x}" cy="{y}" r="3" fill="{_BLUE}"><title>{_text(title)}</title></circle>')
    for radius in dict.fromkeys((radii[0], radii[len(radii) // 2], radii[-1])):
        x, _ = at(radius, 0).split(",")
        anchor = "end" if radius == most else "middle"
        label = _text(str(points[radius].threat).partition(":")[2])
        parts.append(f'<text x="{x}" y="{_HEIGHT - _BOTTOM + 14}" text-anchor="{anchor}">{label}</text>')
    middle = (_LEFT + _WIDTH - _RIGHT) / 2
    parts.append(
        f'<text x="{middle:.0f}" y="{_HEIGHT - 4}" text-anchor="middle">'
        f"accuracy over the {_text(norms[0])} radius</text></svg>"
    )
    return "".join(parts)


def _text(value: object) -> str:
    return escape(printable(str(value)))
