"""What the documentation prints of the studies can be computed again from what is kept in benchmarks/evidence."""

import importlib.util
import json
import sys
import zipfile
from pathlib import Path

import pytest

from hardtack.base.errors import UserError

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "benchmarks"))  # where its parts find each other
SPEC = importlib.util.spec_from_file_location("evidence", ROOT / "benchmarks" / "evidence.py")
evidence = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(evidence)


@pytest.fixture(scope="module")
def studies(tmp_path_factory):
    root = tmp_path_factory.mktemp("studies")
    evidence.unpack(root)
    return root


@pytest.fixture(scope="module")
def outcomes(studies):
    """What the evidence gives of every study, by its name."""
    return dict(evidence.outcomes(studies))


def test_the_pages_are_what_the_evidence_gives(studies):
    for page, text in evidence.pages(studies).items():
        assert page.read_text(encoding="utf-8") == text, f"{page.name}: python benchmarks/evidence.py pages"


def test_every_archive_is_used(outcomes):
    """A run that no study asks for, as after a change of its settings, is not evidence for anything."""
    used = set()
    for view in outcomes.values():
        if view is not None:
            used |= {Path(run).name for row in view["rows"] for run in row["runs"]}
    assert used == {archive.stem for archive in evidence.KEPT.glob("*.zip")}


def test_kept_and_unpacked_is_the_same(studies, tmp_path):
    kept = tmp_path / "kept"
    assert len(evidence.keep(studies, kept)) == len(list(evidence.KEPT.glob("*.zip"))) > 0
    assert not evidence.keep(studies, kept), "the same once more changes no archive"
    again = tmp_path / "again"
    evidence.unpack(again, kept)
    files = sorted(file.relative_to(studies) for file in studies.rglob("*") if file.is_file())
    assert files == sorted(file.relative_to(again) for file in again.rglob("*") if file.is_file())
    assert all((studies / file).read_bytes() == (again / file).read_bytes() for file in files)


def test_a_number_that_its_run_does_not_have_is_not_printed(outcomes, tmp_path):
    """A cell that was changed is taken for not measured, and the page would differ."""
    root = tmp_path / "studies"
    evidence.unpack(root)
    changed = next(file for file in sorted((root / "cells").glob("*.json")) if json.loads(file.read_text())["result"])
    about = json.loads(changed.read_text())
    changed.write_text(json.dumps({**about, "value": about["value"] + 1}))
    whole, less = (views[about["about"]["study"]] for views in (outcomes, dict(evidence.outcomes(root))))
    row, column = about["about"]["row"], about["about"]["column"]
    before, after = (
        next(entry for entry in view["rows"] if entry["name"] == row)["cells"][column]["values"]
        for view in (whole, less)
    )
    assert len(after) == len(before) - 1


def test_a_second_session_adds_cells_and_loses_none(studies, tmp_path):
    kept, part = tmp_path / "kept", tmp_path / "part"
    evidence.keep(studies, kept)
    evidence.unpack(part)
    archive = next(iter(sorted(kept.glob("*.zip"))))
    cells = evidence.cells_by_run(part)[archive.stem]
    for cell in cells[1:]:
        cell.unlink()
    assert archive not in evidence.keep(part, kept)
    with zipfile.ZipFile(archive) as file:
        assert sum(name.endswith(".json") for name in file.namelist()) == len(cells)


def test_minutes_are_added_once(tmp_path):
    root, kept = tmp_path / "root", tmp_path / "kept"
    root.mkdir()
    kept.mkdir()
    first = {"date": "2026-01-01", "study": "a/b", "seeds": 1, "device": "x", "minutes": 2.0, "finished": True}
    (kept / "minutes.json").write_text(json.dumps([first]))
    (root / "minutes.json").write_text(json.dumps([first, {**first, "study": "c/d"}]))
    evidence.keep_minutes(root, kept)
    assert [entry["study"] for entry in json.loads((kept / "minutes.json").read_text())] == ["a/b", "c/d"]


def test_evidence_outlives_the_version_that_measured_it(studies, outcomes, monkeypatch):
    monkeypatch.setattr(evidence.hardtack, "__version__", "99.0")
    after = dict(evidence.outcomes(studies))
    assert any(view is not None for view in after.values())
    assert {name: view and view["rows"] for name, view in after.items()} == {
        name: view and view["rows"] for name, view in outcomes.items()
    }


def hostile(folder, name, files):
    folder.mkdir()
    with zipfile.ZipFile(folder / f"{name}.zip", "w", zipfile.ZIP_DEFLATED) as file:
        for member, content in files.items():
            file.writestr(member, content)
    return folder


def test_an_archive_writes_only_where_it_may(tmp_path):
    files = {"../out": b"x", "models/other/config.yaml": b"x", "cells/../../out": b"x", "models/run/state.pt": b"x",
             "/out": b"x", "cells/0123456789abcdef.json": b"{}", "models/run/config.yaml": b"x"}  # fmt: skip
    root = tmp_path / "root"
    root.mkdir()
    evidence.unpack(root, hostile(tmp_path / "kept", "run", files))
    written = {str(file.relative_to(tmp_path)) for file in tmp_path.rglob("*") if file.is_file()} - {"kept/run.zip"}
    assert written == {"root/versions", "root/cells/0123456789abcdef.json", "root/models/run/config.yaml"}


def test_an_archive_that_unpacks_to_gigabytes_is_refused(tmp_path):
    bomb = hostile(tmp_path / "kept", "run", {"models/run/results.jsonl": b"0" * (evidence._MOST_BYTES + 1)})
    with pytest.raises(UserError, match="unpacks to more than 64 MiB"):
        evidence.unpack(tmp_path, bomb)


@pytest.mark.parametrize("run", ["../out", "/out", "", ".", None, 3])
def test_a_cell_that_names_another_place_is_refused(tmp_path, run):
    (tmp_path / "cells").mkdir()
    (tmp_path / "cells" / "0123456789abcdef.json").write_text(json.dumps({"run": run}))
    with pytest.raises(UserError, match="names no run"):
        evidence.keep(tmp_path, tmp_path / "kept")


def test_folders_of_the_machine_are_not_kept(studies, tmp_path):
    root = tmp_path / "root"
    evidence.unpack(root)
    run = sorted((root / "models").iterdir())[0]
    for name, before, after in (
        ("config.yaml", "root: data", "root: /home/me/images"),
        ("config.yaml", "runs/studies/models", "/home/me/runs/models"),
        ("results.jsonl", "data.root=data", "data.root=/home/me/images"),
    ):
        text = (run / name).read_text()
        assert before in text, name
        (run / name).write_text(text.replace(before, after))
    evidence.keep(root, tmp_path / "kept")
    for archive in (tmp_path / "kept").glob("*.zip"):
        assert not any(b"/home/me" in content for content in evidence.read_archive(archive).values())
    assert not [
        name
        for archive in evidence.KEPT.glob("*.zip")
        for name, content in evidence.read_archive(archive).items()
        if name.endswith((".yaml", ".jsonl")) and b'"/' in content
    ]


def test_a_data_folder_whose_name_stands_in_every_number_changes_none(studies, tmp_path):
    root = tmp_path / "root"
    evidence.unpack(root)
    run = sorted((root / "models").iterdir())[0]
    config = (run / "config.yaml").read_text()
    assert "  root: data\n" in config
    (run / "config.yaml").write_text(config.replace("  root: data\n", "  root: .\n"))
    evidence.keep(root, tmp_path / "kept")
    archive, name = evidence.read_archive(tmp_path / "kept" / f"{run.name}.zip"), f"models/{run.name}"
    assert archive[f"{name}/config.yaml"].decode() == config
    for file in ("results.jsonl", "metrics.jsonl"):
        assert archive[f"{name}/{file}"] == (run / file).read_bytes()


def test_mistakes_are_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(evidence.sys, "argv", ["evidence.py", "keep", str(tmp_path / "nowhere")])
    with pytest.raises(SystemExit, match="nowhere has no cells"):
        evidence.main()
    monkeypatch.setattr(sys.modules["evidence_session"], "ORDER", ((("cauchy/table9",), 1), (("cauchy/table1",), 1)))
    with pytest.raises(UserError, match=r"hardtack study cauchy/table9 .* was refused"):
        evidence.spend(tmp_path, 1.0, "nowhere", 1)
    assert len(json.loads((tmp_path / "minutes.json").read_text())) == 1, "the next study would be refused, too"
