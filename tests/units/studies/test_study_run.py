"""Running a study: what it trains, measures and writes; what a repeat, a change, a failure and a kill lead to."""

import csv
import json
import os
import shutil
import signal
import time

import pytest
import yaml
from toy import toy

import hardtack as ht
from hardtack.base.errors import UserError
from hardtack.base.lock import JobLock, hold
from hardtack.commands.cli import main
from hardtack.studies.run import tabulate
from hardtack.studies.unit import find_unit
from processes import start

QUICK = {"data": {"limit": 32}, "train": {"epochs": 1, "batch_size": 16}, "validation": {"every": 1, "limit": 4}}


def small_study(**changes):
    """Two rows, one training, three columns: seconds to run."""
    values = toy(**changes)
    values["trainings"] = {"model": {"recipe": "digits/standard"}}
    values["columns"] = {
        "clean": {"suite": "clean", "metric": "clean_accuracy"},
        "pgd": {"suite": "pgd", "threat": "linf:0.1", "attack": {"steps": 1}, "metric": "robust_accuracy", "audit": 0},
        "size": {"fact": "parameters", "ours": True},
    }  # fmt: skip
    values["paper_says"] = {"small": {"clean": 80, "pgd": None}, "large": {"clean": 81, "pgd": 45}}
    values |= {"claims": ["clean(large) > clean(small)"], "plots": [{"kind": "lines", "y": ["clean"]}], "figures": []}
    values["scales"] = {
        "smoke": {"settings": {**QUICK, "augment": {"crop_padding": 0}, "runtime": {"device": "cpu"}}, "n": 8},
        "short": {}, "paper": {},
    }  # fmt: skip
    return values


def write(folder, values):
    path = folder / "mine.yaml"
    path.write_text(yaml.safe_dump(values, sort_keys=False))
    return path


def run(path, **words):
    return ht.study(path, quiet=True, output=str(path.parent / "studies"), **words)


def stamps(folder):
    """When every file of the models was last written."""
    return {path: path.stat().st_mtime_ns for path in (folder / "studies" / "models").rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("study")
    path = write(folder, small_study())
    return path, run(path)


def test_a_study_writes_its_table_page_and_record(finished):
    path, outcome = finished
    assert outcome.folder == path.parent / "studies" / "mine" / "smoke"
    assert not outcome.failures and list(outcome.verdicts) == ["clean(large) > clean(small)"]
    assert 0 <= outcome.value("small", "clean") <= 100 and outcome.value("large", "size") > outcome.value(
        "small", "size"
    )
    names = {item.name for item in outcome.folder.iterdir()}
    assert {"table.md", "table.tex", "table.csv", "page.html", "study.json", "figures"} <= names
    lines = list(csv.DictReader((outcome.folder / "table.csv").read_text().splitlines()))
    assert lines and any("80" in line.values() or "80.0" in line.values() for line in lines)
    record = json.loads((outcome.folder / "study.json").read_text())
    assert [row["state"] for row in record["rows"]] == ["measured", "measured"]
    assert "Nobody, table 0" in outcome.page.read_text()


def test_a_repeat_computes_nothing_and_gives_the_same_table(finished):
    path, outcome = finished
    before, table = stamps(path.parent), (outcome.folder / "table.md").read_text()
    again = run(path)
    assert again.view["notes"] == [], "nothing was changed on the command line"
    assert stamps(path.parent) == before and (again.folder / "table.md").read_text() == table
    assert again.view["rows"] == outcome.view["rows"] and again.view["claims"] == outcome.view["claims"]


def test_a_row_without_a_training_is_quoted_and_its_network_is_not_needed(tmp_path):
    values = small_study()
    values["rows"]["other"] = {"title": "Other", "skip": ["model"]}
    values["columns"] = {
        "size": {"fact": "million_parameters", "unit": "number"},
        "work": {"fact": "billion_multiply_adds", "ours": True},
    }
    values["paper_says"] = {"small": {"size": 1}, "large": {"size": None}, "other": {"size": 2.5}}
    values |= {"claims": [], "plots": []}
    path = write(tmp_path, values)
    outcome = run(path, rows="small")
    states = {row["name"]: row["state"] for row in outcome.view["rows"]}
    assert states == {"small": "measured", "large": "not run yet", "other": "quoted from the paper"}
    assert "1 of 2 rows measured" in str(outcome) and "2.5" in (outcome.folder / "table.md").read_text()
    model = ht.load_model("vit_digits", depth=1, num_classes=10)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    assert outcome.value("small", "size") == pytest.approx(parameters / 1e6)
    assert 1e-4 < outcome.value("small", "work") < 0.1
    with pytest.raises(UserError, match="only quoted from the paper"):
        find_unit(f"{path}:other", scale="smoke")


def test_a_change_runs_again_only_what_depends_on_it(tmp_path):
    path = write(tmp_path, small_study())
    first = run(path, rows="small")
    before = stamps(tmp_path)
    values = small_study()
    values["columns"]["clean"]["title"] = "Accuracy"  # how it is shown
    values["columns"]["pgd"]["attack"] = {"steps": 2}  # how it is measured
    values["rows"]["large"]["model"]["options"] = {"depth": 3}  # another row
    second = run(write(tmp_path, values), rows="small")
    changed = {item for item, stamp in stamps(tmp_path).items() if before.get(item) != stamp}
    assert changed and not any("checkpoints" in item.parts for item in changed), "nothing is trained again"
    cells = {key: measured[0].evaluation for key, measured in first.cells.items()}
    after = {key: measured[0].evaluation for key, measured in second.cells.items()}
    assert cells["small", "clean"] == after["small", "clean"] and cells["small", "pgd"] != after["small", "pgd"]
    values["rows"]["small"]["optimiser"] = {"lr": 1e-3}  # what is trained
    third = run(write(tmp_path, values), rows="small")
    assert third.cells["small", "clean"][0].run != first.cells["small", "clean"][0].run


def test_a_row_that_fails_is_told_and_the_others_are_measured(tmp_path):
    values = small_study()
    values["rows"]["small"]["optimiser"] = {"lr": 1e30}  # the loss is not finite
    outcome = run(write(tmp_path, values))
    ((unit, failures),) = outcome.failures.items()
    assert unit.row == "small" and "" in failures
    states = {row["name"]: row["state"] for row in outcome.view["rows"]}
    assert states["small"].startswith("failed: ") and states["large"] == "measured"
    assert outcome.verdicts == {"clean(large) > clean(small)": "not measured"}
    assert "failed" in (outcome.folder / "page.html").read_text()
    with pytest.raises(UserError, match=r"clean\(small\) was not measured"):
        outcome.value("small", "clean")


def test_a_column_that_fails_leaves_the_other_columns(tmp_path):
    values = small_study()
    values["columns"]["map"] = {"analysis": "attention", "metric": "no_such_metric", "n": 2, "ours": True}
    outcome = run(write(tmp_path, values), rows="small")
    (failures,) = outcome.failures.values()
    assert list(failures) == ["map"] and "has no no_such_metric" in failures["map"]
    assert outcome.value("small", "clean") >= 0


def test_seeds_are_trainings_of_their_own(tmp_path):
    words = {"train": {"epochs": 1}, "n": 6, "data": {"root": str(tmp_path)}}
    outcome = run(write(tmp_path, small_study()), rows="small", seeds=2, **words)
    assert outcome.view["notes"] == ["changed on the command line: train.epochs=1, n=6"]
    clean = outcome.cells["small", "clean"]
    assert [cell.seed for cell in clean] == [0, 1] and clean[0].run != clean[1].run
    cell = next(row for row in outcome.view["rows"] if row["name"] == "small")["cells"]["clean"]
    assert cell["seeds"] == 2 and cell["value"] == pytest.approx(sum(each.value for each in clean) / 2)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rows": {"small": {"model": {"name": "vit_digitz"}}}}, "mine:small/model: .*vit_digits"),
        ({"rows": {"small": {"model": "vit_digits", "train": {"epoch": 3}}}}, "did you mean 'train.epochs'|epochs"),
        ({"columns": {"clean": {"suite": "clen", "metric": "clean_accuracy"}}}, "column clean: .*clean"),
        ({"columns": {"clean": {"analysis": "sparsity", "metric": "x", "shre": 3}}}, "column clean: .*shre"),
        ({"columns": {"clean": {"suite": "pgd", "metric": "x", "attack": {"step_count": 3}}}}, "column clean: "),
    ],
)
def test_what_cannot_work_is_refused_before_anything_is_trained(tmp_path, change, message):
    values = small_study() | {"paper_says": {}, "claims": [], "plots": []} | change
    values["columns"] = {name: {**column, "ours": True} for name, column in values["columns"].items()}
    with pytest.raises(UserError, match=message):
        run(write(tmp_path, values))
    assert not (tmp_path / "studies").exists()


def test_words_that_a_study_does_not_have_are_refused(tmp_path):
    path = write(tmp_path, small_study())
    with pytest.raises(UserError, match=r"no setting 'seed' \(did you mean 'seeds'"):
        run(path, seed=3)
    with pytest.raises(UserError, match="seeds must be at least 1"):
        run(path, seeds=0)
    with pytest.raises(UserError, match=r"no row 'smal' \(did you mean 'small'"):
        run(path, rows="smal")
    with pytest.raises(UserError, match=r"there is no study 'cauchy/table9' \(did you mean 'cauchy/table\d'"):
        ht.study("cauchy/table9")


def test_the_paper_scale_without_its_data_is_refused_with_what_it_needs(tmp_path):
    values = small_study()
    values["rows"]["large"]["data"] = {"name": "folder:imagenet", "root": str(tmp_path / "nowhere")}
    with pytest.raises(UserError, match=r"needs data that is not here: folder:imagenet \(1 run; .*scale=short"):
        run(write(tmp_path, values), scale="paper")


def test_the_command_prints_the_table_and_lists_states(finished, capsys, monkeypatch):
    path, _ = finished
    monkeypatch.chdir(path.parent)
    assert main(["study", "mine.yaml", "output=studies"]) == 0
    printed = capsys.readouterr().out
    assert "paper" in printed and "ours" in printed and "page: studies/mine/smoke/page.html" in printed
    assert main(["study", "mine.yaml", "output=studies", "--status"]) == 0
    assert "at scale smoke: 1 " in capsys.readouterr().out
    assert main(["study", "output=studies"]) == 0
    listed = capsys.readouterr().out
    assert "cauchy/table1" in listed and "not run" in listed
    assert main(["study", "--report", "output=studies"]) == 0
    assert (path.parent / "studies" / "index.html").is_file()


def test_a_killed_study_resumes_to_the_same_table(finished, tmp_path):
    path = write(tmp_path, small_study())
    process = start("study", "mine.yaml", "output=studies", cwd=tmp_path)
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob("studies/cells/*.json")) and time.monotonic() < deadline:
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait().returncode == -signal.SIGKILL
    kept = {item: item.stat().st_mtime_ns for item in tmp_path.glob("studies/cells/*.json")}
    assert kept, "some cells were measured before the kill"
    outcome = run(path)
    _, whole = finished
    assert (outcome.folder / "table.csv").read_text() == (whole.folder / "table.csv").read_text()
    assert all(item.stat().st_mtime_ns == stamp for item, stamp in kept.items()), "what was measured is not done again"


def test_the_table_of_what_is_measured_needs_no_weights_and_runs_nothing(finished, tmp_path, capsys):
    path, outcome = finished
    copied = tmp_path / "studies"
    shutil.copytree(path.parent / "studies", copied)
    for weights in copied.rglob("*.safetensors"):
        weights.unlink()
    for name in ("table.md", "page.html"):
        (copied / "mine" / "smoke" / name).unlink()
    before = stamps(tmp_path)
    last = json.loads((copied / "mine" / "smoke" / "study.json").read_text())  # other tests repeat the study
    main(["study", str(path), "--table", f"output={copied}"])
    assert "CLEAN" in capsys.readouterr().out.upper() and stamps(tmp_path) == before
    assert (copied / "mine" / "smoke" / "table.md").read_text() == (outcome.folder / "table.md").read_text()
    assert (copied / "mine" / "smoke" / "page.html").is_file()
    record = json.loads((copied / "mine" / "smoke" / "study.json").read_text())
    assert (record["seconds"], record["device"]) == (last["seconds"], last["device"])


def test_the_table_of_a_part_says_what_is_missing(finished, tmp_path):
    path, outcome = finished
    copied = tmp_path / "studies"
    shutil.copytree(path.parent / "studies", copied)
    for cell in (copied / "cells").glob("*.json"):
        if json.loads(cell.read_text())["about"]["row"] == "large":
            cell.unlink()
    part = tabulate(path, output=str(copied), write=False)
    assert "1 of 2 rows measured" in str(part) and list(part.verdicts.values()) == ["not measured"]
    assert part.value("small", "clean") == outcome.value("small", "clean")


def test_a_table_of_nothing_is_an_error(finished, tmp_path, capsys):
    path, _ = finished
    assert main(["study", str(path), "--table", f"output={tmp_path}"]) == 2
    assert "nothing of mine is measured at scale smoke in" in capsys.readouterr().err


def test_the_table_keeps_scale_seeds_and_failures_of_the_record(finished, tmp_path):
    path, _ = finished
    copied = tmp_path / "studies"
    shutil.copytree(path.parent / "studies", copied)
    record = copied / "mine" / "smoke" / "study.json"
    view = json.loads(record.read_text())
    for cell in (copied / "cells").glob("*.json"):
        if json.loads(cell.read_text())["about"]["row"] == "large":
            cell.unlink()
    view["rows"][1]["state"] = "failed: pgd: memory ran out"
    record.write_text(json.dumps({**view, "seeds": 3}))
    outcome = tabulate(path, output=str(copied))
    assert [row["state"] for row in outcome.view["rows"]] == ["measured", "failed: pgd: memory ran out"]
    assert outcome.view["seeds"] == 1, "of the three that were asked for, one is measured"
    record.unlink()
    again = tabulate(path, output=str(copied))
    assert again.view["device"] and again.view["seconds"] == 0, "the device is that of the results"


def test_the_table_refuses_what_it_does_not_do(finished, capsys):
    path, outcome = finished
    folder = f"output={path.parent / 'studies'}"
    for words, message in (
        ([str(path), "rows=small"], "the table has all rows"),
        ([str(path), "workers=2"], "--table takes studies and runs nothing"),
        (["--report"], "--table takes studies and runs nothing"),
        ([], "--table takes studies and runs nothing"),
    ):
        assert main(["study", "--table", *words, folder]) == 2
        assert message in capsys.readouterr().err
    with hold(JobLock(outcome.folder / ".lock", "another")), pytest.raises(UserError, match="mine is running in"):
        tabulate(path, output=str(path.parent / "studies"))
    assert tabulate(path, output=str(path.parent / "studies"), versions=("9.9", "0.1.0")).cells
    with pytest.raises(UserError, match="nothing of mine is measured"):
        tabulate(path, output=str(path.parent / "studies"), versions=("9.9",))
