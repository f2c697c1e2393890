"""What every study costs: planned GPU-hours at scales short and paper, and measured seconds at scale smoke.

    python benchmarks/study_costs.py plan
    python benchmarks/study_costs.py smoke FOLDER
    python benchmarks/study_costs.py table          # writes the table of docs/studies.md from the results

GPU-hours are those of `hardtack plan study=NAME`: multiply-adds divided by the rate that adversarial training of a
ViT-Ti/4 reached on one H200. Nothing is trained for them. Seconds at smoke are CPU seconds of a process with one
thread; every study starts in an empty folder, so that it trains all of its rows. Each call adds its numbers to
results/study_costs.json.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

from hardtack.studies.plan import plan_study
from hardtack.studies.study import load_study
from hardtack.studies.study_files import list_studies

RESULTS = Path(__file__).parent / "results" / "study_costs.json"
PAGE = Path(__file__).parents[1] / "docs" / "studies.md"
BEGIN, END = "<!-- costs -->", "<!-- written by benchmarks/study_costs.py table -->"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("plan", "smoke", "table"))
    parser.add_argument("folder", nargs="?", type=Path, help="of smoke: an empty folder")
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    if (options.what == "smoke") != (options.folder is not None):
        parser.error("smoke needs a folder, the others have none")
    if options.what == "table":
        write_table(json.loads(options.output.read_text()))
        return
    measured = {}
    for name in list_studies():
        measured[name] = planned(name) if options.folder is None else smoke(name, options.folder / name)
        print(name, measured[name], flush=True)
    record = json.loads(options.output.read_text()) if options.output.is_file() else {"studies": {}}
    record[options.what] = {
        "command": "python benchmarks/study_costs.py " + ("plan" if options.folder is None else "smoke FOLDER"),
        "hardware": "none: planned for one NVIDIA H200" if options.folder is None else f"{os.cpu_count()} CPU cores",
        "date": datetime.date.today().isoformat(),
    }
    known = record["studies"]
    about = {name: {"supplement": load_study(name).supplement} for name in measured}
    record["studies"] = {name: {**about[name], **known.get(name, {}), **found} for name, found in measured.items()}
    options.output.write_text(json.dumps(record, indent=1) + "\n")


def write_table(record: dict[str, Any]) -> None:
    """Between the two comments in docs/studies.md."""
    lines = [
        "| study | smoke, CPU seconds | short, GPU-hours | paper, GPU-hours | trainings |",
        "|---|---|---|---|---|",
    ]
    for name, cost in record["studies"].items():
        smoke = f"{cost['smoke_cpu_s']:.0f}" if "smoke_cpu_s" in cost else "—"
        hours = [f"{cost[f'{scale}_gpu_hours']:,.2g}" if cost[f"{scale}_gpu_hours"] < 10 else
                 f"{cost[f'{scale}_gpu_hours']:,.0f}" for scale in ("short", "paper")]  # fmt: skip
        lines.append(f"| `{name}` | {smoke} | {hours[0]} | {hours[1]} | {cost['paper_trainings']} |")
    text = PAGE.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN, 1)
    _, after = rest.split(END, 1)
    PAGE.write_text(before + BEGIN + "\n" + "\n".join(lines) + "\n" + END + after, encoding="utf-8")


def planned(name: str) -> dict[str, float | int]:
    """Trainings and GPU-hours at both scales."""
    short, paper = (plan_study(name, {"scale": scale}) for scale in ("short", "paper"))
    return {
        "short_trainings": len(short.runs), "short_gpu_hours": round(short.gpu_hours, 3),
        "paper_trainings": len(paper.runs), "paper_gpu_hours": round(paper.gpu_hours, 2),
    }  # fmt: skip


def smoke(name: str, folder: Path) -> dict[str, float]:
    """CPU seconds of the whole study; raises where a row fails."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "hardtack", "study", name, f"output={folder}"]
    subprocess.run(command, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {"smoke_cpu_s": round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 1)}


if __name__ == "__main__":
    main()
