"""A driver that ends while its array is in the queue, and the same call again, with a queue of the test's own."""

import json
import pickle
import re
from pathlib import Path

import numpy as np
import pytest

from hardtack.base.errors import UserError
from hardtack.base.runtime import Runtime
from hardtack.engine import Job, PieceResult, PieceStore, Span
from hardtack.engine.executors.slurm import SlurmExecutor, SlurmExecutorSettings
from hardtack.engine.executors.task import VARIABLE, TaskDone, TaskPart, report_path, write_tasks
from hardtack.engine.pieces import missing_spans
from hardtack.engine.slurm import watch
from hardtack.engine.slurm.queue import QueuedTask

TOTAL, SIZE = 12, 2
SPANS = missing_spans([], TOTAL, SIZE)


class Executes:
    def __reduce__(self):
        return open, ("ran", "w")


DAMAGED = [
    pickle.dumps(Executes(), protocol=0), b"{", b"[" * 100_000, b"[]", b"null", b'{"flag": 3}', b'{"flag": "red"}',
    b'{"flag": "red", "seconds": "x"}', b'{"flag": "red", "seconds": 1' + b"0" * 400 + b"}",
]  # fmt: skip


class Flagged(Job):
    """Every piece has a report of a flag and of seconds, which the driver adds up."""

    total = TOTAL

    def __init__(self):
        self.flags, self.seconds = [], 0.0

    def run(self, span, inputs, *, notebook, meter):
        return PieceResult(columns={"row": np.arange(*span)}, report={"flag": f"red {span.start}", "seconds": 1})

    def collect(self, span, result):
        flag = result.report["flag"].upper()
        self.seconds += result.report["seconds"]
        self.flags.append(flag)


class Queue:
    """Answers for squeue and sbatch: `states` are those of the last array, `answers` is called at each look at it."""

    def __init__(self):
        self.digest, self.submitted, self.states = "", [], {}
        self.answer = lambda: None

    def read(self):
        self.answer()
        return [QueuedTask(7, position, state, "", self.digest) for position, state in self.states.items()]

    def submit(self, script, *, array):
        self.digest = re.search("-([0-9a-f]{16})-0", script.read_text())[1]
        self.submitted.append(array)
        self.states = dict.fromkeys(range(2), "RUNNING")
        return 7


@pytest.fixture
def queue(monkeypatch):
    made = Queue()
    monkeypatch.setattr(watch, "read_queue", made.read)
    monkeypatch.setattr(watch, "submit", made.submit)
    return made


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return PieceStore(tmp_path, "job-0123456789ab")


def wave(store):
    return store.scratch / "slurm" / "wave-0"


def compute(store, span):
    """What a task does."""
    result = Flagged().run(span, None, notebook=None, meter=None)
    report_path(wave(store), span).parent.mkdir(parents=True, exist_ok=True)
    report_path(wave(store), span).write_text(json.dumps(result.report))
    store.write(span, result)


def drive(store, workers=2):
    """One call of the driver; the job with what it has collected."""
    executor, job = SlurmExecutor(Runtime(device="cpu"), SlurmExecutorSettings(workers=workers, poll_s=0.01)), Flagged()
    executor.command = ("evaluate",)
    executor.run(job, missing_spans(store.spans(), TOTAL, SIZE), store, quiet=True)
    return job


def interrupted(store, queue, finished):
    """A driver that ends when these pieces are finished and its array runs."""

    def answer():
        if queue.submitted:
            for span in finished:
                compute(store, span)
            raise KeyboardInterrupt

    queue.answer = answer
    with pytest.raises(KeyboardInterrupt):
        drive(store)
    assert queue.submitted == ["0-1"]


def finish(store, queue):
    """From now on the array's tasks are over at the second look."""
    looks = []

    def answer():
        looks.append(1)
        if len(looks) == 2:
            for span in missing_spans(store.spans(), TOTAL, SIZE):
                compute(store, span)
            queue.states = dict.fromkeys(queue.states, "COMPLETED")

    queue.answer = answer


@pytest.mark.parametrize("finished", [[], SPANS[:1], SPANS[1:4], SPANS[::2], SPANS])
def test_the_same_call_watches_its_array_and_collects_every_report_once(store, queue, finished):
    interrupted(store, queue, finished)
    written = (wave(store) / "tasks.json").read_bytes()
    finish(store, queue)
    job = drive(store)
    assert queue.submitted == ["0-1"], "nothing is submitted twice"
    assert (wave(store) / "tasks.json").read_bytes() == written
    assert sorted(job.flags) == sorted(f"RED {span.start}" for span in SPANS)
    assert job.seconds == len(SPANS)


def test_tasks_that_are_lost_with_the_driver_are_submitted_without_the_finished_ones(store, queue):
    interrupted(store, queue, SPANS[::2])  # all pieces of the first task
    queue.states = {0: "COMPLETED", 1: "CANCELLED"}
    queue.answer = lambda: None

    def submit(script, *, array):
        queue.submitted.append(array)
        for span in SPANS[1::2]:
            compute(store, span)
        queue.states = {1: "COMPLETED"}
        return 8

    watch.submit = submit  # the fixture puts it back
    assert drive(store).seconds == len(SPANS)
    assert queue.submitted == ["0-1", "1"]


def test_a_call_that_is_refused_writes_nothing_that_running_tasks_read(store, queue):
    interrupted(store, queue, SPANS[:1])
    written = (wave(store) / "tasks.json").read_bytes()
    queue.answer = lambda: None
    with pytest.raises(UserError, match=r"other settings are still in the queue .*scancel 7"):
        drive(store, workers=3)
    assert (wave(store) / "tasks.json").read_bytes() == written


def test_reports_are_collected_from_any_wave_without_asking_slurm(store, queue):
    for span in SPANS:
        compute(store, span)
    other = store.scratch / "slurm" / "wave-1"
    other.mkdir()
    report_path(wave(store), SPANS[0]).rename(report_path(other, SPANS[0]))
    queue.answer = lambda: pytest.fail("Slurm was asked")
    assert drive(store).seconds == len(SPANS)


@pytest.mark.parametrize("report", DAMAGED, ids=range(len(DAMAGED)))
def test_a_piece_whose_report_is_damaged_is_computed_again(store, queue, report, capsys):
    for span in SPANS:
        compute(store, span)
    report_path(wave(store), SPANS[3]).write_bytes(report)
    finish(store, queue)
    job = drive(store)
    assert queue.submitted == ["1"], "only the task of the damaged piece"
    assert sorted(job.flags) == sorted(f"RED {span.start}" for span in SPANS)
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 1 and re.search(r"00000006-00000008\.json is damaged .*; its rows are computed again", said[0])
    assert not Path("ran").exists(), "nothing is unpickled"


def test_a_task_keeps_the_flags_of_its_pieces_beside_them(store, monkeypatch):
    """Whichever executor finishes the job later."""
    write_tasks(wave(store) / "tasks.json", store, [SPANS[:2], SPANS[2:]], ())
    monkeypatch.setenv(VARIABLE, f"{wave(store) / 'tasks.json'}#0")
    job, order = Flagged(), []
    monkeypatch.setattr(job, "collect", lambda span, result: order.append((span, span in store.spans())))
    with pytest.raises(TaskDone):
        TaskPart(Runtime(device="cpu")).run(job, SPANS, store, quiet=True)
    assert order == [(Span(0, 2), False), (Span(2, 4), False)], "before the piece is complete"
