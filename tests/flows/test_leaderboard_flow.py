"""`hardtack leaderboard` as a user types it: a measured run, a study, verification, and what is printed."""

from __future__ import annotations

import json
import shutil
import sys
import time
from pathlib import Path

import pytest

from hardtack.commands.cli import main
from hostile_runs import GENUINE

sys.path.insert(0, str(Path(__file__).parents[1] / "units" / "studies"))
from test_state import record  # noqa: F401

CPU = "runtime.device=cpu"


def site_of(index: Path) -> dict:
    text = index.read_text()
    return json.loads(text.partition('id="data">')[2].partition("</script>")[0])["site"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run of this version: a small ViT on the digits, measured by PGD, with evidence."""
    folder = tmp_path_factory.mktemp("measured") / "runs" / "vit"
    shutil.copytree(GENUINE / "checkpoints", folder / "checkpoints")
    shutil.copy(GENUINE / "config.yaml", folder)
    assert main(["evaluate", str(folder), "suite=pgd", "threat=linf:0.1", "n=12", CPU]) == 0
    return folder


def states(index: Path) -> list[str]:
    return [row[11] for row in site_of(index)["rows"]]


@pytest.mark.filterwarnings("ignore")
def test_verification_gives_its_badge_and_takes_it_away(run, tmp_path, monkeypatch, capsys):
    runs = tmp_path / "runs"
    shutil.copytree(run.parent, runs)
    monkeypatch.chdir(tmp_path)
    assert main(["leaderboard", "runs"]) == 0
    assert "1 run: 6 files written" in capsys.readouterr().out
    index = tmp_path / "site" / "index.html"
    assert states(index) == ["checked"]
    assert main(["leaderboard", "runs", "--verify", "--title", "Ours & yours"]) == 0
    assert states(index) == ["verified"] and "<h1>Ours &amp; yours</h1>" in index.read_text()
    (weights,) = (runs / "vit" / "checkpoints").glob("best.safetensors")
    weights.rename(runs / "elsewhere.safetensors")
    assert main(["leaderboard", "runs", "--verify"]) == 0
    assert states(index) == ["checked"]  # nothing is known to be wrong, and the badge is not kept
    (runs / "elsewhere.safetensors").rename(weights)
    next((runs / "vit" / "adversarial").glob("*/*.npz")).unlink()
    assert main(["leaderboard", "runs", "--verify"]) == 0
    assert states(index) == ["wrong"]


@pytest.mark.filterwarnings("ignore")
def test_studies_have_pages_with_runs_of_the_named_folders_only(run, record, tmp_path, capsys):  # noqa: F811
    view = json.loads(record.read_text())
    outside = tmp_path / "outside" / "private-run"
    shutil.copytree(run, outside)
    shutil.copytree(run, record.parents[2] / "models" / "own")
    view["rows"][0]["runs"] = ["../../models/own", "../../../outside/private-run", "/etc"]
    record.write_text(json.dumps(view))
    damaged = record.parents[1] / "short" / "study.json"
    damaged.parent.mkdir()
    damaged.write_text("{")
    named = record.parents[1] / "paper" / "study.json"
    named.parent.mkdir()
    named.write_text(json.dumps({**view, "name": "../../elsewhere", "rows": []}))
    site = tmp_path / "site"
    time.sleep(0.15)  # until the times of these files are certain
    assert main(["leaderboard", str(record.parents[2]), "-o", str(site)]) == 0
    out = capsys.readouterr().out
    assert "1 run, 2 studies" in out and "study.json is damaged" in out
    pages = sorted(path.name.rpartition("-")[0] for path in (site / "studies").iterdir())
    assert pages == ["elsewhere-smoke", "mine-smoke"]
    assert {path.name for path in site.iterdir() if path.is_dir()} == {"assets", "runs", "studies"}
    text = next((site / "studies").glob("mine*")).read_text()
    assert "Small" in text and "&lt;b&gt;Mine" in text and "private-run" not in text
    index = (site / "index.html").read_text()
    assert "&lt;b&gt;Mine" in index and "1 undecided" in index
    assert main(["leaderboard", str(record.parents[2]), "-o", str(site)]) == 0
    assert "0 files written, 3 pages unchanged" in capsys.readouterr().out
    shutil.rmtree(damaged.parents[1])
    assert main(["leaderboard", str(record.parents[2]), "-o", str(site)]) == 0
    assert list((site / "studies").glob("*.html")) == [] and "Studies" not in (site / "index.html").read_text()
