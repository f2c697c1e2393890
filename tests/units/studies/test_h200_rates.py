"""What a plan of a study takes for granted of one H200: the rate that each network reached there."""

import importlib.util
import json
from pathlib import Path

import pytest

from hardtack.models.facts import known
from hardtack.studies import plan
from hardtack.studies.plan import H200, RunCost, StudyPlan, h200_rate, plan_study, rate_range

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


def test_equal_networks_have_one_rate_and_others_the_common_one():
    assert h200_rate("cauchy_vit_t1_32") == h200_rate("cauchy_vit_t2_32") < H200 < h200_rate("vit_base_patch4_32")
    assert h200_rate("timm:vit_small_patch16_224") == h200_rate("vit_digits") == H200


def test_hours_are_work_over_the_rate_of_each_network(monkeypatch):
    monkeypatch.setattr(plan, "_rate", lambda: (1e11, "cpu"))  # of this machine: it would be measured
    found = plan_study("cauchy/table1", {"scale": "short"})
    by_name = {run.label: run for run in found.runs}
    small, large = by_name["cauchy/table1:vit_t1/model"], by_name["cauchy/table1:vit_t3/model"]
    assert small.rate == h200_rate("cauchy_vit_t1_32") and large.rate == h200_rate("cauchy_vit_t3_32")
    hours = sum((run.training + run.evaluation) / run.rate for run in found.runs) / 3600
    assert found.gpu_hours == pytest.approx(hours)
    assert f"at {rate_range([run.rate for run in found.runs])} multiply-adds/s" in str(found)


def test_one_rate_is_written_once():
    assert rate_range([5.6e13, 5.6e13]) == "5.6e+13" and rate_range([]) == f"{H200:.1e}"
    assert rate_range([2e13, 1e14]) == "2.0e+13 to 1.0e+14"


def test_a_run_without_measurements_has_hours_of_training_alone():
    run = RunCost(label="a:b/c", parameters=1, per_image=1.0, passes="1+1", images=1, training=7.2e16, evaluation=0.0,
                  rate=1e13)  # fmt: skip
    assert run.training_hours == 2.0 and run.evaluation_hours == 0.0
    request = plan_study.__globals__["read_request"]("cauchy/table1", {})
    text = str(StudyPlan(request=request, runs=(run,), shared=0, missing={}, here=1e11, device="cpu"))
    assert "2 h" in text and "—" in text
