"""Run folders survive crashes, repeats and simultaneous writers; wrong paths are explained."""

import threading

import numpy as np
import pytest

from hardtack.base.errors import UserError
from hardtack.base.files import atomic
from hardtack.results import (
    Result,
    append_result,
    find_runs,
    read_arrays,
    read_metrics,
    read_results,
    read_verdicts,
    to_json,
    write_verdicts,
)


def result(evaluation="e1", value=0.5, threat=None):
    made = {"suite": "clean", "data": "d", "evaluation": evaluation, "threat": threat}
    return Result(metric="clean_accuracy", value=value, n=10, **made)


def test_a_failed_write_leaves_the_old_file_and_no_litter(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")
    with pytest.raises(RuntimeError), atomic(path) as file:
        file.write(b"half")
        raise RuntimeError
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_repeated_evaluation_replaces_its_line(tmp_path):
    append_result(tmp_path, result("e1", 0.5))
    append_result(tmp_path, result("e2", 0.6))
    append_result(tmp_path, result("e1", 0.7))
    append_result(tmp_path, result("e1", 0.1, threat="linf:8/255"))
    read = [(item.evaluation, item.value, item.threat) for item in read_results(tmp_path)]
    assert read == [("e1", 0.7, None), ("e2", 0.6, None), ("e1", 0.1, "linf:8/255")]


def test_simultaneous_writers_lose_nothing(tmp_path):
    writers = [threading.Thread(target=append_result, args=(tmp_path, result(f"e{i}"))) for i in range(8)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert {item.evaluation for item in read_results(tmp_path)} == {f"e{i}" for i in range(8)}


def test_a_half_written_last_line_is_skipped_with_a_warning(tmp_path):
    whole = to_json(result())
    (tmp_path / "results.jsonl").write_text(whole + "\n" + whole[:40])
    with pytest.warns(UserWarning, match=r"results\.jsonl:2"):
        assert read_results(tmp_path) == [result()]


@pytest.mark.parametrize("bad", ['{"half": ', "[1, 2]", "null"])
def test_any_other_corrupt_line_is_named(tmp_path, bad):
    (tmp_path / "metrics.jsonl").write_text(f'{{"kind": "train"}}\n{bad}\n{{"kind": "train"}}\n')
    with pytest.raises(UserError, match=r"metrics\.jsonl:2"):
        read_metrics(tmp_path)


def test_a_run_without_files_has_no_results(tmp_path):
    assert read_results(tmp_path) == [] and read_metrics(tmp_path) == []


def columns(start, count, broken_by=None):
    return {
        "index": np.arange(start, start + count),
        "robust": np.arange(count) % 2 == 0,
        "broken_by": [broken_by] * count,
        "size": np.full(count, 0.25, dtype=np.float32),
    }


def test_verdicts_keep_values_and_types(tmp_path):
    written = {**columns(0, 4), "broken_by": np.array(["pgd", None, "pgd", None], dtype=object)}
    read = read_verdicts(write_verdicts(tmp_path / "v.parquet", written))
    assert list(read) == list(written)
    for name, values in written.items():
        assert read[name].tolist() == values.tolist()
    assert read["robust"].dtype == bool and read["size"].dtype == np.float32


def test_verdict_mistakes_are_explained(tmp_path):
    with pytest.raises(UserError, match="length"):
        write_verdicts(tmp_path / "v.parquet", {"a": [1, 2], "b": [1]})
    write_verdicts(tmp_path / "pgd-1.parquet", {"a": [1]})
    with pytest.raises(UserError, match=r"did you mean 'pgd-1\.parquet'"):
        read_verdicts(tmp_path / "pgd-2.parquet")
    (tmp_path / "bad.parquet").write_bytes(b"nothing")
    with pytest.raises(UserError, match="not a readable"):
        read_verdicts(tmp_path / "bad.parquet")


def test_arrays_never_execute_code(tmp_path):
    np.savez(tmp_path / "bad.npz", x=np.array([object()], dtype=object))
    with pytest.raises(UserError, match="npz"):
        read_arrays(tmp_path / "bad.npz")


def make_run(folder):
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text("name: x\n")
    return folder


def test_find_runs_looks_three_levels_down_and_keeps_each_once(tmp_path):
    shallow = make_run(tmp_path / "a")
    deep = make_run(tmp_path / "b" / "c" / "d")
    make_run(tmp_path / "b" / "c" / "e" / "too-deep")
    make_run(tmp_path / ".hidden")
    assert find_runs(tmp_path) == [shallow, deep]
    assert find_runs([shallow, tmp_path]) == [shallow, deep]


def test_find_runs_explains_wrong_paths(tmp_path):
    make_run(tmp_path / "digits")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="did you mean 'digits'"):
        find_runs(tmp_path / "digit")
    with pytest.raises(UserError, match="holds no run"):
        find_runs(tmp_path / "empty")
    with pytest.raises(UserError, match="is a file"):
        find_runs(tmp_path / "digits" / "config.yaml")
    with pytest.raises(UserError, match="at least one"):
        find_runs([])
