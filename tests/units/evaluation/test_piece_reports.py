"""What another process says of a piece is data: flags and precisions that make no sense are refused."""

import pytest
import torch

import hardtack as ht
from hardtack.engine import PieceResult, Span
from hardtack.evaluation.provenance import Provenance
from hardtack.evaluation.settings import EvaluationConfig
from hardtack.evaluation.suite import SuiteJob

FLAG = {"level": "red", "code": "random_outputs", "message": "…"}
REPORT = {"process": "another", "precision": "bf16", "seconds": {"pgd": 1.5}, "flags": [FLAG]}


@pytest.fixture
def job():
    torch.manual_seed(0)
    model = ht.wrap(torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 64, 4))).eval()
    made = SuiteJob(
        model, (torch.rand(6, 3, 8, 8), torch.zeros(6, dtype=torch.int64)), EvaluationConfig(suite="clean"),
        runtime=ht.Runtime(device="cpu"), folder=None, provenance=Provenance(),
    )  # fmt: skip
    with made.session():
        made.begin()
        yield made


def collect(job, **changes):
    job.collect(Span(0, 6), PieceResult(report={**REPORT, **changes}))


def test_a_report_is_kept(job):
    collect(job)
    assert FLAG in job.flags and job.measure.precision == "bf16"


@pytest.mark.parametrize(
    "changes",
    [
        {"precision": "[red]exact"},
        {"precision": ["fp32"]},
        {"flags": "none"},
        {"flags": [7]},
        {"flags": [{"level": ""}]},
    ],
)
def test_a_report_that_makes_no_sense_is_refused(job, changes):
    before, precision = list(job.flags), job.measure.precision
    with pytest.raises(ValueError, match="make no sense"):
        collect(job, **changes)
    assert job.flags == before and job.measure.precision == precision
