"""Of several calls of one job at the same time one computes, and the others wait for it; dead holders are replaced."""

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from hardtack.base import lock as module
from hardtack.base.lock import JobLock, JobLocks, hold, is_held
from hardtack.engine import Executor, Job, PieceResult, PieceStore, run_job
from hardtack.results import read_results
from processes import hardtack, start
from tiny_runs import write_data


@pytest.fixture
def path(tmp_path):
    return tmp_path / ".job-1.lock"


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(module, "_POLL_S", 0.02)


def holder(path, **facts):
    """A lock that some other process has left."""
    own = {"pid": os.getpid(), "host": "elsewhere", "since": "yesterday", "processes": "other", "token": "t"}
    path.write_text(json.dumps({**own, **facts}))


def test_the_second_waits_and_is_told_who_holds_the_lock(path, capsys):
    first, second = JobLock(path, "evaluate pgd"), JobLock(path, "evaluate pgd")
    assert first.acquire() and not first.waited
    waiting = threading.Thread(target=lambda: second.acquire(patience_s=0.1))
    waiting.start()
    waiting.join()
    told = capsys.readouterr().err
    assert told.count("evaluate pgd is already being computed") == 1
    assert f"process {os.getpid()} on " in told and "since 20" in told
    first.release()
    assert second.acquire(patience_s=1) and second.waited
    second.release()
    assert not list(path.parent.iterdir())


def test_the_lock_of_a_dead_process_is_taken_over_at_once(path):
    child = subprocess.Popen([sys.executable, "-c", "pass"])
    child.wait()
    first = JobLock(path)
    first._create()
    path.write_text(json.dumps({**json.loads(path.read_text()), "pid": child.pid}))
    second = JobLock(path)
    assert second.acquire(patience_s=0.2)
    second.release()


def test_an_earlier_process_with_our_own_id_is_dead(path):
    """In containers the ids of processes repeat."""
    JobLock(path)._create()
    second = JobLock(path)
    assert second.acquire(patience_s=0.2)
    second.release()


@pytest.mark.parametrize("facts", [{}, {"pid": 1 << 22}, {"token": "", "pid": None}])
def test_elsewhere_a_lock_that_is_not_renewed_is_taken_over_after_a_while(path, monkeypatch, facts):
    """Process ids of other machines say nothing, and their clocks may differ."""
    monkeypatch.setattr(module, "STALE_S", 0.4)
    holder(path, **facts)
    os.utime(path, (0, 0))
    lock = JobLock(path)
    assert not lock.acquire(patience_s=0.15), "an old time alone is no sign: clocks differ"
    assert lock.acquire(patience_s=3)
    lock.release()


def test_an_empty_or_damaged_lock_is_taken_over_too(path, monkeypatch):
    monkeypatch.setattr(module, "STALE_S", 0.2)
    for text in ("", "{", "[1]"):
        path.write_text(text)
        lock = JobLock(path)
        assert lock.acquire(patience_s=3), text
        lock.release()


def test_a_lock_that_is_renewed_is_respected(path, monkeypatch):
    monkeypatch.setattr(module, "STALE_S", 0.3)
    monkeypatch.setattr(module, "RENEW_S", 0.05)
    monkeypatch.setattr(module, "_process_space", lambda: str(time.monotonic()))  # as between two machines
    first, second = JobLock(path), JobLock(path)
    assert first.acquire()
    refused = []
    thread = threading.Thread(target=lambda: refused.append(not second.acquire(patience_s=1.0)))
    thread.start()
    thread.join()
    assert refused == [True]
    first.release()


def test_the_lock_of_another_is_not_removed(path):
    lock = JobLock(path)
    holder(path, token="mine")
    lock._remove("of somebody else")
    assert json.loads(path.read_text())["token"] == "mine" and len(list(path.parent.iterdir())) == 1


class Slow(Job):
    total = 12

    def __init__(self, folder, size, log):
        self.store, self.size, self.log, self.result = PieceStore(folder, "slow-1"), size, log, folder / "done.npy"

    def recall(self):
        return np.load(self.result) if self.result.exists() else None

    def piece_size(self, most):
        return self.size

    def run(self, span, inputs, *, notebook, meter):
        time.sleep(0.02)
        self.log.append(span)
        return PieceResult(columns={"square": np.arange(*span) ** 2})

    def finish(self, columns, arrays, *, is_main):
        np.save(self.result, columns["square"])
        return columns["square"]


def test_two_calls_with_different_piece_sizes_compute_every_row_once(tmp_path):
    log, results = [], []

    def call(size):
        job = Slow(tmp_path, size, log)
        results.append(run_job(job, store=job.store, executor=Executor(), quiet=True).tolist())

    threads = [threading.Thread(target=call, args=(size,)) for size in (3, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [[number**2 for number in range(12)]] * 2
    assert sum(span.rows for span in log) == 12, "the second call used the result of the first"
    assert [item.name for item in tmp_path.iterdir()] == ["done.npy"]


def test_a_job_that_fails_gives_its_lock_back(tmp_path):
    class Failing(Slow):
        def run(self, span, inputs, *, notebook, meter):
            raise KeyboardInterrupt

    job = Failing(tmp_path, 4, [])
    with pytest.raises(KeyboardInterrupt):
        run_job(job, store=job.store, executor=Executor(), quiet=True)
    assert not list(tmp_path.glob(".*.lock"))


# ---------------------------------------------------------------- the command


def words(*more):
    return (
        "evaluate",
        "model=vit_digits",
        "model.image_size=8",
        "data=npz:data.npz",
        "output=run",
        *more,
    )


@pytest.fixture
def home(tmp_path):
    write_data(tmp_path / "data.npz", test=64)
    return tmp_path


def test_evaluations_at_once_with_different_chunk_sizes_end_with_one_result(home):
    started = [start(*words("attack.steps=40", f"chunk_size={size}", "batch_size=8"), cwd=home) for size in (7, 4)]
    ended = [each.wait() for each in started]
    assert [each.returncode for each in ended] == [0, 0], [each.stderr for each in ended]
    assert ended[0].stdout == ended[1].stdout and "robust accuracy" in ended[0].stdout
    assert not list((home / "run" / "verdicts").glob(".*")), "no hidden folder and no lock is left"
    repeated = hardtack(*words("attack.steps=40", "chunk_size=5", "batch_size=8"), cwd=home)
    assert repeated.returncode == 0 and repeated.stdout == ended[0].stdout
    assert hardtack("verify", "run", "model=vit_digits", "model.image_size=8", cwd=home).returncode == 0


def test_two_suites_at_once_in_one_folder_both_succeed(home):
    started = [start(*words(*more), cwd=home) for more in (("suite=pgd",), ("suite=attacks", "attacks=[fgsm]"))]
    ended = [each.wait() for each in started]
    assert [each.returncode for each in ended] == [0, 0], [each.stderr for each in ended]
    assert {result.suite for result in read_results(home / "run")} == {"pgd", "attacks"}


def test_a_killed_evaluation_leaves_a_lock_that_the_next_one_takes_over(home):
    first = start(*words("attack.steps=40", "chunk_size=2", "batch_size=2"), cwd=home)
    deadline = time.monotonic() + 60
    while not list((home / "run").glob("verdicts/.*/*.parquet")) and time.monotonic() < deadline:
        time.sleep(0.005)
    first.process.kill()
    first.wait()
    assert list((home / "run" / "verdicts").glob(".*.lock"))
    began = time.monotonic()
    second = hardtack(*words("attack.steps=40"), cwd=home)
    assert second.returncode == 0, second.stderr
    assert time.monotonic() - began < module.STALE_S and not list((home / "run" / "verdicts").glob(".*"))


def test_several_locks_are_taken_together(tmp_path):
    locks = JobLocks([JobLock(tmp_path / name) for name in "ab"])
    with hold(locks) as waited:
        assert not waited and is_held(tmp_path / "a") and is_held(tmp_path / "b")
    assert not is_held(tmp_path / "a") and not is_held(tmp_path / "b")


def test_a_lock_that_is_not_free_is_waited_for_and_those_before_it_are_kept(tmp_path):
    first, second = tmp_path / "a", tmp_path / "b"
    begun, over = threading.Event(), threading.Event()

    def other():
        with hold(JobLock(second)):
            begun.set()
            over.wait(10)

    thread = threading.Thread(target=other)
    thread.start()
    begun.wait(10)
    locks = JobLocks([JobLock(first), JobLock(second)])
    assert not locks.acquire(patience_s=0) and is_held(first)
    over.set()
    thread.join()
    assert locks.acquire(patience_s=10) and locks.waited
    locks.release()
    assert not is_held(first) and not is_held(second)


def test_a_lock_appears_with_what_it_says(path, monkeypatch):
    """A kill at any moment leaves no empty lock, which others could not tell from one that is being written."""
    seen, link = [], os.link

    def watched(source, target):
        seen.append(json.loads(Path(source).read_text())["token"])
        link(source, target)

    monkeypatch.setattr(module.os, "link", watched)
    lock = JobLock(path)
    with hold(lock):
        assert seen == [lock.token] == [json.loads(path.read_text())["token"]]
        assert list(path.parent.iterdir()) == [path]
    assert not path.exists()


def test_where_files_cannot_be_linked_locks_work_too(path, monkeypatch):
    def refused(*_):
        raise PermissionError("no links here")

    monkeypatch.setattr(module.os, "link", refused)
    with hold(JobLock(path)):
        assert is_held(path) and list(path.parent.iterdir()) == [path]
        assert not module._create_new(path, "another")
    assert not path.exists()
