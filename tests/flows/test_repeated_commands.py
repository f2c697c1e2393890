"""A repeated `evaluate` prints the stored result without torch, and only where everything is what it was."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

import hardtack
from forgeries import change, lines_of, reseal, verdicts_of, write_columns
from hardtack.base import receipts
from hardtack.commands.cli import main
from hardtack.evaluation import job
from hardtack.models import load_model, save_weights
from hardtack.results import read_results
from processes import environment
from tiny_runs import CLASSES, SIDE, write_data

OPTIONS = {"patch_size": 4, "depth": 1, "width": 16, "heads": 2}
WORDS = ["evaluate", "run", "suite=pgd", "threat=linf:0.02", "attack.steps=2", "n=12"]


def settle() -> None:
    """A file that has just been changed is not trusted to show the next change."""
    time.sleep(0.15)


def save(folder: Path, *, seed: int) -> None:
    model = load_model("vit_digits", num_classes=CLASSES, image_size=SIDE, seed=seed, **OPTIONS)
    save_weights(folder / "checkpoints" / "best.safetensors", model)


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A folder with a run and its data, and a cache and a secret of its own."""
    monkeypatch.setenv("HARDTACK_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    home = tmp_path / "home"
    write_data(home / "set.npz")
    save(home / "run", seed=0)
    (home / "run" / "config.yaml").write_text("data: {name: 'npz:set.npz'}\n")
    monkeypatch.chdir(home)
    settle()
    return home


@pytest.fixture
def run(monkeypatch, capsys):
    """Runs a command: what it printed, and whether the stored result was found without loading the model."""
    calls = []
    original = job.evaluate_run
    monkeypatch.setattr(job, "evaluate_run", lambda *words, **values: calls.append(1) or original(*words, **values))

    def run(*words: str) -> tuple[str, bool]:
        calls.clear()
        assert main(words or WORDS) == 0, capsys.readouterr().err
        return capsys.readouterr().out, not calls

    return run


@pytest.fixture
def stored(home, run, capsys):
    """The run after a command that can be repeated: its folder and what was printed."""
    main([*WORDS[:2], "data=npz:set.npz", "suite=clean", "n=1"])  # the path of the data is typed once
    settle()
    capsys.readouterr()
    first, brief = run()
    assert not brief
    second, brief = run()
    assert brief and second == first, "the command must be brief before anything is changed"
    return home / "run", first


def receipt_files(home: Path) -> list[Path]:
    return sorted((home.parent / "cache" / "receipts").glob("*.json"))


def test_a_repeated_command_imports_no_torch(home):
    code = "import sys; from hardtack.commands.cli import main; code = main(sys.argv[1:]); "
    code += "print(sorted({'torch', 'timm', 'scipy'} & set(sys.modules)), file=sys.stderr); sys.exit(code)"
    words = ["evaluate", "run", "data=npz:set.npz", "suite=clean,pgd", "threat=linf:0.02", "attack.steps=2"]
    done = [
        subprocess.run([sys.executable, "-c", code, *words], env=environment(), capture_output=True, text=True)
        for _ in range(2)
    ]
    assert [each.returncode for each in done] == [0, 0], done[0].stderr + done[1].stderr
    assert "torch" in done[0].stderr and done[1].stderr == "[]\n"
    assert done[0].stdout == done[1].stdout and done[1].stdout.count("clean accuracy") == 2


def _keeping_time(path: Path, change) -> None:
    before = path.stat()
    change(path)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def _weights(folder: Path) -> None:
    _keeping_time(folder / "checkpoints" / "best.safetensors", lambda path: save(folder, seed=1))


def _weights_in_place(folder: Path) -> None:
    """Of the same size, in the same file, with the old time of change."""
    other = folder.parent / "other"
    save(other, seed=2)
    file = folder / "checkpoints" / "best.safetensors"
    _keeping_time(file, lambda path: path.write_bytes((other / "checkpoints" / "best.safetensors").read_bytes()))
    (folder / "checkpoints" / "best.safetensors.sha256").unlink()


def _config(folder: Path) -> None:
    (folder / "config.yaml").write_text("data: {name: 'npz:set.npz', test: 0.5, image_size: 8, crop: 0.5}\n")


def _data(folder: Path) -> None:
    _keeping_time(folder.parent / "set.npz", lambda path: write_data(path, seed=1))


def _closer_data(folder: Path) -> None:
    """./data comes before the working folder."""
    write_data(folder.parent / "data" / "set.npz", seed=1)


CHANGES = (_weights, _weights_in_place, _config, _data, _closer_data)


@pytest.mark.parametrize("change_files", CHANGES, ids=lambda function: function.__name__.strip("_"))
def test_what_the_result_depends_on_is_measured_again(stored, run, change_files):
    folder, first = stored
    change_files(folder)
    after, brief = run()
    assert not brief and after.partition("\n")[0] != first.partition("\n")[0], "the id has changed"


@pytest.mark.parametrize(
    "words", [[*WORDS[:-1], "n=11"], [*WORDS, "runtime.seed=1"], [*WORDS, "split=validation"], [*WORDS, "audit=1"]]
)
def test_other_words_are_another_command(stored, run, words):
    assert not run(*words)[1]


def test_another_version_of_hardtack_asks_again(stored, run, monkeypatch):
    monkeypatch.setattr(hardtack, "__version__", "0.1.1")
    after, brief = run()
    assert not brief and after.partition("\n")[0] != stored[1].partition("\n")[0]


@pytest.mark.parametrize("package", ["torch", "pillow"])
def test_another_version_of_a_package_asks_again(stored, run, monkeypatch, package):
    version = receipts.metadata.version
    monkeypatch.setattr(receipts.metadata, "version", lambda name: "0" if name == package else version(name))
    assert run() == (stored[1], False)


def test_another_environment_and_another_folder_ask_again(stored, run, monkeypatch):
    monkeypatch.setenv("HARDTACK_DATA", "/elsewhere")
    assert run() == (stored[1], False)
    monkeypatch.delenv("HARDTACK_DATA")
    shutil.copytree(stored[0].parent, stored[0].parents[1] / "copy")
    monkeypatch.chdir(stored[0].parents[1] / "copy")
    assert main(WORDS) == 2, "these data were never typed"


def _forged_value(folder: Path) -> None:
    change(folder, value=0.99)


def _forged_verdicts(folder: Path) -> None:
    id = lines_of(folder)[-1]["evaluation"]
    columns = verdicts_of(folder, id)
    columns["clean_confidence"] = columns["clean_confidence"] * 0.5
    write_columns(folder, id, columns)
    reseal(folder, id)


def _no_verdicts(folder: Path) -> None:
    for file in (folder / "verdicts").glob("*.parquet"):
        file.unlink()


def _no_evidence(folder: Path) -> None:
    shutil.rmtree(folder / "evidence")


def _cut_examples(folder: Path) -> None:
    for file in (folder / "examples").glob("*.npz"):
        file.write_bytes(file.read_bytes()[:100])


FORGED = (_forged_value, _forged_verdicts, _no_verdicts, _no_evidence, _cut_examples)


@pytest.mark.parametrize("forge", FORGED, ids=lambda function: function.__name__.strip("_"))
def test_a_run_folder_that_was_changed_is_checked_in_the_ordinary_way(stored, run, forge):
    folder, first = stored
    forge(folder)
    assert run() == (first, False), "the number is never that of the forgery"
    assert all(result.value != 0.99 for result in read_results(folder))


def _other_text(path: Path, home: Path) -> None:
    path.write_text(path.read_text().replace("n=12", "n=99"))


def _no_seal(path: Path, home: Path) -> None:
    values = json.loads(path.read_text())
    values.pop("seal")
    path.write_text(json.dumps(values))


def _another_secret(path: Path, home: Path) -> None:
    """Somebody who can write to a shared cache has no access to the user's home."""
    values = json.loads(path.read_text())
    values.pop("seal")
    values["text"] = ["robust accuracy 99 %"]
    seal = receipts._seal(b"x" * 32, path.stem, values)
    path.write_text(json.dumps({**values, "seal": seal}))


def _of_another_command(path: Path, home: Path) -> None:
    main([*WORDS[:2], "suite=clean", "n=3"])
    other = next(file for file in receipt_files(home) if file != path and "n=3" in file.read_text())
    shutil.copy(other, path)


def _other_format(path: Path, home: Path) -> None:
    path.write_text("[]")


def _cut(path: Path, home: Path) -> None:
    path.write_bytes(path.read_bytes()[:-40])


def _empty(path: Path, home: Path) -> None:
    path.write_bytes(b"")


def _without_secret(path: Path, home: Path) -> None:
    (home.parent / "state" / "hardtack" / "receipts.secret").write_bytes(b"short")


DAMAGES = (_other_text, _no_seal, _another_secret, _of_another_command, _other_format, _cut, _empty, _without_secret)


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda function: function.__name__.strip("_"))
def test_a_receipt_that_is_damaged_or_forged_is_none(stored, run, capsys, damage):
    folder, first = stored
    (path,) = [file for file in receipt_files(folder.parent) if "n=12" in file.read_text()]
    damage(path, folder.parent)
    capsys.readouterr()
    assert run() == (first, False)
    assert run() == (first, True), "a right one has replaced it"


@pytest.mark.parametrize("variable", ["HARDTACK_CACHE", "XDG_STATE_HOME"])
def test_a_folder_that_cannot_be_written_does_no_harm(home, run, monkeypatch, variable):
    (home / "file").write_text("no folder")
    monkeypatch.setenv(variable, str(home / "file"))
    words = ["evaluate", "run", "data=npz:set.npz", "suite=clean"]
    assert not run(*words)[1] and not run(*words)[1]


def test_code_of_the_user_is_run_every_time(home, run):
    """It may read anything: here weights that no setting names."""
    torch.save({"bias": torch.tensor([3.0, 0, 0, 0])}, home / "elsewhere.pt")
    (home / "mine.py").write_text(
        "import torch\nclass Net(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.bias = torch.nn.Parameter(torch.load('elsewhere.pt', weights_only=True)['bias'])\n"
        "    def forward(self, x):\n        return self.bias + 0 * x.mean((1, 2, 3), keepdim=False)[:, None]\n"
    )
    words = ["evaluate", "model=mine.py:Net", "data=npz:set.npz", "data.test=1", "suite=clean"]
    settle()
    first, _ = run(*words)
    torch.save({"bias": torch.tensor([0, 0, 0, 3.0])}, home / "elsewhere.pt")
    second, brief = run(*words)
    assert not brief and first.partition("\n")[0] != second.partition("\n")[0] and not receipt_files(home)
    (home / "plugin.py").write_text("")
    words = ["--import", "plugin.py", "evaluate", "run", "data=npz:set.npz", "suite=clean"]
    assert not run(*words)[1] and not run(*words)[1]


def test_two_processes_write_one_receipt(home):
    """A reader finds the old one or the new one, whole."""
    code = """
import sys
from hardtack.base.receipts import Receipt, read_receipt, write_receipt
text = [sys.argv[1] * 20000]
write_receipt("key", Receipt(files={}, results=[], text=text))
for _ in range(40):
    write_receipt("key", Receipt(files={}, results=[], text=text))
    assert read_receipt("key").text[0] in ("a" * 20000, "b" * 20000)
"""
    write_first = "from hardtack.base.receipts import Receipt, write_receipt\n"
    write_first += "write_receipt('key', Receipt(files={}, results=[], text=['a' * 20000]))"
    subprocess.run([sys.executable, "-c", write_first], env=environment(), check=True)
    both = [subprocess.Popen([sys.executable, "-c", code, name], env=environment()) for name in "ab"]
    assert [process.wait(timeout=120) for process in both] == [0, 0]
    assert len(list((home.parent / "cache" / "receipts").iterdir())) == 1, "no parts are left behind"


def test_a_model_is_described_once(home, capsys, monkeypatch):
    from hardtack.models import describe

    calls = []
    original = describe.describe_model
    monkeypatch.setattr(describe, "describe_model", lambda *words: calls.append(words) or original(*words))

    def shown(*words: str) -> str:
        assert main(["describe", *words]) == 0
        return capsys.readouterr().out

    first = shown("vit_digits", "image_size=64")
    assert shown("vit_digits", "image_size=64") == first and "options: " in first and len(calls) == 1
    assert shown("vit_digits") != first and len(calls) == 1, "the package knows its own models"
    of_run = shown("run")
    assert shown("run") == of_run and len(calls) == 2
    model = load_model("vit_digits", num_classes=CLASSES, image_size=SIDE, seed=0, **{**OPTIONS, "depth": 2})
    save_weights(home / "run" / "checkpoints" / "best.safetensors", model)
    assert shown("run") != of_run and len(calls) == 3
    (home / "mine.py").write_text(
        "import torch\nnet = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3072, 4))"
    )
    assert shown("mine.py:net") == shown("mine.py:net") and len(calls) == 5
    (home / "vit_digits").mkdir()
    assert main(["describe", "vit_digits"]) != 0, "a folder of this name is meant"
