"""Checkpointed blocks: less kept, the same gradients, statistics and updates."""

import copy

import pytest
import torch

from hardtack.attacks import Ascent, ascent_step
from hardtack.attacks import preserve_state as preserve_state
from hardtack.base.errors import UserError
from hardtack.data import batches, load_data
from hardtack.models import load_model, wrap
from hardtack.threats import Threat
from hardtack.training import Trainer
from hardtack.training.recompute import checkpoint_blocks
from tiny_runs import MODEL, Linear, tiny_recipe, write_data

MODELS = {
    "vit_digits": {"image_size": 8, **MODEL["options"], "drop_path": 0.4},
    "resnet8_cifar": {"image_size": 8},
}


@pytest.mark.parametrize("backend", [None, "aot_eager"])
@pytest.mark.parametrize("name", MODELS)
def test_gradients_and_statistics_are_the_same(name, backend):
    plain = load_model(name, num_classes=4, seed=0, **MODELS[name]).train()
    saving = copy.deepcopy(plain)
    checkpoint_blocks(saving)
    x = torch.rand(6, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    for model in (plain, saving):
        if backend:
            model.compile(fullgraph=True, dynamic=False, backend=backend)
        torch.manual_seed(1)
        model(x).square().mean().backward()
    for (key, a), b in zip(plain.named_parameters(), saving.parameters(), strict=True):
        assert a.grad.abs().sum() > 0 or "qkv.bias" in key
        assert torch.allclose(a.grad, b.grad, atol=1e-6), key
    for a, b in zip(plain.buffers(), saving.buffers(), strict=True):
        assert torch.equal(a, b)


def test_less_is_kept():
    kept = {}
    for saving in (False, True):
        model = load_model("vit_digits", num_classes=4, seed=0, image_size=8, **MODEL["options"])
        if saving:
            checkpoint_blocks(model)
        sizes = []
        with torch.autograd.graph.saved_tensors_hooks(lambda t, to=sizes: to.append(t.numel()) or t, lambda t: t):
            model(torch.rand(6, 3, 8, 8))
        kept[saving] = sum(sizes)
    assert kept[True] < kept[False] / 4


def test_a_step_with_an_attack_and_an_average_is_the_same(tmp_path):
    data = write_data(tmp_path / "data.npz")
    jobs = []
    for saving in (False, True):
        train = {"batch_size": 8, "ema": 0.9, "checkpoint_blocks": saving}
        recipe = tiny_recipe(tmp_path / "run", data, train=train, sharpness="sam")
        split = load_data(recipe.data, "train")
        model = load_model(recipe.model, num_classes=4, image_size=8, seed=0)
        jobs.append(Trainer(recipe, model, split, quiet=True))
    stream = batches(jobs[0].data, 8, device="cpu", shuffle_seed=3, drop_last=True)
    for _, batch in zip(range(2), stream, strict=False):
        parts = [job.step(batch) for job in jobs]
        assert parts[0]["loss"].item() == pytest.approx(parts[1]["loss"].item(), rel=1e-5)
    for a, b in zip(jobs[0].average.model.parameters(), jobs[1].average.model.parameters(), strict=True):
        assert torch.allclose(a, b, atol=1e-5)


def test_a_compiled_attack_finds_the_same(tmp_path):
    """Its gradient is traced, which no checkpoint allows: it goes without, and training does not notice."""
    step = torch.compile(ascent_step, fullgraph=True, dynamic=False, backend="eager")
    attack = Ascent(threat=Threat.parse("linf:0.1"), steps=2, keep="last")
    x = torch.rand(4, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    plain = load_model("vit_digits", num_classes=4, seed=0, **MODELS["vit_digits"]).train()
    saving = copy.deepcopy(plain)
    checkpoint_blocks(saving)
    found = []
    for model, how in ((plain, ascent_step), (saving, ascent_step), (saving, step)):
        with preserve_state(model):
            found.append(attack.search(model, x, torch.arange(4), step=how).x_adv)
    assert torch.allclose(found[0], found[1], atol=1e-6) and torch.allclose(found[0], found[2], atol=1e-6)


def test_a_model_without_blocks_is_refused():
    with pytest.raises(UserError, match="checkpoint_blocks"):
        checkpoint_blocks(wrap(Linear(), num_classes=4))
