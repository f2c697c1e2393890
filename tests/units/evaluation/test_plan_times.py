"""The times of an evaluation's plan on a fake clock: a model whose passes take a planted time is planned, then run."""

import contextlib

import pytest
import torch
from torch import nn

from fake_instruments import FakeInstruments
from hardtack.base.new_kernels import NewKernels
from hardtack.evaluation import plan as plans
from hardtack.evaluation.plan import plan_evaluation
from hardtack.evaluation.suite import evaluate
from tiny_runs import Linear, images

CLASSES = 4


class Slow(nn.Module):
    """A linear model on a fake clock: a forward pass takes `call` seconds and `image` for each image, a backward twice
    as much. The very first pass takes `first` seconds more."""

    def __init__(self, clock, *, call=0.01, image=0.001, first=5.0, waiting=0.0, image_mb=0.0, side=8, scale=0.3):
        super().__init__()
        self.body = Linear(classes=CLASSES, side=side, scale=scale)
        self.clock, self.call, self.image, self.first, self.waiting = [clock], call, image, first, waiting
        self.num_classes, self.image_mb = CLASSES, image_mb

    def __deepcopy__(self, memo):
        copy = Slow(self.clock[0], call=self.call, image=self.image, first=0.0, waiting=self.waiting)
        copy.body.load_state_dict(self.body.state_dict())
        return copy.train(self.training)

    def forward(self, x):
        self.clock[0].use(self.image_mb * len(x))
        self._pass(self.first + self.call + self.image * len(x))
        self.first = 0.0
        logits = self.body(x)
        if logits.requires_grad:
            logits.register_hook(lambda gradient: self._pass(2 * (self.call + self.image * len(gradient))))
        return logits

    def _pass(self, seconds):
        self.clock[0].pass_time(seconds, waiting=self.waiting * seconds)


def truth_and_plan(tmp_path, *, n=300, wrong=4, scale=0.3, settings, **costs):
    """What an evaluation takes by the fake clock, and its plan. One image of `wrong` is misclassified when clean."""
    clock, model_seed = FakeInstruments(start_s=3.0), torch.get_rng_state()
    model = Slow(clock, scale=scale, **costs)
    x = images(n)
    predicted = model.body(x).argmax(dim=1)
    y = torch.where(torch.arange(1, n + 1) % wrong > 0, predicted, (predicted + 1) % CLASSES)
    clock.wall_s = clock.delayed_s = 0.0
    clock.pass_time(3.0)  # imports, data, model
    plan = plan_evaluation(model, (x, y), instruments=clock, **settings)
    torch.set_rng_state(model_seed)
    model = Slow(clock, scale=scale, **costs)
    clock.wall_s = clock.delayed_s = 0.0
    clock.pass_time(3.0)
    measured = evaluate(model, (x, y), folder=tmp_path / "run", quiet=True, **settings)
    return clock.wall_s - clock.delayed_s, plan, measured


SUITES = {
    "clean": {"suite": "clean"},
    "pgd": {"suite": "pgd", "threat": "linf:0.01"},
    "pgd, restarts": {"suite": "pgd", "threat": "l2:0.2", "attack": {"restarts": 3, "steps": 7}},
    "batch attack": {"suite": "pgd", "threat": "l2:0.2", "attack": {"name": "fmn", "steps": 12}},
    "sweep": {"suite": "sweep", "threat": "linf:0.01", "sweep": ("1/2", "1", "2")},
    "curve": {"suite": "curve", "threat": "linf:0.01"},
    "list": {"suite": "attacks", "threat": "linf:0.01", "attacks": ("apgd_ce", {"name": "square", "steps": 60})},
    "union": {"suite": "pgd", "threat": "linf:0.01", "union": ("l2:0.1",)},
    "fast": {"suite": "autoattack", "tier": "fast", "threat": "linf:0.01"},
    "corruptions": {"suite": "corruptions", "types": ("gaussian_noise", "fog"), "severities": (1, 3, 5)},
    "perturbations": {"suite": "perturbations", "types": ("translate", "gaussian_noise")},
    "patches": {"suite": "patches", "patches": {"masks": 20, "patch_size": 2}},
    "smoothing": {"suite": "smoothing", "smoothing": {"n0": 20, "n": 400}},
}


@pytest.mark.parametrize("name", SUITES)
def test_a_plan_is_within_a_quarter_of_the_truth(name, tmp_path):
    seconds, plan, _ = truth_and_plan(tmp_path, settings=SUITES[name])
    low, high = plan.range_s
    assert plan.total_s == pytest.approx(seconds, rel=0.25)
    assert low * 0.95 <= seconds <= high * 1.05


def test_most_images_broken_or_none(tmp_path):
    """Attacks that break nothing take the most; where they break all at once, hardly more than the least."""
    settings = {"suite": "pgd", "threat": "linf:0.000001"}
    seconds, plan, measured = truth_and_plan(tmp_path / "none", wrong=10**6, settings=settings)
    assert measured.robust.all() and seconds == pytest.approx(plan.range_s[1], rel=0.05)
    settings["threat"] = "linf:0.5"
    seconds, plan, measured = truth_and_plan(tmp_path / "all", wrong=10**6, settings=settings)
    assert not measured.robust.any() and seconds == pytest.approx(plan.total_s, rel=0.1)
    assert "from all broken at once to none" in str(plan)


@pytest.mark.parametrize(
    "settings", [{"suite": "pgd", "threat": "linf:0.000001"}, SUITES["corruptions"]], ids=lambda each: each["suite"]
)
def test_a_model_that_takes_minutes_is_tried_on_few_images(settings, tmp_path):
    """A second for an image: the first checks are counted, searches and views are tried with few images."""
    seconds, plan, _ = truth_and_plan(tmp_path, n=600, wrong=10**6, settings=settings, image=1.0)
    assert plan.plan_s < seconds / 4 and "were not tried but counted" in str(plan)
    assert plan.total_s == pytest.approx(seconds, rel=0.25)


def test_waiting_for_a_core_is_left_out_and_said(tmp_path):
    """Two other processes want the core: everything takes three times as long."""
    seconds, plan, _ = truth_and_plan(tmp_path, settings=SUITES["pgd"], waiting=2.0)
    assert plan.total_s == pytest.approx(seconds, rel=0.25)
    assert "this machine is busy: this process waited for a core" in str(plan)


@pytest.mark.parametrize("name", ["clean", "pgd", "corruptions"])
def test_memory_is_the_peak_of_a_whole_batch(name, tmp_path):
    """4 MB for each image of a batch of 128."""
    clock = FakeInstruments()
    model, x = Slow(clock, image_mb=4.0, image=0.02), images(300)
    plan = plan_evaluation(model, (x, model.body(x).argmax(dim=1)), instruments=clock, **SUITES[name])
    assert plan.memory_mb == pytest.approx(100 + 4 * 128, rel=0.1)


def test_kernels_that_the_plan_compiles_are_not_of_the_run(monkeypatch, tmp_path):
    """4 s of the first pass's 5 are spent on kernels, which the run finds on disk."""
    plain = truth_and_plan(tmp_path, settings=SUITES["clean"])[1]
    monkeypatch.setattr(plans, "new_kernels", lambda: contextlib.nullcontext(NewKernels(4.0, 3)))
    found = truth_and_plan(tmp_path / "again", settings=SUITES["clean"])[1]
    assert found.total_s == pytest.approx(plain.total_s - 4.0) and "kernels were compiled for 4.0 s" in str(found)
