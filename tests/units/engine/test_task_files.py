"""What a Slurm task and its driver read from the folder between them: other versions, changed files, tampered JSON."""

import json
import pickle
from pathlib import Path

import pytest

from hardtack.base.errors import UserError
from hardtack.base.runtime import Runtime
from hardtack.commands.cli import main
from hardtack.engine import Job, MemoryStore, Span
from hardtack.engine.executors import slurm
from hardtack.engine.executors.slurm import SlurmExecutor
from hardtack.engine.executors.task import VARIABLE, report_path
from hardtack.engine.packing import versions
from hardtack.engine.slurm.record import read_record

NET = """
import torch

def build(num_classes):
    layers = [torch.nn.AdaptiveAvgPool2d(8), torch.nn.Flatten(), torch.nn.Linear(192, 10)]
    return torch.nn.Sequential(*layers)
"""


class Executes:
    def __reduce__(self):
        return open, ("ran", "w")


PICKLE = pickle.dumps(Executes(), protocol=0)


@pytest.fixture
def task(tmp_path, monkeypatch, capsys):
    """Run an evaluation as task `number` of `tasks.json`; returns its exit code and its last line."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text(NET)

    def run(content, number="0"):
        (tmp_path / "tasks.json").write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
        monkeypatch.setenv(VARIABLE, f"{tmp_path / 'tasks.json'}#{number}")
        words = ["model=net.py:build", "data=digits", "n=4", "suite=clean", "runtime.device=cpu", "output=run"]
        code = main(["evaluate", *words])
        assert not (tmp_path / "ran").exists(), "nothing is unpickled"
        return code, capsys.readouterr().err.strip()

    return run


def tasks(**changes):
    return {"store": "elsewhere", "versions": versions(), "files": {}, "spans": [[[0, 4]]], **changes}


def test_another_version_is_refused_and_both_are_named(task):
    code, line = task(tasks(versions={**versions(), "hardtack": "9.9 (source 0123456789)"}))
    assert code == 2 and len(line.splitlines()) == 1
    assert f"hardtack 9.9 (source 0123456789) there, {versions()['hardtack']} here" in line


def test_another_file_of_the_users_is_refused_and_both_are_named(task, tmp_path):
    key = started(task, tmp_path)
    code, line = task(tasks(store=key, files={str(tmp_path / "net.py"): "0123456789ab"}))
    assert code == 2 and len(line.splitlines()) == 1
    assert "net.py is another file here" in line and "0123456789ab there" in line and " here, " in line


def test_rows_that_do_not_exist_are_refused(task, tmp_path):
    key = started(task, tmp_path)
    for pair in ([0, 10**12], [-4, 4], [3, 2]):
        code, line = task(tasks(store=key, spans=[[pair]]))
        assert code == 2 and "and there are 4" in line.splitlines()[-1]


def started(task, tmp_path):
    """The name of the evaluation's store, from the error about another one."""
    code, line = task(tasks())
    assert code == 2 and "this task computes pieces of elsewhere" in line
    return line.rpartition(" but ")[2].split()[0]


@pytest.mark.parametrize(
    "content",
    [
        PICKLE,
        b"{",
        b"[" * 100_000,
        b"[]",
        b"null",
        tasks(spans=[["x"]]),
        tasks(versions=3),
        tasks(store=PICKLE.decode()),
    ],
)
def test_tampered_tasks_are_one_line(task, content):
    code, line = task(content)
    assert code == 2 and len(line.splitlines()) == 1


@pytest.mark.parametrize("number", ["1", "x", "-1", ""])
def test_a_task_that_is_not_in_the_list_is_one_line(task, number):
    code, line = task(tasks(), number)
    assert code == 2 and len(line.splitlines()) == 1


# ---------------------------------------------------------------- the driver


class Units(Job):
    total = 2

    def __init__(self):
        self.told = []

    def collect(self, span, result):
        self.told.append(result.report["failures"]["x"].upper())


class UnitStore(MemoryStore):
    key = "units"

    def __init__(self, folder):
        super().__init__()
        self.scratch = folder


def drive(tmp_path, monkeypatch, report):
    """Run two units whose tasks write `report`; reports of an earlier call must not count."""
    folder, spans = tmp_path / "slurm" / "wave-0", [Span(0, 1), Span(1, 2)]
    folder.mkdir(parents=True)
    for span in spans:
        report_path(folder, span).write_text('{"failures": {"x": "old"}}')

    def run_array(tasks, settings, *, is_done, prepare, **_):
        prepare()
        assert not any(is_done(task) for task in tasks), "a report of an earlier call was taken for an answer"
        for span in spans:
            report_path(folder, span).write_bytes(report)
        assert all(is_done(task) for task in tasks)

    monkeypatch.setattr(slurm, "run_array", run_array)
    executor, job = SlurmExecutor(Runtime(device="cpu")), Units()
    executor.command = ("study",)
    executor.run(job, spans, UnitStore(tmp_path), quiet=True)
    return job.told


def test_reports_of_an_earlier_call_do_not_count(tmp_path, monkeypatch):
    assert drive(tmp_path, monkeypatch, b'{"failures": {"x": "new"}}') == ["NEW", "NEW"]


@pytest.mark.parametrize("report", [PICKLE, b"{", b"[" * 100_000, b"[]", b"{}", b'{"failures": {"x": 3}}', b"3"])
def test_tampered_reports_are_one_line(tmp_path, monkeypatch, report):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=r"00000000-00000001\.json is damaged .*; repeat the command"):
        drive(tmp_path, monkeypatch, report)
    assert not Path("ran").exists()


@pytest.mark.parametrize("content", [PICKLE, b"{", b"[" * 100_000, b'{"arrays": [3, {"job": true}]}', b'{"arrays": 3}'])
def test_a_tampered_record_of_jobs_is_ignored(tmp_path, content):
    (tmp_path / "jobs.json").write_bytes(content)
    assert read_record(tmp_path) == []
