"""Surrogates: a network that learns a model's answers, and the attack through it, resumed, stored and verified."""

import hashlib
import json

import pytest
import torch
from torch import nn

import hardtack as ht
from hardtack.base.errors import UserError
from hardtack.commands.cli import main
from hardtack.models import ModelConfig
from hardtack.results import read_results
from hardtack.surrogates import Distillation, DistillationConfig, distil
from hardtack.surrogates.distil import from_bytes, informative, to_bytes
from hardtack.threats import Threat
from tiny_runs import write_data

MODEL = """
import torch
from torch import nn

class Net(nn.Module):
    '''Tells four brightnesses apart, after rounding: its gradient is zero everywhere.'''

    def __init__(self):
        super().__init__()
        self.core = nn.Sequential(nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(48, 4))
        centre = torch.tensor([0.125, 0.3, 0.48, 0.65])
        self.core[2].weight.data = 20 * 2 * centre[:, None] * torch.ones(4, 48) / 48
        self.core[2].bias.data = -20 * centre**2

    def forward(self, x):
        return self.core((x * 32).round() / 32)

class Top1(Net):
    def forward(self, x):
        return 3 * nn.functional.one_hot(super().forward(x).argmax(dim=1), 4).float()

class Student(nn.Sequential):
    def __init__(self, num_classes=4, pixels=192):
        super().__init__(nn.Flatten(), nn.Linear(pixels, 32), nn.SiLU(), nn.Linear(32, num_classes))
"""
SMALL = ["surrogate=mine.py:Student"]
QUICK = ["steps=60", "batch_size=32", "rounds=3", "lr=1e-2", "runtime.device=cpu", "threat=linf:0.15", *SMALL]
WORDS = ["model=mine.py:Net", "model.image_size=8", "data=npz:data.npz", *QUICK]


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    write_data(tmp_path / "data.npz")
    (tmp_path / "mine.py").write_text(MODEL)
    return tmp_path


def weights(home, folder="runs/mine-Net-surrogate"):
    return hashlib.sha256((home / folder / "checkpoints/best.safetensors").read_bytes()).hexdigest()


def robust(run, attack):
    lines = [one for one in read_results(run) if one.metric == "robust_accuracy" and attack in (one.attack or "")]
    return lines[-1].value


@pytest.mark.parametrize("name", ["Net", "Top1"])
def test_adapt_breaks_a_model_without_a_gradient_and_verify_confirms_it(home, capsys, name):
    words = [WORDS[0].replace("Net", name), *WORDS[1:]]
    assert main(["evaluate", *words[:3], "threat=linf:0.15", "suite=pgd", "runtime.device=cpu"]) == 0
    assert main(["adapt", *words]) == 0, capsys.readouterr().err
    out = capsys.readouterr().out
    run, surrogate = home / f"runs/mine-{name}", f"runs/mine-{name}-surrogate"
    assert (
        f"surrogate: {surrogate} " in out and f"learned the model's {'labels' if name == 'Top1' else 'logits'}" in out
    )
    assert f"attack.transfer={surrogate}" in out
    assert robust(run, "pgd steps=20") > robust(run, "pgd+transfer") + 0.3
    assert main(["verify", f"runs/mine-{name}", *words[:3], "runtime.device=cpu"]) == 0, capsys.readouterr()


def test_other_attacks_use_the_surrogate(home, capsys):
    assert main(["adapt", *WORDS]) == 0
    words = [*WORDS[:3], "threat=linf:0.15", "runtime.device=cpu"]
    assert main(["evaluate", *words, "suite=pgd"]) == 0
    transfer = "attack.transfer=runs/mine-Net-surrogate"
    assert main(["evaluate", *words, "suite=pgd", "attack.loss=margin", transfer]) == 0
    run = home / "runs/mine-Net"
    assert robust(run, "transfer=") < robust(run, "loss=ce")
    stored = [one.attack_settings["gradients"] for one in read_results(run) if "gradients" in one.attack_settings]
    assert stored and len(stored[0]["transfer_sha256"]) == 12
    assert main(["attack", *words, transfer, "n=4", "output=adv"]) == 0
    # it is a run folder like any other
    assert main(["evaluate", "runs/mine-Net-surrogate", "suite=clean", "runtime.device=cpu"]) == 0


def test_an_interrupted_adaptation_goes_on_and_ends_with_the_same_weights(home, monkeypatch, capsys):
    assert main(["adapt", *WORDS, "output=whole"]) == 0
    run_round = Distillation.run

    def interrupted(self, number, *arguments):
        if number == 2:
            raise KeyboardInterrupt
        return run_round(self, number, *arguments)

    monkeypatch.setattr(Distillation, "run", interrupted)
    assert main(["adapt", *WORDS, "output=parts"]) == 130
    state = json.loads((home / "parts/adapt.json").read_text())
    assert len(state["rounds"]) == 1
    calls = []

    def counted(self, number, *arguments):
        calls.append(number)
        return run_round(self, number, *arguments)

    monkeypatch.setattr(Distillation, "run", counted)
    assert main(["adapt", *WORDS, "output=parts"]) == 0
    assert calls[:1] == [2], "round 1 is not repeated"
    assert weights(home, "parts") == weights(home, "whole")
    read = [json.loads((home / name / "adapt.json").read_text())["rounds"] for name in ("whole", "parts")]
    assert read[0] == read[1]
    calls.clear()
    assert main(["adapt", *WORDS, "output=parts"]) == 0 and not calls


def test_another_seed_gives_another_surrogate_and_the_same_one_the_same(home):
    for folder, seed in (("a", 0), ("b", 0), ("c", 1)):
        assert main(["adapt", *WORDS, "rounds=1", f"runtime.seed={seed}", f"output={folder}"]) == 0
    assert weights(home, "a") == weights(home, "b") != weights(home, "c")


def test_what_cannot_be_adapted_is_refused_in_one_line(home, capsys):
    def refused(*words, verb_words=WORDS):
        assert main(["adapt", *verb_words, *words]) == 2
        return capsys.readouterr().err

    assert "rounds" in refused("rounds=0")
    assert "there is no model 'vit_digit'" in refused("surrogate=vit_digit")
    assert "unknown key 'round' (did you mean 'rounds'?)" in refused("round=3")
    assert "needs a threat with a radius above 0" in refused("threat=linf:0")
    assert "is the folder of the model itself" in refused("output=runs/mine-Net")
    assert "leave out surrogate.pretrained" in refused("surrogate.pretrained=true")
    assert "lr" in refused("lr=nan")
    (home / "full").mkdir()
    (home / "full/notes.txt").write_text("mine")
    assert "full holds other files" in refused("output=full")
    assert main(["adapt", *WORDS, "rounds=1", "output=made"]) == 0
    capsys.readouterr()
    assert "holds a surrogate made with other settings" in refused("rounds=1", "output=made", "lr=1e-3")
    for damage in ("{", "[]", '{"identity": "", "rounds": [{}]}', '{"rounds": [{"broken": "many"}]}'):
        (home / "made/adapt.json").write_text(damage)
        assert "adapt.json is damaged" in refused("rounds=1", "output=made")
    assert main(["selftest", *WORDS[:3], "attack.transfer=made", "runtime.device=cpu"]) == 2
    assert "selftest gives the model another last layer" in capsys.readouterr().err


# ---------------------------------------------------------------- in Python


class Rounded(nn.Module):
    def __init__(self, core):
        super().__init__()
        self.core = core

    def forward(self, x):
        return self.core((x * 16).round() / 16)


def test_the_surrogate_of_a_linear_model_has_its_gradient(home):
    """Two classes: the gradient of the margin has one direction, which the surrogate must find from values alone."""
    generator = torch.Generator().manual_seed(0)
    core = nn.Sequential(nn.Flatten(), nn.Linear(48, 2))
    x = 0.3 + 0.4 * torch.rand(40, 3, 4, 4, generator=generator)
    core[1].weight.data = torch.randn(2, 48, generator=generator)
    core[1].bias.data = -(core[1].weight @ x.mean(0).flatten()).detach()
    model = Rounded(core).eval()
    y = model(x).argmax(dim=1)
    network = ModelConfig(name="mine.py:Student", options={"pixels": 48})
    state = {name: value.clone() for name, value in model.state_dict().items()}
    surrogate, rounds = distil(
        model, x, y, threat="linf:0.1", surrogate=network, steps=100, rounds=3, lr=1e-2, match="logits"
    )
    image = x.clone().requires_grad_()
    out = surrogate(image)
    (gradient,) = torch.autograd.grad((out[:, 0] - out[:, 1]).sum(), image)
    truth = (core[1].weight[0] - core[1].weight[1]).detach()
    assert torch.cosine_similarity(gradient.flatten(1), truth[None]).mean() > 0.8
    plain = ht.attack(model, x, y, "pgd", threat="linf:0.1")
    found = ht.attack(model, x, y, "pgd", threat="linf:0.1", transfer=surrogate)
    assert (model(found).argmax(dim=1) == y).sum() < (model(plain).argmax(dim=1) == y).sum()
    assert rounds[-1].queries > rounds[0].queries > 0 and rounds[-1].agreement > 0.8
    assert all(torch.equal(state[name], value) for name, value in model.state_dict().items())


def test_refinement_is_what_makes_it_work(home):
    """The images crafted in one round are learned from in the next: without them fewer images fool the model."""
    torch.manual_seed(0)
    core = nn.Sequential(nn.Flatten(), nn.Linear(48, 32), nn.Tanh(), nn.Linear(32, 3))
    for parameter in core.parameters():
        parameter.data *= 3
    x = torch.rand(60, 3, 4, 4)
    model = Rounded(core).eval()
    y = model(x).argmax(dim=1)
    network = ModelConfig(name="mine.py:Student", options={"pixels": 48})
    config = DistillationConfig(surrogate=network, steps=60, batch_size=32, lr=1e-2)
    shares = {}
    for refined in (True, False):
        task = Distillation(model, x, y, config, threat=Threat("linf", 0.05), seed=0)
        surrogate, points = task.new_surrogate(), []
        for number in range(1, 5):
            result = task.run(number, surrogate, points if refined else [])
        shares[refined] = result.fooled_model
    assert shares[True] > shares[False]


def test_logits_that_say_no_more_than_a_class_are_recognised():
    logits = torch.randn(8, 5)
    assert informative(logits) == "logits"
    assert informative(logits * 1e-4) == "logits"
    assert informative(nn.functional.one_hot(logits.argmax(1), 5).float()) == "labels"
    assert informative(logits.round()) == "logits"
    assert informative(logits[:, :2]) == "logits", "two logits are two values, whatever they say"
    assert informative(torch.full((2, 4), torch.nan)) == "labels"


def test_crafted_images_are_stored_inside_the_ball_and_read_back_as_they_were():
    x = torch.randint(0, 256, (4, 3, 4, 4)).float() / 255
    assert torch.equal(from_bytes(to_bytes(x), x.device), x)
    model = nn.Sequential(nn.Flatten(), nn.Linear(48, 3))
    with torch.no_grad():
        y = model(x).argmax(dim=1)
    task = Distillation(model, x, y, DistillationConfig(steps=1, batch_size=4), threat=Threat("linf", 0.05))
    crafted = task._craft(task.new_surrogate(), 1)
    assert Threat("linf", 0.05).contains(crafted, x).all()
    assert torch.equal(from_bytes(to_bytes(crafted), x.device), crafted)


def test_a_model_without_finite_answers_is_refused():
    class Broken(nn.Module):
        def forward(self, x):
            return torch.full((len(x), 3), torch.nan)

    with pytest.raises(UserError, match="returns no finite logits"):
        distil(Broken(), torch.rand(2, 3, 4, 4), torch.zeros(2, dtype=torch.int64), threat="linf:0.1")
