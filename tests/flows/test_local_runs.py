"""Run folders and outputs are local: a URL is refused by every verb in one line, and no folder `s3:` is made."""

import pytest

import hardtack as ht
from hardtack.base.errors import UserError
from hardtack.commands.cli import main
from hardtack.results.bundle import BundleConfig, write_bundle

URL = "s3://bucket/run"
MODEL = ["model=vit_digits", "data=digits", "n=2", "runtime.device=cpu"]
COMMANDS = [
    ["train", "digits/trades", f"output={URL}"],
    ["evaluate", *MODEL, "suite=clean", f"output={URL}"],
    ["evaluate", *MODEL, "suite=clean", "output=gs://bucket/run", "workers=2"],
    ["evaluate", URL],
    ["evaluate", "file:///tmp/run"],
    ["analyze", "sparsity", *MODEL, f"output={URL}"],
    ["analyze", URL, "sparsity"],
    ["attack", *MODEL, "attack=fgsm", f"output={URL}"],
    ["attack", URL],
    ["corrupt", "digits", URL],
    ["study", "architectures/table2", f"output={URL}"],
    ["study", f"output={URL}"],
    ["study", "--report", f"output={URL}"],
    ["report", URL],
    ["report", ".", "--output", URL],
    ["leaderboard", URL],
    ["leaderboard", ".", "--output", URL],
    ["compare", URL, "runs/x"],
    ["verify", URL],
    ["bundle", URL],
    ["export", URL, "as=model_info"],
    ["import", "here.json", f"output={URL}"],
    ["adapt", URL],
    ["gauntlet", f"output={URL}"],
    ["selftest", URL],
    ["plan", URL],
    ["demo", "--folder", URL],
]


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_every_verb_refuses_a_url(words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    error = capsys.readouterr().err.strip()
    assert "is a URL, and run folders and outputs are on a local disk" in error and "aws s3 sync" in error
    assert len(error.splitlines()) == 1 and not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "call",
    [
        lambda: ht.train("digits/trades", output=URL, quiet=True),
        lambda: ht.evaluate_run(None, model="vit_digits", data="digits", n=2, suite="clean", output=URL),
        lambda: ht.evaluate_run(URL),
        lambda: ht.load_run(URL),
        lambda: ht.study("architectures/table2", output=URL, quiet=True),
        lambda: ht.write_report(URL),
        lambda: ht.write_report(".", URL),
        lambda: write_bundle(URL, BundleConfig()),
    ],
)
def test_python_refuses_a_url(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="is a URL, and run folders"):
        call()
    assert not list(tmp_path.iterdir())


def test_an_address_of_ray_is_no_folder(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["report", "--on", "ray://host:1", "x"]) == 2
    assert "is a URL" not in capsys.readouterr().err
