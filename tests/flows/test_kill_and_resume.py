"""The installed command, killed in the middle and repeated: the weights of a run that was never touched."""

import json
import os
import signal
import time

import pytest
import yaml

from processes import hardtack, start
from tiny_runs import files_below, settings, write_data

pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs POSIX signals")
EPOCHS = 14  # of five steps: long enough to be hit in the middle


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder with data and a recipe that saves after every step; output is relative, so runs compare."""
    base = tmp_path_factory.mktemp("killed")
    write_data(base / "data.npz")
    values = settings(base / "run", base / "data.npz", output="run")
    values["train"] |= {"epochs": EPOCHS, "checkpoint_every_s": 0.0}
    values["validation"] = {"every": 5}
    (base / "tiny.yaml").write_text(yaml.safe_dump(values))
    return base


def run_folder(home, name):
    folder = home / name
    folder.mkdir()
    return folder


def outcome(folder):
    run = folder / "run"
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    for line in lines:
        line.pop("images_per_s", None)
    weights = [(run / "checkpoints" / f"{name}.safetensors").read_bytes() for name in ("best", "last")]
    return weights, lines


@pytest.fixture(scope="module")
def uninterrupted(home):
    folder = run_folder(home, "whole")
    done = hardtack("train", "../tiny.yaml", cwd=folder)
    assert done.returncode == 0, done.stderr
    return outcome(folder)


def kill_in_the_middle(home, folder, how, *, after_steps):
    """Start, wait until that many steps are on record, kill; returns the exit code and the steps recorded."""
    process = start("train", "../tiny.yaml", cwd=folder)
    metrics, recorded = folder / "run" / "metrics.jsonl", 0
    deadline = time.monotonic() + 60
    while recorded < after_steps and process.running() and time.monotonic() < deadline:
        time.sleep(0.005)
        whole = metrics.read_text().splitlines() if metrics.exists() else []
        recorded = json.loads(whole[-1])["step"] if whole and whole[-1].endswith("}") else recorded
    os.kill(process.pid, how)
    ended = process.wait(60)
    return ended.returncode, recorded, ended.stderr


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL], ids=["SIGTERM", "SIGKILL"])
def test_killed_and_repeated_ends_with_the_same_weights(home, uninterrupted, how):
    folder = run_folder(home, how.name)
    code, recorded, errors = kill_in_the_middle(home, folder, how, after_steps=20)
    assert code == (128 + how if how == signal.SIGTERM else -how), "the run ended before it could be killed"
    assert 20 <= recorded < 5 * EPOCHS and "Traceback" not in errors
    again = hardtack("train", "../tiny.yaml", cwd=folder)
    assert again.returncode == 0, again.stderr
    weights, lines = outcome(folder)
    assert weights == uninterrupted[0] and lines == uninterrupted[1]
    if how == signal.SIGTERM:
        assert not [name for name in files_below(folder) if name.endswith(".part")], "half-written files"
