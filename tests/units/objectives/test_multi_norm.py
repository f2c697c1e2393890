"""Several attacks at once: the strongest, all of them, or one drawn for each image."""

import dataclasses

import pytest
import torch
import torch.nn.functional as F

from hardtack.attacks import Ascent
from hardtack.base.config import choose, plain
from hardtack.base.errors import UserError
from hardtack.base.registry import objectives
from hardtack.objectives import AdversarialConfig, TradesConfig, Warmup
from hardtack.threats import Threat
from hardtack.training import read_recipe, validation_attack
from tiny_runs import Linear, images, labels

LINF, L2, L1 = (Ascent(threat=Threat.parse(text), steps=3) for text in ("linf:0.1", "l2:1.25", "l1:12"))
ALL = (LINF, L2, L1)


def each(model, x, y, attacks=ALL, **changed):
    return [dataclasses.replace(attack, keep="last", **changed)(model, x, y) for attack in attacks]


def build(combine, config=AdversarialConfig, attacks=ALL, **settings):
    return config(attacks=attacks, combine=combine, **settings).build(Linear())


def test_max_takes_for_each_image_the_worse_of_the_attacks():
    model, x, y = Linear(), images(64), labels(64)
    objective = build("max", attacks=(LINF, L2))
    out = objective(x, y)
    losses = torch.stack([F.cross_entropy(model(one), y, reduction="none") for one in each(model, x, y, (LINF, L2))])
    assert len(losses.argmax(dim=0).unique()) == 2, "each attack must win somewhere"
    assert out["loss"].item() == pytest.approx(losses.amax(dim=0).mean().item(), rel=1e-5)


def test_max_of_trades_is_by_the_divergence_it_minimises():
    model, x, y = Linear(), images(64), labels(64)
    found = each(model, x, y, (LINF, L2), loss="kl")
    clean = model(x).log_softmax(1)
    kl = torch.stack(
        [F.kl_div(model(o).log_softmax(1), clean, reduction="none", log_target=True).sum(1) for o in found]
    )
    assert len(kl.argmax(dim=0).unique()) == 2
    assert build("max", TradesConfig, (LINF, L2))(x, y)["kl"].item() == pytest.approx(
        kl.amax(0).mean().item(), rel=1e-4
    )


@pytest.mark.parametrize("name", ["adversarial", "trades", "alp", "mart"])
def test_average_is_the_mean_of_the_losses_of_each_attack(name):
    """Clean parts are the same in all of them, so the mean over attacks is the mean of single-attack losses."""
    x, y = images(), labels()

    def loss(**settings):
        return choose(objectives, {"name": name, **settings}).build(Linear())(x, y)["loss"].item()

    singles = [loss(attack=attack) for attack in ALL]
    assert len({round(single, 4) for single in singles}) == 3
    assert loss(attacks=list(ALL), combine="average") == pytest.approx(sum(singles) / 3, rel=1e-5)


def test_average_repeats_soft_labels_too():
    x, y = images(), labels()
    soft = torch.eye(4)[y] * 0.9 + 0.025
    hard, mixed = (build("average")(x, target)["loss"].item() for target in (y, soft))
    model, smoothed = Linear(), []
    for x_adv in each(model, x, y):
        smoothed.append(F.cross_entropy(model(x_adv), soft).item())
    assert mixed == pytest.approx(sum(smoothed) / 3, rel=1e-5) and mixed != hard


# ---------------------------------------------------------------- random


def drawn(x_adv, x):
    """Which attack an image was given, by what its perturbation could not have been."""
    delta = (x_adv - x).flatten(1)
    linf, l2, l1 = delta.abs().amax(1), delta.norm(dim=1), delta.abs().sum(1)
    is_linf = (linf <= 0.1 + 1e-6) & (l2 > 1.25 + 1e-4)
    is_l2 = (l2 <= 1.25 + 1e-4) & (l1 > 8)
    return torch.where(is_linf, 0, torch.where(is_l2, 1, 2))


@pytest.mark.parametrize("start", ["random", "gaussian", "clean", "nudged"])
def test_random_gives_every_image_exactly_what_its_norm_s_own_attack_would(start):
    x, y, keys = images(96) * 0.6 + 0.2, labels(96), torch.arange(96)
    attacks = [dataclasses.replace(a, start=start, threat=Threat.parse(t)) for a, t in zip(ALL, TEXTS, strict=True)]
    objective = build("random", attacks=tuple(attacks))
    mixed = objective.prepare(x, y, keys=keys)["x_adv"]
    alone = torch.stack([dataclasses.replace(a, keep="last").search(Linear(), x, y, keys=keys).x_adv for a in attacks])
    equal = ((alone - mixed).flatten(2).abs().amax(dim=2) < 1e-6).sum(dim=0)
    assert (equal == 1).all(), "one of the three, and only one"
    counts = ((alone - mixed).flatten(2).abs().amax(dim=2) < 1e-6).sum(dim=1)
    assert counts.sum() == 96 and counts.min() > 16, "about a third each"


TEXTS = ("linf:0.1", "l2:1", "l1:6")


def test_random_is_the_image_s_own_draw_and_changes_with_its_key():
    x, y, keys = images(24), labels(24), torch.arange(24)
    objective = build("random")
    whole = objective.prepare(x, y, keys=keys)["x_adv"]
    parts = [objective.prepare(x[i : i + 7], y[i : i + 7], keys=keys[i : i + 7])["x_adv"] for i in range(0, 24, 7)]
    assert torch.allclose(torch.cat(parts), whole, atol=1e-6)
    other = objective.prepare(x, y, keys=keys + 1000)["x_adv"]
    assert (drawn(other, x) != drawn(whole, x)).any()


def test_random_costs_the_passes_of_one_attack():
    objective, calls = build("random"), []
    objective.model.register_forward_hook(lambda *_: calls.append(1))
    objective.prepare(images(), labels())
    assert len(calls) == 3


def test_random_refuses_attacks_that_cannot_be_one_search():
    with pytest.raises(UserError, match="combine: random is one search"):
        build("random", attacks=(LINF, dataclasses.replace(L2, steps=5)))
    build("random", attacks=(LINF, dataclasses.replace(L2, step=0.3)))


@pytest.mark.parametrize("combine", ["max", "average", "random"])
def test_warm_up_holds_all_of_them_down(combine):
    x, y = images() * 0.6 + 0.2, labels()
    objective = build(combine, warmup=Warmup(epochs=4))
    assert torch.equal(objective.prepare(x, y, epoch=0.0)["x_adv"][:12], x)
    x_adv = objective.prepare(x, y, epoch=2.0)["x_adv"]
    sizes = [attack.threat.size(x_adv - x.repeat(len(x_adv) // 12, 1, 1, 1)) for attack in ALL]
    half = torch.tensor([attack.threat.radius / 2 for attack in ALL])[:, None]
    assert (torch.stack(sizes) <= half * (1 + 1e-4) + 1e-6).any(dim=0).all()


# ---------------------------------------------------------------- settings

WRITTEN = [{"name": "pgd", "threat": "linf:0.1", "steps": 2}, {"name": "pgd", "threat": "l2:1", "steps": 2}]


def test_a_list_of_attacks_is_read_and_written_back():
    config = choose(objectives, {"name": "adversarial", "attacks": WRITTEN, "combine": "random"})
    assert [str(attack.threat) for attack in config.attacks] == ["linf:0.1", "l2:1"]
    assert choose(objectives, plain(config)) == config
    over_a_base = choose(objectives, {"name": "adversarial", "attack": None, "attacks": WRITTEN})
    assert over_a_base.attacks == config.attacks and choose(objectives, plain(over_a_base)) == over_a_base


@pytest.mark.parametrize(
    "settings, told",
    [
        ({"attacks": [{"name": "pdg", "threat": "l2:1"}]}, r"attacks\[0\].*did you mean 'pgd'"),
        ({"attacks": WRITTEN, "attack": {"name": "fgsm", "threat": "l2:1"}}, "attack or attacks, not both"),
        ({"attack": None}, "no attack to train against"),
        ({"attacks": WRITTEN, "combine": "mean"}, "combine"),
        ({"attacks": "pgd"}, r"attacks\[0\]\.threat"),
    ],
)
def test_faults_are_named(settings, told):
    with pytest.raises(UserError, match=told):
        choose(objectives, {"name": "adversarial", **settings})


def test_something_else_than_an_ascent_is_refused_wherever_it_stands():
    for combine in ("max", "random"):
        with pytest.raises(UserError, match="ascent attack"):
            build(combine, attacks=(LINF, choose_square()))


def choose_square():
    from hardtack.base.registry import attacks

    return choose(attacks, {"name": "square", "threat": "linf:0.1"})


def test_one_attack_in_a_list_is_that_attack():
    x, y = images(), labels()
    alone = AdversarialConfig(attack=L2).build(Linear())(x, y)["loss"]
    assert torch.equal(build("max", attacks=(L2,))(x, y)["loss"], alone)


def test_epochs_are_judged_by_every_threat(tmp_path):
    import hardtack as ht
    from tiny_runs import tiny_recipe, write_data

    objective = {"name": "adversarial", "attacks": WRITTEN}
    assert str(validation_attack(read_recipe(None, objective=objective)).threat) == "linf:0.1"
    file = write_data(tmp_path / "data.npz")
    sections = {"objective": objective, "train": {"epochs": 1, "batch_size": 16}}
    folder = ht.train(tiny_recipe(tmp_path / "run", file, **sections), quiet=True)
    from hardtack.models import read_metadata

    scores = read_metadata(folder / "checkpoints" / "best.safetensors")["validation"]
    words = {"checkpoint": "last", "split": "validation", "quiet": True, "attack": {"steps": 10}, "runtime.seed": 3}
    words |= {"threat": "linf:0.1", "union": ["l2:1"], "output": str(tmp_path / "elsewhere")}
    (measured,) = ht.evaluate_run(folder, suite="pgd", **words)
    assert scores["robust_accuracy"] == measured.robust_accuracy == scores["score"]
