"""`ht.attack`: fresh starts, several threats at once, what succeeded, and every way to name an attack."""

import dataclasses

import numpy as np
import pytest
import torch

import hardtack as ht
from hardtack.attacks import APGD, Ascent
from hardtack.base.errors import UserError
from tiny_runs import Linear, images, labels

FEW = {"threat": "linf:0.05", "steps": 1, "relative_step": 0.1}


def right(model, x):
    """Labels that the model has right, so that a radius of zero breaks nothing."""
    return model(x).argmax(dim=1)


def margin(model, x, y):
    """What linf:eps must exceed on a linear model: the smallest lead over another class per unit of eps."""
    weight, logits = model.head.weight, model(x)
    lead = logits.gather(1, y[:, None]) - logits
    reach = (weight[y][:, None] - weight[None]).abs().sum(dim=2)
    return (lead / reach).masked_fill(torch.nn.functional.one_hot(y, len(weight)).bool(), torch.inf).amin(dim=1)


# ---------------------------------------------------------------- fresh starts


def test_a_loop_does_not_train_on_frozen_noise():
    model, x, y = Linear(), images(), labels()
    torch.manual_seed(3)
    first, second = (ht.attack(model, x, y, "pgd", **FEW) for _ in range(2))
    assert not torch.equal(first, second)
    torch.manual_seed(3)
    assert torch.equal(first, ht.attack(model, x, y, "pgd", **FEW))


def test_images_of_one_batch_start_differently():
    x = images(1).expand(5, -1, -1, -1).clone()
    y = torch.zeros(5, dtype=torch.int64)
    noise = ht.attack(Linear(), x, y, "pgd", **FEW) - x
    assert len({tuple(row.flatten().tolist()) for row in noise}) == 5


@pytest.mark.parametrize("how", [{"seed": 4}, {"keys": torch.arange(12) + 7}])
def test_seed_and_keys_repeat_a_call_and_draw_nothing(how):
    model, x, y = Linear(), images(), labels()
    state = torch.get_rng_state()
    found = [ht.attack(model, x, y, "pgd", **FEW, **how) for _ in range(2)]
    assert torch.equal(*found)
    assert torch.equal(torch.get_rng_state(), state)
    assert not torch.equal(found[0], ht.attack(model, x, y, "pgd", **FEW, seed=5))


def test_keys_belong_to_the_images_whatever_the_batch():
    model, x, y, keys = Linear(), images(), labels(), torch.arange(12) + 100
    whole = ht.attack(model, x, y, "pgd", **FEW, keys=keys)
    part = ht.attack(model, x[5:], y[5:], "pgd", **FEW, keys=keys[5:])
    torch.testing.assert_close(whole[5:], part)


def test_keys_and_targets_may_be_lists_or_arrays():
    model, x, y = Linear(), images(), labels()
    target = (y + 1) % 3
    expected = ht.attack(model, x, y, "pgd", **FEW, keys=torch.arange(12), target=target)
    for kind in (list, np.array):
        given = {"keys": kind(range(12)), "target": kind(target.tolist())}
        assert torch.equal(ht.attack(model, x, y, "pgd", **FEW, **given), expected)


@pytest.mark.parametrize(
    "given, told",
    [
        ({"keys": torch.arange(3)}, "keys must be one whole number for each of the 12 images, found int64 3"),
        ({"keys": torch.arange(12.0)}, "keys must be one whole number .* found float32 12"),
        ({"target": torch.zeros(2, dtype=torch.int64)}, "target must be one whole number .* found int64 2"),
        ({"target": torch.full((12,), 7)}, "target 7 has no logit"),
        ({"target": torch.full((12,), -1)}, "target -1 has no logit"),
        ({"y": torch.tensor([0] * 11 + [7])}, "label 7 has no logit|labels must lie in"),
    ],
)
@pytest.mark.parametrize("attack", ["pgd", "deepfool", "apgd"])
def test_keys_targets_and_labels_that_fit_no_image_or_no_class_are_refused(attack, given, told):
    given = {"y": labels(), **given}
    with pytest.raises(UserError, match=told):
        ht.attack(torch.nn.Sequential(Linear()), images(), attack=attack, threat="linf:0.1", **given)


def test_one_word_is_drawn_for_a_call_however_many_threats_it_has():
    model, x, y = Linear(), images(), labels()
    torch.manual_seed(0)
    ht.attack(model, x, y, "pgd", threat=["linf:0.01", "linf:0.02", "linf:0.03"], steps=1)
    after = torch.get_rng_state()
    torch.manual_seed(0)
    ht.attack(model, x, y, "square", threat="linf:0.1", steps=3)
    assert torch.equal(torch.get_rng_state(), after)


def test_the_gradient_source_is_fresh_too():
    model, x, y = Linear(), images(), labels()
    first, second = (
        ht.attack(model, x, y, "fgsm", threat="linf:0.05", nes={"sigma": 0.1, "samples": 2, "grid": 0})
        for _ in range(2)
    )
    assert not torch.equal(first, second)


# ---------------------------------------------------------------- several threats, and what succeeded


def test_details_agree_with_the_closed_form_at_every_radius():
    model = Linear().requires_grad_(False)
    x = images(40).clamp(0.3, 0.7)  # so that the box is out of the way
    y = right(model, x)
    needed = margin(model, x, y)
    radii = [float(needed.quantile(share)) for share in (0.2, 0.5, 0.8)]
    found = ht.attack(model, x, y, "apgd", threat=[f"linf:{radius}" for radius in radii], targets=3, details=True)
    for radius, each in zip(radii, found, strict=True):
        wanted, close = needed < radius, (needed - radius).abs() < 1e-4
        assert torch.equal(each.success[~close], wanted[~close])
        assert torch.equal(each.success, each.prediction != y)
        assert each.size.max() <= radius * (1 + 1e-5)
        torch.testing.assert_close(each.size, (each.x_adv - x).flatten(1).abs().amax(dim=1))
        assert each.threat == ht.Threat.parse(f"linf:{radius}")
    assert 0 < found[0].success.sum() < found[2].success.sum() < 40


def test_one_threat_gives_one_result_and_a_list_a_list():
    model, x, y = Linear(), images(), labels()
    assert isinstance(ht.attack(model, x, y, **FEW), torch.Tensor)
    assert [part.shape for part in ht.attack(model, x, y, threat=["l2:1"])] == [x.shape]
    both = ht.attack(model, x, y, threat=["l2:1", ht.Threat.parse("linf:0.1")], details=True)
    assert [str(part.threat) for part in both] == ["l2:1", "linf:0.1"]


def test_a_target_that_is_not_reached_is_no_success():
    model, x = Linear(), images(20)
    y = right(model, x)
    goal = (y + 1) % 4
    found = ht.attack(model, x, y, "pgd", threat="linf:0.03", steps=20, target=goal, details=True)
    assert torch.equal(found.success, found.prediction == goal)
    assert 0 < found.success.sum() < 20


def test_the_model_is_left_as_it_was():
    model = Linear().train()
    ht.attack(model, images(), labels(), threat="linf:0.1", details=True)
    assert model.training and all(parameter.grad is None for parameter in model.parameters())


# ---------------------------------------------------------------- ways to name an attack


@pytest.mark.parametrize(
    "way",
    [
        lambda m, x, y: ht.attack(m, x, y, "pgd", threat="linf:0.1", steps=3, seed=1),
        lambda m, x, y: ht.attack(m, x, y, {"name": "pgd", "steps": 3}, threat="linf:0.1", seed=1),
        lambda m, x, y: ht.attack(m, x, y, {"steps": 3, "threat": "linf:0.1", "seed": 1}),
        lambda m, x, y: ht.attack(m, x, y, Ascent, threat="linf:0.1", steps=3, seed=1),
        lambda m, x, y: ht.attack(m, x, y, Ascent(threat=ht.Threat.parse("linf:0.1"), steps=3, seed=1), seed=0),
        lambda m, x, y: ht.attack(
            m, x, y, Ascent(threat=ht.Threat.parse("l2:9"), steps=3, seed=1), threat="linf:0.1", seed=0
        ),
        lambda m, x, y: ht.attack(m, x, y, "pgd", threat=["linf:0.1"], steps=3, seed=1)[0],
    ],
)  # fmt: skip
def test_every_way_to_name_an_attack_gives_the_same_images(way):
    model, x, y = Linear(), images(), labels()
    expected = Ascent(threat=ht.Threat.parse("linf:0.1"), steps=3, seed=1)(model, x, y)
    assert torch.equal(way(model, x, y), expected)


def test_an_attack_of_ones_own_needs_no_threat_until_its_success_is_asked_for():
    def brighter(model, x, y):
        return (x + 0.1).clamp(0, 1)

    @dataclasses.dataclass(frozen=True)
    class Brighter:
        threat: ht.Threat = dataclasses.field(default_factory=lambda: ht.Threat.parse("linf:0.1"))

        def __call__(self, model, x, y):
            return (x + self.threat.radius).clamp(0, 1)

    model, x, y = Linear(), images(), labels()
    assert torch.equal(ht.attack(model, x, y, brighter), (x + 0.1).clamp(0, 1))
    with pytest.raises(UserError, match="needs the threat"):
        ht.attack(model, x, y, brighter, details=True)
    with pytest.raises(UserError, match="no field threat"):
        ht.attack(model, x, y, brighter, threat="linf:0.1")
    found = ht.attack(model, x, y, Brighter(), threat=["linf:0.1", "linf:0.2"], details=True)
    assert found[1].size.max() > 0.15 and torch.equal(found[0].success, found[0].prediction != y)


def test_autoattack_by_name():
    model, x = Linear().requires_grad_(False), images(16).clamp(0.3, 0.7)
    y = right(model, x)
    needed = margin(model, x, y)
    radius = float(needed.median())
    found = ht.attack(model, x, y, "autoattack", threat=f"linf:{radius}", tier="fast", seed=0, details=True)
    close = (needed - radius).abs() < 1e-4
    assert torch.equal(found.success[~close], (needed < radius)[~close])
    assert torch.equal(found.x_adv[~found.success], x[~found.success])
    assert found.x_adv.dtype == torch.float32
    measured = ht.evaluate(model, (x, y), suite="autoattack", tier="fast", threat=f"linf:{radius}", quiet=True, audit=0)
    assert torch.equal(found.success, torch.from_numpy(~measured.robust))


# ---------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    "settings, told",
    [
        ({"attack": "pdg", "threat": "linf:0.1"}, "there is no attack 'pdg' .*'pgd'"),
        ({"attack": "pgd"}, "'threat' is missing, for example linf:8/255"),
        ({"attack": "pgd", "threat": []}, "the list of threats is empty"),
        ({"attack": "pgd", "eps": 8 / 255}, 'eps is part of the threat: threat="linf:8/255"'),
        ({"attack": "pgd", "threat": "linf:0.1", "stesp": 3}, "unknown key 'stesp'.*'step"),
        ({"attack": Ascent, "threat": "linf:0.1", "stesp": 3}, "unknown key 'stesp'.*'step"),
        ({"attack": APGD(threat=ht.Threat.parse("linf:0.1")), "steps": 3}, "steps: .* already has its settings"),
        ({"attack": "autoattack", "threat": "linf:0.1", "teir": "fast"}, 'teir: the settings of "autoattack" are'),
        ({"attack": "autoattack", "keys": torch.arange(12)}, "give seed=… instead of keys=…"),
        ({"attack": 3, "threat": "linf:0.1"}, "an attack"),
    ],
)
def test_mistakes_are_named_in_a_line(settings, told):
    with pytest.raises(UserError, match=told):
        ht.attack(Linear(), images(), labels(), **settings)
