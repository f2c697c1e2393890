"""`ht.objective`: the losses of the Trainer in a loop of one's own."""

import pytest
import torch

import hardtack as ht
from hardtack.base.errors import UserError
from hardtack.objectives import TradesConfig
from tiny_runs import Linear, images, labels


def test_settings_of_the_attack_may_stand_beside_those_of_the_objective():
    made = ht.objective("trades", Linear(), threat="l2:0.5", steps=3, beta=2.5)
    assert made.config.beta == 2.5
    assert str(made.config.attack.threat) == "l2:0.5" and made.config.attack.steps == 3
    assert made.config.attack.start == "gaussian", "the rest is the objective's own attack"


@pytest.mark.parametrize(
    "given",
    [
        {"attack": {"threat": "l2:0.5", "steps": 3}},
        {"attack.threat": "l2:0.5", "attack.steps": 3},
        {"attack": {"steps": 3}, "threat": "l2:0.5"},
    ],
)
def test_and_so_may_a_section_or_dotted_names(given):
    made = ht.objective("trades", Linear(), **given)
    assert made.config == ht.objective("trades", Linear(), threat="l2:0.5", steps=3).config


def test_another_attack_by_its_name():
    made = ht.objective("adversarial", Linear(), attack="fgsm", threat="linf:0.1")
    assert made.config.attack.steps == 1 and made.config.attack.start == "clean"


def test_the_loss_is_that_of_the_trainer():
    model, x, y = Linear(), images(), labels()
    made = ht.objective("trades", model, threat="linf:0.1", beta=6)
    keys = torch.arange(len(x))
    prepared = made.prepare(x, y, keys=keys, epoch=0.0)
    own = TradesConfig(beta=6, attack=made.config.attack).build(model)
    torch.testing.assert_close(made(x, y, **prepared), own(x, y, **own.prepare(x, y, keys=keys, epoch=0.0)))


@pytest.mark.parametrize("name", ["standard", "adversarial", "trades", "mart", "alp", "free"])
def test_a_loop_of_ones_own_learns(name):
    model, x, y = Linear(scale=0.01), images(40), labels(40)
    threat = {} if name == "standard" else {"threat": "linf:0.01"}
    objective = ht.objective(name, model, **threat)
    optimiser = torch.optim.SGD(objective.optimised.parameters(), lr=0.1)
    losses = []
    for _ in range(30):
        optimiser.zero_grad()
        loss = objective(x, y)["loss"]
        loss.backward()
        optimiser.step()
        objective.finish_step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]


def test_the_learned_occluder_moves_with_finish_step():
    model = ht.load_model("vit_digits", num_classes=4, seed=0, image_size=8, patch_size=4, depth=1, width=16, heads=2)
    objective = ht.objective("rspc", model, weight=0.1)
    before = [value.clone() for value in objective.opponent.occluder.parameters()]
    objective(images(), labels())["loss"].backward()
    objective.finish_step()
    after = list(objective.opponent.occluder.parameters())
    assert any(not torch.equal(one, other) for one, other in zip(before, after, strict=True))


def test_normalised_images_are_refused_in_the_first_call():
    objective = ht.objective("adversarial", Linear(), threat="linf:0.1")
    with pytest.raises(UserError, match=r"images must lie in \[0,1\].*ht\.wrap"):
        objective((images() - 0.5) / 0.25, labels())
    with pytest.raises(UserError, match="holds no images"):
        ht.objective("standard", Linear())(images()[:0], labels()[:0])


def test_the_check_looks_at_one_batch_only():
    objective = ht.objective("standard", Linear())
    objective(images(), labels())
    objective(images() * 3, labels())  # such as augmentations may make them


@pytest.mark.parametrize(
    "words, told",
    [
        ({"name": "tradse"}, "there is no objective 'tradse' .*'trades'"),
        ({"name": "trades", "betta": 3}, r"objective\.betta.*'beta'|betta"),
        ({"name": "standard", "threat": "linf:0.1"}, "threat: the objective 'standard' attacks nothing"),
        ({"name": "trades", "threat": "linf:x"}, "eps 'x' is neither"),
        ({"name": TradesConfig(), "beta": 2}, "beta: .* already has its settings"),
    ],
)
def test_mistakes_are_named_in_a_line(words, told):
    words = dict(words)
    with pytest.raises(UserError, match=told):
        ht.objective(words.pop("name"), Linear(), **words)


def test_a_model_is_needed():
    with pytest.raises(UserError, match="needs the model that it trains"):
        ht.objective("trades", lambda x: x)
