"""What only a CUDA device can show: captured graphs, compiled steps and bf16 search tell the same story."""

import dataclasses
import json

import numpy as np
import pytest
import torch
from torch import nn

from hardtack.attacks import Ascent, ascent_step
from hardtack.attacks import preserve_state as preserve_state
from hardtack.attacks.pool.fast_copy import FastCopy, search_model
from hardtack.base.capture import Captured
from hardtack.base.randomness import make_keys, normal, uniform
from hardtack.base.runtime import Runtime
from hardtack.data import AugmentConfig, make_augment
from hardtack.evaluation import evaluate, measure_views
from hardtack.models import load_model
from hardtack.threats import Threat
from hardtack.training import read_recipe

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]

X = torch.rand(32, 3, 32, 32, generator=torch.Generator().manual_seed(0))
Y = torch.arange(32) % 10


def small_model():
    return load_model("vit_digits", seed=0)


@pytest.mark.parametrize("threat", ["linf:8/255", "l2:0.5", "l1:12"])
def test_captured_compiled_search_equals_the_eager_one(threat):
    model, attack = small_model().cuda(), Ascent(threat=Threat.parse(threat), steps=5)
    keys, eps = torch.arange(32, device="cuda"), torch.tensor(attack.threat.radius, device="cuda")
    step = torch.compile(ascent_step, fullgraph=True, dynamic=False)
    fast = Captured(lambda x, y, k, e: attack.search(model, x, y, keys=k, eps=e, step=step).x_adv)
    with preserve_state(model):
        slow = attack.search(model, X.cuda(), Y.cuda(), keys=keys, eps=eps).x_adv
        for _ in range(6):  # warm, recorded, replayed
            quick = fast(X.cuda(), Y.cuda(), keys, eps).clone()
        other = fast(X.cuda().flip(0), Y.cuda().flip(0), keys.flip(0), eps).clone().flip(0)
    assert (quick - slow).abs().mean() < 1e-3  # sign steps flip on rounding noise here and there
    assert torch.allclose(quick, other, atol=1e-3) or (quick - other).abs().mean() < 1e-3
    assert attack.threat.contains(quick.cpu(), X).all()


def test_random_numbers_are_the_same_on_both_devices():
    keys = make_keys(torch.arange(64), 3)
    assert torch.equal(uniform(keys, (3, 32, 32)), uniform(keys.cuda(), (3, 32, 32)).cpu())
    assert torch.allclose(normal(keys, (99,)), normal(keys.cuda(), (99,)).cpu(), atol=1e-4)


def test_augmentation_is_the_same_on_both_devices():
    augment = make_augment(AugmentConfig(flip=0.5, crop_padding=4, erase=0.5), num_classes=10)
    keys = make_keys(torch.arange(32), 1)
    x, _ = augment(X, Y, keys)
    x_cuda, _ = augment.cuda()(X.cuda(), Y.cuda(), keys.cuda())
    assert torch.allclose(x, x_cuda.cpu(), atol=1e-5)


def test_bf16_search_is_verified_in_fp32():
    model = small_model()
    found = {
        precision: evaluate(model, (X, Y), threat="linf:8/255", runtime=Runtime(precision=precision), quiet=True)
        for precision in ("fp32", "bf16")
    }
    assert abs(found["bf16"].robust_accuracy - found["fp32"].robust_accuracy) <= 2 / 32


@pytest.mark.parametrize("objective", ["standard", "adversarial", "trades", "mart", "alp", "free", "rspc"])
def test_training_learns_on_the_gpu_and_resumes(objective, tmp_path):
    from hardtack.commands.train import train

    words = ["train.epochs=6", "train.batch_size=128", f"objective={objective}", "runtime.precision=bf16",
             "model=vit_digits", "optimiser.lr=2e-3", "train.ema=0.9"]  # fmt: skip
    if objective in ("adversarial", "trades", "mart", "alp"):
        words += ["objective.attack.name=pgd", "objective.attack.threat=linf:0.05", "objective.attack.steps=2"]
    recipe = read_recipe(None, [*words, f"output={tmp_path / 'run'}"])
    folder = train(recipe, quiet=True)
    assert (folder / "checkpoints/best.safetensors").exists()
    again = train(dataclasses.replace(recipe), quiet=True)  # nothing left to do
    assert again == folder


ATTACKED = ["objective=adversarial", "objective.attack.name=fgsm", "objective.attack.threat=linf:0.05"]
SGD = ["optimiser.name=sgd", "optimiser.lr=0.01"]  # the first steps of AdamW turn noise of any size into full steps
LOOPS = {
    "attacked": ATTACKED,
    "sam": ["sharpness=sam"],
    "awp_attacked": ["sharpness=awp", *ATTACKED],
    "rspc": ["objective=rspc", "objective.weight=0.5"],
    "rspc_ce": ["objective=rspc", "objective.weight=0.5", "objective.occluder_objective=ce"],
    "free": ["objective=free", "objective.replays=2", "objective.threat=linf:0.05"],
    "strongest": ["objective=trades", "objective.attacks=[{name: pgd, threat: 'linf:0.05', steps: 2}, "
                  "{name: pgd, threat: 'l2:0.5', steps: 2}]", "objective.attack=null"],
    "two_statistics": ["model=preact_resnet18_cifar", *SGD, "objective=trades", "objective.attack.steps=2",
                       "objective.separate_statistics=attacked", "objective.attack.threat=linf:0.05"],
    "batch_norm": ["model=preact_resnet18_cifar", *SGD, *ATTACKED],
    "parts": ["train.accumulate=2", *ATTACKED],
    "dropped": ["model=deit_tiny_patch4_32", "model.options.drop_path=0.2", *SGD],
}  # fmt: skip


def losses(folder, loop, compile):
    """The loss of every step of a short training."""
    from hardtack.commands.train import train

    words = ["model=vit_digits", "train.epochs=2", "train.batch_size=128", "train.log_every=1", "optimiser.lr=1e-3"]
    words += [f"runtime.compile={compile}", f"output={folder / str(compile)}", *LOOPS[loop]]
    lines = (train(read_recipe(None, words), quiet=True) / "metrics.jsonl").read_text().splitlines()
    return [line["loss"] for line in map(json.loads, lines) if line["kind"] == "train"]


@pytest.mark.parametrize("loop", LOOPS)
def test_replayed_updates_lead_where_eager_ones_do(loop, tmp_path):
    """Graphs hand out gradients in memory that the next pass overwrites: a loop that keeps one too long goes astray."""
    recorded, plain = losses(tmp_path, loop, "null"), losses(tmp_path, loop, "false")
    assert len(recorded) == len(plain) >= 18 and recorded[-1] < recorded[0]
    assert recorded == pytest.approx(plain, rel=0.02)


def test_an_objective_with_second_derivatives_trains_without_the_fast_layers():
    from hardtack.objectives.contract import Objective
    from hardtack.training.loss_gradient import LossGradient, RecordedLossGradient

    class Penalised(Objective):
        def forward(self, x, y):
            x = x.detach().requires_grad_()
            loss = nn.functional.cross_entropy(self.model(x), y)
            slope = torch.autograd.grad(loss, x, create_graph=True)[0]
            return {"loss": loss + 100 * slope.square().sum()}

    found = []
    for kind in (LossGradient, RecordedLossGradient):
        objective = Penalised(load_model("mixer_tiny_patch4_32", seed=0).cuda().train(), None)
        gradient = kind(objective, Runtime(device="cuda"), accumulate=1)
        for _ in range(6):  # recorded on the way
            objective.zero_grad()
            loss = float(gradient(X.cuda(), Y.cuda(), {}, last=True)["loss"])
        found.append((loss, [parameter.grad.clone() for parameter in objective.parameters()]))
    (loss, plain), (again, recorded) = found
    assert again == pytest.approx(loss, rel=1e-3)
    assert all(torch.allclose(*pair, rtol=0.01, atol=1e-4) for pair in zip(plain, recorded, strict=True))


@pytest.mark.parametrize("loop", ["attacked", "sam", "rspc"])
def test_compiled_updates_lead_where_eager_ones_do(loop, tmp_path):
    assert losses(tmp_path, loop, "true") == pytest.approx(losses(tmp_path, loop, "false"), rel=0.02)


@pytest.mark.parametrize("name", ["vit_digits", "preact_resnet18_cifar"])
def test_a_copy_follows_the_model_in_training(name):
    """Weights and statistics of batch norm as they are now, not as they were when the copy was made."""
    model = load_model(name, seed=0).cuda().eval()
    x = torch.rand(16, 3, 32, 32, device="cuda")
    copy = search_model(model, Runtime(device="cuda"), "bf16", x[:8]).model
    assert isinstance(copy, FastCopy)
    with torch.no_grad():
        for value in model.state_dict().values():
            if value.is_floating_point():
                value.mul_(0.9).add_(0.02)
        stale = (copy(x) - model(x)).abs().mean()
        copy.follow(model)
        fresh = (copy(x) - model(x)).abs().mean()
    assert fresh < 0.05 * model(x).std() and fresh < stale / 4


# ---------------------------------------------------------------- the attack engine


SHORT = {"apgd_ce": 12, "apgd_t": 8, "fab_t": 6, "square": 40}


def robust_under(names, threat, compile):
    """Verdicts of a list of short searches on the GPU, as graphs or step by step."""
    model = small_model()
    with torch.no_grad():
        y = model.eval()(X).argmax(dim=1)
    listed = tuple({"name": name, "steps": SHORT[name]} for name in names)
    runtime = Runtime(device="cuda", compile=compile)
    return evaluate(model, (X, y), suite="attacks", attacks=listed, threat=threat, runtime=runtime, quiet=True)


@pytest.mark.parametrize("threat", ["linf:4/255", "l2:0.5", "l1:8"])
@pytest.mark.parametrize("name", SHORT)
def test_every_search_is_recorded_and_finds_what_it_finds_unrecorded(name, threat):
    recorded, plain = (robust_under([name], threat, compile) for compile in (None, False))
    assert (recorded.robust == plain.robust).mean() >= 0.95  # the edge of a decision is a matter of rounding
    assert recorded.verdicts["forwards"].sum() > 0


@pytest.mark.parametrize("tier", ["verified", "fast"])
def test_a_coarse_search_is_as_strong_as_a_fine_one(tier):
    model = small_model()
    with torch.no_grad():
        y = model.eval()(X).argmax(dim=1)
    settings = {"suite": "autoattack", "threat": "linf:4/255", "quiet": True}
    coarse = evaluate(model, (X, y), tier=tier, runtime=Runtime(device="cuda"), **settings)
    fine = evaluate(model, (X, y), tier="fast", runtime=Runtime(device="cpu"), **settings)
    assert "bf16" in coarse.results[-1].precision
    assert abs(coarse.robust_accuracy - fine.robust_accuracy) <= 1 / 32


def test_compiled_blocks_tell_the_same_story():
    found = [robust_under(["apgd_ce", "square"], "linf:4/255", compile) for compile in (True, None)]
    assert (found[0].robust == found[1].robust).mean() >= 0.95


class Waits(nn.Module):
    """Asks the device for a number in every pass, as many published models do."""

    def __init__(self):
        super().__init__()
        self.body = small_model()

    def forward(self, x):
        logits = self.body(x)
        return logits if logits.sum().item() < 1e9 else logits * 0


def test_a_model_that_cannot_be_recorded_is_attacked_all_the_same():
    model = Waits().cuda().eval()
    with torch.no_grad():
        y = model(X.cuda()).argmax(dim=1)
    settings = {"suite": "autoattack", "tier": "fast", "threat": "linf:4/255", "quiet": True}
    with pytest.warns(UserWarning, match="cannot be recorded"):
        found = evaluate(model, (X, y.cpu()), **settings)
    plain = evaluate(model.body, (X, y.cpu()), **settings)
    assert (found.robust == plain.robust).mean() >= 0.95
    assert torch.rand(3, device="cuda").isfinite().all()  # the broken recording left nothing behind


@pytest.mark.parametrize("name", ["vit_digits", "resnet8_cifar"])
def test_the_double_has_its_models_gradients(name):
    model = load_model(name, seed=0).cuda().eval()
    x = X.cuda().requires_grad_()
    runtime = Runtime(device="cuda")
    with preserve_state(model), runtime.arithmetic("fp32"):
        double = search_model(model, runtime, "tf32", X[:8].cuda()).model
        wanted, got = (torch.autograd.grad(one(x)[:, 3].sum(), x)[0] for one in (model, double))
    assert double is not model and torch.allclose(got, wanted, rtol=1e-3, atol=1e-4 * wanted.abs().max())


FORWARD_ONLY = {
    "corruptions": {"types": ("gaussian_noise", "fog", "jpeg_compression"), "confidence": False},
    "perturbations": {"types": ("rotate", "gaussian_noise")},
    "patches": {"patches": {"masks": 5, "patch_size": 4}, "confidence": False},
}


@pytest.mark.parametrize("suite", FORWARD_ONLY)
@pytest.mark.parametrize("name", ["vit_digits", "resnet8_cifar"])
def test_coarse_predictions_store_what_fp32_stores(name, suite, tmp_path, monkeypatch):
    """Every verdict of 2,500 images: more than one piece, and a ragged last one."""
    x = torch.rand(2500, 3, 32, 32, generator=torch.Generator().manual_seed(1)).pow(
        torch.linspace(0.3, 3, 2500)[:, None, None, None]
    )
    model = load_model(name, num_classes=10, image_size=32, seed=0)
    with torch.no_grad():
        y = model.eval()(x).argmax(dim=1)
    made, make = [], measure_views.make_predictor
    monkeypatch.setattr(measure_views, "make_predictor", lambda *given: made.append(make(*given)) or made[-1])
    found = {}
    for way in ("coarse", "fp32"):
        with monkeypatch.context() as patch:
            if way == "fp32":
                patch.setattr(measure_views, "COARSE_ON", ())
            settings = {**FORWARD_ONLY[suite], "folder": tmp_path / way, "runtime": Runtime(device="cuda")}
            found[way] = evaluate(model, (x, y), suite=suite, quiet=True, **settings)
    (used,) = made
    assert used is not None and used.counts.images > 0, "no copy was precise enough"
    assert used.counts.exact < used.counts.images / 2
    assert found["coarse"].id == found["fp32"].id
    for column, values in found["fp32"].verdicts.items():
        assert np.array_equal(values, found["coarse"].verdicts[column]), column
    files = [next((tmp_path / way / "verdicts").glob("*.parquet")).read_bytes() for way in ("coarse", "fp32")]
    assert files[0] == files[1]
    for one, other in zip(found["coarse"].results, found["fp32"].results, strict=True):
        assert (one.metric, one.value, one.low, one.high, one.precision) == (
            other.metric, other.value, other.low, other.high, other.precision,
        )  # fmt: skip


def test_the_l1_projection_is_the_same_on_both_devices():
    ball = Threat.parse("l1:12").ball
    z = X + normal(make_keys(torch.arange(32), 1), (3, 32, 32))
    for eps in (12.0, torch.linspace(0.5, 40, 32)):
        wanted = ball.project(z, X, eps)
        got = ball.project(z.cuda(), X.cuda(), eps.cuda() if isinstance(eps, torch.Tensor) else eps).cpu()
        assert torch.allclose(got, wanted, atol=1e-5) and (ball.size(got - X) <= eps).all()


def test_convolutions_are_trained_channels_last_and_saved_as_ever(tmp_path):
    from hardtack import load_run, train

    words = ["train.epochs=1", "train.batch_size=128", "runtime.precision=bf16", "model=resnet8_cifar", "train.ema=0.9"]
    folder = train(read_recipe(None, [*words, f"output={tmp_path / 'run'}"]), quiet=True)
    assert all(parameter.is_contiguous() for parameter in load_run(folder).parameters())


def test_one_image_has_the_gradient_it_has_in_a_pair():
    """Through batch norm and into tokens: on CPUs torch gets that wrong (attacks/batchnorm_fix.py)."""
    model = load_model("levit_128s_32", seed=0).cuda().eval()
    x = X[:2].cuda()

    def gradient(images):
        images = images.clone().requires_grad_()
        return torch.autograd.grad(model(images).logsumexp(dim=1).sum(), images)[0]

    with preserve_state(model):
        pair, alone = gradient(x)[:1], gradient(x[:1])
    assert torch.nn.functional.cosine_similarity(pair.flatten(), alone.flatten(), dim=0) > 0.999
