"""Completion: what a line could go on with, and the scripts that hand it to bash, zsh and fish."""

import shutil
import subprocess
import sys

import pytest
from test_list_and_describe import said

from hardtack.commands import complete_line
from hardtack.commands.completion import SCRIPTS
from processes import environment


def after(line, capsys, shell="zsh"):
    """The candidates that the shell is given for a line."""
    complete_line.answer({"_HARDTACK_COMPLETE": shell, "_HARDTACK_LINE": line, "_HARDTACK_BREAKS": "=:"})
    return [row.split("\t")[0] for row in capsys.readouterr().out.splitlines()]


@pytest.mark.parametrize(
    "line, words",
    [
        ("hardtack ev", ["evaluate"]),
        ("hardtack evaluate --o", ["--on"]),
        ("hardtack evaluate --on ", ["here", "torchrun", "ray", "slurm"]),
        ("hardtack evaluate runs/x suite=a", ["suite=attacks", "suite=autoattack"]),
        ("hardtack evaluate runs/x suite=clean,sw", ["suite=clean,sweep"]),
        ("hardtack evaluate runs/x tie", ["tier="]),
        ("hardtack evaluate runs/x tier=", ["tier=exact", "tier=verified", "tier=fast", "tier=max"]),
        ("hardtack evaluate runs/x attack.ste", ["attack.steps=", "attack.step="]),
        ("hardtack evaluate runs/x attack=square attack.ste", ["attack.steps="]),  # of the attack that is named
        ("hardtack evaluate runs/x attack.start=n", ["attack.start=nudged"]),
        ("hardtack evaluate runs/x attack.smo", ["attack.smooth="]),
        ("hardtack evaluate runs/x runtime.comp", ["runtime.compile="]),
        ("hardtack evaluate runs/x confidence=", ["confidence=true", "confidence=false"]),
        ("hardtack evaluate runs/x types=fo", ["types=fog"]),
        ("hardtack evaluate runs/x threat=l2:0", ["threat=l2:0.5"]),
        ("hardtack train digits/tr", ["digits/trades"]),
        ("hardtack train digits/trades objective.be", ["objective.beta="]),  # of the recipe's objective
        ("hardtack train digits/rspc objective.occluder.w", ["objective.occluder.weight_decay="]),
        ("hardtack train digits/trades objective.attack.ste", ["objective.attack.steps=", "objective.attack.step="]),
        ("hardtack train digits/trades model.options.qk", ["model.options.qkv_bias="]),
        ("hardtack train digits/trades optimiser=", ["optimiser=adamw", "optimiser=sgd"]),
        ("hardtack train digits/trades optimiser=sgd opti", ["optimiser."]),
        ("hardtack analyze runs/x spars", ["sparsity"]),
        ("hardtack analyze runs/x sparsity sparsity.t", ["sparsity.threshold="]),
        ("hardtack list settings trad", ["trades"]),
        ("hardtack describe loss:d", ["loss:dlr"]),
        ("hardtack study architectures/table2", ["architectures/table2"]),
        ("hardtack nothing ", []),
        ("hardtack evaluate nothing.at.all=", []),
        ("hardtack evaluate 'half a", []),
    ],
)
def test_how_a_line_goes_on(line, words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)  # without files
    assert after(line, capsys) == words


def test_files_and_folders(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "one").mkdir(parents=True)
    (tmp_path / "runs" / "my model.pt").touch()
    assert after("hardtack evaluate run", capsys) == ["runtime.", "runs/"]
    assert after("hardtack compare runs/", capsys) == ["runs/my model.pt", "runs/one/"]
    assert after("hardtack train digits/trades data.root=ru", capsys) == ["data.root=runs/"]
    assert after("hardtack evaluate data=folder:runs/o", capsys) == ["data=folder:runs/one/"]
    assert after("hardtack --import runs/my", capsys) == ["runs/my model.pt"]
    # bash replaces what follows the last of its word breaks, and wants spaces escaped
    assert after("hardtack evaluate data=folder:runs/o", capsys, "bash") == [":nospace", "runs/one/"]
    assert after("hardtack compare runs/m", capsys, "bash") == ["runs/my\\ model.pt"]


def test_neither_torch_nor_typer_is_imported(tmp_path):
    code = (
        "import sys; from hardtack.__main__ import main; main(); print(*{'torch', 'typer', 'numpy'} & {*sys.modules})"
    )
    for line in (
        "hardtack ",
        "hardtack evaluate runs/x attack.",
        "hardtack train digits/trades model=",
        "hardtack describe a",
    ):
        asked = {**environment(), "_HARDTACK_COMPLETE": "fish", "_HARDTACK_LINE": line}
        done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=asked, capture_output=True, text=True)
        *found, imported = done.stdout.splitlines()
        assert len(found) > 5 and not imported.strip(), (line, done.stdout[-200:], done.stderr)


@pytest.mark.skipif(not shutil.which("bash"), reason="there is no bash")
def test_in_bash(tmp_path):
    command = tmp_path / "hardtack"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m hardtack "$@"\n')
    command.chmod(0o755)
    lines = [
        "hardtack evalu",
        "hardtack evaluate x suite=au",
        "hardtack evaluate x threat=l2:0",
        "hardtack evaluate x atta",
    ]
    script = SCRIPTS["bash"] + "".join(
        f"COMP_LINE='{line}' COMP_POINT={len(line)}; _hardtack_complete hardtack; echo \"${{COMPREPLY[*]}}\"\n"
        for line in lines
    )
    env = {**environment(), "PATH": f"{tmp_path}:{environment()['PATH']}"}
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines() == ["evaluate", "autoattack", "0.5", "attack= attacks= attack."], done.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_it_is_installed_once(shell, tmp_path, monkeypatch, capsys):
    for name in ("XDG_DATA_HOME", "XDG_CONFIG_HOME", "ZDOTDIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SHELL", f"/bin/{shell}")
    profile = tmp_path / {"bash": ".bashrc", "zsh": ".zshrc", "fish": "none"}[shell]
    profile.write_text("export MINE=1")
    assert said(capsys, "--install-completion")[0] == 0 and said(capsys, "completion", shell, "--install")[0] == 0
    written = [path for path in tmp_path.rglob("*hardtack*") if path.is_file()]
    written += list(tmp_path.rglob("completion.*"))
    assert [path.read_text() for path in written] == [SCRIPTS[shell]]
    assert profile.read_text().count("completion of hardtack") == (shell != "fish")
    assert profile.read_text().startswith("export MINE=1")
    if shutil.which(shell):
        assert subprocess.run([shell, "-n", str(written[0])]).returncode == 0
    code, out, _ = said(capsys, "completion", shell)
    assert code == 0 and out.strip() == SCRIPTS[shell].strip()


def test_mistakes(monkeypatch, capsys):
    monkeypatch.setenv("SHELL", "/bin/tcsh")
    for words, message in ([], "not for 'tcsh'; name one"), (["zhs"], "did you mean 'zsh'"):
        code, _, err = said(capsys, "completion", *words)
        assert code == 2 and message in err and len(err.splitlines()) == 1
