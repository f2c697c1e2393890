"""`workers=N`: processes on this machine share a job, die, are replaced; the result is the same to the bit."""

import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

import hardtack
from hardtack.base import user_files
from hardtack.base.errors import UserError
from hardtack.base.runtime import Runtime
from hardtack.commands.cli import main
from hardtack.engine import run_job
from hardtack.engine.executors.here import Here, HereSettings, WorkerFault
from hardtack.models.user_code import run_file, travelling_code
from processes import COMMAND, environment, script

HERE = Path(__file__).parent
CPU = Runtime(device="cpu")


def toy(tmp_path, **settings):
    user_files.begin_command()
    module = run_file(HERE / "toy_job.py").module
    return module.Toy(tmp_path, **settings), module


def run(job, workers=2):
    with Here(CPU, HereSettings(workers=workers)) as executor:
        executor.steps = travelling_code
        columns = run_job(job, store=job.store, executor=executor, quiet=True)
    assert columns["value"].tolist() == [row**2 for row in range(24)]
    return executor


def test_two_workers_share_a_job(tmp_path):
    job, module = toy(tmp_path, seconds=0.05)
    executor = run(job)
    assert sorted(module.lines(tmp_path, "begin")) == list(range(0, 24, 2)), "every piece once"
    assert len(module.pids(tmp_path)) == 2 and os.getpid() not in module.pids(tmp_path)
    assert executor.started == 2 and sorted(job.reports)[0][0] == 0
    assert not job.store.folder.exists()


def test_a_worker_that_is_killed_is_replaced(tmp_path, capfd):
    job, module = toy(tmp_path, kill=(4, 10, 22))
    executor = run(job)
    begun = module.lines(tmp_path, "begin")
    assert {row for row in begun if begun.count(row) > 1} == {4, 10, 22}, "only lost pieces are computed again"
    assert len(begun) == 12 + 3 and len(module.lines(tmp_path, "end")) == 12
    assert executor.started == 2 + 3


def test_kills_at_random(tmp_path):
    job, module = toy(tmp_path, seconds=0.15)
    stop = threading.Event()
    kills = []

    def killer():
        rng = random.Random(0)
        while not stop.wait(0.5) and len(kills) < 4:
            log = tmp_path / "log"
            alive = [pid for pid in (module.pids(tmp_path) if log.exists() else ()) if Path(f"/proc/{pid}").exists()]
            if alive:
                kills.append(rng.choice(sorted(alive)))
                os.kill(kills[-1], signal.SIGKILL)

    thread = threading.Thread(target=killer)
    thread.start()
    try:
        executor = run(job)
    finally:
        stop.set()
        thread.join()
    ends = module.lines(tmp_path, "end")
    assert len(ends) - 12 <= len(kills), "no more pieces are repeated than workers were killed"
    assert executor.started <= 2 + len(kills)


def test_a_piece_that_always_dies_stops_the_job(tmp_path):
    with pytest.raises(UserError, match=r"rows 0 to 11 were lost 4 times.*SIGKILL.*repeat the command"):
        run(toy(tmp_path, kill=(0,), always=True, size=12)[0])


def test_mistakes_and_faults_in_a_worker(tmp_path):
    with pytest.raises(UserError, match="image 7 is black"):
        run(toy(tmp_path, mistake=6)[0])
    other = tmp_path / "other"
    other.mkdir()
    with pytest.raises(WorkerFault, match="ZeroDivisionError: one by zero"):
        run(toy(other, fault=6)[0])


def test_needs_are_respected(tmp_path):
    job, _ = toy(tmp_path, needs={0: (20,), 2: (20, 22)}, seconds=0.02)
    run(job, workers=3)
    log = (tmp_path / "log").read_text().splitlines()
    place = {tuple(line.split()[:2]): number for number, line in enumerate(log)}
    assert place["end", "20"] < place["begin", "0"] and place["end", "22"] < place["begin", "2"]


DRIVER = """
import sys
from pathlib import Path
from hardtack.base.runtime import Runtime
from hardtack.engine import run_job
from hardtack.engine.executors.here import Here, HereSettings
from hardtack.models.user_code import run_file, travelling_code
job = run_file(sys.argv[1]).module.Toy(sys.argv[2], seconds=0.4)
with Here(Runtime(device="cpu"), HereSettings(workers=2)) as executor:
    executor.steps = travelling_code
    run_job(job, store=job.store, executor=executor, quiet=True)
"""


def test_a_killed_driver_takes_its_workers_along_and_goes_on_when_repeated(tmp_path):
    driver = subprocess.Popen([sys.executable, "-c", DRIVER, str(HERE / "toy_job.py"), str(tmp_path)])
    job, module = toy(tmp_path)
    wait_for(lambda: (tmp_path / "log").exists() and len(module.lines(tmp_path, "end")) >= 3)
    driver.kill()
    driver.wait()
    wait_for(lambda: not any(is_running(pid) for pid in module.pids(tmp_path)))
    before = len(job.store.spans())
    assert 1 <= before < 12
    ended = len(module.lines(tmp_path, "end"))
    run(job)
    assert len(module.lines(tmp_path, "end")) == ended + 12 - before, "what was kept is not computed again"


def test_ctrl_c_while_workers_import_is_one_line(tmp_path):
    """A terminal sends Ctrl-C to the workers too; they leave it to their driver from their first moment on."""
    (tmp_path / "net.py").write_text(MODEL)
    words = ["evaluate", "model=net.py:build", "data=digits", "suite=clean", "batch_size=4", "runtime.device=cpu"]
    driver = subprocess.Popen(
        [COMMAND, *words, "workers=2", "output=run"], cwd=tmp_path, env=environment(), stderr=subprocess.PIPE,
        text=True, start_new_session=True,
    )  # fmt: skip
    wait_for(lambda: len(children(driver.pid)) == 2, seconds=60)
    os.killpg(driver.pid, signal.SIGINT)
    _, said = driver.communicate(timeout=30)
    assert driver.returncode == 130 and "Traceback" not in said, said
    assert said.strip().splitlines()[-1] == "hardtack: interrupted; repeat the command to resume"


def children(pid):
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def wait_for(condition, seconds=15.0):
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it took too long"
        time.sleep(0.05)


def is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().split(")")[-1].split()[0] != "Z"
    except OSError:
        return False


def test_a_worker_with_another_source_is_refused(tmp_path, monkeypatch):
    copy = tmp_path / "other"
    shutil.copytree(Path(hardtack.__file__).parent, copy / "hardtack", ignore=shutil.ignore_patterns("__pycache__"))
    with open(copy / "hardtack" / "base" / "errors.py", "a") as file:
        file.write("# changed\n")
    monkeypatch.setenv("PYTHONPATH", str(copy))
    folder = tmp_path / "job"
    folder.mkdir()
    with pytest.raises(UserError, match=r"worker process \d+ has other versions: hardtack .* there, .* here"):
        run(toy(folder)[0])


# ---------------------------------------------------------------- real jobs

MODEL = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.layers = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 64, 16), torch.nn.GELU(),
                                          torch.nn.Linear(16, 10))
    def forward(self, x):
        x = torch.nn.functional.avg_pool2d(x, x.shape[-1] // 8)
        return 3 * self.layers(x)

def build(num_classes):
    return Net()
"""


@pytest.fixture
def model(tmp_path):
    file = tmp_path / "net.py"
    file.write_text(MODEL)
    return f"model={file}:build"


def verdicts(folder):
    path = next(iter(sorted((folder / "verdicts").glob("*.parquet"))))
    return {name: column.to_numpy() for name, column in zip(*_columns(pq.read_table(path)), strict=True)}


def _columns(table):
    return table.column_names, table.columns


def assert_same(first, second):
    assert first.keys() == second.keys()
    for name, column in first.items():
        assert np.array_equal(column, second[name], equal_nan=column.dtype.kind == "f"), name


@pytest.mark.parametrize(
    "suite", ["suite=pgd threat=linf:0.1 attack.steps=5", "suite=corruptions types=[fog,contrast]"]
)
def test_evaluations_are_equal_to_the_bit(tmp_path, model, suite):
    words = [
        "evaluate",
        model,
        "data=digits",
        "n=20",
        "runtime.device=cpu",
        "batch_size=4",
        "keep=true",
        *suite.split(),
    ]
    words = words if "pgd" in suite else [word for word in words if word != "keep=true"]
    assert main([*words, f"output={tmp_path / 'alone'}"]) == 0
    assert main([*words, f"output={tmp_path / 'shared'}", "workers=2"]) == 0
    assert_same(verdicts(tmp_path / "alone"), verdicts(tmp_path / "shared"))
    kept = [sorted((tmp_path / name / "adversarial").rglob("*.npz")) for name in ("alone", "shared")]
    images = [{int(i): x for path in paths for i, x in _images(path)} for paths in kept]
    assert images[0].keys() == images[1].keys()
    assert all(np.array_equal(images[0][key], images[1][key]) for key in images[0])


def test_a_warning_in_a_worker_is_one_line(tmp_path, capfd):
    warns = MODEL.replace("import torch", "import torch, warnings").replace(
        "        x = torch", "        warnings.warn('odd weights')\n        x = torch"
    )
    (tmp_path / "net.py").write_text(warns)
    words = ["evaluate", f"model={tmp_path / 'net.py'}:build", "data=digits", "suite=clean", "n=20", "batch_size=4"]
    assert main([*words, "runtime.device=cpu", f"output={tmp_path / 'o'}", "workers=2"]) == 0
    said = capfd.readouterr().err
    assert "hardtack: note: odd weights" in said and "UserWarning" not in said and "net.py" not in said


def _images(path):
    with np.load(path) as arrays:
        yield from zip(arrays["index"].tolist(), arrays["x_adv"], strict=True)


def test_analyses_and_corrupted_copies_are_equal_to_the_bit(tmp_path, model):
    for name, more in (("alone", []), ("shared", ["workers=2"])):
        words = [model, "data=digits", "runtime.device=cpu", f"output={tmp_path / name}", *more]
        assert main(["analyze", "jacobian", "jacobian.of=network", "n=6", "batch_size=2", *words]) == 0
        copied = ["corrupt", "digits", str(tmp_path / name / "c"), "types=[fog]", "n=40", "runtime.device=cpu", *more]
        assert main(copied) == 0
    arrays = [dict(np.load(next((tmp_path / name / "analysis").glob("*.npz")))) for name in ("alone", "shared")]
    assert_same(*arrays)
    copies = [np.load(tmp_path / name / "c" / "fog.npy") for name in ("alone", "shared")]
    assert np.array_equal(*copies)


SCRIPT = """
import hardtack as ht
import torch

class Net(torch.nn.Sequential):
    pass

x, y = torch.rand(8, 3, 8, 8), torch.arange(8) % 2
layers = [torch.nn.Flatten(), torch.nn.Linear(192, 2)]
settings = {"suite": "clean", "batch_size": 2, "runtime": ht.Runtime(device="cpu"), "quiet": True}
alone = ht.evaluate(torch.nn.Sequential(*layers), (x, y), **settings)
shared = ht.evaluate(torch.nn.Sequential(*layers), (x, y), workers=2, **settings)
print([result.value for result in alone.results] == [result.value for result in shared.results])
for wrong in ({"on": "slurm"}, {"on": "rya"}, {"workers": 2}):
    try:
        ht.evaluate(Net(*layers), (x, y), **settings, **wrong)
    except ht.UserError as error:
        print(error)
"""


def test_workers_from_python(tmp_path):
    """`workers=` and `on=` are those of the command; a class of the script itself cannot travel, and that is said."""
    (tmp_path / "script.py").write_text(SCRIPT)
    done = script(tmp_path / "script.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "True" and len(lines) == 4
    assert "repeats a command line" in lines[1] and "did you mean 'ray'" in lines[2]
    assert "a worker cannot find a class of this job" in lines[3] and "Net" in lines[3]


@pytest.mark.slow
def test_a_study_has_the_same_table(tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # trained weights depend on the number of threads
    words = ["study", "architectures/table2", "rows=cccc,cctt", "data.limit=16", "train.epochs=1"]
    words += ["train.batch_size=16", "validation.every=1", "validation.limit=2", "n=2", "runtime.device=cpu"]
    assert main([*words, f"output={tmp_path / 'alone'}"]) == 0
    assert main([*words, f"output={tmp_path / 'shared'}", "workers=2"]) == 0
    place = Path("architectures", "table2", "smoke", "table.csv")
    assert (tmp_path / "alone" / place).read_text() == (tmp_path / "shared" / place).read_text()


@pytest.mark.parametrize(
    "words, message",
    [
        (["--on", "rya"], "there is no executor 'rya' (did you mean 'ray'?)"),
        (["--on", "torchrun"], "torchrun --nproc-per-node"),
        (["--on", "here:x"], "only ray takes an address"),
        (["workers=0"], "workers"),
        (["--on", "here", "slurm.hours=2"], "'slurm.…' is a setting of --on slurm"),
        (["--dry-run", "workers=2"], "--dry-run prints the scripts of --on slurm"),
        (["--dry-run"], "--dry-run prints the scripts of --on slurm"),
        (["worker=2"], "unknown key 'worker' (did you mean 'workers'?)"),
        (["--on", "ray:"], "only ray takes an address, as in --on ray:HOST:PORT"),
        (["--on", "task"], "there is no executor 'task'"),
    ],
)
def test_bad_words_are_one_line(tmp_path, capsys, model, words, message):
    assert main(["evaluate", model, "data=digits", "suite=clean", "n=4", f"output={tmp_path / 'o'}", *words]) == 2
    error = capsys.readouterr().err.strip()
    assert message in error and len(error.splitlines()) == 1
