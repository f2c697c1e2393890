"""A genuine run folder is verified; every forgery of it is named by `verify`, with exit code 1."""

import shutil

import pytest

from forgeries import (
    FORGERIES,
    broken_rows,
    drop_record,
    renumber,
    reseal,
    set_robust,
    verdicts_of,
    write_columns,
)
from genuine_run import WORDS, make_genuine_run
from hardtack.commands.cli import main
from hardtack.results import read_results


@pytest.fixture(scope="module")
def genuine(tmp_path_factory):
    return make_genuine_run(tmp_path_factory.mktemp("forgeries"))


@pytest.fixture
def run(genuine, tmp_path):
    return shutil.copytree(genuine[0], tmp_path / "run"), genuine[1]


def verify(folder, *words, capsys):
    capsys.readouterr()
    code = main(["verify", str(folder), *words])
    shown = capsys.readouterr()
    return code, shown.out + shown.err


def test_the_genuine_folder_is_verified(run, capsys):
    code, text = verify(run[0], capsys=capsys)
    assert code == 0 and f"{run[1]}: verified" in text and "wrong" not in text, text
    assert "not verifiable in any result: run, device, seconds, created, versions" in text


def test_the_genuine_folder_without_its_record_is_verified_as_far_as_it_goes(run, capsys):
    shutil.rmtree(run[0] / "evidence")
    code, text = verify(run[0], capsys=capsys)
    assert code == 0 and "not verifiable: there is no evidence record" in text, text


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forgery_is_named(run, capsys, name):
    edit, words = FORGERIES[name]
    edit(*run)
    code, text = verify(run[0], capsys=capsys)
    lines = "\n".join(line for line in text.splitlines() if "wrong:" in line)
    assert code == 1 and "NOT VERIFIED" in text, text
    assert all(word in lines for word in words), text


def test_there_are_many_of_them():
    assert len(FORGERIES) >= 60


def test_swapped_verdict_files_are_named(run, capsys):
    """Of a weak and a strong attack at the same threat: the better number for the stronger attack."""
    for steps in (1, 10):
        words = ["suite=pgd", "threat=linf:0.1", f"attack.steps={steps}", "runtime.device=cpu"]
        assert main(["evaluate", str(run[0]), *words]) == 0
    weak, strong = dict.fromkeys(result.evaluation for result in read_results(run[0]) if result.suite == "pgd")
    files = [run[0] / "verdicts" / f"{id}.parquet" for id in (weak, strong)]
    contents = [file.read_bytes() for file in files]
    for file, content in zip(files, reversed(contents), strict=True):
        file.write_bytes(content)
    code, text = verify(run[0], capsys=capsys)
    assert code == 1, text
    for id in (weak, strong):
        assert f"{id}: NOT VERIFIED" in text and "verdict file, digest" in text, text
    assert f"{run[1]}: verified" in text, "the other evaluation is not touched"


# ---------------------------------------------------------------- measuring again


def forge_without_a_trace(folder, id):
    """Broken images set robust, their adversarial images removed, every number and digest recomputed."""
    columns = verdicts_of(folder, id)
    set_robust(columns, broken_rows(columns))
    write_columns(folder, id, columns)
    shutil.rmtree(folder / "adversarial" / id)
    renumber(folder, id)
    reseal(folder, id, images={})


def test_a_forgery_without_a_trace_is_found_by_measuring_again(run, capsys):
    """Without an audit, whose numbers would contradict it."""
    words = ["suite=pgd", "threat=linf:0.1", "attack.steps=5", "audit=0", "examples=0", "runtime.device=cpu"]
    assert main(["evaluate", str(run[0]), *words]) == 0
    (id,) = {result.evaluation for result in read_results(run[0])} - {run[1]}
    columns = verdicts_of(run[0], id)
    forge_without_a_trace(run[0], id)
    code, text = verify(run[0], f"evaluation={id}", capsys=capsys)
    assert code == 0, f"no file contradicts it: {text}"
    code, text = verify(run[0], f"evaluation={id}", "sample=all", capsys=capsys)
    wrong = len(broken_rows(columns))
    assert wrong and code == 1 and "measured again: 16 images" in text, text
    assert f"robust@linf:0.1: {wrong} of 16 images differ when they are measured again" in text, text


def test_the_audit_contradicts_verdicts_that_were_set_robust(run, capsys):
    forge_without_a_trace(*run)
    code, text = verify(run[0], capsys=capsys)
    assert code == 1 and "extra.audit.linf:0.1.survivors" in text, text


def test_a_genuine_run_comes_out_again(run, capsys):
    code, text = verify(run[0], "sample=5", capsys=capsys)
    assert code == 0 and "measured again: 5 images" in text, text
    assert verify(run[0], "sample=0", capsys=capsys)[0] == 2
    assert verify(run[0], "sample=x", capsys=capsys)[0] == 2


def test_images_that_were_not_kept_are_confirmed_by_measuring_again(run, capsys):
    assert main(["evaluate", str(run[0]), *WORDS, "keep=false"]) == 0
    (new,) = {result.evaluation for result in read_results(run[0])} - {run[1]}
    code, text = verify(run[0], f"evaluation={new}", capsys=capsys)
    assert code == 1 and "not verifiable without measuring again" in text
    code, text = verify(run[0], f"evaluation={new}", "sample=all", capsys=capsys)
    assert code == 0, text


def test_views_are_measured_again_too(run, capsys):
    words = ["suite=corruptions", "types=[fog]", "severities=[1,5]", "runtime.device=cpu"]
    assert main(["evaluate", str(run[0]), *words]) == 0
    (new,) = {result.evaluation for result in read_results(run[0])} - {run[1]}
    assert verify(run[0], f"evaluation={new}", "sample=all", capsys=capsys)[0] == 0
    columns = verdicts_of(run[0], new)
    columns["correct@fog/5"][:] = True
    write_columns(run[0], new, columns)
    drop_record(run[0])
    code, text = verify(run[0], f"evaluation={new}", "sample=all", capsys=capsys)
    assert code == 1 and "correct@fog/5" in text
