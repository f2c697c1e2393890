"""Two runs on the same images: differences, their intervals, and p-values."""

import dataclasses
import shutil

import numpy as np
import pytest

import hardtack as ht
from hardtack.base.errors import UserError
from hardtack.commands.cli import main
from hardtack.evaluation import Provenance
from hardtack.results import append_results, distinguish, paired, read_results, read_verdicts, write_verdicts
from hardtack.results.compare import _p, compare
from hardtack.results.intervals import sign_flip_test


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two untrained models on the same twenty digits, two on fewer, and one that was not measured."""
    folder = tmp_path_factory.mktemp("runs")
    data = ht.load_data("digits", "test")
    for name, seed, count in (("a", 0, 20), ("b", 1, 20), ("c", 2, 10)):
        model = ht.load_model("vit_digits", num_classes=10, seed=seed)
        where = {"folder": folder / name, "provenance": Provenance(run=name, model="vit_digits"), "quiet": True}
        ht.evaluate(model, data.first(count), suite="pgd", attack={"steps": 1}, threat="linf:0.01", **where)
        ht.evaluate(model, data.first(count), suite="corruptions", types=("fog",), severities=(1, 2), **where)
    where = {"folder": folder / "d", "provenance": Provenance(run="d", model="vit_digits"), "quiet": True}
    ht.evaluate(model, data.first(10), suite="pgd", attack={"steps": 3}, threat="linf:0.02", **where)
    (folder / "e").mkdir()
    (folder / "e" / "config.yaml").write_text("name: e")
    return folder


def test_a_difference_is_that_of_the_numbers_and_its_p_value_that_of_the_paired_test(runs):
    found = compare(runs / "a", runs / "b")
    clean = next(one for one in found.differences if one.about.startswith("clean accuracy"))
    assert clean.value == pytest.approx(clean.first - clean.second) and clean.low <= clean.value <= clean.high
    vectors = [ht.evaluate(
        ht.load_model("vit_digits", num_classes=10, seed=seed), ht.load_data("digits", "test").first(20), suite="clean",
        quiet=True,
    ).verdicts["clean_correct"] for seed in (0, 1)]  # fmt: skip
    assert clean.p_value == paired(*vectors).p_value
    abouts = [one.about for one in found.differences]
    assert sum(about.startswith("clean accuracy") for about in abouts) == 1  # of all suites
    assert any("robust accuracy linf:0.01" in about for about in abouts)
    assert any("mean corrupted accuracy" in about for about in abouts)
    assert not any(about.startswith("corrupted accuracy") for about in abouts)  # single views on request only


def test_a_number_that_is_a_column_of_a_protocol_is_listed_once(runs, tmp_path):
    for name in ("a", "b"):
        shutil.copytree(runs / name, tmp_path / name)
        known = next(r for r in read_results(tmp_path / name) if r.metric == "robust_accuracy")
        columns = read_verdicts(tmp_path / name / known.verdicts)
        vector = columns["robust@linf:0.01"].astype(float)
        write_verdicts(tmp_path / name / "verdicts/p.parquet", {"index": columns["index"], "value@PGD-1": vector})
        told = {"suite": "protocol", "protocol": "mine 1", "evaluation": "p", "extra": {"column": "PGD-1"}}
        append_results(tmp_path / name, [dataclasses.replace(known, verdicts="verdicts/p.parquet", **told)])
    abouts = [one.about for one in compare(tmp_path / "a", tmp_path / "b").differences]
    assert [about for about in abouts if "robust" in about] == ["mine 1 PGD-1 robust accuracy linf:0.01 digits/test"]
    abouts = [one.about for one in compare(tmp_path / "a", runs / "b").differences]
    assert sum("robust accuracy" in about for about in abouts) == 1, "without a protocol in both, the suite's"
    for name in ("a", "b"):  # the same attack under other settings is another number, and is not lost
        known = next(r for r in read_results(tmp_path / name) if r.metric == "robust_accuracy" and not r.protocol)
        weaker = {"attack_settings": {**known.attack_settings, "start": "clean"}, "evaluation": "weaker"}
        append_results(tmp_path / name, [dataclasses.replace(known, **weaker)])
    abouts = [one.about for one in compare(tmp_path / "a", tmp_path / "b").differences]
    assert sum("robust accuracy" in about for about in abouts) == 2


def test_other_checkpoints_are_said(runs, tmp_path):
    for name, checkpoint in (("a", "best"), ("b", "last")):
        shutil.copytree(runs / name, tmp_path / name)
        lines = [dataclasses.replace(result, checkpoint=checkpoint) for result in read_results(tmp_path / name)]
        append_results(tmp_path / name, lines)
    abouts = [one.about for one in compare(tmp_path / "a", tmp_path / "b").differences]
    assert abouts and all(about.endswith(", checkpoint best against last") for about in abouts)
    assert not any("checkpoint" in one.about for one in compare(runs / "a", runs / "b").differences)


def test_no_number_is_listed_twice(runs, tmp_path):
    """A radius that a sweep has measured again, radius 0 beside the clean accuracy, an error beside its accuracy."""
    data = ht.load_data("digits", "test").first(20)
    for name, seed in (("a", 0), ("b", 1)):
        shutil.copytree(runs / name, tmp_path / name)
        model = ht.load_model("vit_digits", num_classes=10, seed=seed)
        where = {"folder": tmp_path / name, "provenance": Provenance(run=name, model="vit_digits"), "quiet": True}
        ht.evaluate(model, data, suite="sweep", attack={"steps": 1}, threat="linf:0.01", sweep=(0, 0.5, 1), **where)
    stored = [result.threat for result in read_results(tmp_path / "a") if result.metric == "robust_accuracy"]
    assert sorted(stored) == ["linf:0", "linf:0.005", "linf:0.01", "linf:0.01"]
    found = compare(tmp_path / "a", tmp_path / "b")
    abouts = [one.about.partition(" pgd")[0] for one in found.differences if "robust accuracy" in one.about]
    assert abouts == ["robust accuracy linf:0.01", "robust accuracy linf:0.005"]
    assert {"mean corrupted accuracy", "mean corrupted error"} <= {
        result.metric.replace("_", " ") for result in read_results(tmp_path / "a")
    }
    assert [one.about.startswith("mean corrupted accuracy") for one in found.differences if "mean" in one.about] == [
        True
    ]
    (error,) = compare(tmp_path / "a", tmp_path / "b", metric="mean_corrupted_error").differences
    assert error.about.startswith("mean corrupted error"), "on request"


def test_what_is_left_out_is_said_with_the_reason(runs, tmp_path):
    """Beside numbers that are compared, those that were measured differently."""
    for name in ("a", "b"):
        shutil.copytree(runs / name, tmp_path / name)
    known = next(r for r in read_results(tmp_path / "b") if r.metric == "robust_accuracy")
    other = dataclasses.replace(known, attack_settings={**known.attack_settings, "steps": 7})
    append_results(tmp_path / "b", [other])
    said = str(compare(tmp_path / "a", tmp_path / "b"))
    assert "clean accuracy" in said and "\nnot compared: robust accuracy: steps 1 against 7" in said
    next((tmp_path / "b" / "verdicts").glob("corruptions-*")).unlink()
    with pytest.raises(UserError, match=r"not image by image: mean corrupted accuracy.*: b: there is no verdict file"):
        compare(tmp_path / "a", tmp_path / "b", metric="mean_corrupted_accuracy")


def test_two_settings_of_one_analysis_are_distinguished(tmp_path):
    """Attention under two disturbances, and visions: a share of those that reached their class."""
    data = ht.load_data("digits", "test").first(4)
    for name, seed in (("a", 0), ("b", 1)):
        model = ht.load_model("vit_digits", num_classes=10, seed=seed, depth=2, width=16, heads=2)
        where = {"folder": tmp_path / name, "provenance": Provenance(run=name, model="vit_digits"), "quiet": True}
        for disturb in ("occlude", "corrupt"):
            ht.analyze(model, data, "attention", disturb=disturb, **where)
        ht.analyze(model, data, "visions", steps=1, classes=("1", "2"), **where)
    found = compare(tmp_path / "a", tmp_path / "b").differences
    abouts = [one.about for one in found]
    assert len(set(abouts)) == len(abouts)
    similar = [about for about in abouts if about.startswith("attention similarity attention")]
    assert similar == [f"attention similarity attention digits/test disturb={how}" for how in ("occlude", "corrupt")]
    (success,) = (one for one in found if one.about == "vision success l2:15 visions digits/test")
    assert success.share and "%" in str(success)


def test_settings_are_distinguished_by_as_few_as_possible():
    pgd = {"name": "pgd", "steps": 5, "start": "random", "threat": "linf:0.1"}
    given = [
        {"a": 1, "threat": "linf:0.1", "attack": pgd, "of": ["x", "y"]},
        {"a": 1, "threat": "linf:0.1", "attack": {**pgd, "steps": 10}, "of": ["x"]},
        {"a": 1, "threat": "linf:0.1", "attack": {"name": "square", "steps": 10}, "of": ["x"]},
        {"a": 1, "threat": None, "attack": None},
    ]
    assert distinguish(given) == [
        "threat=linf:0.1 attack.name=pgd attack.steps=5", "threat=linf:0.1 attack.name=pgd attack.steps=10",
        "threat=linf:0.1 attack.name=square attack.steps=10", "",
    ]  # fmt: skip
    assert distinguish([{"of": ["x", "y"]}, {"of": [1, 2]}]) == ["of=[x,y]", "of=[1,2]"]
    assert distinguish(given[:1]) == distinguish(given[:1] * 2)[:1] == [""]


def test_single_views_on_request(runs):
    found = compare(runs / "a", runs / "b", metric="corrupted_accuracy")
    assert [one.about.split(" digits")[0] for one in found.differences] == [
        "corrupted accuracy fog/1", "corrupted accuracy fog/2",
    ]  # fmt: skip


def test_a_run_does_not_differ_from_itself(runs):
    for one in compare(runs / "a", runs / "a").differences:
        assert one.value == one.low == one.high == 0 and one.p_value == 1


def test_the_sign_flip_test_agrees_with_an_exact_count():
    difference = np.array([0.5, 0.5, 0.5, 0.5])
    assert sign_flip_test(difference) == pytest.approx(2 / 16, abs=0.03)  # all signs alike: two of sixteen
    assert sign_flip_test(np.zeros(5)) == 1.0
    assert sign_flip_test(np.full(60, 0.1)) < 1e-3
    assert _p(sign_flip_test(np.full(60, 0.1))).startswith("p ≤ ") and _p(0.0003) == "p = 0.0003"  # the latter is exact


@pytest.mark.parametrize(
    "words, message",
    [
        (["a"], "name two run folders"),
        (["a", "c"], "no number in common: clean accuracy: n 20 against 10; robust accuracy: n 20 against 10"),
        (["a", "d"], "n 20 against 10, threat linf:0.01 against linf:0.02, steps 1 against 3"),
        (["a", "e"], "have no number in common: e has none; hardtack evaluate"),
        (["a", "d", "metric=mean_corrupted_accuracy"], "no number in common: d has no mean_corrupted_accuracy"),
        (["a", "b", "metric=clean_acuracy"], "did you mean 'clean_accuracy'"),
        (["a", "b", "suite=pgd"], "compare takes run folders and metric=NAME"),
        (["a", "nowhere"], "there is no folder"),
    ],
)
def test_mistakes(runs, words, message, capsys):
    assert main(["compare", *(word if "=" in word else str(runs / word) for word in words)]) == 2
    assert message in capsys.readouterr().err


def test_the_command(runs, capsys):
    assert main(["compare", str(runs / "a"), str(runs / "b")]) == 0
    out = capsys.readouterr().out
    assert out.startswith("a minus b") and "p " in out and "n=20" in out
    with pytest.raises(UserError):
        compare(runs / "a", runs / "c")
