"""Batch-norm statistics of clean and attacked images, kept apart."""

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from hardtack.attacks import Ascent
from hardtack.base.config import choose
from hardtack.base.errors import UserError
from hardtack.base.registry import objectives
from hardtack.data import load_data
from hardtack.models import wrap
from hardtack.objectives import AdversarialConfig, TradesConfig
from hardtack.threats import Threat
from hardtack.training import Trainer
from tiny_runs import Linear, images, labels, tiny_recipe, write_data

ATTACK = Ascent(threat=Threat.parse("linf:0.3"), steps=2)
CONFIGS = [
    TradesConfig(attack=ATTACK, separate_statistics="attacked"),
    TradesConfig(attack=ATTACK, separate_statistics="clean"),
    AdversarialConfig(attack=ATTACK, separate_statistics="attacked", clean_weight=0.5),
    AdversarialConfig(attack=ATTACK, separate_statistics="clean", clean_weight=0.5),
]
every_config = pytest.mark.parametrize("config", CONFIGS, ids=lambda c: f"{type(c).__name__}-{c.separate_statistics}")


class Normed(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.linear = nn.BatchNorm2d(3), Linear()

    def forward(self, x):
        return self.linear(self.norm(x))


def sets(objective):
    """(running mean of clean, of attacked images), wherever they live."""
    mine, other = objective.model.norm.running_mean, objective.second.get_buffer("norm/running_mean")
    return (other, mine) if objective.config.separate_statistics == "attacked" else (mine, other)


@every_config
def test_each_set_sees_its_own_images(config):
    objective = config.build(Normed().train())
    x, x_adv, y = images(), images(seed=5) * 0.2, labels()
    objective(x, y, x_adv)
    clean, attacked = sets(objective)
    assert torch.allclose(clean, 0.1 * x.mean(dim=(0, 2, 3)), atol=1e-6)
    assert torch.allclose(attacked, 0.1 * x_adv.mean(dim=(0, 2, 3)), atol=1e-6)


@every_config
def test_the_loss_normalises_each_half_by_itself(config):
    """Equal to two calls of a network in train mode; one batch of both would be normalised together."""
    x, x_adv, y = images(), images(seed=5) * 0.2, labels()
    out = config.build(Normed().train())(x, y, x_adv)
    fresh = Normed().train()
    clean, attacked = fresh(x), fresh(x_adv)
    together = fresh(torch.cat([x, x_adv]))[:12]
    assert out["accuracy"] == (clean.argmax(1) == y).float().mean()
    assert out["natural_loss"].item() == pytest.approx(nn.functional.cross_entropy(clean, y).item(), rel=1e-5)
    assert out["natural_loss"].item() != pytest.approx(nn.functional.cross_entropy(together, y).item(), rel=1e-3)
    assert out["robust_accuracy"] == (attacked.argmax(1) == y).float().mean()


@every_config
def test_the_attack_meets_the_statistics_of_attacked_images(config):
    objective = config.build(Normed().train())
    clean, _ = sets(objective)
    x, y = images(), labels()
    before = objective.prepare(x, y)["x_adv"]
    with torch.no_grad():
        clean += 5.0  # shifts what eval mode sees of clean images, and changes no attack
    assert torch.equal(objective.prepare(x, y)["x_adv"], before)
    variance = "norm/running_var" if config.separate_statistics == "clean" else None
    with torch.no_grad():
        owner = objective.second.get_buffer(variance) if variance else objective.model.norm.running_var
        owner.copy_(torch.tensor([1e-4, 1.0, 1e4]))
    assert not torch.equal(objective.prepare(x, y)["x_adv"], before)


@every_config
def test_preparing_writes_neither_set(config):
    objective = config.build(Normed().train())
    objective(images(), labels())
    before = {name: value.clone() for name, value in objective.state_dict().items()}
    objective.prepare(images(), labels())
    assert all(torch.equal(value, before[name]) for name, value in objective.state_dict().items())


@every_config
def test_both_sets_travel_with_the_state_and_parameters_are_there_once(config):
    objective, other = config.build(Normed().train()), config.build(Normed().train())
    objective(images(), labels())
    other.load_state_dict(objective.state_dict())
    assert all(torch.equal(a, b) for a, b in zip(sets(objective), sets(other), strict=True))
    assert len(list(objective.parameters())) == len(list(Normed().parameters()))


def test_a_model_without_batch_norm_is_refused():
    with pytest.raises(UserError, match="has none"):
        CONFIGS[0].build(Linear())


def test_clean_images_are_asked_for():
    with pytest.raises(UserError, match="clean_weight"):
        choose(objectives, {"name": "adversarial", "separate_statistics": "attacked"})


def test_the_mixed_loss_is_the_weighted_mean():
    model, x, y = Linear(), images(), labels()
    objective = AdversarialConfig(attack=ATTACK, clean_weight=0.3).build(model)
    x_adv = objective.prepare(x, y)["x_adv"]
    clean, attacked = (nn.functional.cross_entropy(model(z), y).item() for z in (x, x_adv))
    assert objective(x, y, x_adv)["loss"].item() == pytest.approx(0.7 * attacked + 0.3 * clean, rel=1e-5)


def test_what_is_saved_is_the_set_that_was_asked_for(tmp_path):
    """The exported model is an ordinary one, and its statistics are the chosen images'."""
    data = write_data(tmp_path / "data.npz")
    for kind in ("attacked", "clean"):
        objective = {"name": "trades", "separate_statistics": kind, "attack": {"name": "pgd", "threat": "linf:0.3"}}
        train = {"epochs": 1, "batch_size": 8}
        recipe = tiny_recipe(tmp_path / kind, data, objective=objective, augment={}, train=train)
        job = Trainer(recipe, wrap(Normed(), num_classes=4), load_data(recipe.data, "train"), quiet=True)
        step, expected = job.step, torch.zeros(3)

        def recorded(batch, step=step, expected=expected):
            expected.mul_(0.9).add_(0.1 * batch.x.mean(dim=(0, 2, 3)))
            return step(batch)

        job.step = recorded
        job.fit()
        saved = load_file(tmp_path / kind / "checkpoints" / "last.safetensors")
        assert set(saved) == set(job.model.state_dict())
        saved = saved["body.norm.running_mean"]
        other = job.objective.second.get_buffer("body/norm/running_mean")
        clean, attacked = (saved, other) if kind == "clean" else (other, saved)
        assert torch.allclose(clean, expected, atol=1e-6) and not torch.allclose(attacked, expected, atol=1e-4)


# ---------------------------------------------------------------- one set that sees both


def test_a_clean_pass_shows_batch_norm_the_clean_images_and_leaves_the_gradient_alone():
    """First f(x), then f(x_adv), both in train mode, as in the XCiT thesis's code; the loss is that of f(x_adv)."""
    x, x_adv, y = images(), images(seed=5) * 0.2, labels()
    found = {}
    for passes in (False, True):
        objective = AdversarialConfig(attack=ATTACK, label_smoothing=0.1, clean_pass=passes).build(Normed().train())
        parts = objective(x, y, x_adv)
        parts["loss"].backward()
        found[passes] = objective, parts, [parameter.grad for parameter in objective.parameters()]
    (without, _, gradients), (with_pass, parts, same) = found[False], found[True]
    assert found[False][1]["loss"] == parts["loss"] and all(map(torch.equal, gradients, same))
    means = [0.1 * batch.mean(dim=(0, 2, 3)) for batch in (x, x_adv)]
    assert torch.allclose(without.model.norm.running_mean, means[1], atol=1e-6)
    assert torch.allclose(with_pass.model.norm.running_mean, 0.9 * means[0] + means[1], atol=1e-6)
    assert with_pass.model.norm.num_batches_tracked == 2 and without.model.norm.num_batches_tracked == 1
    clean = Normed().train()(x)
    assert torch.allclose(parts["natural_loss"], nn.functional.cross_entropy(clean, y, label_smoothing=0.1))
    assert parts["accuracy"] == (clean.argmax(1) == y).float().mean() and not parts["natural_loss"].requires_grad


def test_a_clean_pass_beside_a_clean_weight_is_refused():
    with pytest.raises(UserError, match="clean_pass"):
        AdversarialConfig(clean_pass=True, clean_weight=0.5)
