"""Adaptive attacks: the settings of a gradient, for any attack; how they are described, counted and refused."""

import dataclasses
import math

import pytest
import torch
from linear_models import Linear, images
from torch import nn

from hardtack.attacks import APGD, FAB, Ascent, CarliniWagner, MinimumNorm, Occlusion, Square, Transfer
from hardtack.attacks.adaptive import AdaptiveAttack, GradientConfig, adapted, choose_attack
from hardtack.attacks.autoattack import Stage
from hardtack.attacks.pool.attack_run import AttackRun
from hardtack.attacks.pool.attempts import AttackInputs
from hardtack.attacks.pool.pool import Pool
from hardtack.attacks.pool.search import Cost
from hardtack.attacks.pool.verdicts import VerdictTable
from hardtack.attacks.pool.verifier import Verifier
from hardtack.base.errors import UserError
from hardtack.base.runtime import Runtime
from hardtack.threats import Threat

CPU = Runtime(device="cpu", compile=False)
THREAT = Threat("linf", 0.05)


class Reversed(nn.Module):
    """A linear model with a reversed gradient; counts its forward passes."""

    def __init__(self):
        super().__init__()
        self.core, self.forwards, self.with_gradient = Linear(), 0, 0

    def forward(self, x):
        self.forwards += len(x)
        self.with_gradient += len(x) * (torch.is_grad_enabled() and x.requires_grad)
        return self.core(2 * x.detach() - x)


def near_images(model, eps=THREAT.radius, count=200):
    """Images whose margin is at most 60 % of what the best perturbation gains."""
    x = images("active box", count)
    model.core.head.bias.data -= model.core(x).detach().mean(dim=0)
    y = model.core(x).argmax(dim=1)
    clean = model.core(x).detach()
    gain = eps * model.core.slope(y).abs().flatten(1).sum(dim=1)
    near = (clean.max(dim=1).values - clean.min(dim=1).values) < 0.6 * gain
    return x[near], y[near]


BATCH = [CarliniWagner(threat=Threat("l2", 0.5)), MinimumNorm(threat=THREAT, steps=30)]
POOLED = [Ascent(threat=THREAT), APGD(threat=THREAT, steps=20), FAB(threat=THREAT, targets=1, steps=20)]


@pytest.mark.parametrize("attack", [*POOLED, *BATCH], ids=lambda attack: attack.name)
def test_every_attack_by_gradients_breaks_with_bpda_what_a_reversed_gradient_hides(attack):
    model = Reversed()
    x, y = near_images(model)
    adaptive = adapted(attack, GradientConfig(bpda=lambda model: model.core))
    assert attack.run(model, x, y).fooled.sum() < len(x) / 2
    outcome = adaptive.run(model, x, y)
    assert outcome.fooled.float().mean() > 0.95
    assert torch.equal(model(outcome.x_adv).argmax(dim=1) != y, outcome.fooled)


def run_stage(model, attack, x, y, pool_model=None):
    inputs = AttackInputs(x, y, torch.arange(len(x)), model(x).detach())
    table, verifier = VerdictTable(inputs), Verifier(model, CPU)
    table.begin_trial(0)
    pool = Pool(pool_model or model, CPU, 16, verifier, precision="bf16", coarse="bf16", every=2)
    AttackRun(table, [Stage(attack)]).run(model, pool, verifier)
    return table


@pytest.mark.parametrize("attack", [*POOLED, *BATCH], ids=lambda attack: attack.name)
def test_in_a_run_the_search_is_on_the_model_itself_in_fp32(attack):
    """The copy of the pool is never called, and autocast is off."""

    class Copy(nn.Module):
        def forward(self, x):
            raise AssertionError("the copy in bf16 was asked")

    class Watching(Reversed):
        def forward(self, x):
            assert not torch.is_autocast_enabled("cpu")
            return super().forward(x)

    model = Watching()
    x, y = near_images(model)
    table = run_stage(model, adapted(attack, GradientConfig(bpda=lambda model: model.core)), x, y, Copy())
    assert (~table.remaining[0]).float().mean() > 0.95
    assert not table.silent_success.any()


def test_queries_around_a_point_are_not_taken_for_successes_that_the_attack_lost():
    model = Reversed()
    x, y = near_images(model)
    attack = adapted(MinimumNorm(threat=THREAT, steps=2), GradientConfig(smooth=0.3))
    assert not run_stage(model, attack, x, y).silent_success.any()


@pytest.mark.parametrize("settings, forwards, backwards", [
    ({"smooth": {"sigma": 0.1, "samples": 6}}, 1 + 6, 6),
    ({"nes": {"sigma": 0.1, "samples": 8}}, 1 + 8, 0),
    ({"smooth": {"sigma": 0.1, "samples": 6}, "eot": 2}, 2 + 12, 12),
])  # fmt: skip
def test_the_passes_that_are_counted_are_those_that_are_made(settings, forwards, backwards):
    model = Reversed()
    x, y = images("grey", 4), torch.zeros(4, dtype=torch.int64)
    attack = adapted(FAB(threat=THREAT, targets=1, fused=True), GradientConfig(**settings))
    assert attack.cost(2) == Cost(forwards, backwards)
    state = {"x": x, "y": y, "target": y + 1, "point": x, "t": y, "steps": y + 9, "closest": x, "size": x[:, 0, 0, 0]}
    state |= {"margin": x[:, 0, 0, 0] - 9, "logits": model(x), "found_at": y, "not_finite": y > 0, "done": y > 0}
    state |= {"first_loss": x[:, 0, 0, 0], "top_loss": x[:, 0, 0, 0], "zero_gradient": y > 0}
    model.forwards = model.with_gradient = 0
    attack.advance(model, state)
    assert (model.forwards, model.with_gradient) == (4 * forwards, 4 * backwards)


def test_the_record_has_all_that_the_result_depends_on_and_nothing_new_without_it():
    plain = choose_attack({"name": "apgd", "threat": "linf:0.1"})
    assert isinstance(plain, APGD) and "gradients" not in plain.described()
    smooth = choose_attack({"name": "apgd", "threat": "linf:0.1", "smooth": "8/255"})
    assert isinstance(smooth, AdaptiveAttack)
    assert smooth.described() == plain.described() | {"gradients": {"smooth": {"sigma": 8 / 255, "samples": 16}}}
    own = choose_attack({"name": "apgd", "threat": "linf:0.1", "eot": 3})
    assert own == APGD(threat=Threat("linf", "0.1"), loss="margin", eot=3), "its own setting keeps its meaning"
    eot = choose_attack({"name": "fab", "threat": "linf:0.1", "eot": 3})
    assert eot.described()["gradients"] == {"eot": 3}
    first, second = (GradientConfig(bpda=Linear(seed=seed)).described() for seed in (0, 1))
    assert first["bpda"] == "Linear" and first["bpda_sha256"] != second["bpda_sha256"]


def test_another_threat_is_handed_to_the_attack():
    attack = adapted(APGD(threat=THREAT), GradientConfig(smooth=0.1))
    wider = dataclasses.replace(attack, threat=Threat("linf", 0.2))
    assert wider.attack.threat == wider.threat == Threat("linf", 0.2)
    assert wider.shortened(3).attack.steps == 3


def test_a_random_model_is_averaged_by_attacks_that_have_no_setting_for_it():
    class Noisy(nn.Module):
        def __init__(self):
            super().__init__()
            self.core = Linear()

        def forward(self, x):
            return self.core(x + 0.2 * torch.randn_like(x))

    model = Noisy()
    x, y = near_images(model)
    source = GradientConfig(eot=64).source(model, x.device, 0)
    with torch.no_grad():
        spread = (model(x) - model.core(x)).std()
        assert (source(x) - model.core(x)).std() < spread / 5
    attack = FAB(threat=THREAT, targets=1, steps=20)
    robust = (model.core(adapted(attack, GradientConfig(eot=64))(model, x, y)).argmax(dim=1) == y).sum()
    assert robust < (model.core(attack(model, x, y)).argmax(dim=1) == y).sum()


# ---------------------------------------------------------------- a user's file


SURROGATES = """
import torch
from torch import nn

def core(model):
    return model.core

def straight_through(model):
    return lambda x: model.core(x + (model.round(x) - x).detach())

class Other(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.core = model.core
    def forward(self, x):
        return self.core(x)

five = nn.Sequential(nn.Flatten(), nn.Linear(60, 5))
number = 3

def fails(model):
    raise ValueError("no such layer")

def nothing(model):
    return None

def loss(logits, y):
    return -logits.gather(1, y[:, None])[:, 0]

def mean_loss(logits, y):
    return nn.functional.cross_entropy(logits, y)
"""


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(SURROGATES)
    return tmp_path


@pytest.mark.parametrize("name", ["core", "Other"])
def test_a_surrogate_is_named_by_its_file(home, name):
    model = Reversed()
    x, y = near_images(model)
    attack = choose_attack({"name": "apgd", "threat": THREAT, "steps": 20, "bpda": f"mine.py:{name}"})
    assert attack(model, x, y).sub(x).abs().max() <= 0.05 + 1e-6
    assert attack.run(model, x, y).fooled.float().mean() > 0.95
    described = attack.described()["gradients"]
    assert described["bpda"] == f"mine.py:{name}"
    (home / "mine.py").write_text(SURROGATES + "# changed\n")
    assert attack.described()["gradients"]["bpda_sha256"] != described["bpda_sha256"]


REFUSED = [
    ({"bpda": "mine.py:cores"}, "mine.py has no function 'cores' .did you mean 'core'"),
    ({"bpda": "mien.py:core"}, "there is no file mien.py .did you mean 'mine.py'"),
    ({"bpda": "mine.py"}, "'attack.bpda' takes FILE.py:NAME"),
    ({"bpda": "os:system"}, "'attack.bpda' takes FILE.py:NAME"),
    ({"bpda": "mine.py:number"}, "mine.py:number is of type int, not a function"),
    ({"bpda": "mine.py:fails"}, r"mine.py:fails failed \(line 22\): ValueError: no such layer"),
    ({"bpda": "mine.py:nothing"}, "mine.py:nothing must return a function from images to logits"),
    ({"bpda": "mine.py:five"}, r"the surrogate must return logits of shape \(2, 2\), found shape \(2, 5\)"),
    ({"bpda": 3}, "'attack.bpda' takes FILE.py:NAME"),
    ({"bpda": "mine.py:core", "transfer": Linear()}, "give one of them"),
    ({"nes": 0.1, "smooth": 0.1}, "leave out attack.smooth"),
    ({"nes": {"sigma": 0.1, "samples": 3}}, "samples must be even"),
    ({"smooth": 0}, "'attack.smooth.sigma': input should be greater than 0"),
    ({"smooth": -0.1}, "'attack.smooth.sigma': input should be greater than 0"),
    ({"smooth": math.nan}, "'attack.smooth.sigma': input should be"),
    ({"smooth": "much"}, "'attack.smooth.sigma': input should be a valid number"),
    ({"smooth": {"sigma": 0.1, "sample": 3}}, r"'attack\.smooth\.sample' .did you mean 'attack\.smooth\.samples'"),
    ({"smooth": {"samples": 3}}, "'attack.smooth.sigma' is missing"),
    ({"eot": 0, "name": "fab"}, "'attack.eot': input should be greater than or equal to 1"),
    ({"transfer": "nowhere"}, "nowhere"),
    ({"name": "square", "smooth": 0.1}, "square does not use"),
    ({"name": "occlusion", "bpda": "mine.py:core"}, "occlusion does not use"),
    ({"loss": "mine.py:los"}, "mine.py has no function 'los' .did you mean 'loss'"),
    ({"loss": "mien.py:loss"}, "there is no file mien.py"),
    ({"loss": "hinge"}, "there is no attack loss 'hinge'"),
    ({"loss": "mine.py:mean_loss"}, r"must return one value per image, shape \(2,\), found shape \(\)"),
    ({"name": "fab", "loss": "mine.py:loss"}, "unknown key 'loss'"),
]  # fmt: skip


@pytest.mark.parametrize("settings, message", REFUSED, ids=[message[:40] for _, message in REFUSED])
def test_settings_that_make_no_sense_are_refused_in_one_line(home, settings, message):
    model, x = Reversed(), images("grey", 2)
    threat = {} if settings.get("name") == "occlusion" else {"threat": THREAT}
    with pytest.raises(UserError, match=message):
        attack, _ = choose_attack({"name": "apgd", **threat, **settings}).settle(model, x)
        attack.run(model, x, torch.zeros(2, dtype=torch.int64))


def test_attacks_without_a_gradient_of_the_logits_say_so():
    for attack in (Square(threat=THREAT), Occlusion(), Transfer(threat=THREAT, source=Linear())):
        assert not attack.uses_logit_gradient
        assert adapted(attack, GradientConfig(smooth=0.1), strict=False) is attack
    for attack in (*POOLED, *BATCH):
        assert attack.uses_logit_gradient


# ---------------------------------------------------------------- a loss of one's own


@pytest.mark.parametrize("name", ["pgd", "apgd", "apgd_t"])
def test_a_loss_of_ones_own_is_named_by_its_file(home, name):
    """Where the label's logit alone counts, the direction is the label's weights, and not the difference of two."""
    model, x = Linear(4), images("grey", 3)
    y = model(x).argmax(dim=1)
    targeted = {"targets": 1} if name == "apgd_t" else {}
    settings = {"name": name, "threat": THREAT, "loss": "mine.py:loss", **targeted}
    attack = choose_attack({**settings, **({"start": "clean", "keep": "last"} if name == "pgd" else {})})
    assert attack.described()["loss_sha256"] and attack.described()["loss"] == "mine.py:loss"
    found = attack.run(model, x, y)
    if name == "pgd":
        wanted = (x - 0.05 * model.head.weight[y].detach().sign().reshape(x.shape)).clamp(0, 1)
        assert torch.allclose(found.x_adv, wanted, atol=1e-6)
    assert found.best_loss.isfinite().all()


def test_a_loss_that_a_users_file_registers_is_known_by_its_name(home):
    from hardtack.attacks.losses import get_loss
    from hardtack.base.registry import losses

    losses.register("lowest_logit", help="for this test")(lambda logits, y: -logits.amin(dim=1))
    try:
        attack = choose_attack({"name": "apgd", "threat": THREAT, "loss": "lowest_logit"})
        assert "loss_sha256" not in attack.described() and attack.name == "apgd_lowest_logit"
        logits = torch.tensor([[1.0, -2.0]])
        assert get_loss("lowest_logit")(logits, torch.tensor([0]), None).item() == 2.0
    finally:
        del losses._entries["lowest_logit"]
