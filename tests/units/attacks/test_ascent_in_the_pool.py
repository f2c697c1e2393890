"""PGD in the pool: the same starts, iterates and verdicts as the loop, and no pass on a broken image."""

import pytest
import torch

from hardtack.attacks import Ascent
from hardtack.attacks.pool.attempts import AttackInputs
from hardtack.attacks.pool.pool import Pool
from hardtack.attacks.pool.verifier import Verifier
from hardtack.base.runtime import Runtime
from hardtack.threats import Threat
from row_models import Rows, row_pair

CPU = Runtime(device="cpu", compile=False)
FORMS = {
    "pgd": {},
    "fgsm": {"steps": 1, "relative_step": 1.0, "start": "clean"},
    "rfgsm": {"steps": 1, "relative_step": 1.25},
    "momentum": {"momentum": 1.0},
    "restarts": {"restarts": 3, "steps": 4, "loss": "margin"},
    "kl": {"loss": "kl", "start": "gaussian"},
    "nudged": {"start": "nudged", "loss": "dlr"},
    "seed": {"seed": 5, "relative_step": 0.1},
    "eot": {"eot": 2, "steps": 4},
}


def form(name, threat):
    return Ascent(threat=Threat.parse(threat), **{"steps": 6, **FORMS[name]})


def in_the_pool(attack, x, y, size, every=2):
    model = Rows()
    verifier = Verifier(model, CPU)
    inputs = AttackInputs(x, y, torch.arange(len(y)), verifier.logits(x))
    pool = Pool(model, CPU, size, verifier, every=every)
    return pool.run(attack, inputs), pool


@pytest.mark.parametrize("threat", ["linf:0.03", "l2:0.15", "l1:0.6"])
@pytest.mark.parametrize("name", FORMS)
def test_verdicts_and_first_successes_are_those_of_the_loop(name, threat):
    (x, y), attack = row_pair(Rows(), 16), form(name, threat)
    assert attack.pooled
    loop = attack.search(Rows(), x, y, keys=torch.arange(len(y)), verdict=True)
    assert 0 < loop.fooled.sum() < 16, "a test in which all or no images are broken shows nothing"
    for size in (3, 64):
        record, _ = in_the_pool(attack, x, y, size)
        assert record.broken.tolist() == loop.fooled.tolist()
        assert record.found_at_step.tolist() == loop.broken_at.tolist()
        assert torch.equal(record.x_adv[~loop.fooled], loop.x_adv[~loop.fooled]), "of robust images the best iterate"
        assert Threat.parse(threat).contains(record.x_adv, x).all()


def test_a_robust_image_costs_what_the_loop_costs_and_a_broken_one_less():
    x, y = row_pair(Rows(), 16)
    attack = form("restarts", "linf:0.03")
    record, pool = in_the_pool(attack, x, y, 64)
    full = attack.restarts * (attack.steps + 1)
    assert (record.total_passes()[~record.broken] == full).all() and (record.total_passes()[record.broken] < full).any()
    robust = attack.attempt_cost(attack.steps + 1, attack.steps, 5)
    assert robust == (attack.steps + 1, attack.steps), "the last pass needs no gradient"
    assert pool.spent.forwards < 16 * full


@pytest.mark.parametrize("settings", [{"keep": "last"}, {"mode": "train"}, {"target": "random"}])
def test_what_needs_whole_batches_or_the_last_iterate_stays_a_batch_attack(settings):
    assert not Ascent(threat="linf:0.03", **settings).pooled
