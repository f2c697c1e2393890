"""AutoAttack's lists are the official ones, its tiers what they claim, and `fast` no weaker than what it replaces."""

import dataclasses
import functools

import numpy as np
import pytest
import torch
from torch import nn

import hardtack as ht
from hardtack.attacks import APGD, FAB, Ascent, Square
from hardtack.attacks import autoattack as ensemble
from hardtack.attacks.autoattack import audit_stages, autoattack, full_stages
from hardtack.base.errors import UserError
from hardtack.threats import Threat
from row_models import Rows, row_pair

every_norm = pytest.mark.parametrize("norm", ["linf", "l2", "l1"])
THREATS = {"linf": Threat("linf", "0.03"), "l2": Threat("l2", "0.5"), "l1": Threat("l1", "12")}


def shown(stage):
    """Name, steps, targets, restarts, widened, eot."""
    attack = stage.attack
    return (
        stage.name, attack.steps, getattr(attack, "targets", 0), attack.restarts, getattr(attack, "widened", False),
        getattr(attack, "eot", 1),
    )  # fmt: skip


OFFICIAL = {
    "standard": [
        ("apgd_ce", 100, 0, 1, False, 1), ("apgd_t", 100, 9, 1, False, 1), ("fab_t", 100, 9, 1, False, 1),
        ("square", 5000, 0, 1, False, 1),
    ],
    "standard l1": [
        ("apgd_ce", 100, 0, 5, True, 1), ("apgd_t", 100, 5, 1, True, 1), ("fab_t", 100, 9, 1, False, 1),
        ("square", 5000, 0, 1, False, 1),
    ],
    "plus": [
        ("apgd_ce", 100, 0, 5, False, 1), ("apgd_dlr", 100, 0, 5, False, 1), ("fab", 100, 0, 5, False, 1),
        ("square", 5000, 0, 1, False, 1), ("apgd_t", 100, 9, 1, False, 1), ("fab_t", 100, 9, 1, False, 1),
    ],
    "rand": [("apgd_ce", 100, 0, 1, False, 20), ("apgd_dlr", 100, 0, 1, False, 20)],
}  # fmt: skip


@every_norm
@pytest.mark.parametrize("tier", ["exact", "verified"])
@pytest.mark.parametrize("version", ["standard", "plus", "rand"])
def test_the_official_lists(norm, tier, version):
    """attacks.md §3.2, §3.6; l1 has its own standard list, the other versions do not know it."""
    stages = autoattack(THREATS[norm], version=version, tier=tier, seed=7)
    if tier == "verified" and version != "rand":
        *stages, edge = stages
        assert edge.fine and 0 < edge.near < 0.2 and edge.attack.targets == 9 and edge.attack.seed == 7
    key = "standard l1" if (version, norm) == ("standard", "l1") else version
    # with five targets apgd_t is no longer the registered preset, but the same attack
    found = [(name if name != "apgd_dlr" or not rest[1] else "apgd_t", *rest) for name, *rest in map(shown, stages)]
    assert found == OFFICIAL[key]
    for stage in stages:
        attack = stage.attack
        assert attack.threat == THREATS[norm] and attack.seed == 7 and not attack.reach
        assert not stage.rounds and not stage.suspects and not stage.fine and stage.near is None
        assert getattr(attack, "official", True) and getattr(attack, "schedule", "halving") == "halving"
        if isinstance(attack, APGD):
            assert (attack.rho, attack.momentum, attack.relative_step) == (0.75, 0.75, None)
        elif isinstance(attack, FAB):
            assert (attack.alpha_max, attack.overshoot, attack.beta, attack.fused) == (0.1, 1.05, 0.9, False)
        else:
            assert attack.p_init == 0.8 and not attack.rescale


def test_the_tries_of_a_stage_are_target_after_target():
    ce, targeted, fab, square = (stage.attack for stage in autoattack(THREATS["linf"], tier="exact"))
    assert [one[:3] for one in targeted.attempts(10)] == [(rank, 0, 100) for rank in range(9)]
    assert [one.rank for one in targeted.attempts(4)] == [0, 1, 2] and [one.rank for one in targeted.attempts(1000)][
        -1
    ] == 8
    assert len(ce.attempts(10)) == len(square.attempts(10)) == 1 and len(fab.attempts(3)) == 2


@every_norm
def test_fast_is_one_search_in_rounds_and_square_for_suspects_only(norm):
    search, edge, square, *boundary = autoattack(THREATS[norm], tier="fast", seed=3)
    assert [stage.name for stage in boundary] == (["fab_t"] if norm == "l2" else [])
    assert (
        edge.fine
        and 0 < edge.near < 0.2
        and len(edge.rounds_for(10)[0].attempts) == 10
        and len(edge.rounds_for(3)[0].attempts) == 3
    )
    assert isinstance(search.attack, APGD) and len(search.rounds) > 1 and not search.suspects
    assert isinstance(square.attack, Square) and square.suspects and square.attack.steps == 5000
    assert search.attack.seed == square.attack.seed == 3
    asked = {one.steps for part in search.rounds for one in part.attempts}
    assert asked <= set(search.attack.plans), "every length needs a timetable of its own"
    ranks = {one.rank for part in search.rounds for one in part.attempts}
    assert ranks == set(range(-1, 9)), "away from the label, and towards as many classes as the official list"
    restarts = [{one.restart for one in part.attempts} for part in search.rounds]
    assert all(not a & b for n, a in enumerate(restarts) for b in restarts[:n]), "no round repeats another's starts"


@every_norm
def test_max_holds_every_stage_with_its_own_random_numbers_and_precision(norm):
    stages = autoattack(THREATS[norm], tier="max")
    for tier, exact in (("fast", False), ("verified", False), ("exact", True)):
        for number, stage in enumerate(autoattack(THREATS[norm], tier=tier)):
            assert dataclasses.replace(stage, stream=number, exact=exact) in stages, (tier, number)
    for later in (audit_stages(THREATS[norm]), full_stages(THREATS[norm])):
        for number, stage in enumerate(later):
            assert dataclasses.replace(stage, stream=number, exact=True) in stages, number
    attacks = [stage.attack for stage in stages]
    assert all(stage.attack in attacks for stage in autoattack(THREATS[norm], version="plus", tier="exact"))
    assert len(set(stages)) == len(stages)


@pytest.mark.parametrize("tier, version", [("fast", "rand"), ("max", "rand"), ("fast", "plus")])
def test_versions_that_a_tier_does_not_have(tier, version):
    with pytest.raises(UserError, match=version):
        autoattack(THREATS["linf"], tier=tier, version=version)


# ---------------------------------------------------------------- fast against exact


class Net(nn.Module):
    """Two small convolutions; `levels`: its input is rounded to so many grey levels first."""

    def __init__(self, levels=None):
        super().__init__()
        self.levels = levels
        self.body = nn.Sequential(
            nn.Conv2d(3, 12, 3, stride=2, padding=1), nn.GELU(), nn.Conv2d(12, 24, 3, stride=2, padding=1), nn.GELU(),
            nn.Flatten(), nn.Linear(24 * 4, 6),
        )  # fmt: skip

    def forward(self, x):
        return self.body(x if self.levels is None else (x * self.levels).round() / self.levels)


def draw(count, seed):
    """Six classes of 8×8 images: a faint pattern each, in noise."""
    generator = torch.Generator().manual_seed(seed)
    patterns = (torch.rand(6, 3, 8, 8, generator=torch.Generator().manual_seed(0)) > 0.5).float() * 2 - 1
    y = torch.arange(count) % 6
    return (0.5 + 0.09 * patterns[y] + 0.12 * torch.randn(count, 3, 8, 8, generator=generator)).clamp(0, 1), y


def trained(attack):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = Net()
        optimiser = torch.optim.Adam(net.parameters(), lr=5e-3)
        x, y = draw(240, seed=1)
        for _ in range(40):
            given = x if attack is None else attack(net, x, y)
            optimiser.zero_grad()
            nn.functional.cross_entropy(net(given), y).backward()
            optimiser.step()
    return net.eval()


@pytest.fixture(scope="module")
def nets():
    plain = trained(None)
    robust = trained(Ascent(threat="linf:0.06", steps=3, keep="last"))
    masked = Net(levels=16)
    masked.load_state_dict(plain.state_dict())
    return {"undefended": plain, "robust": robust, "masked": masked.eval()}


@pytest.fixture
def short_square(monkeypatch):
    monkeypatch.setattr(ensemble, "Square", functools.partial(Square, steps=300))


def measure(net, tier, threat, count=32, **settings):
    x, y = draw(count, seed=2)
    return ht.evaluate(net, (x, y), suite="autoattack", tier=tier, threat=threat, quiet=True, **settings)


@pytest.mark.parametrize(
    "kind, threat",
    [
        ("robust", "linf:0.05"),
        ("robust", "l2:0.4"),
        ("robust", "l1:1.2"),
        ("masked", "linf:0.06"),
    ],
)
def test_fast_is_no_weaker_than_exact(nets, short_square, kind, threat):
    exact, fast = (measure(nets[kind], tier, threat) for tier in ("exact", "fast"))
    assert exact.clean_accuracy > 0.8 and exact.robust_accuracy < exact.clean_accuracy
    assert fast.robust_accuracy <= exact.robust_accuracy
    if kind != "masked":
        assert fast.robust_accuracy > 0, "an example in which everything falls compares nothing"
        assert fast.results[-1].extra["forwards"] < exact.results[-1].extra["forwards"]
        assert not any((by or "").startswith("square") for by in fast.verdicts["broken_by"])


def test_gradients_that_are_hidden_bring_square_out(nets, short_square):
    fast = measure(nets["masked"], "fast", "linf:0.06")
    by = [name.split()[0] for name in fast.verdicts["broken_by"] if name]
    assert by.count("square") >= 3
    flags = {flag["code"] for flag in fast.flags}
    assert {"zero_gradient", "masked_gradients"} <= flags
    whole = measure(nets["undefended"], "fast", "linf:0.06")
    assert {flag["code"] for flag in whole.flags} <= {"few_classes"} and not any(
        (name or "").startswith("square") for name in whole.verdicts["broken_by"]
    )


def test_square_attacks_only_the_audited_sample_of_images_whose_gradients_work(nets, monkeypatch):
    shown = []
    honest = Square.begin
    monkeypatch.setattr(Square, "begin", lambda self, work: shown.append(len(work.x)) or honest(self, work))
    found = measure(nets["robust"], "fast", "linf:0.05", count=12)
    (audit,) = found.results[-1].extra["audit"]
    assert shown == [audit["sample"]] and audit["broken"] == 0 and audit["escalation"] == "none"


# ---------------------------------------------------------------- few and many classes


@pytest.fixture
def short(monkeypatch):
    for kind, steps in ((APGD, 6), (FAB, 3), (Square, 15)):
        monkeypatch.setattr(ensemble, kind.__name__, functools.partial(kind, steps=steps))
    monkeypatch.setattr(ensemble, "EOT", 2)
    monkeypatch.setattr(ensemble, "_stronger", lambda threat: [])


@pytest.mark.parametrize("classes, norm, eps", [
    (2, "linf", "0.002"), (2, "l2", "0.01"), (2, "l1", "0.05"), (3, "linf", "0.002"), (3, "l1", "0.05"),
    (4, "l2", "0.01"), (1000, "linf", "0.002"),
])  # fmt: skip
def test_every_stage_runs_with_few_and_with_many_classes(short, classes, norm, eps):
    model = Rows(classes=classes, rough=0.5)
    data = row_pair(model, 6)
    needed = {2: {"3 classes", "4 classes", "1 wrong"}, 3: {"4 classes", "2 wrong"}, 4: {"3 wrong"}, 1000: set()}
    for tier, version in (("exact", "standard"), ("exact", "plus"), ("exact", "rand"), ("fast", "standard")):
        found = ht.evaluate(
            model, data, suite="autoattack", tier=tier, version=version, threat=f"{norm}:{eps}", quiet=True
        )
        assert found.robust.any(), "images that survive see every stage"
        notes = " ".join(flag["message"] for flag in found.flags if flag["code"] == "few_classes")
        if (tier, version) == ("exact", "plus"):
            assert all(words in notes for words in needed[classes])
        if tier == "fast" and classes < 10:
            assert f"{classes - 1} wrong" in notes and "dlr" not in notes
        if classes == 1000:
            assert not notes
        assert np.isin(found.verdicts["target"], [-1, *range(classes)]).all()


def test_what_a_coarse_search_misses_on_the_edge_is_found_by_a_finer_one():
    """A fast copy that rounds its logits to steps of a half misses the last half; the finer stage does not."""
    from hardtack.attacks.pool.attack_run import AttackRun
    from hardtack.attacks.pool.attempts import AttackInputs
    from hardtack.attacks.pool.pool import Pool
    from hardtack.attacks.pool.verdicts import VerdictTable
    from hardtack.attacks.pool.verifier import Verifier
    from hardtack.base.runtime import Runtime

    class Slope(nn.Module):
        """Right by 10 on black images; wrong by a hair on images that are 0.1 brighter everywhere."""

        def __init__(self, coarse):
            super().__init__()
            self.coarse = coarse

        def forward(self, x):
            margin = 10 - 100.2 * x.mean(dim=(1, 2, 3))
            if self.coarse:
                margin = margin + (torch.ceil(margin * 2) / 2 - margin).detach()
            return torch.stack([margin, torch.zeros_like(margin), -torch.ones_like(margin)], dim=1)

    x, y = torch.zeros(3, 3, 4, 4), torch.zeros(3, dtype=torch.int64)
    model, runtime = Slope(False), Runtime(device="cpu")
    verifier = Verifier(model, runtime)
    images = AttackInputs(x, y, torch.arange(3), verifier.logits(x))
    for stages, broken in ((fast_stages(), True), ([stage for stage in fast_stages() if not stage.fine], False)):
        table = VerdictTable(images)
        table.begin_trial(0)
        pool = Pool(Slope(True), runtime, 8, verifier, "fp32", coarse="bf16")
        AttackRun(table, stages).run(model, pool, verifier)
        assert (~table.robust).all() == broken


def fast_stages():
    return [stage for stage in autoattack(Threat.parse("linf:0.1"), tier="fast") if not stage.suspects]
