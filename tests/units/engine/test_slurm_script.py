"""The script of a job array: what a shell makes of it, and what is refused."""

import json
import os
import subprocess
import sys

import pytest

from hardtack.base.config import build, parse_words
from hardtack.base.errors import UserError
from hardtack.engine.slurm import SlurmSettings, Task, array_script, describe_array, torchrun_lines, training_task

HOSTILE = [
    "a b",
    "it's",
    '"quoted"',
    "$(touch x)",
    "`touch x`",
    "; touch x",
    "$HOME",
    "back\\slash",
    "*",
    "",
    "ä–ü",
    "# no",
]
SHOW = "import json, os, sys; print(json.dumps([sys.argv[1:], os.environ['SHARE'], os.getcwd()]))"


def perform(script, number, tmp_path):
    """Run a script as Slurm would; the last line that it prints."""
    env = {**os.environ, "SLURM_ARRAY_TASK_ID": str(number), "SLURM_ARRAY_JOB_ID": "12"}
    done = subprocess.run(["bash"], input=script, env=env, cwd=tmp_path, capture_output=True, text=True)
    return done.returncode, done.stdout.splitlines(), done.stderr


def test_every_word_arrives_as_it_is(tmp_path):
    tasks = [Task(f"task {word}", (sys.executable, "-c", SHOW, word), {"SHARE": word}) for word in HOSTILE]
    script = array_script(tasks, SlurmSettings(), folder=tmp_path, title="words")
    for number, word in enumerate(HOSTILE):
        code, lines, said = perform(script, number, tmp_path)
        assert code == 0, said
        assert json.loads(lines[-1])[:2] == [[word], word]
        assert (tmp_path / f"task-{number}.exit").read_text() == "12 0\n"
    assert not (tmp_path / "x").exists()


def test_the_exit_code_is_kept_and_returned(tmp_path):
    script = array_script([Task("t", ("bash", "-c", "exit 5"))], SlurmSettings(), folder=tmp_path, title="t")
    assert perform(script, 0, tmp_path)[0] == 5
    assert (tmp_path / "task-0.exit").read_text() == "12 5\n"
    assert perform(script, 1, tmp_path)[0] == 1  # no such task


def test_setup_stops_at_a_fault_but_may_read_unset_variables(tmp_path):
    task = Task("t", ("bash", "-c", "echo $TWICE"))
    good = SlurmSettings(setup="A=$NOT_SET\nexport TWICE=22")
    assert perform(array_script([task], good, folder=tmp_path, title="t"), 0, tmp_path)[1][-1] == "22"
    bad = SlurmSettings(setup="false; echo on")
    code, lines, _ = perform(array_script([task], bad, folder=tmp_path, title="t"), 0, tmp_path)
    assert code == 1 and lines == []


def test_options_of_sbatch(tmp_path):
    settings = SlurmSettings(
        partition="gpu", account="12", gpus=2, cpus=8, memory_gb=1.5, hours=1.51, at_once=4, constraint="a100&nvlink",
        options={"nice": 100, "exclusive": True, "overcommit": False},
    )  # fmt: skip
    tasks = [Task(str(number), ("true",)) for number in range(10)]
    lines = array_script(tasks, settings, folder=tmp_path, title="x").splitlines()
    wanted = ["partition=gpu", "account=12", "gres=gpu:2", "cpus-per-task=8", "mem=1536M", "time=1:31:00",
              "array=0-9%4", "constraint='a100&nvlink'", "nice=100", "exclusive",
              f"output={tmp_path}/task-%a.log"]  # fmt: skip
    for line in wanted:
        assert f"#SBATCH --{line}" in lines, line
    assert not [line for line in lines if "overcommit" in line]


def test_no_gpu_and_a_gpu_of_a_kind(tmp_path):
    task = Task("t", ("true",))
    assert "gres" not in array_script([task], SlurmSettings(gpus=0), folder=tmp_path, title="x")
    kind = array_script([task], SlurmSettings(options={"gres": "gpu:h100:1"}), folder=tmp_path, title="x")
    assert kind.count("gres") == 1 and "--gres=gpu:h100:1" in kind


def test_more_than_a_thousand_tasks_are_several_arrays(tmp_path):
    tasks = [Task(str(number), ("echo", str(number))) for number in range(1002)]
    second = array_script(tasks, SlurmSettings(), folder=tmp_path, title="x", part=1)
    assert "--array=0-1\n" in second and f"--output={tmp_path}/task-1%3a.log" in second
    assert perform(second, 1, tmp_path)[1][-1] == "1001"
    assert (tmp_path / "task-1001.exit").exists()
    assert describe_array(tasks, SlurmSettings(), folder=tmp_path, title="x").count("#!/bin/bash") == 2


@pytest.mark.parametrize("word", ["two\nlines", "tab\there", "\x1b[31m", "nul\0", "\u202e", "\udcff"])
def test_control_characters_are_refused(word, tmp_path):
    for make in (
        lambda: Task(word, ("true",)),
        lambda: Task("t", ("echo", word)),
        lambda: Task("t", ("true",), {"A": word}),
        lambda: SlurmSettings(partition=word),
        lambda: SlurmSettings(options={"comment": word}),
        lambda: array_script([Task("t", ("true",))], SlurmSettings(), folder=tmp_path / word, title="x"),
        lambda: array_script([Task("t", ("true",))], SlurmSettings(), folder=tmp_path, title=word),
        lambda: training_task(["train", word], label="x"),
        lambda: torchrun_lines(SlurmSettings(), folder=tmp_path / word),
    ):
        with pytest.raises(UserError, match="control character") as error:
            make()
        assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "words, message",
    [
        (["hours=-1"], "'slurm.hours': .*greater than 0"),
        (["hours=.nan"], "'slurm.hours'"),
        (["gpus=-1"], "'slurm.gpus'"),
        (["cpus=0"], "'slurm.cpus'"),
        (["retries=1.5"], "'slurm.retries'"),
        (["partitoin=gpu"], r"unknown key 'slurm\.partitoin' .did you mean 'slurm\.partition'"),
        (["options.nice=[1]"], "text, a number or true"),
        (["options.job-name=x"], "hardtack sets --job-name itself"),
        (["options.time=5"], "change it with slurm.hours"),
        (["options.--nice=5"], "not the long name"),
    ],
)
def test_wrong_settings_are_named(words, message):
    with pytest.raises(UserError, match=message):
        build(SlurmSettings, parse_words(words), path="slurm")


def test_setup_may_have_lines_but_no_other_control_characters():
    assert SlurmSettings(setup="module load cuda\n\tsource x").setup
    with pytest.raises(UserError, match="control character"):
        SlurmSettings(setup="a\rb")


def test_numbers_from_the_command_line_are_words():
    made = build(SlurmSettings, parse_words(["account=1234", "options.nice=100", "options.comment='yes'", "hours=0.5"]))
    assert (
        made.account == "1234" and made.options == {"nice": "100", "comment": "yes"} and made.time_limit() == "0:30:00"
    )


def test_a_dry_run_writes_nothing(tmp_path):
    folder = tmp_path / "not there"
    text = describe_array([Task("t", ("true",))], SlurmSettings(), folder=folder, title="x")
    assert text.rstrip().endswith(f"sbatch --parsable '{folder}/array-0.sh'") and "set -euo pipefail" in text
    assert not folder.exists()


def test_a_training_on_several_nodes(tmp_path):
    chosen, tasks = SlurmSettings(gpus=4, cpus=8, nodes=2), [training_task(["train", "a b.yaml"], label="x")]
    launch = torchrun_lines(chosen, folder=tmp_path)
    text = array_script(tasks, chosen, folder=tmp_path, title="x", launch=launch)
    for part in ("--nodes=2", "--ntasks-per-node=1", "--gres=gpu:4", "--nnodes=2 --nproc-per-node=4", "srun",
                 "-m hardtack train 'a b.yaml'", "--rdzv-backend=c10d"):  # fmt: skip
        assert part in text
    assert subprocess.run(["bash", "-n"], input=text, text=True).returncode == 0
