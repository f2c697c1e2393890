"""RobustBench's model info of a run, for the numbers that its leaderboards would list."""

from __future__ import annotations

import warnings
from dataclasses import replace

from hardtack.base.errors import UserError
from hardtack.results import Run
from hardtack.results.robustbench import IMAGES, Paper, model_infos

FOLDER = "robustbench"


def model_info_files(run: Run) -> dict[str, str]:
    """Path in the site and text of every file: numbers on all images of the leaderboard, with evidence that agrees.

    Title, authors and link are empty: `hardtack export format=robustbench` takes them.
    """
    with_evidence = [
        result
        for result in run.results
        if (agreement := run.agreements.get(result.evaluation)) is not None and agreement.supports(result)
    ]
    listed = [result for result in with_evidence if result.n >= IMAGES.get(result.data.split("/")[0], result.n + 1)]
    threats = dict.fromkeys(result.threat if result.threat else "corruptions" for result in listed)
    files: dict[str, str] = {}
    for threat in threats:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                infos = model_infos([replace(run, results=listed)], Paper(threat=threat))
            except UserError:  # no number of this threat is of the kind that RobustBench lists
                continue
        for path, text in infos.items():
            files.setdefault(f"{FOLDER}/{path.as_posix()}", text)
    return files
