"""SQL over run folders: answers that can be counted by hand, evidence, and what no query may do."""

import dataclasses
import hashlib
import json
import os
import shutil
import signal
import sys
import threading
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

import hardtack as ht
from hardtack.base.errors import UserError
from hardtack.commands.cli import main
from hardtack.results import append_results, read_results, write_verdicts
from hardtack.results.query import TABLES, named_queries, query, read_named_query
from query_folders import attacked, bits, change_result, make_query_runs, of_protocol

pytest.importorskip("duckdb")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return make_query_runs(tmp_path_factory.mktemp("query") / "runs")


@pytest.fixture
def own_runs(tmp_path):
    """Runs that a test may change."""
    return make_query_runs(tmp_path / "runs")


def ask(sql, runs, **parameters):
    return ht.query(sql, runs=runs, **parameters).rows


# ---------------------------------------------------------------- tables


def test_every_table_has_the_columns_that_it_is_said_to_have(runs):
    for table, (_, columns) in TABLES.items():
        answer = query(f"SELECT * FROM {table}", runs)
        assert answer.columns[: len(columns)] == [column.name for column in columns]
        kinds = dict(ask(f"SELECT column_name, column_type FROM (DESCRIBE {table})", runs))
        assert {column.name: column.sql_type for column in columns}.items() <= kinds.items(), table


def test_numbers_settings_and_images_are_those_of_the_folders(runs):
    stored = [result.value for run in ("standard", "trades-0", "trades-1") for result in read_results(runs / run)]
    assert sorted(query("SELECT value FROM results", runs).column("value")) == sorted(stored)
    assert ask("SELECT run, seed, config->>'$.train.epochs' FROM runs WHERE objective = 'trades'", runs) == [
        ("trades-0", 0, "2"), ("trades-1", 1, "2"),
    ]  # fmt: skip
    assert ask("SELECT number FROM settings WHERE setting = 'train.epochs' AND run = 'trades-1'", runs) == [(2.0,)]
    assert ask("SELECT image FROM verdicts WHERE robust AND run = 'trades-1' ORDER BY 1", runs) == [
        (place,) for place in np.flatnonzero(bits("11101010"))
    ]  # fmt: skip
    broken = ask(
        "SELECT broken_by, broken_at_step, round(size, 3) FROM verdicts "
        "WHERE run = 'trades-0' AND image > 4 AND threat IS NOT NULL ORDER BY image",
        runs,
    )
    assert broken == [("apgd linf:0.1", 3, 0.1), (None, None, None), ("apgd linf:0.1", 3, 0.1)]
    assert ask("SELECT sum(value) FROM views WHERE view = 'fog/1' GROUP BY run ORDER BY 1", runs) == [
        (4.0,),
        (5.0,),
        (6.0,),
    ]
    assert ask("SELECT epoch, loss, parts FROM metrics WHERE run = 'standard' AND loss IS NOT NULL", runs) == [
        (1.0, 2.0, "[1, 2]"), (2.0, 1.0, "[1, 2]"),
    ]  # fmt: skip


def test_what_may_be_compared_and_what_is_newest(own_runs):
    folder = own_runs / "trades-0"
    (old,) = [r for r in read_results(folder) if r.metric == "robust_accuracy"]
    newer = {"evaluation": "autoattack-later", "value": 0.25, "created": "2026-05-01", "verdicts": None}
    append_results(folder, [type(old)(**{**old.__dict__, **newer})])
    rows = ask(
        "SELECT run, value, latest, comparison FROM results WHERE metric = 'robust_accuracy' ORDER BY run, value",
        own_runs,
    )
    assert len({row[3] for row in rows}) == 1, "the same images, attack and settings"
    assert [row[:3] for row in rows if row[0] == "trades-0"] == [("trades-0", 0.25, True), ("trades-0", 0.5, False)]
    clean = ask(
        "SELECT count(DISTINCT comparison) FROM results WHERE metric = 'clean_accuracy' AND suite = 'autoattack'",
        own_runs,
    )
    assert clean == [(1,)]


# ---------------------------------------------------------------- named queries

ANSWERS = {
    # name: (columns, the first rows)
    "ranking": (
        ("threat", "n", "place", "run", "robust_accuracy", "evidence"),
        [("linf:0.1", 8, 1, "trades-1", 0.625, "agrees"), ("linf:0.1", 8, 2, "trades-0", 0.5, "agrees"),
         ("linf:0.1", 8, 3, "standard", 0.0, "agrees")],
    ),
    "tradeoff": (
        ("run", "clean_accuracy", "robust_accuracy", "on_pareto_front"),
        [("trades-1", 0.875, 0.625, True), ("trades-0", 0.875, 0.5, False), ("standard", 1.0, 0.0, True)],
    ),
    "flagged": (("run", "value"), []),
    "broken_by": (
        ("run", "outcome", "images", "share"),
        [("standard", "apgd linf:0.1", 8, 1.0), ("trades-0", "not broken", 4, 0.5),
         ("trades-0", "apgd linf:0.1", 3, 0.375), ("trades-0", "wrong without attack", 1, 0.125)],
    ),
    "hardest_images": (
        ("image", "label", "runs", "right_unchanged", "right_under_attack", "usually_taken_for"),
        [(5, 1, 3, 2, 0, 0), (7, 1, 3, 3, 0, 0)],
    ),
    "classes": (
        ("run", "label", "images", "clean_accuracy", "robust_accuracy"),
        [("standard", 0, 4, 1.0, 0.0), ("standard", 1, 4, 1.0, 0.0), ("trades-0", 0, 4, 0.75, 0.5)],
    ),
    "differing_settings": (
        ("setting", "run", "value"),
        [("objective.name", "trades-1", "trades"), ("objective.name", "trades-0", "trades"),
         ("objective.name", "standard", "standard"), ("runtime.seed", "trades-1", "1")],
    ),
    "seeds": (
        ("first_run", "trainings", "seeds", "metric", "mean"),
        [("trades-0", 2, [0, 1], "clean_accuracy", 0.875), ("trades-0", 2, [0, 1], "mean_corrupted_accuracy", 0.78125),
         ("trades-0", 2, [0, 1], "robust_accuracy", 0.5625)],
    ),
    "overfitting": (
        ("run", "best_epoch", "last_epoch", "lost"),
        [("trades-0", 1.0, 2.0, 0.1), ("standard", 1.0, 2.0, 0.0), ("trades-1", 2.0, 2.0, 0.0)],
    ),
    "unmeasured": (("run", "evaluations", "missing"), [("untrained", 0, "nothing was measured")]),
    "corruptions": (
        ("run", "corruption", "accuracy", "lost"),
        [("standard", "fog", 0.5, 0.5), ("standard", "pixelate", 0.875, 0.125)],
    ),
    "cost": (
        ("run", "tier", "images", "seconds_per_image", "forwards_per_image"),
        [("standard", "fast", 8, 2.0, 100.0)],
    ),
}  # fmt: skip


def test_every_named_query_has_an_answer_to_check():
    assert set(named_queries()) == set(ANSWERS) and len(ANSWERS) >= 10


@pytest.mark.parametrize("name", sorted(ANSWERS))
def test_named_queries(runs, name):
    columns, expected = ANSWERS[name]
    answer = query(name, runs)
    rows = [tuple(row[column] for column in columns) for row in answer]
    rounded = [tuple(round(cell, 9) if isinstance(cell, float) else cell for cell in row) for row in rows]
    assert rounded[: len(expected)] == expected
    assert read_named_query(name).question.endswith("?")
    if name in ("flagged", "unmeasured"):
        assert len(answer) == len(expected)


def test_named_queries_of_runs_that_were_only_configured(tmp_path):
    (tmp_path / "bare").mkdir()
    (tmp_path / "bare" / "config.yaml").write_text("name: bare\n")
    lengths = {name: len(query(name, tmp_path)) for name in named_queries()}
    assert lengths == {**dict.fromkeys(named_queries(), 0), "unmeasured": 1}


def test_parameters_choose(runs, tmp_path):
    assert len(query("ranking", runs, threat="linf:0.3")) == 0 < len(query("ranking", runs, threat="linf:0.1"))
    assert len(query("hardest_images", runs, most=3)) == 3
    own = tmp_path / "mine.sql"
    own.write_text(
        "-- Which numbers are above a limit?\n-- least=0.8   the limit\nSELECT run FROM results WHERE value > $least"
    )
    assert len(query(str(own), runs)) > len(query(str(own), runs, least=0.9)) == 2
    own.rename(own.with_name("my own query.sql"))
    assert len(query(str(own.with_name("my own query.sql")), runs, least=0.9)) == 2, "spaces do not make SQL of a name"


def test_a_step_without_a_number_is_no_best_one(own_runs):
    with (own_runs / "trades-1" / "metrics.jsonl").open("a") as file:
        file.write('{"kind": "validation", "step": 15, "epoch": 3, "clean_accuracy": 0.1, "robust_accuracy": NaN}\n')
    row = next(row for row in query("overfitting", own_runs) if row["run"] == "trades-1")
    assert (row["best_epoch"], row["best_robust"], row["last_epoch"]) == (2.0, 0.5, 2.0)


def test_a_run_that_was_measured_by_two_attacks_is_one_run(own_runs):
    for name in ("trades-0", "trades-1"):  # a weaker attack breaks nothing
        attacked(own_runs / name, bits("11111111"), precision="bf16")
    rows = query("hardest_images", own_runs)
    assert (rows[0]["image"], rows[0]["runs"], rows[0]["right_under_attack"]) == (5, 3, 0)


def test_a_run_without_a_checkpoint_has_a_place_in_the_tradeoff(own_runs):
    change_result(own_runs / "trades-0", "clean_accuracy", checkpoint=None)
    change_result(own_runs / "trades-0", "robust_accuracy", checkpoint=None)
    for folder in own_runs.glob("*/evidence"):
        shutil.rmtree(folder)
    assert query("tradeoff", own_runs).column("run") == ["trades-1", "trades-0", "standard"]


# ---------------------------------------------------------------- evidence


def test_a_forged_number_disagrees_and_loses_its_place(own_runs):
    change_result(own_runs / "standard", "robust_accuracy", value=0.99, low=0.9, high=1.0)
    rows = ask(
        "SELECT run, evidence, trusted, evidence_note FROM results WHERE metric = 'robust_accuracy' AND value = 0.99",
        own_runs,
    )
    assert rows[0][:3] == ("standard", "disagrees", False) and "stored 0.99, expected 0.0" in rows[0][3]
    assert "standard" not in query("ranking", own_runs).column("run")
    assert ("standard", 0.99) in ask("SELECT run, value FROM results", own_runs), "it can be asked for"
    flagged = query("flagged", own_runs)
    assert flagged[0]["run"] == "standard" and flagged[0]["evidence"] == "disagrees"


def test_a_forged_clean_accuracy_has_no_place_in_the_tradeoff(own_runs):
    change_result(own_runs / "standard", "clean_accuracy", value=0.99)
    assert query("tradeoff", own_runs).column("run") == ["trades-1", "trades-0"]


@pytest.mark.parametrize("threat", ["linf:0.1", "linf: 0.1"])
def test_a_number_without_values_per_image_is_not_trusted_whatever_its_name(own_runs, threat):
    """A colon and a space are also what separates the name of a number from what is said of it."""
    id = "autoattack-forged"
    write_verdicts(own_runs / "standard" / "verdicts" / f"{id}.parquet", {"index": np.arange(8)})
    genuine = next(r for r in read_results(own_runs / "standard") if r.metric == "robust_accuracy")
    forged = {"value": 0.99, "low": 0.9, "high": 1.0, "threat": threat, "verdicts": None, "evaluation": id, "extra": {}}
    append_results(own_runs / "standard", [dataclasses.replace(genuine, **forged)])
    assert ask(f"SELECT evidence, trusted FROM results WHERE evaluation = '{id}'", own_runs) == [
        ("unverifiable", False)
    ]
    assert 0.99 not in query("ranking", own_runs).column("robust_accuracy")


def test_a_column_of_a_protocol_is_believed_as_far_as_the_number_that_it_copies(own_runs):
    folder = own_runs / "trades-0"
    of_protocol(folder)
    asked = "SELECT part, evidence FROM results WHERE suite = 'protocol' ORDER BY part"
    assert ask(asked, own_runs) == [("AA", "agrees"), ("clean", "agrees"), ("worst", "agrees")]
    genuine = next(r for r in read_results(folder) if r.metric == "robust_accuracy" and r.suite == "autoattack")
    record = folder / "evidence" / f"{genuine.evaluation}.json"
    text = record.read_text()
    record.unlink()
    assert [state for _, state in ask(asked, own_runs)] == ["no record"] * 3
    record.write_text(text.replace(genuine.evaluation, "autoattack-of-another-run"))
    assert [state for _, state in ask(asked, own_runs)] == ["disagrees"] * 3


def test_red_flags_and_missing_evidence_can_be_asked_for(own_runs):
    flag = {"level": "red", "code": "zero_gradient", "message": "it's zero"}
    change_result(own_runs / "trades-0", "robust_accuracy", flags=(flag,))
    change_result(own_runs / "trades-1", "robust_accuracy", extra={"source": "reported"}, verdicts=None)
    states = dict(ask("SELECT run, evidence FROM results WHERE metric = 'robust_accuracy'", own_runs))
    assert states["standard"] == "agrees" and states["trades-0"] == "disagrees"  # its record has no such flag
    assert ask("SELECT run, code, message FROM flags WHERE level = 'red'", own_runs) == [
        ("trades-0", "zero_gradient", "it's zero")
    ]  # fmt: skip
    has_it = "red_flags > 0 AND list_contains(flags, 'red:zero_gradient')"
    assert ask(f"SELECT run FROM results WHERE {has_it}", own_runs) == [("trades-0",)]
    (own_runs / "standard" / "verdicts").rename(own_runs / "gone")
    assert set(ask("SELECT evidence, trusted FROM results WHERE run = 'standard'", own_runs)) == {
        ("unverifiable", False)
    }


def test_evidence_is_checked_only_where_it_is_asked_for(runs, monkeypatch):
    asked = []
    from hardtack.results.query import folders

    check = folders.check_one
    monkeypatch.setattr(
        folders, "check_one", lambda path, id, groups: asked.append((path.name, id)) or check(path, id, groups)
    )
    ask("SELECT run, value FROM results WHERE metric = 'robust_accuracy'", runs)
    assert asked == []
    ask("SELECT run FROM results WHERE suite = 'corruptions' AND trusted AND run = 'trades-1'", runs)
    assert {name for name, _ in asked} == {"trades-1"} and len(asked) == 1


# ---------------------------------------------------------------- hostile folders, and what a query may not do


def test_what_cannot_be_read_is_left_out_and_said(own_runs):
    whole = query("SELECT count(*) AS n FROM results", own_runs)[0]["n"]
    lines = (own_runs / "standard" / "results.jsonl").read_text().splitlines()
    forged = json.dumps({**json.loads(lines[0]), "value": "NaN", "metric": "m" * 30_000})
    (own_runs / "standard" / "results.jsonl").write_text("\n".join([lines[0], "{not json", *lines[1:], forged]) + "\n")
    (own_runs / "trades-0" / "metrics.jsonl").write_text(
        '{"loss": 1e999}\n[1]\n{"a": "\\ud800", "A": 2, "n": 1' + "0" * 400 + "}\n"
    )
    (own_runs / "trades-1" / "config.yaml").write_text("a: [")
    (own_runs / "untrained" / "link").symlink_to("/etc/hostname")
    body = next((own_runs / "trades-0" / "verdicts").glob("autoattack-*"))
    data = bytearray(body.read_bytes())
    data[30:200] = bytes(170)  # the footer is right, and the rows are not
    body.write_bytes(bytes(data))
    next((own_runs / "trades-1" / "verdicts").glob("corruptions-*")).write_bytes(b"PAR1 no parquet PAR1")
    answer = query("SELECT run, problem FROM problems", own_runs)
    assert query("SELECT count(*) AS n FROM results", own_runs)[0]["n"] == whole
    text = "\n".join(problem for _, problem in answer.rows)
    for words in (
        "results.jsonl:2 is corrupt",
        "results.jsonl:6 is corrupt",
        "metrics.jsonl:2",
        "valid YAML",
        "is a link to",
    ):
        assert words in text
    images = query("SELECT run, count(image) AS n FROM verdicts GROUP BY run ORDER BY run", own_runs)
    assert images.rows == [("standard", 16), ("trades-0", 8), ("trades-1", 8)]
    assert sum("parquet" in problem for problem in images.problems) == 2
    assert len(query("SELECT * FROM metrics WHERE run = 'trades-0'", own_runs)) == 2
    assert ask("SELECT evidence FROM results WHERE run = 'trades-0' AND metric = 'robust_accuracy'", own_runs) == [
        ("unverifiable",)
    ]


def test_names_that_would_like_to_be_sql(own_runs):
    hostile = """x'; DROP TABLE results; --"_run" """
    folder = own_runs / "standard"
    folder.rename(own_runs / hostile.strip())
    id = "corruptions-hostile"
    columns = {
        "index": np.arange(2),
        f"correct@{hostile}": np.ones(2),
        "robust@linf:'1": np.ones(2, bool),
        "label": np.zeros(2),
    }
    write_verdicts(own_runs / hostile.strip() / "verdicts" / f"{id}.parquet", columns)
    (result,) = [r for r in read_results(own_runs / hostile.strip()) if r.metric == "robust_accuracy"]
    append_results(
        own_runs / hostile.strip(), [type(result)(**{**result.__dict__, "evaluation": id, "threat": "linf:1e99999999"})]
    )
    assert ask("SELECT DISTINCT run, view FROM views WHERE view LIKE 'x%'", own_runs) == [(hostile.strip(), hostile)]
    assert ask(f"SELECT threat, count(*) FROM verdicts WHERE evaluation = '{id}' GROUP BY ALL", own_runs) == [
        ("linf:'1", 2)
    ]
    assert ask("SELECT norm, eps FROM results WHERE threat = 'linf:1e99999999'", own_runs) == [(None, None)]
    assert hostile.strip() in ht.query("FROM runs", runs=own_runs).text()


FORBIDDEN = {
    "COPY (SELECT 1) TO 'RUNS/standard/results.jsonl'": "a query only reads: SELECT …, found COPY",
    "DROP TABLE results": "found DROP",
    "ATTACH 'RUNS/x.db'": "found ATTACH",
    "SET enable_external_access=true": "found SET",
    "INSTALL httpfs": "a query only reads",
    "SELECT 1; DELETE FROM results": "one statement, found 2",
    "EXPLAIN ANALYZE COPY (SELECT 1) TO 'RUNS/standard/x.csv'": "",
    "SELECT * FROM read_csv('/etc/passwd')": "reads run folders only",
    "SELECT * FROM 'RUNS/standard/results.jsonl'": "",
    "SELECT * FROM glob('/*')": "reads run folders only",
    "SELECT * FROM secret_of_python": "there is no table 'secret_of_python'",
    "SELECT * FROM query('COPY (SELECT 1) TO ''RUNS/standard/x.csv''')": "",
}


def test_no_query_changes_or_reads_anything_else(runs):
    secret_of_python = pq.read_table(next((runs / "standard" / "verdicts").glob("*")))  # noqa: F841
    before = {path: hashlib.sha256(path.read_bytes()).hexdigest() for path in runs.rglob("*") if path.is_file()}
    for sql, words in FORBIDDEN.items():
        with pytest.raises(UserError) as refused:
            query(sql.replace("RUNS", str(runs)), runs)
        assert words in str(refused.value), sql
        assert "\n" not in str(refused.value)
    assert {path: hashlib.sha256(path.read_bytes()).hexdigest() for path in runs.rglob("*") if path.is_file()} == before


MISTAKES = {
    "SELECT valeu FROM results": "there is no column 'valeu' in results (did you mean 'value'?)",
    "SELECT r.clen_correct FROM verdicts AS r": "did you mean 'clean_correct'?",
    "SELECT robust FROM results": "there is no column 'robust' here; verdicts has it",
    'SELECT * FROM results WHERE threat = "linf:0.1"': "text is written in single quotes: 'linf:0.1'",
    "SELECT * FROM reslts": "there is no table 'reslts' (did you mean 'results'?)",
    "SELEC value FROM results": "the SQL is wrong: syntax error",
    "rankng": "(did you mean 'ranking'?)",
    ".": "the query comes first: hardtack query ranking .",
    "SELECT $threat": "needs a value for threat: threat=VALUE",
}


@pytest.mark.parametrize("sql", MISTAKES)
def test_mistakes_are_said_in_one_line(runs, sql, capsys):
    assert main(["query", sql, str(runs)]) == 2
    said = capsys.readouterr().err
    assert MISTAKES[sql] in said and said.count("\n") == 1


def test_without_duckdb_or_runs(runs, monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["query", "SELECT 1"]) == 2 and "name the run folders" in capsys.readouterr().err
    (tmp_path / "empty").mkdir()
    assert main(["query", "SELECT 1", "empty"]) == 2 and "holds no run" in capsys.readouterr().err
    assert (
        main(["query", "SELECT 1", str(runs), "fromat=csv"]) == 2 and "did you mean 'format'" in capsys.readouterr().err
    )
    assert main(["query", "ranking", str(runs), "thret=x"]) == 2 and "did you mean 'threat'" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "duckdb", None)
    assert main(["query", "SELECT 1", str(runs)]) == 2
    assert "pip install 'hardtack[query]'" in capsys.readouterr().err


def test_an_interrupted_query_ends_at_once(runs, capsys):
    """duckdb computes without looking for signals."""
    threading.Timer(1.0, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    forever = "SELECT count(*) FROM range(100000000) AS a, range(100000) AS b WHERE a.range * b.range = 7"
    assert main(["query", forever, str(runs)]) == 130 and "interrupted" in capsys.readouterr().err


# ---------------------------------------------------------------- the command and its formats


def test_answers_as_tables_csv_json_and_parquet(runs, tmp_path, capsys):
    sql = "SELECT run, value, created, flags, extra FROM results WHERE metric = 'robust_accuracy' ORDER BY run"
    assert main(["query", sql, str(runs)]) == 0
    assert "standard      0  2026-03-04 09:30" in capsys.readouterr().out
    assert main(["query", sql, str(runs), "format=csv"]) == 0
    assert capsys.readouterr().out.splitlines()[1].startswith("standard,0.0,2026-03-04T09:30:00,[],")
    assert main(["query", sql, str(runs), f"output={tmp_path / 'a.json'}"]) == 0
    assert json.loads((tmp_path / "a.json").read_text())[0]["value"] == 0.0
    assert main(["query", sql, str(runs), f"output={tmp_path / 'a.parquet'}"]) == 0
    assert "3 rows: " in capsys.readouterr().out
    assert pq.read_table(tmp_path / "a.parquet").column("value").to_pylist() == [0.0, 0.5, 0.625]
    assert main(["query", sql, str(runs), f"output={runs / 'standard' / 'results.jsonl'}", "format=json"]) == 2
    assert main(["query", sql, str(runs), f"output={tmp_path / 'a.xlsx'}"]) == 2
    assert main(["query", sql, str(runs), "format=parquet"]) == 2
    assert main(["query", sql, str(runs), "format=cvs"]) == 2
    said = capsys.readouterr().err
    assert "lies in the run folder" in said and "needs a file" in said and "did you mean 'csv'?" in said
    assert "no format ends in .xlsx; take .csv, .json, .parquet" in said


def test_names_of_columns_are_as_safe_as_values_and_no_column_is_lost(tmp_path, capsys):
    strange = ["=HYPERLINK(1)", "\x1b[31mred", "\ud800"]
    (tmp_path / "x").mkdir()
    lines = [{"kind": "train", "epoch": 1, "own": 2.5, **dict.fromkeys(strange, 3)}]
    (tmp_path / "x" / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    answer = ht.query("select * from metrics", tmp_path)
    assert answer.columns[-2:] == ["own", "=HYPERLINK(1)"] and len(answer.problems) == 2
    assert answer.csv().splitlines()[0].endswith(",own,'=HYPERLINK(1)")
    assert "\x1b" not in str(ht.query('select 1 as "\x1b[31mred"', tmp_path))

    twice = ht.query("select a.epoch, b.own, a.epoch + 1 as epoch, 7 as epoch_1 from metrics a, metrics b", tmp_path)
    assert twice.to_dicts() == [{"epoch": 1, "own": 2.5, "epoch_2": 2, "epoch_1": 7}]
    assert json.loads(twice.json()) == twice.to_dicts()


def test_a_folder_whose_name_is_no_text_is_left_out_of_the_verdicts(own_runs):
    own_runs = Path(own_runs)
    os.rename(own_runs / "trades-0", os.fsencode(own_runs) + b"/tr\xff")
    answer = ht.query("select distinct run from verdicts order by run", own_runs)
    assert answer.column("run") == ["standard", "trades-1"] and "rename the folder" in answer.problems[0]


def test_answers_in_python(runs):
    answer = ht.query("SELECT run, sum(n) AS n, 'a<b' AS x FROM results GROUP BY run ORDER BY run", runs=str(runs))
    assert (
        answer[0] == {"run": "standard", "n": 32, "x": "a<b"}
        and len(answer) == 3
        and answer.columns == ["run", "n", "x"]
    )
    assert isinstance(answer[0]["n"], int) and "a&lt;b" in answer._repr_html_() and str(answer).count("\n") == 3
    assert [row["run"] for row in answer] == answer.column("run")
    pandas = pytest.importorskip("pandas")
    assert isinstance(answer.to_frame(), pandas.DataFrame) and list(answer.to_frame()["n"]) == [32, 32, 32]


def test_the_list_shows_queries_tables_columns_and_sql(runs, capsys):
    assert main(["query", "--list"]) == 0
    said = capsys.readouterr().out
    assert all(name in said for name in (*named_queries(), *TABLES)) and "Which runs are most robust?" in said
    assert main(["query", "--list", "results"]) == 0 and "evidence_note" in capsys.readouterr().out
    assert main(["query", "--list", "ranking"]) == 0 and "FROM results" in capsys.readouterr().out
    assert main(["query", "--list", "reslts"]) == 2 and "did you mean 'results'" in capsys.readouterr().err
    assert ("runs", "a row for each run folder") in ask("SHOW TABLES", runs)


def test_the_documentation_has_every_table_column_and_query():
    page = (Path(__file__).parents[3] / "docs" / "query.md").read_text()
    for table, (_, columns) in TABLES.items():
        assert f"`{table}`" in page
        missing = [column.name for column in columns if f"`{column.name}`" not in page]
        assert not missing, (table, missing)
    assert not [name for name in named_queries() if f"`{name}`" not in page]


def test_verdict_files_with_other_columns_share_the_table(runs, tmp_path):
    """A threat that only one run has is a column of its file, and rows of the table."""
    own = make_query_runs(tmp_path / "own")
    attacked(own / "trades-0", bits("10000000"), threat="l2:1")
    assert ask("SELECT run, sum(robust::INT) FROM verdicts WHERE threat = 'l2:1' GROUP BY run", own) == [
        ("trades-0", 1)
    ]
