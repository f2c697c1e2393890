"""The studies on CIFAR-10 (JPEG): run within a number of GPU minutes, kept small, and written into the documentation.

    python benchmarks/evidence.py unpack ROOT             # what is kept, as a folder of studies without weights
    python benchmarks/evidence.py spend ROOT --minutes 25 --root ~/data   # the studies of ORDER, until then
    python benchmarks/evidence.py keep ROOT               # add what ROOT has to benchmarks/evidence
    python benchmarks/evidence.py pages                   # write the tables of docs/experiments*.md

A session on a GPU is `unpack`, `spend`, `keep`, `pages`. What is kept of a run is its configuration, its log, its
results and the values per image of every cell that a study has measured on it (benchmarks/evidence/RUN.zip): enough for
every table and claim, and what `hardtack study` takes for measured, so that nothing is trained twice. Weights are not
kept, so a study that measures more of a run than what is kept of it trains that run again. `spend` runs several
trainings side by side, under NVIDIA's MPS where it is installed: the start of a training and its evaluation are the
work of one CPU core, during which the GPU would wait. It notes in ROOT/minutes.json what the time went into, and `keep`
adds that to benchmarks/evidence/minutes.json.
"""

from __future__ import annotations

import argparse
import io
import json
import re
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from evidence_session import SCALE, spend

import hardtack
from hardtack.base.config import read_yaml
from hardtack.base.errors import UserError
from hardtack.base.limits import read_json
from hardtack.report.study_view import VERDICTS, StudyView, verdict_counts
from hardtack.results import read_results
from hardtack.studies.run import NothingMeasured, tabulate
from hardtack.studies.state import StudyState
from hardtack.studies.study import load_study
from hardtack.studies.study_files import list_studies

HERE = Path(__file__).parent
KEPT = HERE / "evidence"
DOCS = HERE.parent / "docs"
_OF_A_RUN = ("config.yaml", "metrics.jsonl", "results.jsonl")
_VERSIONS = "versions"
_RUN, _CELL = re.compile(r"[\w.-]*\w"), re.compile(r"cells/[0-9a-f]{16}\.(json|npz)")
_MOST_FILES, _MOST_BYTES, _MOST_SEEDS = 10_000, 64 * 2**20, 20
_LONG_AGO = (2026, 1, 1, 0, 0, 0)  # the same archive for the same contents
BEGIN, END = "<!-- evidence: {} -->", "<!-- end of evidence, written by benchmarks/evidence.py pages -->"
PAPERS = ("rspc", "xcit", "architectures", "cauchy")


# ---------------------------------------------------------------- archives


def cells_by_run(root: Path) -> dict[str, list[Path]]:
    """The cells of a folder of studies, by the run that they were measured on."""
    if not (root / "cells").is_dir():
        raise UserError(f"{root} has no cells: it is no folder of studies, or nothing is measured in it")
    runs: dict[str, list[Path]] = {}
    for file in sorted((root / "cells").glob("*.json")):
        cell = read_json(file)
        run = cell.get("run") if isinstance(cell, dict) else None
        if not isinstance(run, str) or not _RUN.fullmatch(run):
            raise UserError(f"{file} names no run")
        runs.setdefault(run, []).append(file)
    return runs


def versions_of(root: Path) -> list[str]:
    """The versions that measured what lies in a folder of studies."""
    file = root / _VERSIONS
    return sorted({*(file.read_text().split() if file.is_file() else ()), hardtack.__version__})


def keep(root: Path, to: Path = KEPT) -> list[Path]:
    """Write an archive for every run that has cells; an archive that has cells which ROOT has not keeps them."""
    to.mkdir(parents=True, exist_ok=True)
    written = []
    for run, cells in cells_by_run(root).items():
        archive = to / f"{run}.zip"
        before = read_archive(archive) if archive.is_file() else {}
        files = {f"models/{run}/{name}": text for name, text in _without_places(root / "models" / run).items()}
        parts = [part for cell in cells for part in (cell, cell.with_suffix(".npz")) if part.is_file()]
        files |= {f"cells/{part.name}": part.read_bytes() for part in parts}
        versions = {*before.get(_VERSIONS, b"").decode().split(), *versions_of(root)}
        files = {**before, **files, _VERSIONS: "\n".join(sorted(versions)).encode()}
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as new:
            for name in sorted(files):
                new.writestr(zipfile.ZipInfo(name, _LONG_AGO), files[name], zipfile.ZIP_DEFLATED, 9)
        if not archive.is_file() or archive.read_bytes() != buffer.getvalue():
            archive.write_bytes(buffer.getvalue())
            written.append(archive)
    return written


def _without_places(run: Path) -> dict[str, bytes]:
    """The texts of a run, in which the folders of this machine have the names that documentation gives them."""
    config = read_yaml(run / "config.yaml")
    data, models = config.get("data"), Path(str(config.get("output"))).parent
    root = str(data.get("root")) if isinstance(data, dict) else ""
    texts = {}
    for name in _OF_A_RUN:
        text = (run / name).read_text(encoding="utf-8")
        if len(models.parts) > 1:
            text = text.replace(f"{models}/", "runs/studies/models/")
        # only where the settings say it: a root such as `.` stands in every number, too
        text = text.replace(f'"data.root={root}"', '"data.root=data"')
        if name == "config.yaml":
            text = re.sub(rf"^(\s+root: )(['\"]?){re.escape(root)}\2$", r"\g<1>data", text, flags=re.M)
        texts[name] = text.encode()
    return texts


def read_archive(archive: Path) -> dict[str, bytes]:
    """The files that `keep` has written, and no others, within limits: an archive may come from anybody."""
    files: dict[str, bytes] = {}
    own = re.compile(rf"models/{re.escape(archive.stem)}/({'|'.join(map(re.escape, _OF_A_RUN))})")
    with zipfile.ZipFile(archive) as file:
        for member in file.infolist()[:_MOST_FILES]:
            if member.filename == _VERSIONS or _CELL.fullmatch(member.filename) or own.fullmatch(member.filename):
                with file.open(member) as stream:
                    files[member.filename] = stream.read(_MOST_BYTES + 1)
                if sum(map(len, files.values())) > _MOST_BYTES:
                    raise UserError(f"{archive} unpacks to more than {_MOST_BYTES >> 20} MiB")
    return files


def unpack(root: Path, source: Path = KEPT) -> None:
    """A folder of studies from all archives."""
    versions: set[str] = set()
    for archive in sorted(source.glob("*.zip")):
        files = read_archive(archive)
        versions |= {*files.pop(_VERSIONS, b"").decode().split()}
        for name, content in files.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_bytes(content)
    (root / _VERSIONS).write_text("\n".join(sorted(versions)))


# ---------------------------------------------------------------- minutes


def keep_minutes(root: Path, to: Path = KEPT) -> None:
    """Add the minutes of a session to those of the sessions before."""
    new, kept = root / "minutes.json", to / "minutes.json"
    if new.is_file():
        before = json.loads(kept.read_text()) if kept.is_file() else []
        after = [entry for entry in json.loads(new.read_text()) if entry not in before]
        kept.write_text(json.dumps(before + after, indent=1) + "\n")
        new.unlink()


# ---------------------------------------------------------------- pages


def outcomes(root: Path) -> Iterator[tuple[str, StudyView | None]]:
    """Every study with what was measured of it at this scale, with as many seeds as there are.

    Studies share cells; one of which other studies have measured some, but no row as a whole, has not been run.
    """
    cells = [cell for cells in cells_by_run(root).values() for cell in cells]
    seeds = min(_MOST_SEEDS, 1 + max((int(read_json(cell)["seed"]) for cell in cells), default=0))
    how = {"scale": SCALE, "seeds": seeds, "output": str(root), "versions": versions_of(root)}
    for name in list_studies():
        try:
            view = tabulate(name, write=False, **how).view
        except NothingMeasured:
            yield name, None
        else:
            yield name, view if any(map(_is_whole, view["rows"])) else None


def _is_whole(row: Any) -> bool:
    return bool(row["cells"]) and all(cell["value"] is not None for cell in row["cells"].values())


def pages(root: Path) -> dict[Path, str]:
    """The text of every page of docs/experiments*.md with its tables written anew."""
    views = dict(outcomes(root))
    texts = {DOCS / "experiments.md": _replaced(DOCS / "experiments.md", "matrix", _matrix(views))}
    for paper in PAPERS:
        page = DOCS / f"experiments_{paper}.md"
        own = {name: view for name, view in views.items() if name.startswith(f"{paper}/")}
        texts[page] = _replaced(page, paper, _studies(root, own))
    return texts


def _replaced(page: Path, name: str, lines: list[str]) -> str:
    text, begin = page.read_text(encoding="utf-8"), BEGIN.format(name)
    before, rest = text.split(begin, 1)
    return f"{before}{begin}\n\n" + "\n".join(lines).strip("\n") + f"\n\n{END}" + rest.split(END, 1)[1]


def _matrix(views: dict[str, StudyView | None]) -> list[str]:
    """A row for each study; those that were not run are counted."""
    head = ["study", "rows measured", "seeds", *(f"claims {verdict}" for verdict in VERDICTS)]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    total = dict.fromkeys(VERDICTS, 0)
    run = {name: view for name, view in views.items() if view is not None}
    for name, view in run.items():
        (done, there), counts = StudyState(study=load_study(name), view=view).rows, verdict_counts(view)
        measured = [cell["seeds"] for row in view["rows"] for cell in row["cells"].values() if cell["seeds"]]
        seeds = f"{min(measured)}" + (f" to {max(measured)}" if max(measured) > min(measured) else "")
        paper = name.split("/")[0]
        words = [f"[`{name}`](experiments_{paper}.md)", f"{done} of {there}", seeds]
        lines.append("| " + " | ".join([*words, *(str(counts[verdict]) for verdict in VERDICTS)]) + " |")
        total = {verdict: total[verdict] + counts[verdict] for verdict in VERDICTS}
    lines.append("| all of these | | | " + " | ".join(str(total[verdict]) for verdict in VERDICTS) + " |")
    missing = [f"`{name}`" for name, view in views.items() if view is None]
    claims = sum(len(load_study(name).claims) for name, view in views.items() if view is None)
    if missing:
        lines += [
            "",
            f"Not run at this scale yet: {len(missing)} of {len(views)} studies with {claims} claims: "
            f"{', '.join(missing)}.",
        ]
    return [*lines, "", *_minutes()]


def _minutes() -> list[str]:
    """GPU minutes by study."""
    kept = KEPT / "minutes.json"
    entries: list[dict[str, Any]] = json.loads(kept.read_text()) if kept.is_file() else []
    if not entries:
        return []
    spent: dict[str, float] = {}
    for entry in entries:
        spent[entry["study"]] = spent.get(entry["study"], 0.0) + entry["minutes"]  # of one or several, as one job
    parts = ", ".join(f"`{name}` {minutes:.1f}" for name, minutes in spent.items())
    dates = sorted({entry["date"] for entry in entries})
    devices = sorted({entry["device"] for entry in entries})
    return [
        f"GPU minutes so far ({', '.join(devices)}; {', '.join(dates)}): {parts}; {sum(spent.values()):.1f} in all."
    ]


def _studies(root: Path, views: dict[str, StudyView | None]) -> list[str]:
    lines: list[str] = []
    for name, view in views.items():
        if view is not None:
            lines += ["", f"### `{name}`: {view['title']}", "", f"{view['asks'][:1].upper()}{view['asks'][1:]}", ""]
            lines += [_measured(root, view), "", *_table(view), "", *_claims(view), ""]
            lines += [f"*{note}*" for note in [*view["notes"], view["protocol_note"]] if note]
    return lines or ["", "No study of this paper has been run at this scale yet."]


def _measured(root: Path, view: StudyView) -> str:
    """Where, when and on how many images."""
    runs = [root / "models" / Path(run).name for row in view["rows"] for run in row["runs"]]
    days = sorted({result.created[:10] for run in runs for result in read_results(run)})
    images = sorted({cell["n"] for row in view["rows"] for cell in row["cells"].values() if cell["n"]})
    when = days[0] if days[0] == days[-1] else f"{days[0]} to {days[-1]}"
    count = " to ".join(map(str, dict.fromkeys((*images[:1], *images[-1:]))))
    return f"{view['device']}, {when}" + (f"; {count} test images." if images else ".")


def _table(view: StudyView) -> list[str]:
    """Ours with its interval and the paper's number below the column's title."""
    columns = [column for column in view["columns"] if _has(view, column["name"])]
    lines = ["| | " + " | ".join(column["title"] for column in columns) + " |", "|---|" + "---|" * len(columns)]
    for row in view["rows"]:
        if any(row["cells"][column["name"]]["value"] is not None for column in columns):
            cells = [_cell(row["cells"][column["name"]], column["digits"]) for column in columns]
            lines.append(f"| {row['title']} | " + " | ".join(cells) + " |")
    return lines


def _has(view: StudyView, column: str) -> bool:
    return any(row["cells"][column]["value"] is not None for row in view["rows"])


def _cell(cell: Any, digits: int) -> str:
    if cell["value"] is None:
        return "—"
    text = f"{cell['value']:.{digits}f}"
    if cell["low"] is not None:
        text += f" [{cell['low']:.{digits}f}, {cell['high']:.{digits}f}]"
    red = dict.fromkeys(flag["code"] for flag in cell["flags"] if flag["level"] == "red")
    text += f" **{', '.join(red)}**" if red else ""
    return text + (f"; paper {cell['paper']:.{digits}f}" if cell["paper"] is not None else "")


def _claims(view: StudyView) -> list[str]:
    lines = ["| the paper says | here | effect | p, adjusted |", "|---|---|---|---|"]
    for claim in view["claims"]:
        if claim["verdict"] == "not measured":
            continue
        effect = "—" if claim["effect"] is None else f"{claim['effect']:+.3g}"
        if claim["low"] is not None and claim["high"] is not None:
            effect += f" [{claim['low']:+.3g}, {claim['high']:+.3g}]"
        p = "—" if claim["adjusted_p"] is None else f"{claim['adjusted_p']:.2g}"
        lines.append(
            f"| {claim['says'].replace('|', chr(92) + '|')} | {claim['verdict']} | {effect.replace('-', '−')} | {p} |"
        )
    left = sum(claim["verdict"] == "not measured" for claim in view["claims"])
    waits = "1 claim waits" if left == 1 else f"{left} claims wait"
    rest = [] if not left else ["", f"{waits} for rows that are not measured yet."]
    return (lines if len(lines) > 2 else []) + rest


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("unpack", "spend", "keep", "pages"))
    parser.add_argument("folder", nargs="?", type=Path, default=Path("build/evidence"), help="a folder of studies")
    parser.add_argument("--minutes", type=float, default=25)
    parser.add_argument("--root", default="data", help="where the data lies")
    parser.add_argument("--workers", type=int, default=6, help="trainings that share the GPU")
    options = parser.parse_args()
    try:
        run(options)
    except (UserError, OSError) as error:
        sys.exit(f"evidence: {error}")


def run(options: argparse.Namespace) -> None:
    if options.what == "unpack":
        unpack(options.folder)
    elif options.what == "spend":
        spend(options.folder, options.minutes, options.root, options.workers)
    elif options.what == "keep":
        for archive in keep(options.folder):
            print(archive)
        keep_minutes(options.folder)
    else:
        with tempfile.TemporaryDirectory() as folder:  # what is kept, and nothing that lies about
            unpack(Path(folder))
            for page, text in pages(Path(folder)).items():
                page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
