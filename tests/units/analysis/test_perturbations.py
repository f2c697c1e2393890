"""Perturbations: of a linear model its weights; judged by itself its robust accuracy; the same in any pieces."""

import numpy as np
import pytest
import torch
from torch import nn

import hardtack as ht
from hardtack.analysis.perturbations.analysis import Perturbations
from hardtack.attacks import Ascent
from hardtack.base.config import plain
from hardtack.base.errors import UserError
from hardtack.base.runtime import Runtime
from hardtack.commands.cli import main
from hardtack.results import read_run

CPU = Runtime(device="cpu")
SIDE = 6


class Linear(nn.Module):
    """Two classes told apart by one template, w and −w."""

    num_classes = 2

    def __init__(self, seed=0, scale=1.0):
        super().__init__()
        template = torch.randn(3 * SIDE * SIDE, generator=torch.Generator().manual_seed(seed))
        self.weight = nn.Parameter(scale * torch.stack([template, -template]))

    def forward(self, x):
        return (x - 0.5).flatten(1) @ self.weight.T


def grey_images(n=9, side=SIDE, spread=0.2):
    """Far enough from black and white that no perturbation is cut off."""
    x = 0.5 + spread * (torch.rand(n, 3, side, side, generator=torch.Generator().manual_seed(1)) - 0.5)
    return x, torch.arange(n) % 2


def analyze(model, data, **settings):
    return ht.analyze(model, data, "perturbations", **{"top": (1,), **settings}, runtime=CPU, quiet=True)


def test_a_linear_models_perturbation_is_its_template_of_the_other_class():
    model, (x, y) = Linear(), grey_images()
    found = analyze(model, (x, y), threat="linf:4/255", attack={"start": "clean"})
    template = model.weight.detach().view(2, 3, SIDE, SIDE)
    expected = ((torch.sign(template[1 - y]) + 1) / 2 * 255).round().to(torch.uint8)
    assert np.array_equal(found.arrays["pictures"][:, 0], expected[:8].numpy())
    # alone it is seen as the class it was pushed to; reversed, as the class it was taken from
    assert np.array_equal(found.arrays["answer_alone"][:, 0, 0, 0], 1 - y)
    assert np.array_equal(found.arrays["answer_alone"][:, 0, 0, 1], y)
    assert found.of("alone_top1_accuracy", "itself → itself").value == 0
    assert found.of("alone_top1_accuracy", "itself → itself, reversed").value == 1
    assert found.of("perturbation_at_bound", "itself").value == 1
    assert found.of("perturbation_levels", "itself").value == pytest.approx(4, rel=1e-4)


def test_the_thesiss_steps_do_not_cross_the_whole_ball():
    """From a random start 1.5 ε in all reach the bound where the start was above −ε/2: three values of four."""
    found = analyze(Linear(), grey_images(n=40), threat="linf:4/255")
    assert found.of("perturbation_at_bound", "itself").value == pytest.approx(0.75, abs=0.02)


def test_judged_by_itself_is_its_robust_accuracy():
    model = ht.load_model("vit_digits", num_classes=10, image_size=8, seed=0)
    x = torch.rand(24, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        y = model(x).argmax(dim=1)  # all right when clean
    attack = {"steps": 5, "start": "clean"}
    found = analyze(model, (x, y), threat="linf:4/255", attack=attack)
    measured = ht.evaluate(
        model,
        (x, y),
        suite="pgd",
        threat="linf:4/255",
        attack={**attack, "relative_step": 0.3},
        runtime=CPU,
        quiet=True,
    )
    assert 0 < measured.robust_accuracy < 1
    assert np.array_equal(found.arrays["rank_moved"][:, 0, 0] == 0, measured.robust)
    assert found.of("moved_accuracy", "itself → itself").value == measured.robust_accuracy


def test_made_by_each_and_judged_by_each():
    ours, theirs, data = Linear(0), Linear(7), grey_images()
    found = analyze(ours, data, others={"theirs": theirs}, threat="linf:0.05", attack={"start": "clean"})
    alone = analyze(theirs, data, threat="linf:0.05", attack={"start": "clean"})
    assert found.facts["makers"] == found.facts["judges"] == ["itself", "theirs"]
    assert found.arrays["rank_moved"].shape == (9, 2, 2)
    assert np.array_equal(found.arrays["rank_moved"][:, 1, 1], alone.arrays["rank_moved"][:, 0, 0])
    made = found.of("moved_accuracy", "theirs → itself").value
    with torch.no_grad():
        delta = 0.05 * torch.sign(theirs.weight[1 - data[1]]).view_as(data[0])
        assert made == (ours(data[0] + delta).argmax(dim=1) == data[1]).double().mean().item()
    few = analyze(ours, data, others=[theirs], makers="itself", threat="linf:0.05")
    assert few.arrays["rank_moved"].shape == (9, 1, 2) and few.facts["judges"] == ["itself", "Linear"]
    assert all(parameter.requires_grad for parameter in theirs.parameters())


def test_a_judge_of_another_size_sees_resized_images():
    ours, data = Linear(), grey_images()
    judge = ht.load_model("vit_digits", num_classes=2, image_size=8, seed=0)
    found = analyze(ours, data, others={"vit": judge}, makers="itself")
    assert "vit takes 8×8 images" in found.notes[0]


def test_pieces_of_any_size_give_the_same():
    model = ht.load_model("vit_digits", num_classes=10, image_size=8, seed=0)
    x = torch.rand(7, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    one, many = (
        analyze(model, (x, torch.arange(7)), attack={"steps": 3}, batch_size=size, pictures=4) for size in (2, 7)
    )
    assert one.arrays.keys() == many.arrays.keys() and one.arrays["pictures"].shape == (4, 1, 3, 8, 8)
    for name in one.arrays:
        assert one.arrays[name] == pytest.approx(many.arrays[name], rel=1e-3, abs=1e-4), name


def test_a_killed_one_goes_on_where_it_stopped(tmp_path, monkeypatch):
    """Pieces beyond the last picture hold none: they join all the same."""
    model, data = Linear(), grey_images()
    whole = analyze(model, data, pictures=3)
    attack, calls = Ascent.run, []

    def dying(self, *given, **named):
        calls.append(len(given[1]))
        if len(calls) == 3:
            raise KeyboardInterrupt
        return attack(self, *given, **named)

    monkeypatch.setattr(Ascent, "run", dying)
    with pytest.raises(KeyboardInterrupt):
        analyze(model, data, pictures=3, batch_size=2, folder=tmp_path)
    found = analyze(model, data, pictures=3, batch_size=2, folder=tmp_path)
    assert calls == [2, 2, 2, 2, 2, 1] and found.arrays["pictures"].shape[0] == 3
    for name in whole.arrays:
        assert found.arrays[name] == pytest.approx(whole.arrays[name], rel=1e-4, abs=1e-5), name


def test_other_norms_are_scaled_to_each_images_peak():
    model, data = Linear(), grey_images()
    found = analyze(model, data, threat="l2:0.5", attack={"steps": 5})
    pictures = found.arrays["pictures"]
    assert all(image.max() == 255 or image.min() == 0 for image in pictures)
    assert found.arrays["amplitude_l2"] == pytest.approx(0.5, rel=1e-3)
    assert "amplitude_at_bound" not in found.arrays and found.of("perturbation_at_bound", "itself") is None


def test_usual_settings_are_the_thesiss_and_settings_written_back_are_the_same():
    usual = Perturbations()
    assert (usual.attack.steps, usual.attack.relative_step, str(usual.threat)) == (100, 0.015, "linf:4/255")
    assert Perturbations(attack={"steps": 10}).attack.relative_step == 0.15
    assert Perturbations(attack="fgsm").attack.steps == 1
    mine = Perturbations(attack=Ascent(threat="l2:1", steps=3), threat="l2:1", top=(3,))
    assert Perturbations(**{key: value for key, value in plain(mine).items() if key != "name"}) == mine


@pytest.mark.parametrize(
    "settings, said",
    [
        ({"threat": "linf:0"}, "allows no perturbation"),
        ({"attack": "pdg"}, "did you mean 'pgd'"),
        ({"attack": {"stepz": 3}}, "attack.stepz"),
        ({"threat": "linf:8/255", "attack": Ascent(threat="l2:1")}, "give the threat only once"),
        ({"attack": 3}, "'attack' must be the name"),
        ({"others": "runs/nowhere"}, "there is no weights file or run folder runs/nowhere"),
        ({"others": [{"nam": "timm:resnet18"}]}, "nam"),
        ({"top": ()}, "top"),
        ({"others": {"itself": Linear(1)}}, "give the other model another name"),
        ({"others": "vit_digits"}, "vit_digits"),
    ],
)
def test_mistakes_are_said(settings, said):
    with pytest.raises(UserError, match=said.replace(".", r"\.")):
        analyze(Linear(), grey_images(), **settings)


def test_others_of_other_classes_are_refused_by_name():
    judge = ht.load_model("vit_digits", num_classes=5, image_size=8, seed=0)
    with pytest.raises(UserError, match="'five' has 5 classes, the analysed model has 2"):
        analyze(Linear(), grey_images(), others={"five": judge})


def test_a_model_without_gradients_is_noted():
    class Stepped(Linear):
        def forward(self, x):
            return super().forward((4 * x).round() / 4)

    found = analyze(Stepped(), grey_images(), attack={"steps": 2})
    assert "itself: the gradient is zero on 100% of the images" in found.notes[0]


def test_too_few_classes_for_k_is_noted():
    found = analyze(Linear(), grey_images(), top=(1, 5))
    assert found.of("alone_top5_accuracy", "itself → itself") is None
    assert "with 2 classes top-5 is always right" in found.notes[0]


def test_the_command_takes_run_folders_and_untrained_networks(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = ["model=vit_digits", "data=digits", "n=6", "output=here", "perturbations.attack.steps=2"]
    others = "perturbations.others=[{name: timm:resnet10t, pretrained: false}]"
    assert main(["analyze", *words, "perturbations", others]) == 0
    said = capsys.readouterr().out
    assert "itself → timm:resnet10t (no weights)" in said and "note: the weights of timm:resnet10t (no weights)" in said
    (finding,) = read_run("here").findings
    assert finding.facts["judges"] == ["itself", "timm:resnet10t (no weights)"]
    assert finding.results[0].verdicts is not None
