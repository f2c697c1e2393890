"""The site over many runs: what is written, kept and removed; folders of strangers cost nothing but themselves."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from many_runs import make_many, make_small, measured
from run_folders import HOSTILE_NAME, make_run

from hardtack.base.errors import UserError
from hardtack.report.site import Verified, write_site
from hardtack.results.reported import reported_runs


def index_data(site: Path) -> dict:
    text = (site / "index.html").read_text()
    return json.loads(text.partition('id="data">')[2].partition("</script>")[0])["site"]


def rows_of(site: Path) -> dict[str, list]:
    """The first number of every run: that at linf."""
    data = index_data(site)
    return {data["runs"][row[0]]["name"]: row for row in reversed(data["rows"])}


def settle(folder: Path) -> None:
    """Times of long ago, so that a state is certain at once (the time of change cannot be set)."""
    time.sleep(0.15)


def files_of(site: Path) -> dict[str, int]:
    return {str(path.relative_to(site)): path.stat().st_mtime_ns for path in site.rglob("*") if path.is_file()}


@pytest.fixture
def runs(tmp_path):
    make_many(tmp_path / "runs", 12)
    settle(tmp_path)
    return tmp_path / "runs"


def test_a_repeated_build_writes_only_what_changed(runs, tmp_path):
    site = tmp_path / "site"
    first = write_site([runs], site, quiet=True)
    assert (first.runs, first.unchanged, first.problems) == (12, 0, ())
    before = files_of(site)
    assert sum(name.startswith("runs/") for name in before) == 12
    again = write_site([runs], site, quiet=True)
    assert (again.written, again.unchanged) == (0, 12)
    after = files_of(site)
    assert {name for name in before if after[name] != before[name]} == {".site.json"}

    shutil.rmtree(runs / "run-003")
    (runs / "run-004" / "config.yaml").write_text("name: other\nmodel: {name: vit_digits}\n")
    make_small(runs / "run-new", 77)
    settle(runs)
    third = write_site([runs], site, quiet=True)
    changed = {name for name, when in files_of(site).items() if before.get(name) != when}
    assert third.unchanged == 10 and third.removed == 1
    assert {name.rpartition("-")[0] for name in changed - {".site.json", "index.html"}} == {
        "runs/run-004",
        "runs/run-new",
    }
    assert sorted(rows_of(site)) == sorted(path.name for path in runs.iterdir())


def test_pages_share_their_files_and_name_each_other(runs, tmp_path):
    site = tmp_path / "site"
    write_site([runs], site, quiet=True)
    data = index_data(site)
    for run in data["runs"]:
        page = site / run["page"]
        text = page.read_text()
        assert "<script>" not in text and "<style>" not in text and 'href="../index.html"' in text
        for link in [part.partition('"')[0] for part in text.split('="../assets/')[1:]]:
            assert (site / "assets" / link).is_file()
    assert sum(path.stat().st_size for path in site.rglob("*.html")) < 13 * 40_000
    nonces = {path: path.read_text().partition("'nonce-")[2].partition("'")[0] for path in site.rglob("*.html")}
    assert len(set(nonces.values())) == 13 and all(len(nonce) == 24 for nonce in nonces.values())


def test_only_numbers_of_one_way_are_ranked_together(runs, tmp_path):
    make_small(runs / "other-data", 3, data="cifar10/validation")
    write_site([runs], tmp_path / "site", quiet=True)
    data = index_data(tmp_path / "site")
    names = [way["name"] for way in data["ways"]]
    assert len(set(names)) == len(names) == 5
    assert names[0].startswith("Robust accuracy: autoattack · ℓ∞ ≤ 8/255 · cifar10/test · 200 images")
    for row in data["rows"]:
        way = data["ways"][row[1]]
        assert way["data"] in ("cifar10/test", "cifar100/test", "cifar10/validation")
        assert (way["data"] == "cifar10/validation") == (data["runs"][row[0]]["name"] == "other-data")


def test_badges_come_from_checks_and_flags_stay_with_their_numbers(runs, tmp_path):
    forged = runs / "run-001" / "results.jsonl"
    lines = [json.loads(line) for line in forged.read_text().splitlines()]
    lines[1]["value"] = 0.99
    lines[1]["extra"]["verified"] = lines[1]["extra"]["badge"] = "verified"
    forged.write_text("".join(json.dumps(line) + "\n" for line in lines))
    shutil.rmtree(runs / "run-004" / "evidence")
    shutil.rmtree(runs / "run-005" / "verdicts")
    ids = {path.name: next((path / "verdicts").glob("*.parquet")).stem for path in runs.glob("run-00[236789]")}

    def verify(folder: Path) -> dict[str, Verified]:
        told = {"run-006": Verified(), "run-008": Verified(failed="no model"), "run-009": Verified(wrong=["1 image"])}
        told |= {"run-007": Verified(shown="clean"), "run-003": Verified(shown="none")}
        asked.append(folder.name)
        return {ids[folder.name]: told[folder.name]} if folder.name in told else {}

    asked: list[str] = []
    settle(runs)
    write_site([runs], tmp_path / "site", quiet=True, verify=verify)
    asked.clear()
    write_site([runs], tmp_path / "site", quiet=True, verify=verify)
    assert asked == ["run-008"], "what could not be verified is tried again, and nothing else"
    rows = rows_of(tmp_path / "site")
    states = {name: row[11] for name, row in rows.items()}
    assert states["run-001"] == "wrong" and "0.99" in rows["run-001"][12]
    assert (states["run-003"], states["run-004"], states["run-005"]) == ("checked", "counted", "missing")
    assert (states["run-006"], states["run-008"], states["run-009"]) == ("verified", "checked", "wrong")
    assert rows["run-008"][12].endswith("no model")
    for name in ("run-003", "run-007"):
        assert states[name] == "checked" and "this number needs others" in rows[name][12]
    assert [flag[:2] for flag in rows["run-007"][13]] == [["red", "zero_gradients"]]
    assert rows["run-001"][13][0][:2] == ["red", "disagrees"]


def test_folders_of_strangers_are_escaped_or_left_out_and_named(runs, tmp_path):
    make_run(runs / HOSTILE_NAME, seed=3)
    secret = tmp_path / "secret.txt"
    secret.write_text("kept")
    os.symlink(secret, runs / "run-002" / "notes.txt")
    (runs / "run-003" / "results.jsonl").write_text('{"metric": "robust_accuracy", "value": NaN}\n')
    (runs / "run-004" / "config.yaml").write_text("{{{{")
    for name, value in (("run-005", 1e308), ("run-006", -3.0)):
        path = runs / name / "results.jsonl"
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        lines[1] |= {"value": value, "model": "<img src=x onerror=alert(1)>", "extra": {"parameters": 10**40}}
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    (runs / os.fsdecode(b"run-\xff\xfe")).mkdir()
    (runs / os.fsdecode(b"run-\xff\xfe") / "config.yaml").write_text("name: odd\n")
    (runs / "loop").symlink_to(runs)
    report = write_site([runs], tmp_path / "site", quiet=True)
    told = "\n".join(report.problems)
    assert "run-002: " in told and "is a link to" in told and "run-003: " in told and "corrupt" in told
    assert "run-004: " in told and "run-005: robust_accuracy linf:8/255 is 1e+308" in told and "run-006: " in told
    text = (tmp_path / "site" / "index.html").read_text()
    assert "<img src=x" not in text and HOSTILE_NAME not in text and "hacked" in text
    assert len(set(report.problems)) == len(report.problems)
    assert report.runs == 14 and secret.read_text() == "kept"
    assert not {"run-002", "run-003"} & set(rows_of(tmp_path / "site"))
    data = index_data(tmp_path / "site")
    assert all(row[4] is None or row[4] < 10**13 for row in data["rows"])
    assert all(os.sep not in run["page"].removeprefix("runs/") for run in data["runs"])
    assert not [page for page in (tmp_path / "site").rglob("*.html") if str(runs) in page.read_text()]


def test_other_folders_are_never_written_to(runs, tmp_path):
    with pytest.raises(UserError, match="has other files and is no site"):
        write_site([runs], runs, quiet=True)
    with pytest.raises(UserError, match="is a file"):
        write_site([runs], runs / "run-000" / "config.yaml", quiet=True)
    site = tmp_path / "site"
    write_site([runs], site, quiet=True)
    shutil.rmtree(site / "runs")
    (tmp_path / "elsewhere").mkdir()
    (site / "runs").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UserError, match="is a link to"):
        write_site([runs], site, quiet=True)
    assert not list((tmp_path / "elsewhere").iterdir())


def test_a_kill_in_the_middle_leaves_a_whole_site(tmp_path):
    runs, site = tmp_path / "runs", tmp_path / "site"
    make_many(runs, 6)
    settle(runs)
    write_site([runs], site, quiet=True)
    old = (site / "index.html").read_text()
    make_many(tmp_path / "more", 30)
    for folder in (tmp_path / "more").iterdir():
        folder.rename(runs / f"new-{folder.name}")
    code = "import sys; from hardtack.report.site import write_site; write_site([sys.argv[1]], sys.argv[2], quiet=True)"
    process = subprocess.Popen([sys.executable, "-c", code, str(runs), str(site)])
    end = time.monotonic() + 60
    while len(list((site / "runs").glob("new-*.html"))) < 5 and time.monotonic() < end:
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    there = len(list((site / "runs").glob("new-*.html")))
    assert 5 <= there < 30 and (site / "index.html").read_text() == old
    assert all((site / run["page"]).read_text().endswith("</html>") for run in index_data(site)["runs"])
    (site / "runs" / ".half.html.abc.part").write_text("half")
    report = write_site([runs], site, quiet=True)
    assert report.runs == 36 and not list(site.rglob("*.part"))


def test_numbers_of_robustbench_in_and_out(runs, tmp_path):
    info = tmp_path / "model_info" / "cifar10" / "Linf" / "Wong2020Fast.json"
    info.parent.mkdir(parents=True)
    info.write_text(json.dumps({"clean_acc": "83.34", "autoattack_acc": "43.21", "eps": "8/255", "dataset": "cifar10"}))
    make_small(runs / "Wong2020Fast", 1)
    whole = runs / "all-images"
    whole.mkdir()
    clean = np.arange(10_000) % 10 < 8
    measured(whole, "xcit_s12", "cifar10/test", "linf:8/255", clean, clean & (np.arange(10_000) % 2 == 0))
    shutil.copytree(whole, runs / "no-evidence")
    shutil.rmtree(runs / "no-evidence" / "verdicts")
    write_site([runs], tmp_path / "site", quiet=True, reported=reported_runs([info.parent]))
    files = [str(path.relative_to(tmp_path / "site")) for path in (tmp_path / "site" / "robustbench").rglob("*.json")]
    assert files == ["robustbench/cifar10/Linf/all-images.json"]  # others have fewer images than its leaderboard
    written = json.loads((tmp_path / "site" / files[0]).read_text())
    assert (written["clean_acc"], written["autoattack_acc"], written["eps"]) == ("80.00", "40.00", "8/255")
    data = index_data(tmp_path / "site")
    pages = {(run["name"], run["model"]): run["page"] for run in data["runs"] if run["name"] == "Wong2020Fast"}
    assert len(set(pages.values())) == 2, "a run and a reported model of one name have a page each"
    own = (tmp_path / "site" / pages["Wong2020Fast", "preact_resnet18"]).read_text()
    assert "200 images" in own and "reported" not in own
    row = next(
        row for row in data["rows"] if row[3] != "preact_resnet18" and data["runs"][row[0]]["name"] == "Wong2020Fast"
    )
    assert row[11] == "reported" and row[6] == 0.4321 and data["ways"][row[1]]["reported"]
    assert data["ways"][row[1]]["beside"] == data["ways"][0]["beside"]
    assert not info.with_suffix(".html").exists() and sorted(path.name for path in info.parent.iterdir()) == [info.name]
