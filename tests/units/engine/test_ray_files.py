"""Files of a piece on their way back from a Ray actor, in the order in which Ray may answer; without Ray itself."""

import threading
from types import SimpleNamespace

import pytest

from hardtack.base.progress import Meter
from hardtack.engine.executors import ray_actor
from hardtack.engine.executors.ray import _Actor, _Loop
from hardtack.engine.job import Job
from hardtack.engine.mirror import Mirror
from hardtack.engine.pieces import PieceResult, Span
from hardtack.engine.schedule import Schedule
from hardtack.engine.store import MemoryStore

OLDER = {"last.safetensors": b"epoch 3", "state.pt": b"epoch 3", "log": b"epoch 3"}
FINAL = {"last.safetensors": b"final", "state.pt": None}


class Lost(Exception):
    pass


class FakeRay:
    """Answers are given at once, those to earlier calls first."""

    exceptions = SimpleNamespace(
        RayActorError=Lost, WorkerCrashedError=Lost, OutOfMemoryError=Lost, ObjectLostError=Lost
    )

    def __init__(self, answers):
        self.answers = answers

    def wait(self, calls, num_returns, timeout):
        return calls[:1], calls[1:]

    def get(self, call):
        if isinstance(self.answers[call], Exception):
            raise self.answers[call]
        return self.answers[call]


def listen(folder, answers):
    """Take in the answers, which are to the calls of one actor; returns the pieces that are to be computed again."""
    job = Job()
    job.root = folder
    actor = _Actor(SimpleNamespace())
    actor.ready, actor.calls = True, {what: what for what in answers}
    schedule = Schedule([Span(0, 1)])
    actor.span = schedule.take()
    executor = SimpleNamespace(actors=[actor], ray=FakeRay(answers), replace=lambda actor: executor.actors.clear())
    loop = _Loop(executor, job, schedule, MemoryStore(), Meter("piece", total=1, quiet=True))
    while executor.actors and actor.calls:
        loop.listen()
    return schedule


def files(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("first", ["piece", "changes"])
def test_files_of_a_finished_piece_are_not_overwritten_by_older_ones(tmp_path, first):
    answers = {"piece": ("done", Span(0, 1), PieceResult(), FINAL), "changes": ("changes", OLDER)}
    schedule = listen(tmp_path, {first: answers[first], **answers})
    assert files(tmp_path) == {"last.safetensors": b"final", "log": b"epoch 3"}
    assert schedule.done


def test_what_a_lost_actor_had_sent_is_kept(tmp_path):
    schedule = listen(tmp_path, {"piece": Lost("killed"), "changes": ("changes", OLDER)})
    assert files(tmp_path) == OLDER
    assert not schedule.done


def test_a_piece_is_computed_again_where_a_part_of_its_files_is_lost(tmp_path):
    """The answer of a piece holds only what changed since the last call for changes."""
    answers = {"piece": ("done", Span(0, 1), PieceResult(), FINAL), "changes": Lost("killed")}
    schedule = listen(tmp_path, answers)
    assert files(tmp_path) == {} and not schedule.done


def test_changes_that_are_asked_for_at_the_end_do_not_see_the_folder_removed(monkeypatch):
    ended, heard = threading.Event(), []

    class SlowMirror(Mirror):
        def changes(self):
            if threading.current_thread() is not threading.main_thread():
                scanning.set()
                ended.wait(0.5)
            return super().changes()

    monkeypatch.setattr(ray_actor, "Mirror", SlowMirror)
    scanning = threading.Event()
    monkeypatch.setattr(ray_actor, "give_share_of_cores", lambda *_: None)
    actor = ray_actor.PieceActor(1)
    asks = threading.Thread(target=lambda: heard.append(actor.changes()))

    def run(span, notebook, meter):
        asks.start()
        scanning.wait()
        return PieceResult()

    actor.session = SimpleNamespace(job=SimpleNamespace(relocate=lambda root: None), run=run)
    assert actor.run(Span(0, 1), {"last.safetensors": b"sent"})[0] == "done"
    ended.set()
    asks.join()
    assert heard == [("changes", {})], "not that the files are gone"
