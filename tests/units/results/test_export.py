"""Exported numbers are the stored ones, in the words of a spreadsheet, a paper and RobustBench."""

import csv
import dataclasses
import io
import json
import re

import pytest

from hardtack.commands.cli import main
from hardtack.report.latex import escaped
from hardtack.results import Result, append_results, read_results
from tiny_runs import write_data

AUTOATTACK = {
    "suite": "autoattack", "evaluation": "autoattack-1", "data": "cifar10/test", "n": 10_000, "run": "vit",
    "model": "vit_tiny_patch4_32", "versions": {"hardtack": "0.1.0"},
}  # fmt: skip
OFFICIAL = {"types": [f"type {n}" for n in range(15)], "severities": [1, 2, 3, 4, 5]}


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def attacked(value=0.31204, *, tier="verified", version="standard", threat="linf:8/255", **more):
    settings = {"version": version, "tier": tier}
    shared = {**AUTOATTACK, **more}
    return [
        Result(metric="clean_accuracy", value=0.6945, low=0.685, high=0.703, **shared),
        Result(
            metric="robust_accuracy", value=value, low=0.303, high=0.321, threat=threat, attack_settings=settings,
            attack=f"autoattack {version} tier={tier}", **shared,
        ),
    ]  # fmt: skip


def corrupted(source, **how):
    shared = {**AUTOATTACK, "suite": "corruptions", "evaluation": "corruptions-1", "extra": {"source": source}}
    return [
        Result(metric="clean_accuracy", value=0.7, **shared),
        Result(metric="mean_corrupted_accuracy", value=0.5123, attack_settings={**OFFICIAL, **how}, **shared),
    ]


def exported(capsys, *words):
    assert main(["export", *words]) == 0
    return capsys.readouterr().out


# ---------------------------------------------------------------- csv and latex


def test_csv_has_a_line_for_every_result_of_a_real_evaluation(home, capsys):
    write_data(home / "data.npz")
    words = ["model=vit_digits", "model.options.patch_size=4", "data=npz:data.npz", "runtime.device=cpu"]
    assert main(["evaluate", *words, "suite=pgd", "attack.steps=2", "threat=linf:0.1", "output=runs/tiny, model"]) == 0
    assert main(["export", "runs/tiny, model", "output=out/all.csv"]) == 0
    rows = list(csv.DictReader((home / "out/all.csv").open(newline="")))
    stored = read_results("runs/tiny, model")
    assert [row["metric"] for row in rows] == [result.metric for result in stored]
    assert [float(row["value"]) for row in rows] == [result.value for result in stored]
    assert {row["run"] for row in rows} == {"tiny, model"} and rows[-1]["flags"] == "red:untrained"
    assert rows[-1]["threat"] == "linf:0.1" and int(rows[-1]["n"]) == stored[-1].n
    assert "exported: out/all.csv" in capsys.readouterr().out


def test_a_protocol_is_a_table_in_its_own_order(home, capsys):
    flag = {"level": "red", "code": "zero_gradient", "message": ""}
    for run, names, flags in (("vit", ("PGD_2", "Clean"), [flag]), ("cnn", ("Clean",), [])):
        shared = {**AUTOATTACK, "suite": "protocol", "protocol": "mine 2", "evaluation": "protocol-1", "run": run}
        places = {"Clean": 0, "PGD_2": 1}
        append_results(
            home / "runs" / run,
            [
                Result(
                    metric="clean_accuracy", value=0.5 + places[name] / 4, low=0.4, high=0.9, flags=flags, **shared,
                    extra={"column": name, "place": places[name]},
                )
                for name in names
            ],
        )  # fmt: skip
    text = exported(capsys, "runs", "format=latex")
    assert text.count("begin{table}") == 1 and "caption{Protocol mine 2 (\\%) on 10,000 images of cifar10/test." in text
    assert r"Run & Clean & PGD\_2 \\" in text and r"zero\_gradient" in text
    assert r"vit$^\dagger$ & 50.0 {\scriptsize 40.0--90.0} & 75.0" in text
    assert re.search(r"cnn & 50.0 [^&]* & --- ", text)
    assert [row["column"] for row in csv.DictReader(io.StringIO(exported(capsys, "runs/vit")))] == ["PGD_2", "Clean"]


def test_csv_goes_to_the_screen_without_a_file(capsys):
    append_results("runs/vit", attacked())
    rows = list(csv.DictReader(io.StringIO(exported(capsys, "runs"))))
    assert [row["value"] for row in rows] == ["0.6945", "0.31204"]


def test_latex_is_one_table_for_each_comparable_group(capsys):
    append_results("runs/vit_a", attacked(0.3123))
    append_results("runs/[b]*", attacked(0.4567, threat="l2:0.5") + attacked(0.2, evaluation="autoattack-2"))
    append_results("runs/c&d", attacked(0.5, data="cifar100/test"))
    text = exported(capsys, "runs", "format=latex")
    assert text.count(r"\begin{table}") == text.count(r"\end{table}") == 2
    assert r"vit\_a & 69.5 {\scriptsize 68.5--70.3} & 31.2 {\scriptsize 30.3--32.1} & --- \\" in text
    assert r"{[}b{]}{*} & " in text and r"c\&d & " in text  # neither an argument of \\ nor a column
    assert r"$\ell_\infty \le 8/255$ & $\ell_2 \le 0.5$ \\" in text
    for table in text.split(r"\begin{table}")[1:]:
        balanced(table)
        columns = len(re.search(r"\{tabular\}\{(\w+)\}", table)[1])
        rows = [line for line in table.splitlines() if line.endswith(r"\\")]
        assert {len(re.findall(r"(?<!\\)&", line)) + 1 for line in rows} == {columns}


def balanced(text):
    depth = 0
    for brace in re.findall(r"(?<!\\)[{}]", text):
        depth += 1 if brace == "{" else -1
        assert depth >= 0
    assert depth == 0 and len(re.findall(r"(?<!\\)\$", text)) % 2 == 0
    opened, closed = re.findall(r"\\begin\{(\w+)\}", "\\begin{table}" + text), re.findall(r"\\end\{(\w+)\}", text)
    assert sorted(opened) == sorted(closed)


def test_latex_marks_what_must_not_be_quoted(capsys):
    flag = {"level": "red", "code": "masked_gradients", "message": "…"}
    append_results("runs/vit", attacked(flags=(flag,)))
    text = exported(capsys, "runs", "format=latex")
    assert r"vit$^\dagger$ &" in text and r"unreliable (masked\_gradients)" in text


def test_latex_has_captions_and_labels_for_a_paper(capsys):
    append_results("runs/vit", attacked(0.3123))
    append_results("runs/cnn", attacked(0.2) + attacked(0.4, data="cifar100/test", evaluation="autoattack-2"))
    append_results("runs/cnn", attacked(0.1, data="svhn/test", evaluation="autoattack-3"))
    text = exported(capsys, "runs", "format=latex")
    assert (
        r"\caption{Clean accuracy and robust accuracy (\%) under AutoAttack (standard, tier verified) on 10,000 images "
        r"of cifar10/test. Small numbers: 95\,\% Wilson intervals.}"
    ) in text
    assert re.findall(r"\\label\{(.*?)\}", text) == [
        "tab:robust-accuracy-autoattack-cifar10-test",
        "tab:measurements-cnn",
    ]
    alone = text.split(r"\label{tab:measurements-cnn}")[1]
    assert alone.count(r"Robust accuracy $\ell_\infty \le 8/255$ & AutoAttack (standard, tier verified) on 10,000") == 2
    balanced(text.split(r"\begin{table}")[2])
    append_results("runs/vit", attacked(0.3123, threat="linf:8/255", precision="bf16", evaluation="autoattack-4"))
    append_results("runs/cnn", attacked(0.3123, threat="linf:8/255", precision="bf16", evaluation="autoattack-4"))
    labels = re.findall(r"\\label\{(.*?)\}", exported(capsys, "runs", "format=latex"))
    assert labels[:2] == [
        "tab:robust-accuracy-autoattack-cifar10-test",
        "tab:robust-accuracy-autoattack-cifar10-test-2",
    ]


def test_names_stay_text_in_latex():
    assert escaped(r"a_b 50% $x$ \n {y} #1 ~^") == (
        r"a\_b 50\% \$x\$ \textbackslash{}n \{y\} \#1 \textasciitilde{}\textasciicircum{}"
    )
    assert escaped('say "hi"') == "say ''hi''", "a quotation mark needs no package and no other encoding"
    assert escaped("\ud800\x1b") == r"\textbackslash{}ud800\textbackslash{}x1b", "a file can be written of any name"


def test_latex_labels_are_different_whatever_the_names_of_runs(capsys):
    for name in ("a b", "a-b", "a-b-2"):  # the second of two equal labels ends in -2
        append_results(
            f"runs/{name}", attacked(0.3, data=f"{name}/test") + attacked(0.2, data=f"{name}/x", evaluation="2")
        )
    labels = re.findall(r"\\label\{(.*?)\}", exported(capsys, "runs", "format=latex"))
    assert len(labels) == 3 == len(set(labels))


def test_latex_names_what_certifies_and_what_corrupts(capsys):
    attack = "smoothing sigma=0.25 n=1000 alpha=0.001"
    settings = {"suite": "smoothing", "attack": attack, "attack_settings": {}, "evaluation": "smoothing-1"}
    certified = [dataclasses.replace(result, **settings) for result in attacked(0.3, threat="l2:0.25")]
    certified = [
        dataclasses.replace(r, metric="certified_accuracy") for r in certified if r.metric == "robust_accuracy"
    ]
    words = "15 common types × 5 severities"
    about = {"metric": "mean_corrupted_accuracy", "suite": "corruptions", "threat": None, "attack": words}
    corrupted = [dataclasses.replace(certified[0], **about, evaluation="corruptions-1")]
    for name in ("a", "b"):
        append_results(f"runs/{name}", certified + corrupted)
    text = exported(capsys, "runs", "format=latex")
    assert r"by randomised smoothing ($\sigma$ = 0.25, n 1000, $\alpha$ = 0.001) on 10,000 images" in text
    assert r"\label{tab:mean-corrupted-accuracy-corruptions-cifar10-test}" in text


# ---------------------------------------------------------------- robustbench


def test_model_info_as_robustbench_writes_it(home, capsys):
    append_results("runs/vit", attacked())
    words = [
        "authors=A. Author, B. Author",
        "name=Bread: a study",
        "venue=2026",
        "link=https://example.org",
        "reported=31.5",
    ]
    exported(capsys, "runs/vit", "format=robustbench", "output=info.json", *words)
    info = json.loads((home / "info.json").read_text())
    footnote = info.pop("footnote")
    assert info == {
        "link": "https://example.org", "name": "Bread: a study", "authors": "A. Author, B. Author",
        "additional_data": False, "number_forward_passes": 1, "dataset": "cifar10", "venue": "2026",
        "architecture": "vit_tiny_patch4_32", "eps": "8/255", "clean_acc": "69.45", "reported": "31.5",
        "autoattack_acc": "31.20", "unreliable": False,
    }  # fmt: skip
    assert "tier verified" in footnote and "10,000 images of cifar10/test" in footnote


def test_several_go_where_robustbench_has_them(home, capsys):
    append_results("runs/vit", attacked(tier="exact") + corrupted("official"))
    append_results("runs/l2", attacked(0.6, threat="l2:0.5"))
    exported(capsys, "runs", "format=robustbench", "output=info")
    found = {
        str(path.relative_to(home / "info")): json.loads(path.read_text()) for path in home.rglob("info/**/*.json")
    }
    assert set(found) == {"cifar10/Linf/vit.json", "cifar10/L2/l2.json", "cifar10/corruptions/vit.json"}
    assert found["cifar10/corruptions/vit.json"]["corruptions_acc"] == "51.23"
    assert found["cifar10/corruptions/vit.json"]["eps"] is None
    assert "tier exact" in found["cifar10/Linf/vit.json"]["footnote"]
    assert main(["export", "runs", "format=robustbench", "output=one.json"]) == 2
    assert "3 files to write" in capsys.readouterr().err


def test_every_run_has_a_file_of_its_own(home, capsys):
    for name in ("a b", "a_b", "a=b"):
        append_results(f"runs/{name}", attacked())
    exported(capsys, "runs", "format=robustbench", "output=info")
    names = {path.name for path in home.rglob("info/**/*.json")}
    assert len(names) == 3 and "a_b.json" in names


def test_the_exact_tier_goes_before_the_verified_one(capsys):
    append_results("runs/vit", attacked(0.31, tier="exact") + attacked(0.32, evaluation="autoattack-2"))
    assert json.loads(exported(capsys, "runs", "format=robustbench"))["autoattack_acc"] == "31.00"


def test_a_red_flag_is_unreliable(capsys):
    append_results("runs/vit", attacked(flags=({"level": "red", "code": "masked_gradients"},)))
    info = json.loads(exported(capsys, "runs", "format=robustbench"))
    assert info["unreliable"] is True and "masked_gradients" in info["footnote"]


REFUSED = {
    "fast": attacked(tier="fast"),
    "max": attacked(tier="max"),
    "rand": attacked(version="rand"),
    "l1": attacked(threat="l1:12"),
    "regenerated corruptions": corrupted("regenerated"),
    "part of the corruptions": corrupted("official", types=["fog"]),
    "one severity": corrupted("official", severities=[3]),
    "reported by others": attacked(suite="reported", extra={"source": "reported"}),
}


@pytest.mark.parametrize("name", REFUSED)
def test_other_numbers_are_refused(name, capsys):
    append_results("runs/vit", REFUSED[name])
    assert main(["export", "runs/vit", "format=robustbench"]) == 2
    assert "vit: no result that RobustBench lists" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words, said",
    [
        (["format=cvs"], "'format'"),
        (["format=robustbench", "autors=me"], "did you mean 'authors'"),
        (["format=robustbench", "dataset=cifar"], "did you mean 'cifar10'"),
        (["format=latex", "nowhere"], "there is no folder nowhere"),
    ],
)
def test_mistakes(words, said, capsys):
    append_results("runs/vit", attacked())
    assert main(["export", "runs", *words]) == 2
    assert said in capsys.readouterr().err


def test_two_radii_of_a_norm_are_told_apart_by_threat(capsys):
    append_results("runs/vit", attacked() + attacked(0.5, threat="linf:4/255", evaluation="autoattack-2"))
    assert main(["export", "runs", "format=robustbench"]) == 2
    assert "select one by threat=" in capsys.readouterr().err
    info = json.loads(exported(capsys, "runs", "format=robustbench", "threat=linf:4/255"))
    assert (info["eps"], info["autoattack_acc"]) == ("4/255", "50.00")


def test_fewer_images_than_the_leaderboard_are_said(capsys):
    append_results("runs/vit", attacked(n=1000))
    with pytest.warns(UserWarning, match="1,000 images; RobustBench uses 10,000"):
        assert main(["--debug", "export", "runs", "format=robustbench"]) == 0
