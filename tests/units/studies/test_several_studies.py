"""Several studies as one job: runs that they share, names and patterns, failures, kills, and the order of runs."""

import os
import signal
import time
from types import SimpleNamespace

import pytest
import yaml
from test_study_run import small_study, stamps

import hardtack as ht
from hardtack.base.errors import UserError
from hardtack.commands.cli import main
from hardtack.studies.job import members_by_run
from hardtack.studies.study_files import find_studies, list_studies
from hardtack.studies.unit_order import RunOrder
from processes import start


def spread(values):
    """Another table over the same rows: one column of the first study, and one that only this one has."""
    values["title"], values["claims"], values["plots"] = "Another", ["spread(large) > spread(small)"], []
    values["columns"] = {
        "clean": values["columns"]["clean"],
        "spread": {"analysis": "sparsity", "metric": "sparsity", "column": "global", "ours": True},
    }
    values["paper_says"] = {"small": {"clean": 80}, "large": {"clean": 81}}
    return values


def write(folder, **changes):
    """The files of both studies; `changes` are of the first."""
    for name, values in (("one", {**small_study(), **changes}), ("two", spread(small_study()))):
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(values, sort_keys=False))
    return [folder / "one.yaml", folder / "two.yaml"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("several")
    paths = write(folder)
    return folder, ht.run_studies([*paths, paths[0]], quiet=True, output=str(folder / "studies"))


def test_runs_are_shared_and_measured_for_every_study(finished):
    folder, outcomes = finished
    assert [outcome.study.name for outcome in outcomes] == ["one", "two"], "each once"
    one, two = outcomes
    assert len(list((folder / "studies" / "models").iterdir())) == 2, "two rows, each trained once"
    assert one.cells["small", "clean"][0].run == two.cells["small", "spread"][0].run
    assert one.value("small", "clean") == two.value("small", "clean")
    for outcome in outcomes:
        assert not outcome.failures and [row["state"] for row in outcome.view["rows"]] == ["measured", "measured"]
        assert {"table.md", "page.html", "study.json"} <= {item.name for item in outcome.folder.iterdir()}


def test_the_time_of_the_job_is_shared_out(tmp_path):
    began = time.monotonic()
    outcomes = ht.run_studies(write(tmp_path), quiet=True, output=str(tmp_path / "studies"))
    seconds = [outcome.view["seconds"] for outcome in outcomes]
    assert seconds[0] > seconds[1] > 0, "the first trains the runs of both"
    assert sum(seconds) <= time.monotonic() - began + 0.1  # each is rounded to a tenth


def test_each_table_is_that_of_the_study_alone(finished, tmp_path):
    _, outcomes = finished
    for path, outcome in zip(write(tmp_path), outcomes, strict=True):
        alone = ht.study(path, quiet=True, output=str(tmp_path / "studies"))
        assert (alone.folder / "table.csv").read_text() == (outcome.folder / "table.csv").read_text()


def test_a_repeat_computes_nothing(finished, capsys, monkeypatch):
    folder, _ = finished
    before = stamps(folder)
    monkeypatch.chdir(folder)
    assert main(["study", "one.yaml", "two.yaml", "output=studies"]) == 0
    printed = "".join(capsys.readouterr())
    assert "2 studies (smoke): 1 of 2, one:small/model for 2 studies" in printed
    assert "  two: " in printed, "numbers say which study they are of"
    assert "one: 2 of 2 rows, 1 " in printed and "report: studies/index.html" in printed
    assert stamps(folder) == before and (folder / "studies" / "index.html").is_file()
    assert main(["study", "one.yaml", "two.yaml", "--status", "output=studies"]) == 0
    said = capsys.readouterr().out
    assert "one.yaml at scale smoke" in said and "two.yaml at scale smoke" in said
    assert main(["study", "one.yaml", "two.yaml", "--table", "output=studies"]) == 0
    assert capsys.readouterr().out.count("page: ") == 2
    assert main(["study", "one.yaml", "cauchy", "--table", "output=studies"]) == 0
    said = capsys.readouterr().out
    assert said.count("page: ") == 1 and "nothing of cauchy/figure3 is measured" in said
    assert main(["study", "cauchy", "--table", "output=studies"]) == 2
    assert "nothing of these 4 studies is measured" in capsys.readouterr().err


def test_workers_give_the_same_tables(finished, tmp_path, monkeypatch):
    _, outcomes = finished
    write(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert main(["study", "one.yaml", "two.yaml", "output=studies", "workers=2"]) == 0
    for outcome in outcomes:
        table = tmp_path / "studies" / outcome.study.name / "smoke" / "table.csv"
        assert table.read_text() == (outcome.folder / "table.csv").read_text()


def test_killed_and_repeated_they_end_with_the_same_tables(finished, tmp_path):
    _, outcomes = finished
    paths = write(tmp_path)
    process = start("study", "one.yaml", "two.yaml", "output=studies", cwd=tmp_path)
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob("studies/cells/*.json")) and time.monotonic() < deadline:
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    kept = {item: item.stat().st_mtime_ns for item in tmp_path.glob("studies/cells/*.json")}
    assert kept, "some cells were measured before the kill"
    again = ht.run_studies(paths, quiet=True, output=str(tmp_path / "studies"))
    assert all(item.stat().st_mtime_ns == stamp for item, stamp in kept.items())
    for outcome, whole in zip(again, outcomes, strict=True):
        assert (outcome.folder / "table.csv").read_text() == (whole.folder / "table.csv").read_text()


@pytest.fixture
def opened(monkeypatch):
    """The names of the runs that are trained, or opened to see whether they are."""
    from hardtack.training import start as training

    names, train = [], training.train_recipe

    def noted(recipe, **settings):
        names.append(recipe.name)
        return train(recipe, **settings)

    monkeypatch.setattr(training, "train_recipe", noted)
    return names


def test_a_run_that_fails_fails_once_for_all_and_stops_no_other(tmp_path, capsys, opened):
    for name, values in (("one", small_study()), ("two", spread(small_study()))):
        values["rows"]["small"]["optimiser"] = {"lr": 1e30}  # the loss is not finite
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump(values, sort_keys=False))
    words = [str(tmp_path / "one.yaml"), str(tmp_path / "two.yaml"), f"output={tmp_path / 'studies'}"]
    assert main(["study", *words]) == 1
    printed = "".join(capsys.readouterr())
    assert printed.count("FAILED: the run of small/model") == 2 and printed.count("row small failed") == 2
    assert [name for name in opened if "small" in name] == [opened[0]], "it was not trained a second time"
    outcomes = ht.run_studies(words[:2], quiet=True, output=str(tmp_path / "studies"))
    assert [{row["name"]: row["state"][:6] for row in outcome.view["rows"]} for outcome in outcomes] == [
        {"small": "failed", "large": "measur"}
    ] * 2


def test_a_mistake_in_one_study_is_found_before_any_is_trained(tmp_path):
    values = small_study()
    paths = write(tmp_path, rows={**values["rows"], "large": {"model": {"name": "vit_digitz"}}})
    for names in (paths, reversed(paths)):
        with pytest.raises(UserError, match="vit_digits"):
            ht.run_studies(list(names), quiet=True, output=str(tmp_path / "studies"))
    assert not (tmp_path / "studies").exists()


def test_names():
    cauchy = [name for name in list_studies() if name.startswith("cauchy/")]
    assert find_studies(["cauchy"]) == find_studies(["cauchy/"]) == cauchy and len(cauchy) > 2
    assert find_studies(["*/table1"]) == [name for name in list_studies() if name.endswith("/table1")]
    assert find_studies(["cauchy/table1", "cauchy", "mine.yaml"]) == [
        "cauchy/table1", *(name for name in cauchy if name != "cauchy/table1"), "mine.yaml",
    ]  # fmt: skip
    with pytest.raises(UserError, match=r"no study is called like '\*/tabel1'"):
        find_studies(["*/tabel1"])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["cauchy/table1", "cauchi/table2"], "there is no study 'cauchi/table2' (did you mean 'cauchy/table2'"),
        (["cauchy", "rows=vit_t1"], "rows names rows of one study"),
        (["cauchy/table1", "scale=short", "cauchy/table2"], "'cauchy/table2' is not of the form key=value"),
    ],
)
def test_words_that_cannot_work(words, message, capsys, tmp_path):
    assert main(["study", *words, f"output={tmp_path}"]) == 2
    assert message in capsys.readouterr().err


def test_one_study_under_several_names_is_one(tmp_path, monkeypatch):
    write(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert find_studies(["one.yaml", "./one.yaml", tmp_path / "one.yaml", "two.yaml"]) == ["one.yaml", "two.yaml"]
    assert find_studies(["cauchy/table1", "studies/cauchy/table1", "studies/cauchy"])[0] == "cauchy/table1"
    assert len(find_studies(["cauchy", "studies/cauchy"])) == len(find_studies(["cauchy"]))


def test_two_files_that_would_write_to_one_folder_are_refused(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    paths = [write(tmp_path / name)[0] for name in ("a", "b")]
    with pytest.raises(UserError, match=r"a/one.yaml and .*b/one.yaml would both write to .*one/smoke: rename one"):
        ht.run_studies(paths, quiet=True, output=str(tmp_path / "studies"))
    assert not (tmp_path / "studies").exists()


def test_in_python_one_name_is_one_study_and_several_are_said_so(finished, tmp_path):
    folder, _ = finished
    (outcome,) = ht.run_studies(folder / "one.yaml", quiet=True, output=str(folder / "studies"))
    assert outcome.study.name == "one"
    with pytest.raises(UserError, match=r"'cauchy' is 4 studies: ht.run_studies\(\['cauchy'\]\)"):
        ht.study("cauchy", output=str(tmp_path))
    with pytest.raises(UserError, match="name a study"):
        ht.run_studies([], output=str(tmp_path))


def test_data_that_several_studies_lack_is_said_together(tmp_path):
    paths = write(tmp_path)
    words = {"scale": "paper", "data": {"name": "folder:imagenet", "root": str(tmp_path / "nowhere")}}
    with pytest.raises(UserError, match=r"2 of 2 studies at scale paper need data .*: one \(folder:imagenet\); two \("):
        ht.run_studies(paths, quiet=True, output=str(tmp_path / "studies"), **words)


def part(*units):
    return SimpleNamespace(units=[SimpleNamespace(digest=digest, seed=seed) for digest, seed in units])


def test_whole_tables_of_all_studies_come_before_the_second_seed():
    one, two = part(("a0", 0), ("b0", 0), ("a1", 1), ("b1", 1)), part(("b0", 0), ("c0", 0), ("b1", 1), ("c1", 1))
    assert members_by_run([one, two]) == [
        [(0, 0)], [(0, 1), (1, 0)], [(1, 1)], [(0, 2)], [(0, 3), (1, 2)], [(1, 3)],
    ]  # fmt: skip


def runs(*digests):
    return [SimpleNamespace(digest=digest) for digest in digests]


def test_what_needs_a_run_waits_for_the_first_that_needs_it():
    order = RunOrder([runs("a"), runs("b", "a"), runs("c"), runs("d", "b")])
    assert order.needs == [(), (0,), (), (1,)] and order.waiting == [3, 2, 1, 1]


def test_runs_that_look_at_each_other_do_not_wait_in_a_circle():
    """One study measures a on b's images, another one b on a's."""
    order = RunOrder([runs("a", "b"), runs("b", "a")])
    assert order.needs == [(), (0,)]


def test_a_run_is_opened_once_for_several_studies_and_again_if_it_changed(tmp_path, opened):
    paths, output = write(tmp_path), str(tmp_path / "studies")
    ht.run_studies(paths, quiet=True, output=output)
    assert len(opened) == 2, "two rows, both studies"
    for cell in (tmp_path / "studies" / "cells").iterdir():
        cell.unlink()
    ht.run_studies(paths, quiet=True, output=output)
    assert len(opened) == 2, "it is as this process has left it"
    (state,) = (tmp_path / "studies" / "models").glob("*small*/checkpoints/state.pt")
    state.unlink()
    for cell in (tmp_path / "studies" / "cells").iterdir():
        cell.unlink()
    ht.run_studies(paths, quiet=True, output=output)
    assert len(opened) == 3, "without its state it is trained again"
