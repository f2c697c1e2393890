"""RSPC in a run: accumulated, compiled, resumed to the bit, its occluder kept for measuring."""

import pytest
import torch

import hardtack as ht
from hardtack.base.errors import UserError
from hardtack.data import batches, load_data
from hardtack.models import load_model, load_occluder
from hardtack.objectives import RSPCConfig
from hardtack.training import Trainer
from rspc_toys import small_vit
from tiny_runs import MODEL, images, labels, tiny_recipe, write_data

STILL = {**MODEL, "options": {**MODEL["options"], "drop_path": 0.0}}
# steps so large that a difference in the occluder would show in a few of them
RSPC = {"name": "rspc", "weight": 0.1, "share": 0.25, "warmup_epochs": 1, "occluder": {"lr": 0.01}}


@pytest.fixture
def data(tmp_path):
    return write_data(tmp_path / "data.npz")


def trained(tmp_path, data, *, accumulate=1, objective=RSPC, steps=3):
    """The objective after a few steps on the same batches."""
    train = {"epochs": 2, "batch_size": 8, "accumulate": accumulate}
    optimiser = {"name": "sgd", "lr": 0.1}  # AdamW would blow up rounding where a gradient is zero by nature
    recipe = tiny_recipe(tmp_path / "run", data, model=STILL, objective=objective, train=train, optimiser=optimiser)
    split = load_data(recipe.data, "train")
    job = Trainer(recipe, load_model(recipe.model, num_classes=4, image_size=8, seed=0), split, quiet=True)
    stream = batches(split, 8, device="cpu", shuffle_seed=3, drop_last=True)
    job.progress.done = job.steps_per_epoch  # beyond the warm-up
    parts = [job.step(next(stream)) for _ in range(steps)]
    return job.objective, parts


@pytest.mark.parametrize("objective", [RSPC, {**RSPC, "occluder_objective": "ce"}, {**RSPC, "patch_augment": True}])
def test_micro_batches_make_the_same_steps_of_both_players(tmp_path, data, objective):
    (whole, first), (split, second) = (trained(tmp_path, data, accumulate=n, objective=objective) for n in (1, 2))
    fresh = RSPCConfig(share=0.25).build(load_model("vit_digits", image_size=8, **MODEL["options"]))
    start = fresh.opponent.state_dict()
    for name, value in whole.opponent.state_dict().items():
        assert torch.allclose(value, split.opponent.state_dict()[name], rtol=1e-3, atol=1e-5), name
        if "mean" not in name and "std" not in name:
            assert not torch.allclose(value, start[name], atol=1e-3), f"{name} must have moved"
    for a, b in zip(whole.model.parameters(), split.model.parameters(), strict=True):
        assert torch.allclose(a, b, atol=1e-5)
    for one, other in zip(first, second, strict=True):
        for name in one.keys() - {"mask_variety"}:  # a fact about a batch
            assert one[name].item() == pytest.approx(other[name].item(), rel=1e-3, abs=1e-5), name
    assert first[0]["occluder_gradient_norm"] == 0 < first[1]["occluder_gradient_norm"]


def test_the_optimiser_does_not_move_the_occluder(tmp_path, data):
    objective, _ = trained(tmp_path, data, objective={**RSPC, "occluder": {"lr": 0.0}})
    fresh = RSPCConfig(share=0.25).build(small_vit()).opponent.occluder
    assert all(
        torch.equal(a, b) for a, b in zip(objective.opponent.occluder.parameters(), fresh.parameters(), strict=True)
    )


class Interrupted(Exception):
    pass


def outcome(folder):
    files = sorted((folder / "checkpoints").glob("*.safetensors"))
    state = torch.load(folder / "checkpoints" / "state.pt", weights_only=True)
    return {file.name: file.read_bytes() for file in files}, state["objective"]


def test_a_run_that_was_killed_ends_with_the_same_model_and_occluder(tmp_path, data, monkeypatch):
    """Moving average, drop path and accumulation on; stopped in the middle of an epoch."""
    train = {"epochs": 2, "batch_size": 8, "accumulate": 2, "ema": 0.9, "checkpoint_every_s": -1.0}
    found = []
    for attempt in ("once", "twice"):
        recipe = tiny_recipe(tmp_path / "run", data, objective=RSPC, train=train)
        if attempt == "twice":
            with monkeypatch.context() as patch:
                step = Trainer.step

                def failing(self, batch, step=step):
                    if self.progress.done == 5:
                        raise Interrupted
                    return step(self, batch)

                patch.setattr(Trainer, "step", failing)
                with pytest.raises(Interrupted):
                    ht.train(recipe, quiet=True)
        ht.train(recipe, quiet=True)
        found.append(outcome(tmp_path / "run"))
        (tmp_path / "run").rename(tmp_path / attempt)
    (files, state), (files_again, state_again) = found
    assert files == files_again
    assert {"best.safetensors", "last.safetensors", "best.occluder.safetensors", "last.occluder.safetensors"} == set(
        files
    )
    assert state.keys() == state_again.keys() and all(torch.equal(state[key], state_again[key]) for key in state)
    assert state["opponent.velocity_mix_weight"].abs().sum() > 0


def test_the_occluder_of_a_run_chooses_masks_for_measuring(tmp_path, data):
    recipe = tiny_recipe(tmp_path / "run", data, objective=RSPC, train={"epochs": 1, "batch_size": 8})
    folder = ht.train(recipe, quiet=True)
    occluder = load_occluder(folder)
    assert (occluder.image_size, occluder.patch_size, occluder.share) == (8, 4, 0.25)
    state = torch.load(folder / "checkpoints" / "state.pt", weights_only=True)["objective"]
    assert torch.equal(occluder.mix.weight, state["opponent.occluder.mix.weight"])
    x, y = images(), labels()
    model = ht.load_run(folder)
    found = ht.evaluate(model, (x, y), suite="patches", patches={"choose": "occluder", "occluder": str(folder)})
    assert "right@occlude/0" in found.verdicts
    other = tiny_recipe(tmp_path / "plain", data, objective="standard", train={"epochs": 1, "batch_size": 8})
    with pytest.raises(UserError, match="not trained with objective=rspc"):
        load_occluder(ht.train(other, quiet=True))


# ---------------------------------------------------------------- compiled


@pytest.mark.parametrize(
    "name, options, settings",
    [
        ("vit_digits", {"depth": 2}, {}),
        ("vit_digits", {"depth": 2}, {"choose": "random", "patch_augment": True, "noise": "normalised"}),
        ("vit_digits", {"depth": 2}, {"occluder_objective": "ce", "damage": "drop", "on": "both"}),
        ("vit_digits", {"depth": 2}, {"occluder_objective": "both", "damage": "drop", "fill": "mean"}),
        ("rvt_tiny_32", {"widths": (16, 32), "depths": (1, 1), "heads": (2, 2)}, {"detach_clean": True}),
        ("fan_tiny_hybrid_32", {"width": 16, "depth": 1, "heads": 2, "stem_depths": (1, 1)}, {}),
    ],
)
def test_it_is_one_graph_and_says_the_same(name, options, settings):
    torch._dynamo.reset()

    def made():
        model = load_model(name, num_classes=4, image_size=32, seed=0, **options).train()
        return RSPCConfig(weight=0.1, **settings).build(model)

    eager, compiled = made(), made()
    compiled.compile(backend="eager", fullgraph=True, dynamic=False)
    x, y = images(3, side=32), labels(3)
    with torch._dynamo.config.patch(error_on_recompile=True):
        for step in range(2):  # the second time must find the graph of the first
            said = []
            for objective in (eager, compiled):
                out = objective(x, y, **objective.prepare(x, y, keys=torch.arange(3) + step, epoch=float(step)))
                out["loss"].backward()
                said.append({part: value.item() for part, value in out.items()})
            assert said[0] == pytest.approx(said[1], rel=1e-4)
    for (part, a), b in zip(eager.named_parameters(), compiled.parameters(), strict=True):
        assert torch.allclose(a.grad, b.grad, rtol=1e-3, atol=1e-5), part
