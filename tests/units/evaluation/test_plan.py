"""The number of passes in a plan is exactly the number that the evaluation needs."""

import dataclasses

import numpy as np
import pytest
import torch
from torch import nn

import hardtack as ht
from hardtack.attacks import APGD, FAB, Ascent, CarliniWagner, DeepFool, MinimumNorm, Square
from hardtack.attacks.autoattack import Stage, autoattack
from hardtack.attacks.pool.search import Cost
from hardtack.commands.cli import main
from hardtack.evaluation.consistency import Consistency
from hardtack.evaluation.passes import OFFICIAL, passes
from hardtack.evaluation.plan import plan_evaluation
from tiny_runs import MODEL, Linear, images, labels, write_data

THREAT = ht.Threat.parse("linf:0.01")
CLASSES = 10


class Counting(nn.Module):
    """Class 0 by far, whatever the image; counts the rows it sees, and those of which a gradient is asked."""

    def __init__(self, classes=CLASSES, side=4):
        super().__init__()
        self.body = Linear(classes=classes, side=side, scale=0.01)
        self.body.head.bias.data[0] = 50.0
        self.forwards = self.backwards = 0

    def forward(self, x):
        self.forwards += len(x)
        logits = self.body(x)
        if x.requires_grad:
            logits.register_hook(self._count)
        return logits

    def _count(self, gradient):
        self.backwards += len(gradient)


@pytest.fixture(autouse=True)
def without_consistency_checks(monkeypatch):
    """Passes of the consistency checks are counted in test_consistency.py, not here."""
    for check in ("before", "piece", "after"):
        monkeypatch.setattr(Consistency, check, lambda *args, **kwargs: [])


def survivor(stages, count=1, classes=CLASSES, **settings):
    """Spent on an image that survives all: as the model counts, as the verdicts say, as planned."""
    model = Counting(classes)
    data = images(count, side=4), torch.zeros(count, dtype=torch.int64)
    measured = ht.evaluate(model, data, quiet=True, audit=0, **settings)
    assert measured.robust.all()
    rest = count + count * len(stages) + _first_checks(count)
    verdicts = measured.verdicts
    counted = Cost(model.forwards - rest, model.backwards)
    said = Cost(int(verdicts["forwards"].sum()), int(verdicts["backwards"].sum()))
    planned = Cost()
    for stage in passes(stages, classes):
        planned = planned.plus(stage.most.times(count))
    return counted, said, planned


def _first_checks(count):
    """Two passes over the first images, and one over a few of them alone."""
    return 2 * count + (min(4, count) if count > 1 else 0)


def listed(*attacks):
    return [Stage(attack) for attack in attacks]


# ---------------------------------------------------------------- to the pass


def test_the_exact_tier_needs_the_planned_passes():
    stages = autoattack(THREAT, tier="exact")
    plan = {stage.name: (stage.attempts, *stage.most) for stage in passes(stages, CLASSES)}
    assert plan == {
        "apgd_ce": ("1 × 101", 101, 101),
        "apgd_t": ("9 × 101", 909, 909),
        "fab_t": ("9 × 100", 1800, 900),
        "square": ("1 × 5001", 5001, 0),
    }
    counted, said, planned = survivor(stages, suite="autoattack", tier="exact", threat=THREAT)
    assert counted == said == planned == Cost(7811, 1910)


@pytest.mark.parametrize("norm", ["linf:0.01", "l2:0.05", "l1:0.1"])
@pytest.mark.parametrize("classes", [3, 10])
def test_every_search_in_every_norm(norm, classes):
    threat = ht.Threat.parse(norm)
    attacks = (
        APGD(threat=threat, steps=7, restarts=2, widened=threat.norm == "l1"), APGD(threat=threat, steps=5, targets=4),
        APGD(threat=threat, steps=5, eot=3), FAB(threat=threat, steps=4, targets=3, restarts=2),
        FAB(threat=threat, steps=4), FAB(threat=threat, steps=4, fused=True), Square(threat=threat, steps=30),
    )  # fmt: skip
    counted, said, planned = survivor(
        listed(*attacks), count=3, classes=classes, suite="attacks", attacks=attacks, threat=threat
    )
    assert counted == said == planned


@pytest.mark.parametrize(
    "attack",
    [
        Ascent(threat=THREAT, steps=5, restarts=2),
        Ascent(threat=THREAT, steps=5, target="random", eot=2),
        MinimumNorm(threat=THREAT, steps=12),
        CarliniWagner(threat=ht.Threat.parse("l2:0.05"), steps=8),
    ],
    ids=lambda attack: type(attack).__name__,
)
def test_attacks_on_whole_batches(attack):
    counted, said, planned = survivor(listed(attack), count=2, suite="attacks", attacks=(attack,), threat=attack.threat)
    assert counted == said == planned


def test_the_fast_tier_spends_no_more_than_its_rounds():
    stages = autoattack(THREAT, tier="fast")
    search, edge, square = passes(stages, CLASSES)
    assert search.most == Cost(*[sum(cost.forwards for _, cost in search.rounds)] * 2)
    assert square.only and edge.only and not search.only and "if near" in search.attempts
    model = Counting()
    data = images(2, side=4), torch.zeros(2, dtype=torch.int64)
    verdicts = ht.evaluate(model, data, quiet=True, suite="autoattack", tier="fast", threat=THREAT, audit=0).verdicts
    always = sum(cost.forwards for part, cost in search.rounds if part.near is None)
    assert (verdicts["forwards"] == always).all() and model.backwards == 2 * always


def test_an_image_that_is_broken_at_once_costs_one_check():
    (stage,) = passes(listed(APGD(threat=THREAT)), CLASSES, every=2)
    assert stage.least == Cost(2, 2)
    weak = Linear(classes=CLASSES, side=4)
    x = images(1, side=4)
    y = weak(x).argmax(dim=1)
    measured = ht.evaluate(weak, (x, y), quiet=True, suite="pgd", attack="apgd_ce", threat="linf:0.5", audit=0)
    assert not measured.robust.any() and (measured.verdicts["forwards"] == 2).all()


def test_a_batch_attack_that_leaves_early_is_planned_from_one_step_to_all():
    (stage,) = passes(listed(DeepFool(threat=THREAT, steps=40)), CLASSES)
    assert stage.most == Cost(42, 40 * min(9, CLASSES - 1)) and stage.least == Cost(3, min(9, CLASSES - 1))
    model, x = Linear(classes=CLASSES, side=4), images(8, side=4)
    plan = plan_evaluation(model, (x, model(x).argmax(dim=1)), suite="attacks", attacks=("deepfool",), threat=THREAT)
    assert plan.least.forwards <= plan.expected.forwards < plan.most.forwards / 4


def test_the_official_sums():
    total = Cost()
    for cost in OFFICIAL.values():
        total = total.plus(cost)
    assert total == Cost(7857, 1910)
    assert [tuple(OFFICIAL[name]) for name in ("clean", "apgd_ce", "apgd_t", "fab_t", "square")] == [
        (1, 0), (103, 101), (920, 909), (1829, 900), (5004, 0),
    ]  # fmt: skip


# ---------------------------------------------------------------- the whole bill


def test_a_plan_brackets_what_is_spent():
    model = ht.wrap(Linear(classes=CLASSES, side=8, scale=0.05), num_classes=CLASSES)
    x = images(40)
    data = x, torch.where(torch.arange(40) % 4 > 0, model(x).argmax(dim=1), 0)
    settings = {"suite": "attacks", "attacks": ("apgd_ce", {"name": "square", "steps": 20}), "threat": "linf:0.002"}
    plan = plan_evaluation(model, data, **settings)
    verdicts = ht.evaluate(model, data, quiet=True, audit=0, **settings).verdicts
    assert plan.images == 40 and plan.tried.clean == verdicts["clean_correct"].mean()
    assert 0 < plan.tried.survivors[0] < 1
    spent = verdicts["forwards"].sum()
    assert plan.least.forwards < spent < plan.most.forwards
    assert plan.expected.forwards == pytest.approx(spent, rel=0.4)
    assert 0 < plan.least.seconds < plan.expected.seconds < plan.most.seconds
    assert plan.per_survivor == Cost(3 + 101 + 21, 101)
    assert plan.most.forwards == 40 * (3 + 101 + 21) and plan.most.backwards == 40 * 101


def test_planning_does_not_change_the_model():
    model = Counting(side=8)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    state = torch.random.get_rng_state()
    plan_evaluation(model.train(), (images(4), labels(4)), suite="pgd")
    assert model.training and torch.equal(state, torch.random.get_rng_state())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_plans_without_correct_images_or_known_costs():
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Picky:
        threat: ht.Threat

        def __call__(self, model, x, y):
            return model.features(x)

    wrong = images(4), torch.ones(4, dtype=torch.int64)
    plan = plan_evaluation(Counting(side=8), wrong, suite="pgd", attack=Picky(threat=THREAT))
    assert plan.tried.clean == 0 and plan.expected.forwards == 4
    assert "not known" in str(plan)


def test_the_command(tmp_path, capsys):
    data = write_data(tmp_path / "data.npz")
    words = [f"model={MODEL['name']}", "model.image_size=8", f"data=npz:{data}", "runtime.device=cpu"]
    words += [f"model.options.{key}={value}" for key, value in MODEL["options"].items()]
    assert main(["plan", *words, "suite=autoattack,clean", "tier=fast"]) == 0
    said = capsys.readouterr().out
    assert "12 images 3×8×8, 4 classes" in said and "(estimate)" in said and "forwards/s" in said
    assert "official" not in said and not (tmp_path / "runs").exists()
    assert main(["plan", *words, "suite=autoattack", "threat=l3:1"]) == 2


def test_files_are_matched_with_the_images_that_are_tried(tmp_path):
    """The first few of a set that is stored class by class are of every class, and not its first rows."""
    x, y = torch.rand(20, 3, 32, 32), torch.arange(20) // 10
    np.savez(tmp_path / "set.npz", images=x.permute(0, 2, 3, 1).numpy(), labels=y.numpy())
    np.save(tmp_path / "fog.npy", np.zeros((100, 32, 32, 3), dtype=np.uint8))
    np.save(tmp_path / "labels.npy", np.tile(y.numpy(), 5))
    data = ht.load_data(f"npz:{tmp_path / 'set.npz'}", "test", test=1.0, limit=4)
    assert data.labels.tolist() == [0, 0, 1, 1] or data.labels.tolist() == [0, 1, 0, 1]
    found = plan_evaluation(
        Linear(classes=2, side=32), data, suite="corruptions", types=("fog",), severities=(1,), files=str(tmp_path)
    )
    assert found.most.forwards == 8
