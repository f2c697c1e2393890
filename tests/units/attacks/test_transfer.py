"""Images crafted on one model and judged on another."""

import dataclasses
import json

import pytest
import torch
from linear_models import Linear, images
from torch import nn

import hardtack as ht
from hardtack.attacks import Ascent, Transfer
from hardtack.base.config import choose, plain
from hardtack.base.errors import UserError
from hardtack.base.registry import attacks
from hardtack.models import save_weights
from hardtack.threats import Threat

THREAT = "linf:0.03"
X = images("active box", count=32)


def relative(model, seed, share=0.7):
    """A model that shares most of its weights with another one."""
    other = Linear(classes=4, seed=seed)
    for mine, theirs in zip(other.parameters(), model.parameters(), strict=True):
        mine.data = share * theirs.data + (1 - share) * mine.data
    return other


VICTIM = Linear(classes=4)
FIRST, SECOND = relative(VICTIM, 1), relative(VICTIM, 2)
Y = VICTIM(X).argmax(1)


class Masked(nn.Module):
    """Gives the victim's answers and no gradients."""

    def forward(self, x):
        return VICTIM(x.detach())


# ---------------------------------------------------------------- verdicts


def test_the_model_at_hand_is_the_judge():
    found = Transfer(threat=THREAT, source=FIRST).run(VICTIM, X, Y)
    assert torch.equal(found.fooled, VICTIM(found.x_adv).argmax(1) != Y)
    assert found.fooled.any() and not found.fooled.all()
    on_source = FIRST(found.x_adv).argmax(1) != Y
    assert not torch.equal(found.fooled, on_source), "what the source thinks is another matter"
    assert Threat.parse(THREAT).contains(found.x_adv, X).all()
    assert torch.equal(found.broken_at, torch.where(found.fooled, 1, -1))
    assert (found.best_loss >= found.first_loss).all() and (found.best_loss > found.first_loss).float().mean() > 0.9


def test_from_a_model_to_itself_it_is_the_attack():
    own = Ascent(threat=THREAT, steps=20).run(VICTIM, X, Y)
    found = Transfer(threat=THREAT, source=VICTIM, attack={"name": "pgd", "steps": 20}).run(VICTIM, X, Y)
    assert torch.equal(own.fooled, found.fooled) and torch.equal(own.x_adv[own.fooled], found.x_adv[own.fooled])


def test_masked_gradients_do_not_protect():
    assert not Ascent(threat=THREAT, start="clean").run(Masked(), X, Y).fooled.any()
    found = Transfer(threat=THREAT, source=VICTIM).run(Masked(), X, Y)
    assert found.fooled.any() and not found.zero_gradient.any()
    assert Transfer(threat=THREAT, source=Masked()).run(VICTIM, X, Y).zero_gradient.all()
    two = Transfer(threat=THREAT, source=[Masked(), FIRST]).run(VICTIM, X, Y)
    assert not two.zero_gradient.any(), "one source that sees is enough"


def test_the_worst_over_sources_is_kept():
    apart = [Transfer(threat=THREAT, source=source).run(VICTIM, X, Y) for source in (FIRST, SECOND)]
    both = Transfer(threat=THREAT, source=[FIRST, SECOND]).run(VICTIM, X, Y)
    assert torch.equal(both.fooled, apart[0].fooled | apart[1].fooled)
    assert not torch.equal(apart[0].fooled, apart[1].fooled), "the two differ, or this test tells nothing"
    same = apart[0].fooled == apart[1].fooled
    assert torch.equal(both.best_loss[same], torch.maximum(apart[0].best_loss, apart[1].best_loss)[same])
    assert torch.equal(both.broken_at == 1, apart[0].fooled)
    assert torch.equal(both.broken_at == 2, apart[1].fooled & ~apart[0].fooled)


@pytest.mark.parametrize("name", ["pgd", "fgsm", "cw", "fmn"])
def test_any_attack_crafts_and_targets_are_judged(name):
    attack = Transfer(threat="linf:0.2", source=FIRST, attack=name)
    assert attack.run(VICTIM, X, Y).fooled.any()
    target = (Y + 1) % 4
    found = attack.run(VICTIM, X, Y, target=target)
    assert torch.equal(found.fooled, VICTIM(found.x_adv).argmax(1) == target)
    chosen = dataclasses.replace(attack, target="runner_up").run(VICTIM, X, Y)
    assert (VICTIM(chosen.x_adv).argmax(1) != Y)[chosen.fooled].all()


def test_logits_that_are_not_numbers_are_no_success():
    class Faulty(nn.Module):
        def forward(self, x):
            return VICTIM(x) * torch.nan

    found = Transfer(threat=THREAT, source=FIRST).run(Faulty(), X, Y)
    assert found.not_finite.all() and not found.fooled.any() and found.x_adv.isfinite().all()
    assert Transfer(threat=THREAT, source=Faulty()).run(VICTIM, X, Y).not_finite.all()


def test_the_batch_does_not_matter():
    attack = Transfer(threat=THREAT, source=[FIRST, SECOND], seed=3)
    keys = torch.arange(32) * 7
    whole = attack.run(VICTIM, X, Y, keys=keys)
    parts = [
        attack.run(VICTIM, X[rows], Y[rows], keys=keys[rows]) for rows in (slice(0, 1), slice(1, 20), slice(20, 32))
    ]
    assert torch.allclose(torch.cat([part.x_adv for part in parts]), whole.x_adv, atol=1e-5)
    assert not torch.equal(dataclasses.replace(attack, seed=4)(VICTIM, X, Y, keys=keys), whole.x_adv)


class Restless(nn.Module):
    """All that an attack could leave changed: statistics, flags, frozen and free parameters, gradients."""

    def __init__(self):
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.body = nn.Sequential(
                nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Dropout(), nn.Flatten(), nn.LazyLinear(4)
            )
            self(X).sum().backward()
        self.body[0].requires_grad_(False)
        self.body[1].eval()

    def forward(self, x):
        return self.body(x)

    def state(self):
        tensors = [tensor.clone() for tensor in self.state_dict().values()]
        grads = [parameter.grad.clone() for parameter in self.parameters()]
        return tensors + grads, [p.requires_grad for p in self.parameters()], [m.training for m in self.modules()]


@pytest.mark.parametrize("mode", ["eval", "train"])
def test_neither_model_is_touched(mode):
    source, victim = Restless(), Restless()
    before, random = (source.state(), victim.state()), torch.get_rng_state()
    with torch.inference_mode():
        found = Transfer(threat=THREAT, source=source, mode=mode, target="random").run(victim, X.clone(), Y.clone())
    assert not found.x_adv.requires_grad and not found.x_adv.is_inference()
    for old, new in zip(before, (source.state(), victim.state()), strict=True):
        assert all(torch.equal(a, b) for a, b in zip(old[0], new[0], strict=True)) and old[1:] == new[1:]
    assert torch.equal(torch.get_rng_state(), random)


# ---------------------------------------------------------------- sources


@pytest.fixture
def saved(tmp_path):
    """Weights of two small models, and images."""
    for seed in (0, 1):
        save_weights(tmp_path / f"model{seed}.safetensors", ht.load_model("vit_digits", seed=seed))
    x, y, _ = ht.load_data("digits", "test").batch(range(8))
    return tmp_path, x, y


def test_a_source_may_be_a_file_or_a_run_folder(saved):
    folder, x, y = saved
    file = folder / "model0.safetensors"
    (folder / "run" / "checkpoints").mkdir(parents=True)
    file.rename(folder / "run" / "checkpoints" / "last.safetensors")
    model = ht.load_model("vit_digits", seed=0)
    read = Transfer(threat="linf:0.1", source=folder / "run")
    given = Transfer(threat="linf:0.1", source=model)
    assert torch.equal(read(model, x, y), given(model, x, y))
    assert read.source[0].model is dataclasses.replace(read, seed=1).source[0].model, "it is read once"


def test_it_is_written_and_read_back(saved):
    folder, _, _ = saved
    paths = [str(folder / f"model{seed}.safetensors") for seed in (0, 1)]
    attack = choose(attacks, {"name": "transfer", "threat": "l2:1", "source": paths, "attack": {"name": "fgsm"}})
    written = json.loads(json.dumps(plain(attack)))
    assert written["source"] == paths and written["attack"]["name"] == "fgsm" and written["threat"] == "l2:1"
    assert choose(attacks, written) == attack and hash(choose(attacks, written)) == hash(attack)
    save_weights(paths[0], ht.load_model("vit_digits", seed=5))
    with pytest.raises(UserError, match=r"the weights of .*model0"):
        choose(attacks, written)


def test_a_module_is_described_by_its_class():
    written = [plain(Transfer(threat=THREAT, source=source)) for source in (FIRST, SECOND)]
    assert json.dumps(written) and written[0]["source"] == ["Linear"]
    assert written[0]["weights"] != written[1]["weights"], "results of one must not pass for those of the other"


def test_it_is_measured_like_any_attack(saved):
    folder, x, y = saved
    model = ht.load_model("vit_digits", seed=0)
    y = model(x).argmax(1)
    settings = {
        "name": "transfer",
        "source": str(folder / "model0.safetensors"),
        "attack": {"name": "pgd", "steps": 20},
    }
    measured = ht.evaluate(model, (x, y), attack=settings, threat="linf:0.3", quiet=True)
    white = ht.evaluate(model, (x, y), attack={"steps": 20}, threat="linf:0.3", quiet=True)
    assert (measured.robust == white.robust).all() and not measured.robust.all()
    assert json.dumps(measured.results[-1].attack_settings)
    swept = ht.evaluate(model, (x, y), suite="sweep", attack=settings, threat="linf:0.3", sweep=("1/2", 1), quiet=True)
    assert [threat for threat, _ in swept.curve] == ["linf:0.15", "linf:0.3"]


# ---------------------------------------------------------------- settings


def test_threat_mode_and_seed_are_handed_down():
    attack = Transfer(threat="l2:0.5", source=FIRST, attack=Ascent(threat=THREAT, steps=3), mode="train", seed=8)
    assert attack.attack == Ascent(threat="l2:0.5", steps=3, mode="train", seed=8)
    assert str(dataclasses.replace(attack, threat=attack.threat.scaled(2)).attack.threat) == "l2:1"
    assert Transfer(threat=THREAT, source=FIRST).attack == Ascent(threat=THREAT)


@pytest.mark.parametrize(
    "settings, words",
    [
        ({"source": "nowhere/at/all"}, "no weights file or run folder nowhere/at/all"),
        ({"source": []}, "names no model"),
        ({"attack": "pdg"}, "did you mean 'pgd'"),
        ({"attack": {"name": "pgd", "stps": 3}}, r"did you mean 'attack\.steps'"),
        ({"attack": {"name": "pgd", "threat": "linf:0.5"}}, "threat is given to transfer"),
        ({"attack": {"name": "pgd", "seed": 4}}, "seed is given to transfer"),
        ({"attack": {"name": "pgd", "target": "random"}}, "target is given to transfer"),
        ({"attack": len}, "no attack that can craft"),
        ({"threat": "linf:8"}, "linf:8/255"),
        ({"mode": "test"}, "mode'"),
    ],
)
def test_impossible_settings_are_refused(settings, words):
    settings = {"threat": THREAT, "source": FIRST, **settings}
    with pytest.raises(UserError, match=words):
        Transfer(**settings)
    with pytest.raises(UserError, match=words):
        choose(attacks, {"name": "transfer", **settings})


def test_a_source_is_asked_for():
    with pytest.raises(UserError, match="'source' is missing"):
        choose(attacks, {"name": "transfer", "threat": THREAT})
