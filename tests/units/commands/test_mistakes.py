"""Every mistake a user can type is one line, exit code 2, the nearest right name, and nothing left on disk.

The command's own `main` is called in this process: the same words, without two seconds of start-up for each.
"""

import pytest

import hardtack.__main__
from hardtack.commands.cli import main
from tiny_runs import files_below, write_data


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_data(tmp_path / "data.npz")
    (tmp_path / "empty").mkdir()
    (tmp_path / "broken.yaml").write_text("train: {epochs: 3\n")
    (tmp_path / "list.yaml").write_text("- 1\n")
    (tmp_path / "typo.yaml").write_text("train: {epohcs: 3}\n")
    (tmp_path / "half" / "checkpoints").mkdir(parents=True)
    (tmp_path / "half" / "config.yaml").write_text("data: {name: digits}\n")
    (tmp_path / "measured").mkdir()
    (tmp_path / "measured" / "results.jsonl").write_text("")
    (tmp_path / "file").write_text("")
    return tmp_path


TRAIN = ["train", "data=npz:data.npz", "model.name=vit_digits"]
EVALUATE = ["evaluate", "model=vit_digits", "data=npz:data.npz", "suite=clean"]
MISTAKES = {
    # verbs and options
    "verb": (["trian"], "did you mean 'train'"),
    "no such verb": (["bake"], "known: train, evaluate"),
    "option": (["train", "--fast"], "--fast"),
    "list what": (["list", "modles"], "did you mean 'models'"),
    "report nothing": (["report"], "report needs RUNS: hardtack report runs/ --open"),
    "export nothing": (["export"], "export needs RUNS: hardtack export runs/ format=latex"),
    "corrupt to nowhere": (["corrupt", "digits"], "corrupt needs OUT: hardtack corrupt cifar10"),
    "switch as a setting": (["report", "half", "open=true"], "written --open\n"),
    # keys and values
    "key": ([*TRAIN, "train.epoch=1"], "did you mean 'train.epochs'"),
    "section": ([*TRAIN, "trains.epochs=1"], "did you mean 'train'"),
    "value": ([*TRAIN, "train.epochs=many"], "'train.epochs'"),
    "no equals sign": ([*TRAIN, "train.epochs"], "key=value"),
    "two recipes": (["train", "digits/standard", "digits/trades"], "key=value"),
    "key of evaluate": ([*EVALUATE, "bach_size=2"], "did you mean 'batch_size'"),
    "run as a word": (["evaluate", "run=half"], "'run'"),
    "n": ([*EVALUATE, "n=few"], "'n'"),
    "n of attack": (["attack", *EVALUATE[1:3], "n=few"], "'n'"),
    "n below one": ([*EVALUATE, "n=0"], "'n'"),
    "device": ([*TRAIN, "runtime.device=gpu"], "cuda"),
    "batch": ([*TRAIN, "train.batch_size=1000"], "1000"),
    # names
    "model": (["train", "data=npz:data.npz", "model=vit_digit"], "did you mean 'vit_digits'"),
    "timm's without its prefix": (["train", "data=npz:data.npz", "model=resnet18"], "timm:resnet18"),
    "timm's misspelt": (["train", "data=npz:data.npz", "model=timm:resnt18"], "did you mean 'resnet18'"),
    "model option": ([*TRAIN, "model.options.dept=1"], "did you mean 'depth'"),
    "dataset": (["train", "data=digit"], "did you mean 'digits'"),
    "dataset without path": (["train", "data=npz"], "npz:PATH"),
    "objective": ([*TRAIN, "objective=trade"], "did you mean 'trades'"),
    "attack": ([*EVALUATE[:3], "attack.name=pdg"], "did you mean 'pgd'"),
    "attack in short": (["attack", *EVALUATE[1:3], "attack=pdg"], "did you mean 'pgd'"),
    "attack setting": ([*EVALUATE[:3], "attack.step_size=1"], "did you mean 'attack.step'"),
    "suite": ([*EVALUATE[:3], "suite=sweeep"], "did you mean 'sweep'"),
    "second suite": ([*EVALUATE[:3], "suite=clean,pdg"], "did you mean 'pgd'"),
    "tier of another suite": ([*EVALUATE[:3], "tier=fast"], "'tier' is a setting of suite=autoattack"),
    "attack of another suite": ([*EVALUATE[:3], "suite=clean,autoattack", "attack=fgsm"], "'attack' is a setting of"),
    "union of a sweep": ([*EVALUATE[:3], "suite=sweep", "union=[l2:0.5]"], "'union' is a setting of"),
    "suites of attack": (["attack", *EVALUATE[1:3], "suite=pgd,sweep"], "one suite"),
    "threat": ([*EVALUATE, "threat=linf:8"], "linf:8/255"),
    "threat without norm": ([*EVALUATE, "threat=0.03"], "expected text such as 'linf:8/255', found 0.03"),
    "threat's norm": ([*EVALUATE, "threat=l3:1"], "l3"),
    "threat's form": ([*EVALUATE, "threat=8/255"], "linf:8/255"),
    "split": ([*EVALUATE, "split=tset"], "split"),
    # paths
    "recipe": (["train", "digits/trade"], "did you mean 'digits/trades'"),
    "recipe file": (["train", "nosuch.yaml"], "nosuch.yaml"),
    "broken recipe": (["train", "broken.yaml"], "not valid YAML"),
    "recipe of another shape": (["train", "list.yaml"], "expected a mapping"),
    "recipe with a typo": (["train", "typo.yaml"], "did you mean 'train.epochs'"),
    "data file": (["train", "data=npz:dtaa.npz"], "dtaa.npz"),
    "run": (["evaluate", "hlaf"], "did you mean 'half'"),
    "run without checkpoint": (["evaluate", "half"], "holds no checkpoint 'best'"),
    "a folder of runs": (["evaluate", "."], "name one of the runs in it: half"),
    "nothing trained": (["attack", "empty"], "holds no checkpoint 'best' and no other one; name a run"),
    "verify a folder of runs": (["verify", "."], "name one run: hardtack verify measured"),
    "plan of no verb": (["plan", "trian", "digits/trades"], "did you mean 'train'"),
    "plan of no recipe": (["plan", "digits/trade"], "did you mean 'digits/trades'"),
    "checkpoint": (["evaluate", "half", "checkpoint=first"], "holds no checkpoint 'first'"),
    "nothing to evaluate": (["evaluate"], "name a run folder"),
    "model without data": (["evaluate", "model=vit_digits"], "model and data"),
    "run and model": (["evaluate", "half", "model=vit_digits"], "not both (the run's weights in this model: "),
    "results and model": (["evaluate", "measured", "model=vit_digits"], "not both (omit measured)"),
    "report of nothing": (["report", "empty"], "holds no run"),
    "report nowhere": (["report", "emty"], "did you mean 'empty'"),
    "output in a file": ([*EVALUATE, "output=file/run"], "file"),
    "training in a file": ([*TRAIN, "output=file/run", "train.batch_size=8"], "file"),
}


@pytest.mark.parametrize("words, told", MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_one_line_and_exit_code_two(home, capsys, words, told):
    before = files_below(home)
    code = main(words)
    said = capsys.readouterr()
    assert code == 2, said.err
    assert said.err.startswith("hardtack: ") and said.err.count("\n") == 1, said.err
    assert told in said.err and "Traceback" not in said.err and "fault of hardtack" not in said.err
    assert said.out == "", "a failed command prints nothing that looks like a result"
    assert files_below(home) == before, "a failed command leaves nothing behind"


def test_debug_shows_where_wherever_it_stands(home):
    from hardtack.base.errors import UserError

    for words in (["--debug", "evaluate", "half"], ["evaluate", "half", "--debug"]):
        with pytest.raises(UserError, match="holds no checkpoint"):
            main(words)


def test_our_own_faults_are_called_so(home, capsys, monkeypatch):
    def broken(*args, **kwargs):
        raise RuntimeError("a thing\nof two lines")

    monkeypatch.setattr("hardtack.evaluation.job.evaluate_run", broken)
    assert main(EVALUATE) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "RuntimeError: a thing of two lines" in error and "--debug" in error


def test_an_interrupt_says_how_to_go_on(home, capsys, monkeypatch):
    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr("hardtack.evaluation.job.evaluate_run", interrupted)
    assert main(EVALUATE) == 130
    assert "repeat the command" in capsys.readouterr().err
    monkeypatch.setattr("hardtack.commands.cli.main", interrupted)  # as while modules are imported
    assert hardtack.__main__.main() == 130
    assert "repeat the command" in capsys.readouterr().err


def test_a_long_path_stays_on_one_line(home, capsys):
    deep = home / ("a long name with [brackets] " * 5).strip()
    words = ["model.options={depth: 1}", "model.image_size=8", "model.options.patch_size=4", "train.epochs=1"]
    assert main([*TRAIN, *words, "train.batch_size=8", f"output={deep}"]) == 0
    assert capsys.readouterr().out == f"trained: {deep}\n"


def test_no_words_show_the_help(capsys):
    main([])
    said = capsys.readouterr()
    assert "evaluate" in said.out and said.err == ""
    assert main(["--help"]) == 0 and main(["train", "--help"]) == 0


@pytest.mark.parametrize("kind", ["models", "attacks", "datasets", "objectives", "suites", "recipes"])
def test_every_kind_can_be_listed(kind, capsys):
    assert main(["list", kind]) == 0
    expected = {
        "models": "vit_tiny_patch4_32", "attacks": "momentum_pgd", "datasets": "parquet",
        "objectives": "trades", "suites": "sweep", "recipes": "digits/trades",
    }  # fmt: skip
    out = capsys.readouterr().out
    assert expected[kind] in out and "/_" not in out, "a base of recipes is no recipe"


def test_every_suite_is_in_the_list(capsys):
    from hardtack.base.registry import suites

    main(["list", "suites"])
    listed = capsys.readouterr().out
    assert all(f"\n{suite} " in listed for suite in suites.names())


def test_an_error_of_the_users_own_code_names_its_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    lines = ["import torch", "class Net(torch.nn.Module):", "    num_classes = 10", "    def forward(self, x):"]
    lines += ["        return torch.from_numpy(x.numpy()).flatten(1)[:, :10]", "def build():", "    return Net()"]
    (tmp_path / "mine.py").write_text("\n".join(lines))
    words = ["suite=pgd", "threat=linf:0.1", "n=20", "runtime.device=cpu"]
    assert main(["evaluate", "model=mine.py:build", "data=digits", *words]) == 1
    said = " ".join(capsys.readouterr().err.split())
    assert "mine.py, line 5" in said and "fault of hardtack" not in said
