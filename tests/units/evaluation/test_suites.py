"""Numbers against brute force on models whose worst case is known, and what a result and its verdicts say."""

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from torch import nn

import hardtack as ht
from hardtack.base.errors import UserError
from hardtack.data import load_data
from hardtack.results import read_results, wilson
from hardtack.threats import Threat
from tiny_runs import Linear, images, labels, write_data

COLUMNS = {
    "index", "label", "clean_prediction", "clean_correct", "robust", "broken_by", "broken_at_step", "size", "target",
    "forwards", "backwards",
    "adversarial_prediction", "attacked", "zero_gradient", "flat_loss", "unverified", "not_finite",
    "silent_success", "clean_rank", "clean_confidence", "clean_certainty",
}  # fmt: skip


@pytest.fixture
def model():
    return ht.wrap(Linear(classes=2, scale=0.05), num_classes=2)


def pair(count=40):
    """Labels that the linear model mostly agrees with, so that there is something to break."""
    x = images(count, seed=4)
    with torch.no_grad():
        y = Linear(classes=2, scale=0.05)(x).argmax(dim=1)
    y[::7] = 1 - y[::7]
    return x, y


def measure(model, data, **settings):
    return ht.evaluate(model, data, quiet=True, **settings)


def survives(model, x, y, eps):
    """Per image, exactly: the worst point of ball ∩ box for a linear model with two classes."""
    weight, bias = model.body.head.weight.detach(), model.body.head.bias.detach()
    direction = (weight[1 - y] - weight[y]).reshape(x.shape)
    worst = torch.minimum(torch.maximum(x + eps * direction.sign(), torch.zeros(())), torch.ones(()))
    logits = worst.flatten(1) @ weight.T + bias
    return logits.argmax(dim=1) == y


def test_clean_accuracy_is_the_share_of_right_answers(model):
    x, y = pair()
    measured = measure(model, (x, y), suite="clean")
    right = (model(x).argmax(1) == y).numpy()
    assert measured.clean_accuracy == right.mean() and 0 < right.mean() < 1
    assert (measured.verdicts["clean_correct"] == right).all() and (measured.robust == right).all()
    assert measured.robust_accuracy is None and not measured.verdicts["attacked"].any()


@pytest.mark.parametrize("eps", [0.005, 0.01, 0.02, 0.05])
def test_robust_accuracy_is_the_brute_force_one(model, eps):
    x, y = pair()
    measured = measure(model, (x, y), suite="pgd", threat=f"linf:{eps}")
    right = (survives(model, x, y, eps) & (model(x).argmax(1) == y)).numpy()
    assert (measured.robust == right).all()
    assert measured.robust_accuracy == right.mean()
    if eps == 0.01:
        assert 0 < right.mean() < measured.clean_accuracy, "the middle case must be neither trivial"


@pytest.mark.parametrize("threat", ["linf:0.02", "l2:0.3", "l1:3"])
def test_only_what_was_right_can_be_robust_and_examples_obey_the_threat(model, threat):
    x, y = pair()
    measured = measure(model, (x, y), suite="pgd", threat=threat, examples=40)
    verdicts = measured.verdicts
    assert not (verdicts["robust"] & ~verdicts["clean_correct"]).any()
    assert (verdicts["attacked"] == verdicts["clean_correct"]).all()
    fallen = verdicts["clean_correct"] & ~verdicts["robust"]
    assert fallen.any()
    x_adv = torch.from_numpy(measured.examples["x_adv"]).permute(0, 3, 1, 2)
    assert Threat.parse(threat).contains(x_adv, x).all()
    wrong = (model(x_adv).argmax(dim=1) != y).numpy()
    assert wrong[fallen].all() and not wrong[verdicts["robust"]].any()
    assert (verdicts["adversarial_prediction"] == model(x_adv).argmax(dim=1).numpy()).all()
    assert np.isnan(verdicts["size"][~verdicts["attacked"]]).all()
    size = Threat.parse(threat).size(x_adv - x).numpy()
    assert verdicts["size"][fallen] == pytest.approx(size[fallen])
    steps = verdicts["broken_at_step"]
    assert (steps[fallen] >= 0).all() and (steps[~fallen] == -1).all()
    assert set(verdicts["broken_by"][fallen]) == {f"pgd {threat}"}
    assert all(by is None for by in verdicts["broken_by"][~fallen])


def test_a_sweep_is_monotonic_and_agrees_with_the_single_threat(model):
    data = pair()
    sweep = measure(model, data, suite="sweep", threat="linf:0.02")
    threats, values = zip(*sweep.curve, strict=True)
    assert threats == (
        "linf:0",
        "linf:0.005",
        "linf:0.01",
        "linf:0.015",
        "linf:0.02",
        "linf:0.03",
        "linf:0.04",
    )
    assert list(values) == sorted(values, reverse=True) and values[0] > values[-1]
    assert values[0] == sweep.clean_accuracy, "eps 0 is the clean image"
    assert sweep.robust_accuracy == values[-1]
    once = measure(model, data, suite="pgd", threat="linf:0.02")
    assert (sweep.verdicts["robust@linf:0.02"] == once.robust).all(), "exact on a linear model, so equal"
    exact = [(survives(model, *data, eps) & (model(data[0]).argmax(1) == data[1])).float().mean().item()
             for eps in (0, 0.005, 0.01, 0.015, 0.02, 0.03, 0.04)]  # fmt: skip
    assert list(values) == pytest.approx(exact)


def test_a_sweep_takes_its_own_multiples(model):
    curve = measure(model, pair(), suite="sweep", threat="linf:4/255", sweep=[2, "1/2", 0.5]).curve
    assert [threat for threat, _ in curve] == ["linf:2/255", "linf:8/255"]


@pytest.mark.parametrize("multiples", [["x"], ["1/0"], ["-1"], []])
def test_an_invalid_sweep_is_refused(model, multiples):
    with pytest.raises(UserError):
        measure(model, pair(), suite="sweep", sweep=multiples)


def test_a_sweep_needs_a_radius(model):
    with pytest.raises(UserError, match="a radius above 0"):
        measure(model, pair(), suite="sweep", sweep=["0"])


def test_fgsm_has_one_step_and_pgd_twenty_by_default(model):
    calls = []
    model.register_forward_hook(lambda *_: calls.append(1))

    def passes(**settings):
        calls.clear()
        measured = measure(model, pair(8), suite="pgd", threat="linf:0.001", **settings)
        return measured.results[-1].attack_settings["steps"], len(calls)

    steps, few = passes(attack={"name": "fgsm"})
    assert steps == 1
    more, many = passes()
    assert more == 20 and many - few == 19
    assert passes(attack={"steps": 3}) == (3, few + 2)
    assert passes(attack={"name": "fgsm", "steps": 5})[0] == 5


@pytest.mark.parametrize("keep", ["best", "last"])
def test_a_search_that_keeps_its_last_point_is_verified_at_that_point(model, keep):
    """`keep: last` reports no successes of its own; the images must fall all the same."""
    data = pair()
    measured = measure(model, data, threat="linf:0.02", attack={"keep": keep})
    assert measured.robust_accuracy == measure(model, data, threat="linf:0.02").robust_accuracy
    assert measured.robust_accuracy < measured.clean_accuracy
    assert "flat_loss" not in {flag["code"] for flag in measured.flags}


@pytest.mark.parametrize("batch_size", [1, 7, 256])
def test_verdicts_do_not_depend_on_the_batch_size(batch_size):
    model = ht.load_model("vit_digits", num_classes=4, image_size=8, patch_size=4, depth=1, width=16, heads=2, seed=1)
    x = images(20)
    y = model(x).argmax(dim=1)
    settings = {"threat": "linf:0.02", "attack": {"steps": 5, "restarts": 2}}
    reference = measure(model, (x, y), batch_size=20, **settings)
    found = measure(model, (x, y), batch_size=batch_size, **settings)
    assert 0 < reference.robust_accuracy < 1
    for name in ("robust", "clean_prediction", "index", "broken_at_step", "adversarial_prediction"):
        assert (found.verdicts[name] == reference.verdicts[name]).all(), name
    assert np.allclose(found.verdicts["size"], reference.verdicts["size"], equal_nan=True)


def test_another_seed_draws_other_starts(model):
    """One step from a random start: where it lands depends on the seed of the attack."""
    points = [
        measure(model, pair(), threat="l2:0.3", attack={"name": "rfgsm", "seed": seed}).examples["x_adv"]
        for seed in (0, 0, 1)
    ]
    assert np.array_equal(points[0], points[1]) and not np.allclose(points[0], points[2])


# ---------------------------------------------------------------- the record


def test_every_number_says_where_it_comes_from(model, tmp_path):
    x, y = pair()
    measured = measure(model, (x, y), threat="linf:1/255", folder=tmp_path, runtime=ht.Runtime(seed=5))
    clean, robust = measured.results
    for result in (clean, robust):
        assert (result.low, result.high) == wilson(round(result.value * 40), 40)
        assert result.low < result.value < result.high
        assert result.n == 40 and result.seed == 5 and result.suite == "pgd"
        assert result.precision == "fp32 search, fp32 verified" and result.device.startswith("cpu")
        assert {"hardtack", "torch", "python"} <= set(result.versions) and result.seconds > 0 and result.created
        assert result.data == "tensors" and result.interval == "wilson 95%"
    assert clean.threat is None and robust.threat == "linf:1/255"
    assert robust.attack.startswith("pgd steps=20") and robust.attack_settings["restarts"] == 1
    assert read_results(tmp_path) == list(measured.results)


def test_verdicts_are_on_disk_one_row_per_image_in_order(tmp_path):
    data = load_data(f"npz:{write_data(tmp_path / 'd.npz', test=11)}", "test", workers=0)
    model = ht.wrap(Linear(), num_classes=4)
    measured = measure(model, data, threat="linf:0.05", folder=tmp_path / "run", batch_size=4)
    table = pq.read_table(tmp_path / "run" / measured.results[0].verdicts).to_pydict()
    assert set(table) == COLUMNS | {"robust@linf:0.05"}
    assert table["index"] == list(range(11)) and table["label"] == data.labels.tolist()
    assert table["robust"] == measured.robust.tolist() == table["robust@linf:0.05"]
    lines = [json.loads(line) for line in (tmp_path / "run" / "results.jsonl").read_text().splitlines()]
    assert [line["metric"] for line in lines] == ["clean_accuracy", "robust_accuracy"]
    assert lines[0]["data"].endswith("d.npz/test")
    left = {path.name for path in (tmp_path / "run" / "verdicts").iterdir()}
    assert left == {f"{measured.id}.parquet"}, "chunks are gone once they are merged"


def test_printing_shows_every_number_with_its_interval(model):
    text = str(measure(model, pair(), threat="linf:0.02"))
    assert text.count("n=40") == 2 and "linf:0.02" in text and text.count("[") == 2


# ---------------------------------------------------------------- nothing is left behind


class Layered(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.drop, self.linear = nn.BatchNorm2d(3), nn.Dropout(0.5), Linear()

    def forward(self, x):
        return self.linear(self.drop(self.norm(x)))


@pytest.mark.parametrize("suite", ["clean", "pgd"])
def test_the_model_is_measured_in_eval_mode_and_left_as_it_was(suite):
    body = Layered()
    model = ht.wrap(body, num_classes=4).train()
    body.drop.eval()
    body.linear.head.bias.requires_grad_(False)
    body.linear.head.weight.grad = torch.ones_like(body.linear.head.weight)
    flags = [module.training for module in model.modules()]
    before = {key: value.clone() for key, value in model.state_dict().items()}
    random = torch.get_rng_state()
    modes = []
    handle = body.norm.register_forward_hook(lambda module, *_: modes.append(module.training))
    measured = measure(model, (images(), labels()), suite=suite, threat="linf:0.01")
    handle.remove()
    assert modes and not any(modes)
    assert [module.training for module in model.modules()] == flags
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    assert body.linear.head.weight.grad.eq(1).all() and body.norm.weight.grad is None
    assert not body.linear.head.bias.requires_grad and body.linear.head.weight.requires_grad
    assert torch.equal(torch.get_rng_state(), random)
    with torch.no_grad():
        right = (model.eval()(images()).argmax(1) == labels()).float().mean().item()
    assert measured.clean_accuracy == pytest.approx(right)


def test_a_model_without_parameters_can_be_measured():
    class Brightness(nn.Module):
        def forward(self, x):
            level = x.mean(dim=(1, 2, 3))
            return torch.stack([0.5 - level, level - 0.5], dim=1) * 10

    x = torch.full((4, 3, 8, 8), 0.4)
    x[2:] = 0.6
    y = torch.tensor([0, 0, 1, 1])
    assert measure(Brightness(), (x, y), threat="linf:0.05").robust_accuracy == 1
    assert measure(Brightness(), (x, y), threat="linf:0.2").robust_accuracy == 0


def test_an_attack_written_in_python_takes_the_same_words(model):
    x, y = pair()
    x_adv = ht.attack(model, x, y, "pgd", threat="linf:0.02", steps=20)
    robust = (model(x_adv).argmax(dim=1) == y).numpy()
    assert (robust == measure(model, (x, y), threat="linf:0.02").robust).all()
    with pytest.raises(UserError, match="did you mean 'pgd'"):
        ht.attack(model, x, y, "pdg", threat="linf:0.02")
    with pytest.raises(UserError, match=r"\[0,1\]"):
        ht.attack(model, x * 255, y, "pgd", threat="linf:0.02")


@pytest.mark.parametrize("name", ["pgd", "fgsm", "rfgsm", "momentum_pgd"])
def test_a_result_names_the_attack_that_was_asked_for(name):
    model = ht.load_model("vit_digits", depth=1, width=16, heads=2, seed=0)
    x, y = torch.rand(4, 3, 32, 32), torch.tensor([0, 1, 2, 3])
    result = ht.evaluate(model, (x, y), attack={"name": name}, quiet=True).results[-1]
    assert result.attack.startswith(f"{name} steps=") and result.attack_settings["name"] == name


def test_a_threat_named_twice_is_measured_once(model):
    measured = measure(model, pair(), attack={"steps": 3}, union=["linf:8/255", "linf:8/255"])
    assert [result.metric for result in measured.results] == ["clean_accuracy", "robust_accuracy"]
    measured = measure(model, pair(), attack={"steps": 3}, union=["l2:0.5", "linf:8/255"])
    assert [result.threat for result in measured.results] == [None, "linf:8/255", "l2:0.5", "linf:8/255+l2:0.5"]


@pytest.mark.parametrize(
    "suite, settings",
    [
        ("pgd", {"tier": "fast"}),
        ("attacks", {"attacks": ["fgsm"], "version": "plus"}),
        ("autoattack", {"attack": "fgsm"}),
        ("pgd", {"attacks": ["fgsm"]}),
        ("curve", {"union": ["l2:0.5"]}),
        ("pgd", {"sweep": ["1"]}),
    ],
)
def test_a_setting_of_another_suite_is_refused(model, suite, settings):
    with pytest.raises(UserError, match="is a setting of suite="):
        measure(model, pair(), suite=suite, **settings)


def test_several_suites_take_each_its_own_settings(tmp_path):
    data = f"npz:{write_data(tmp_path / 'data.npz', test=6)}"
    words = {"attack.steps": 3, "tier": "fast", "n": 4, "output": str(tmp_path / "run")}
    few = {"model.name": "vit_digits", "model.options.depth": 1}
    suites = "clean,pgd,autoattack"
    made = ht.evaluate_run(None, **few, data=data, suite=suites, quiet=True, **words)
    assert [one.results[-1].suite for one in made] == suites.split(",")
    asked = [" ".join(one.results[-1].extra["words"]) for one in made]
    assert "tier" not in asked[1] and "attack.steps=3" in asked[1]
    assert "tier=fast" in asked[2] and "attack.steps" not in asked[2]


EIGHT = Threat.parse("linf:8/255")


@dataclass(frozen=True)
class Careless:
    """An attack of the user's own that returns what it should not."""

    made: Any
    threat: Threat = EIGHT

    def __call__(self, model, x, y):
        return self.made(x)


@pytest.mark.parametrize("made", [lambda x: x[:1], lambda x: x.double(), lambda x: None, lambda x: x.numpy()])
def test_an_attack_that_returns_no_images_is_refused(model, made):
    with pytest.raises(UserError, match="Careless must return images of the type and shape it was given"):
        measure(model, pair(), suite="attacks", attacks=[Careless(made)])


def test_an_attack_that_must_reach_a_class_needs_one(model):
    with pytest.raises(UserError, match="reach=true needs classes"):
        measure(model, pair(), suite="attacks", attacks=[{"name": "square", "reach": True}])


def test_square_before_gradient_attacks_raises_no_flag_about_gradients(model):
    attacks = [{"name": "square", "steps": 200}, {"name": "apgd_ce", "steps": 3}]
    measured = measure(model, pair(), suite="attacks", attacks=attacks, threat="linf:0.05", union=["l2:1"])
    assert any(by is not None and by.startswith("square") for by in measured.verdicts["broken_by"])
    assert not [flag for flag in measured.flags if flag["code"] == "masked_gradients"]


def test_one_output_is_not_enough():
    with pytest.raises(UserError, match="one number per image"):
        measure(ht.wrap(Linear(classes=1), num_classes=1), (images(4), torch.zeros(4, dtype=torch.int64)))
