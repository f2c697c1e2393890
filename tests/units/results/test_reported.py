"""Numbers that others report become run folders of their own, and never share a table with measured ones."""

import json

import pytest

from hardtack.commands.cli import main
from hardtack.report import write_report
from hardtack.results import Result, append_results, leaderboard, read_results, read_runs

INFO = {
    "link": "https://example.org", "name": "A title", "authors": "A. Author", "additional_data": False,
    "number_forward_passes": 1, "dataset": "cifar10", "venue": "2024", "architecture": "WideResNet-28-10",
    "eps": "8/255", "clean_acc": "89.48", "reported": "62.80", "autoattack_acc": "62.76", "footnote": "",
    "external": "62.70",
}  # fmt: skip


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(home, path, **changes):
    file = home / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({key: value for key, value in {**INFO, **changes}.items() if value != "without"}))
    return str(file)


def measured(**more):
    shared = {
        "n": 10_000, "suite": "autoattack", "data": "cifar10", "evaluation": "autoattack-1", "low": 0.3, "high": 0.4,
    }  # fmt: skip
    attack = {"attack": "AutoAttack by RobustBench", "threat": "linf:8/255"}
    return [
        Result(metric="clean_accuracy", value=0.9, **shared),
        Result(metric="robust_accuracy", value=0.35, **{**shared, **attack, **more}),
    ]


def test_a_file_becomes_a_run_folder(home, capsys):
    write(home, "model_info/cifar10/Linf/Gowal2020.json")
    assert main(["import", "model_info", "output=runs/reported"]) == 0
    found = read_results("runs/reported/Gowal2020")
    assert [(one.metric, one.value, one.threat) for one in found] == [
        ("clean_accuracy", 0.8948, None),
        ("robust_accuracy", 0.6276, "linf:8/255"),
        ("robust_accuracy", 0.628, "linf:8/255"),
        ("robust_accuracy", 0.627, "linf:8/255"),
    ]
    assert {(one.suite, one.extra["source"], one.n, one.low, one.high) for one in found} == {
        ("reported", "reported", 0, None, None)
    }
    assert found[0].model == "WideResNet-28-10" and found[0].extra["paper"]["venue"] == "2024"
    assert "runs/reported/Gowal2020" in capsys.readouterr().out


def test_the_folder_says_norm_and_data(home):
    write(home, "model_info/cifar100/L2/A.json", dataset="cifar10", eps="0.5", reported="", external="without")
    assert main(["import", "model_info"]) == 0
    found = read_results("runs/reported/A")
    assert [(one.data, one.threat) for one in found] == [("cifar100", None), ("cifar100", "l2:0.5")]


def test_one_name_on_two_leaderboards_is_two_models(home):
    write(home, "model_info/cifar10/Linf/A.json")
    write(home, "model_info/cifar10/L2/A.json", eps="0.5", clean_acc="95.00", autoattack_acc="80.00")
    assert main(["import", "model_info", "output=runs"]) == 0
    (table,) = [table for table in leaderboard(read_runs("runs")) if table.attack == "AutoAttack by RobustBench"]
    rows = {(row.clean.value, *(cell.value for cell in row.cells.values())) for row in table.rows}
    assert rows == {(0.8948, 0.6276), (0.95, 0.8)}


def test_corruptions(home):
    numbers = {"corruptions_acc": "67.55", "corruptions_mce": "41.7", "corruptions_acc_3d": "65.9"}
    write(home, "imagenet/corruptions/D.json", eps=None, autoattack_acc="without", **numbers)
    assert main(["import", "imagenet", "output=runs"]) == 0
    found = {(one.metric, one.attack): one.value for one in read_results("runs/D")}
    common = "15 common types × 5 severities"
    assert found["mean_corrupted_accuracy", common] == 0.6755
    assert found["mean_corruption_error", common] == 0.417
    assert found["mean_corrupted_accuracy", "3D common corruptions"] == 0.659


def test_imported_twice_is_imported_once(home):
    file = write(home, "Linf/A.json")
    for value in ("62.76", "50.00"):
        write(home, "Linf/A.json", autoattack_acc=value)
        assert main(["import", file]) == 0
    assert [one.value for one in read_results("runs/reported/A")][1] == 0.5
    assert len(read_results("runs/reported/A")) == 4


def test_two_leaderboards_of_one_model_stay_apart(home):
    write(home, "cifar10/Linf/A.json")
    write(home, "imagenet/Linf/A.json", clean_acc="72.0", eps="4/255")
    assert main(["import", "cifar10", "imagenet"]) == 0
    found = [one for one in read_results("runs/reported/A") if one.metric == "clean_accuracy"]
    assert {one.data: one.value for one in found} == {"cifar10": 0.8948, "imagenet": 0.72}


def test_numbers_that_robustbench_marks_as_unreliable_are_flagged(home):
    write(home, "Linf/A.json", unreliable=True)
    assert main(["import", "Linf"]) == 0
    assert {flag["code"] for one in read_results("runs/reported/A") for flag in one.flags} == {"unreliable"}


@pytest.mark.parametrize("n", [10_000, 0])
def test_reported_and_measured_numbers_never_share_a_table(home, n):
    """Not even in one folder, and not even if everything but the source were the same."""
    write(home, "Linf/A.json")
    assert main(["import", "Linf", "output=runs"]) == 0
    append_results("runs/A", measured(suite="reported", n=n))
    append_results("runs/B", measured())
    tables = leaderboard(read_runs("runs"))
    for table in tables:
        sources = {cell.extra.get("source", "") for row in table.rows for cell in row.cells.values()}
        clean = {row.clean.extra.get("source", "") for row in table.rows if row.clean}
        assert sources == {table.source} and clean <= {table.source}
    assert {table.source for table in tables} == {"", "reported"}


def test_the_report_marks_reported_numbers(home):
    write(home, "Linf/A.json")
    assert main(["import", "Linf", "output=runs"]) == 0
    append_results("runs/B", measured())
    page = write_report("runs", home / "report.html").read_text()
    assert "reported, not measured here" in page
    assert "0 images" not in page.replace("10,000 images", "")


def test_exports_name_the_source(home, capsys):
    write(home, "Linf/A.json")
    assert main(["import", "Linf"]) == 0
    assert main(["export", "runs/reported"]) == 0
    assert main(["export", "runs/reported", "format=latex"]) == 0
    out = capsys.readouterr().out
    assert ",reported,cifar10,,,,reported," in out and "reported, not measured here" in out


MISTAKES = {
    "no such folder": (["import", "Lnf"], "did you mean 'Linf'"),
    "no norm": (["import", "loose.json"], "give norm=linf, l2 or corruptions"),
    "a wrong norm": (["import", "loose.json", "norm=l3"], "'norm'"),
    "not JSON": (["import", "text.json"], "not valid JSON"),
    "something else": (["import", "other.json"], "no clean_acc"),
    "a share for a percentage": (["import", "big.json", "norm=linf"], "should be a percentage, found '6276'"),
    "an empty folder": (["import", "empty"], "holds no .json file"),
    "a wrong word": (["import", "Linf", "ouput=x"], "did you mean 'output'"),
    "nothing": (["import"], "FILES"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_write_nothing(name, home, capsys):
    write(home, "Linf/A.json")
    write(home, "loose.json")
    write(home, "big.json", autoattack_acc="6276")
    (home / "text.json").write_text("{")
    (home / "other.json").write_text("{}")
    (home / "empty").mkdir()
    words, said = MISTAKES[name]
    assert main(words) == 2
    assert said in capsys.readouterr().err
    assert not (home / "runs").exists()


def test_a_loose_file_with_its_norm(home):
    write(home, "loose.json")
    assert main(["import", "loose.json", "norm=linf"]) == 0
    assert read_results("runs/reported/loose")[1].threat == "linf:8/255"


def test_the_option_and_the_verb_of_the_same_name(home):
    write(home, "Linf/A.json")
    (home / "plugin.py").write_text("open('ran', 'w')\n")
    assert main(["--import", "plugin.py", "import", "Linf"]) == 0
    assert (home / "ran").exists() and read_results("runs/reported/A")
