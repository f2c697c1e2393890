"""A page for each of the four papers: every table with the paper's numbers, and its claims, read from `studies/`."""

from __future__ import annotations

from typing import Any

PAPERS = {
    "rspc": "Paper 1: RSPC",
    "xcit": "Paper 2: the XCiT recipe",
    "architectures": "Paper 3: architectures",
    "cauchy": "Paper 4: the Cauchy problem",
}


def pages() -> dict[str, str]:
    return {f"papers/{paper}.md": paper_page(paper) for paper in PAPERS}


def paper_page(paper: str) -> str:
    from hardtack.studies.study import load_study
    from hardtack.studies.study_files import list_studies

    parts = [
        f"# {PAPERS[paper]}, table by table",
        "The paper's own numbers and claims, as the [study files](../studies.md) state them. "
        "`hardtack study NAME scale=…` measures them and prints ours beside these.",
    ]
    for name in list_studies():
        if name.startswith(f"{paper}/"):
            parts += _study_part(load_study(name))
    return "\n\n".join(parts) + "\n"


def _study_part(study: Any) -> list[str]:
    asks = study.asks[0].upper() + study.asks[1:]
    parts = [f"## {study.name}", f"*{study.paper}.* {asks}", f"```\nhardtack study {study.name} scale=smoke\n```"]
    parts += _numbers(study)
    if study.claims:
        lines = [f"- {claim.says} ({claim.where})" if claim.where else f"- {claim.says}" for claim in study.claims]
        parts += ["Claims that are tested:", "\n".join(lines)]
    if study.protocol_note:
        note = " ".join(study.protocol_note.split())
        parts.append(f'??? note "Where paper, published code and this study differ"\n\n    {note}')
    return parts


def _numbers(study: Any) -> list[str]:
    """The paper's table, without columns and rows in which it has no number."""
    said = {row: cells for row, cells in study.paper_says.items() if any(cell is not None for cell in cells.values())}
    columns = [name for name in study.columns if any(cells.get(name) is not None for cells in said.values())]
    if not said:
        return ["The paper prints no numbers here."]
    header = ["", *(study.columns[name].title or name for name in columns)]
    rows = [
        [study.rows[row].title or row, *("" if cells.get(name) is None else f"{cells[name]:g}" for name in columns)]
        for row, cells in said.items()
    ]
    lines = [header, ["---"] * len(header), *rows]
    return ["\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)]
