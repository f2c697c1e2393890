"""What a plan of a study takes for granted of one H200: the rate that each network reached there."""

import importlib.util
import json
from pathlib import Path

import pytest

from hardtack.models.facts import known
from hardtack.studies import plan
from hardtack.studies.plan import H200, h200_rate, plan_study, rate_range

ROOT = Path(__file__).parents[3]


def test_the_rates_are_those_of_the_recorded_benchmark():
    spec = importlib.util.spec_from_file_location("benchmark_models", ROOT / "benchmarks" / "models.py")
    models = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(models)
    record = json.loads((ROOT / "benchmarks" / "results" / "models.json").read_text())
    kept = json.loads(plan._RATES.read_text())
    assert kept["rates"] == models.rates(record), "python benchmarks/models.py --rates src/hardtack/studies/rates.json"
    assert {name: kept[name] for name in ("device", "date")} == {name: record[name] for name in ("device", "date")}
    row = record["models"]["vit_tiny_patch4_32"]["compiled"]
    work = 3e9 * known()["vit_tiny_patch4_32"].gflops * row["forward_backward"]
    assert kept["rates"]["vit_tiny_patch4_32"] == pytest.approx(work, rel=0.05)


def test_only_the_very_network_has_a_measured_rate():
    assert h200_rate("cauchy_vit_t1_32", 32, {}) == h200_rate("cauchy_vit_t2_32", 32, {}) < H200
    assert h200_rate("vit_base_patch4_32", 32, {}) > H200
    others = [("timm:vit_small_patch16_224", 224, {}), ("vit_digits", 32, {}), ("cauchy_vit_t1_32", 64, {}),
              ("cait_s12_patch4_32", 32, {"width": 192})]  # fmt: skip
    assert [h200_rate(*other) for other in others] == [None] * 4


def test_hours_are_work_over_the_rate_of_each_network(monkeypatch):
    monkeypatch.setattr(plan, "_rate", lambda: (1e11, "cpu"))  # of this machine: it would be measured
    result = plan_study("cauchy/table1", {"scale": "short"})
    by_name = {run.label: run for run in result.runs}
    small, large = by_name["cauchy/table1:vit_t1/model"], by_name["cauchy/table1:vit_t3/model"]
    assert small.rate == h200_rate("cauchy_vit_t1_32", 32, {}) and large.rate == h200_rate("cauchy_vit_t3_32", 32, {})
    hours = sum((run.training + run.evaluation) / run.rate for run in result.runs) / 3600
    assert result.gpu_hours == pytest.approx(hours)
    assert f"at {rate_range([run.rate for run in result.runs])} multiply-adds/s, measured there" in str(result)


def test_a_plan_says_how_many_runs_have_the_common_rate(monkeypatch):
    monkeypatch.setattr(plan, "_rate", lambda: (1e11, "cpu"))
    text = str(plan_study("xcit/table1", {"scale": "short"}))
    assert f"{H200:.1e} multiply-adds/s, that of a ViT-Ti/4 for 2 of 6 runs" in text, "CaiT has another width"
    paper = str(plan_study("cauchy/table1", {"scale": "paper"}))
    assert f"at {H200:.1e} multiply-adds/s, that of a ViT-Ti/4\n" in paper and "measured there" not in paper


def test_a_range_of_rates():
    assert rate_range([5.6e13, 5.6e13]) == "5.6e+13" and rate_range([2e13, 1e14]) == "2.0e+13 to 1.0e+14"
