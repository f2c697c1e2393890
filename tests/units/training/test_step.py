"""One update against an update written out by hand, and what must hold whatever the settings."""

import pytest
import torch
from torch import nn

from hardtack.base.errors import UserError
from hardtack.data import batches, load_data
from hardtack.models import load_model, wrap
from hardtack.training import Trainer
from tiny_runs import MODEL, Linear, tiny_recipe, write_data

PLAIN = {"augment": {}, "objective": "standard", "schedule": {"name": "constant"}}


@pytest.fixture
def data(tmp_path):
    return write_data(tmp_path / "data.npz")


def trainer(tmp_path, data, model=None, *, model_section=MODEL, **sections):
    recipe = tiny_recipe(tmp_path / "run", data, **{**PLAIN, "model": model_section, **sections})
    split = load_data(recipe.data, "train")
    model = model or load_model(recipe.model, num_classes=split.num_classes, image_size=8, seed=0)
    return Trainer(recipe, model, split, quiet=True)


def some_batches(job, count):
    stream = batches(job.data, job.config.batch_size, device="cpu", shuffle_seed=3, drop_last=True)
    return [next(stream) for _ in range(count)]


def gradients(weight, bias, batch):
    """Of the mean cross-entropy of x·W + b, by its closed form: (softmax − one-hot)ᵀ x / n."""
    x = batch.x.flatten(1)
    p = (x @ weight.T + bias).softmax(dim=1) - torch.eye(len(bias))[batch.y]
    return p.T @ x / len(x), p.mean(dim=0)


def test_adamw_moves_as_its_paper_says(tmp_path, data):
    optimiser = {"name": "adamw", "lr": 0.01, "weight_decay": 0.5, "betas": [0.8, 0.95]}
    train = {"epochs": 1, "batch_size": 8}
    job = trainer(tmp_path, data, wrap(Linear(), num_classes=4), optimiser=optimiser, train=train)
    head = job.model.body.head
    values = [head.weight.detach().clone(), head.bias.detach().clone()]
    first, second = [torch.zeros_like(v) for v in values], [torch.zeros_like(v) for v in values]
    for t, batch in enumerate(some_batches(job, 3), start=1):
        for i, g in enumerate(gradients(*values, batch)):
            first[i] = 0.8 * first[i] + 0.2 * g
            second[i] = 0.95 * second[i] + 0.05 * g * g
            shrink = 1 - 0.01 * 0.5 if i == 0 else 1.0  # the bias does not decay
            step = (first[i] / (1 - 0.8**t)) / ((second[i] / (1 - 0.95**t)).sqrt() + 1e-8)
            values[i] = values[i] * shrink - 0.01 * step
        job.step(batch)
    assert torch.allclose(head.weight, values[0], atol=1e-5) and torch.allclose(head.bias, values[1], atol=1e-5)


def test_sgd_moves_with_momentum_and_coupled_decay(tmp_path, data):
    optimiser = {"name": "sgd", "lr": 0.1, "weight_decay": 0.1, "momentum": 0.9}
    train = {"epochs": 1, "batch_size": 8}
    job = trainer(tmp_path, data, wrap(Linear(), num_classes=4), optimiser=optimiser, train=train)
    head = job.model.body.head
    values = [head.weight.detach().clone(), head.bias.detach().clone()]
    velocity = [torch.zeros_like(v) for v in values]
    for batch in some_batches(job, 3):
        for i, g in enumerate(gradients(*values, batch)):
            velocity[i] = 0.9 * velocity[i] + g + (0.1 * values[i] if i == 0 else 0)
            values[i] = values[i] - 0.1 * velocity[i]
        job.step(batch)
    assert torch.allclose(head.weight, values[0], atol=1e-5) and torch.allclose(head.bias, values[1], atol=1e-5)


def test_the_schedule_is_read_before_the_step_it_belongs_to(tmp_path, data):
    schedule = {"name": "cosine", "warmup_epochs": 1, "warmup_lr": 0.0}
    optimiser = {"name": "sgd", "lr": 0.1}
    job = trainer(tmp_path, data, wrap(Linear(), num_classes=4), schedule=schedule, optimiser=optimiser)
    before = job.model.body.head.weight.detach().clone()
    first, second = some_batches(job, 2)
    job.step(first)
    assert torch.equal(job.model.body.head.weight, before), "step 0 of a warm-up from zero moves nothing"
    job.step(second)
    assert not torch.equal(job.model.body.head.weight, before)


# ---------------------------------------------------------------- accumulation, clipping, averages

ADVERSARIAL = {"name": "adversarial", "attack": {"name": "pgd", "threat": "linf:0.1", "steps": 2}}


@pytest.mark.parametrize("objective", ["standard", ADVERSARIAL, {**ADVERSARIAL, "name": "trades"}])
def test_four_micro_steps_equal_one_step(tmp_path, data, objective):
    jobs = [
        trainer(tmp_path, data, model=None, objective=objective, train={"batch_size": 8, "accumulate": count},
                optimiser={"name": "sgd", "lr": 0.1}) for count in (1, 4)
    ]  # fmt: skip
    for job in jobs:
        job.model.load_state_dict(jobs[0].model.state_dict())
        job.model.eval()  # drop_path draws per image of a micro-batch; it is not what is tested here
    for batch in some_batches(jobs[0], 3):
        logged = [job.step(batch) for job in jobs]
        for name in logged[0]:
            assert logged[1][name].item() == pytest.approx(logged[0][name].item(), abs=1e-4), name
    for a, b in zip(jobs[0].model.parameters(), jobs[1].model.parameters(), strict=True):
        assert torch.allclose(a, b, atol=1e-5)


def test_clipping_bounds_the_step_and_reports_the_norm_before_it(tmp_path, data):
    lengths, norms = {}, {}
    for clip in (None, 0.05):
        optimiser = {"name": "sgd", "lr": 1.0, "momentum": 0.0, "weight_decay": 0.0}
        train = {"batch_size": 8, "clip": clip}
        job = trainer(tmp_path, data, wrap(Linear(), num_classes=4), optimiser=optimiser, train=train)
        before = [p.detach().clone() for p in job.model.parameters()]
        norms[clip] = job.step(some_batches(job, 1)[0])["gradient_norm"].item()
        moved = [p.detach() - b for p, b in zip(job.model.parameters(), before, strict=True)]
        lengths[clip] = torch.cat([m.flatten() for m in moved]).norm().item()
    assert norms[None] > 0.1, "the gradient must be long enough for clipping to matter"
    assert norms[0.05] == pytest.approx(norms[None])
    assert lengths[None] == pytest.approx(norms[None], rel=1e-4)
    assert lengths[0.05] == pytest.approx(0.05, rel=1e-3)


def test_the_average_is_taken_after_the_step(tmp_path, data):
    job = trainer(tmp_path, data, train={"batch_size": 8, "ema": 0.5})
    before = [p.detach().clone() for p in job.model.parameters()]
    job.step(some_batches(job, 1)[0])
    decay = min(0.5, 2 / 11)
    for mine, old, new in zip(job.average.model.parameters(), before, job.model.parameters(), strict=True):
        assert torch.allclose(mine, decay * old + (1 - decay) * new, atol=1e-6)


def test_dropout_depends_on_seed_and_step_alone(tmp_path, data):
    batch = some_batches(trainer(tmp_path, data), 1)[0]
    losses = []
    for global_seed in (1, 2):
        job = trainer(tmp_path, data)
        torch.manual_seed(global_seed)
        losses.append([job.step(batch)["loss"].item() for _ in range(2)])
    assert losses[0] == losses[1]


def test_every_step_drops_other_branches(tmp_path, data):
    """The same batch, weights that all but stand still: only the masks of drop path can change the loss."""
    model = {**MODEL, "options": {**MODEL["options"], "drop_path": 0.5}}
    optimiser = {"name": "sgd", "lr": 1e-12}
    job = trainer(tmp_path, data, model_section=model, optimiser=optimiser)
    batch = some_batches(job, 1)[0]
    losses = [job.step(batch)["loss"].item() for _ in range(4)]
    assert len(set(losses)) == 4


def test_augmentation_and_attack_differ_from_epoch_to_epoch_and_seed_to_seed(tmp_path, data):
    """The same images again, one epoch later: other crops, other random starts."""

    def prepared(epoch, seed):
        objective = {"name": "adversarial", "attack": {"name": "pgd", "threat": "linf:0.1", "steps": 1}}
        runtime = {"device": "cpu", "seed": seed}
        job = trainer(tmp_path, data, augment={"crop_padding": 2}, objective=objective, runtime=runtime)
        batch, seen = some_batches(trainer(tmp_path, data), 1)[0], []
        prepare = job.objective.prepare
        job.objective.prepare = lambda x, y, **k: seen.append((x, prepare(x, y, **k)["x_adv"])) or prepare(x, y, **k)
        job.progress.done = epoch * job.steps_per_epoch
        job.step(batch)
        return seen[0][0], seen[0][1] - seen[0][0]

    first, again, later, other = prepared(0, 3), prepared(0, 3), prepared(1, 3), prepared(0, 4)
    for part in (0, 1):
        assert torch.equal(first[part], again[part])
        assert not torch.equal(first[part], later[part]) and not torch.equal(first[part], other[part])


@pytest.mark.parametrize(
    "objective, radius",
    [
        ("standard", {}),
        ({**ADVERSARIAL, "warmup": {"epochs": 4}}, {"eps_share": 0.25, "eps": 0.025}),
        ({"name": "free", "threat": "linf:0.1", "warmup": {"epochs": 2}}, {"eps_share": 0.5, "eps": 0.05}),
    ],
)
def test_the_radius_at_an_epoch_is_logged(tmp_path, data, objective, radius):
    job = trainer(tmp_path, data, objective=objective)
    assert job.objective.radius(1.0) == pytest.approx(radius)


# ---------------------------------------------------------------- numbers that are none


class Poisoned(nn.Module):
    """Its loss is NaN from the given call on."""

    def __init__(self, *, after):
        super().__init__()
        self.linear, self.calls, self.after = Linear(), 0, after

    def forward(self, x):
        self.calls += 1
        return self.linear(x) * (torch.nan if self.calls > self.after else 1.0)


@pytest.mark.parametrize("accumulate, after, step", [(1, 2, 2), (2, 4, 2), (2, 5, 2)])
def test_a_loss_of_nan_stops_before_the_weights_change(tmp_path, data, accumulate, after, step):
    train = {"batch_size": 8, "accumulate": accumulate}
    job = trainer(tmp_path, data, wrap(Poisoned(after=after), num_classes=4), train=train)
    for batch in some_batches(job, 2):
        job.step(batch)
    before = [p.detach().clone() for p in job.model.parameters()]
    with pytest.raises(UserError, match=f"step {step}.*not updated"):
        job.step(some_batches(job, 1)[0])
    assert all(torch.equal(p, b) for p, b in zip(job.model.parameters(), before, strict=True))
    assert not job.optimiser.state or all(s["step"] == 2 for s in job.optimiser.state.values())


def test_an_infinite_gradient_stops_even_where_the_loss_is_finite(tmp_path, data):
    job = trainer(tmp_path, data, wrap(Linear(), num_classes=4), train={"batch_size": 8, "clip": 1.0})
    job.model.body.head.weight.register_hook(lambda g: g * torch.inf)
    with pytest.raises(UserError, match="gradient norm"):
        job.step(some_batches(job, 1)[0])
    assert job.model.body.head.weight.isfinite().all()


# ---------------------------------------------------------------- batches that do not fit


def test_a_batch_larger_than_the_data_is_refused(tmp_path, data):
    with pytest.raises(UserError, match=r"64.*32 images"):
        trainer(tmp_path, data, train={"batch_size": 64})


def test_a_batch_that_does_not_divide_into_micro_steps_is_refused(tmp_path, data):
    with pytest.raises(UserError, match=r"batch_size 8 .*3"):
        trainer(tmp_path, data, train={"batch_size": 8, "accumulate": 3})


TIMM = {"mixup": 0.8, "cutmix": 1.0, "mix_mode": "batch", "erase": 0.5, "erase_mode": "normalised"}


def test_batches_are_mixed_alike_in_parts_in_groups_and_after_a_restart(tmp_path, data):
    """What mix_mode=batch draws depends on (seed, epoch, step): not on accumulation, nor on the steps made before."""

    def seen(job, batch):
        parts = [(x, y) for x, y, _ in job._micro_batches(batch)]
        return [torch.cat(each) for each in zip(*parts, strict=True)]

    train = {"epochs": 2, "batch_size": 8, "accumulate": 1}
    job = trainer(tmp_path, data, augment=TIMM, train=train)
    batch = some_batches(job, 2)[1]
    x, y = seen(job, batch)
    assert len({round(float(share), 5) for share in y.max(dim=1).values if share < 1}) == 1, "one share for the batch"
    split = trainer(tmp_path, data, augment=TIMM, train=train | {"accumulate": 4})
    assert all(map(torch.equal, seen(split, batch), (x, y)))
    job.step(some_batches(job, 1)[0])
    assert all(map(torch.equal, seen(job, batch), (x, y)))
    groups = trainer(tmp_path, data, augment={**TIMM, "mix_batch": 4}, train=train)
    halves = [batch._replace(x=batch.x[at], y=batch.y[at], index=batch.index[at]) for at in (slice(0, 4), slice(4, 8))]
    apart = [torch.cat(each) for each in zip(*(seen(groups, half) for half in halves), strict=True)]
    assert all(map(torch.equal, seen(groups, batch), apart)), "two processes of four images each"


def test_erased_pixels_are_in_the_models_units(tmp_path, data):
    model = wrap(Linear(), num_classes=4, mean=[0.2, 0.3, 0.4], std=0.1)
    job = trainer(tmp_path, data, model, augment={"erase": 1.0, "erase_mode": "normalised"})
    assert job.augment.mean.flatten().tolist() == pytest.approx([0.2, 0.3, 0.4])
    assert job.augment.std.flatten().tolist() == pytest.approx([0.1] * 3)
    plain = trainer(tmp_path, data, Linear(), augment={"erase": 1.0, "erase_mode": "normalised"})
    assert not plain.augment.mean.any() and (plain.augment.std == 1).all()
