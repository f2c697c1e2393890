"""What every study costs: planned GPU-hours at scales short and paper, and measured seconds at scale smoke.

    python benchmarks/study_costs.py                # plans only
    python benchmarks/study_costs.py --smoke FOLDER # also runs every study at smoke, in processes of their own

GPU-hours are those of `hardtack plan study=NAME`: multiply-adds divided by the rate that adversarial training of a
ViT-Ti/4 reached on one H200. Nothing is trained for them. Seconds at smoke are CPU seconds of a process with one
thread; every study starts in an empty folder, so that it trains all of its rows.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import resource
import subprocess
import sys
from pathlib import Path

from hardtack.studies.plan import plan_study
from hardtack.studies.study import load_study
from hardtack.studies.study_files import list_studies

RESULTS = Path(__file__).parent / "results" / "study_costs.json"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", metavar="FOLDER", help="run every study at smoke, each in a folder below this")
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    before = json.loads(options.output.read_text())["studies"] if options.output.is_file() else {}
    studies = {}
    for name in list_studies():
        studies[name] = {"supplement": load_study(name).supplement, **planned(name)}
        if options.smoke is not None:
            studies[name] |= smoke(name, Path(options.smoke) / name)
        elif "smoke_cpu_s" in before.get(name, {}):
            studies[name]["smoke_cpu_s"] = before[name]["smoke_cpu_s"]
        print(name, studies[name], flush=True)
    record = {
        "command": "python benchmarks/study_costs.py" + " --smoke FOLDER" * (options.smoke is not None),
        "hardware": f"planned for one NVIDIA H200; smoke measured on {os.cpu_count()} CPU cores ({platform.machine()})",
        "date": datetime.date.today().isoformat(),
        "studies": studies,
    }
    options.output.write_text(json.dumps(record, indent=1) + "\n")


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
