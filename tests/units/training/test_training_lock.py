"""Of two trainings in one run folder, one trains and the other waits for what it saves."""

import threading

import pytest

import hardtack as ht
from hardtack.training import Trainer
from hardtack.training.checkpoint import training_lock
from tiny_runs import files_below, tiny_recipe, write_data


class Elsewhere:
    """Another call, in a thread, that holds the lock of a run folder until it is told to go."""

    def __init__(self, folder):
        self.lock, self.ready, self.go, self.released = training_lock(folder, "x"), *(threading.Event() for _ in "abc")
        self.thread = threading.Thread(target=self.run)
        self.thread.start()
        assert self.ready.wait(10)

    def run(self):
        assert self.lock.acquire()
        self.ready.set()
        self.go.wait(20)
        self.released.set()
        self.lock.release()


def test_the_second_training_waits_and_goes_on_from_what_the_first_saved(tmp_path, capsys):
    recipe = tiny_recipe(tmp_path / "run", write_data(tmp_path / "data.npz"))
    folder = ht.train(recipe, quiet=True)
    before = {name: (folder / name).read_bytes() for name in files_below(folder)}
    other = Elsewhere(folder)
    threading.Timer(1.0, other.go.set).start()
    ht.train(recipe, quiet=True)
    assert other.released.is_set(), "it trained beside another call"
    assert "is already being computed" in capsys.readouterr().err
    other.thread.join()
    after = {name: (folder / name).read_bytes() for name in files_below(folder)}
    assert after == before, "the training was over: nothing is trained or written again"


def test_a_training_that_is_interrupted_leaves_no_lock(tmp_path, monkeypatch):
    def interrupted(self, log, received, later):
        assert (tmp_path / "run" / ".training.lock").exists()
        raise KeyboardInterrupt

    monkeypatch.setattr(Trainer, "_epoch", interrupted)
    with pytest.raises(KeyboardInterrupt):
        ht.train(tiny_recipe(tmp_path / "run", write_data(tmp_path / "data.npz")), quiet=True)
    assert not (tmp_path / "run" / ".training.lock").exists()
