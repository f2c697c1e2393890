"""The attack contract over every registered attack and every norm.

An attack is a value: called with a model it returns images inside ball and box, and leaves everything else,
the model's least flag and the process's random state included, as it found it.
"""

import copy
import dataclasses
import functools
import itertools

import pytest
import torch
from torch import nn

from hardtack.attacks import preserve_state as preserve_state
from hardtack.base.config import build, choose, plain
from hardtack.base.errors import UserError
from hardtack.base.registry import attacks
from hardtack.threats import Threat

THREATS = ("linf:8/255", "linf:0.3", "l2:0.5", "l1:3")
CASES = list(itertools.product(attacks.names(), THREATS))
every_case = pytest.mark.parametrize("name, threat", CASES)
every_attack = pytest.mark.parametrize("name", attacks.names())
COUNT = 6

# A table over every attack has no time for their usual lengths, and six by five pixels ask for small patches.
QUICK = {
    "apgd": {"steps": 8}, "apgd_ce": {"steps": 8}, "apgd_dlr": {"steps": 8}, "apgd_t": {"steps": 5},
    "ddn": {"steps": 8}, "deepfool": {"steps": 6}, "ead": {"steps": 10, "searches": 3, "c": 1.0},
    "cw": {"steps": 8}, "cw_search": {"steps": 6, "searches": 2}, "fmn": {"steps": 8},
    "fab": {"steps": 4}, "fab_t": {"steps": 4}, "square": {"steps": 30},
    "boundary": {"steps": 120}, "hopskipjump": {"steps": 6, "samples": 40},
    "nes": {"steps": 12, "samples": 20, "sigma": 0.05}, "spsa": {"steps": 12, "samples": 20},
    "patch_fool": {"steps": 12, "patch_size": 2, "choose": "random", "attention_weight": 0.0},
    "occlusion": {"tries": 6, "patch_size": 2},
}  # fmt: skip
# Nothing random unless targets are drawn: these search from the image itself.
WITHOUT_CHANCE = {"cw", "cw_search", "ddn", "deepfool", "ead", "fab", "fab_t", "fgsm", "fmn"}
# Adam divides by the size of the gradient, which vanishes in the corners of the box: what is left there is noise.
NOISE = {"cw_search": 1e-3}
# These walk along the decision boundary: where it lies outside the ball, the image comes back as it was.
ALL_OR_NOTHING = {"fab", "fab_t"}


class Net(nn.Module):
    """What real models bring along: batch norm, dropout, frozen layers, buffers written and replaced."""

    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 6, 3, padding=1), nn.BatchNorm2d(6), nn.GELU(), nn.Dropout(0.3))
        self.frozen = nn.Conv2d(6, 6, 1).requires_grad_(False)
        self.head = nn.Linear(6, 4)
        self.register_buffer("calls", torch.zeros(()))
        self.register_buffer("writes", torch.zeros(2))
        self.register_buffer("unset", None)
        self.fails_after = None

    def forward(self, x):
        self.calls = self.calls + 1
        self.writes.add_(torch.rand(2))
        self.unset = x.detach().mean()
        if self.fails_after is not None and self.calls > self.fails_after:
            raise ArithmeticError("in the middle of the attack")
        return self.head(self.frozen(self.features(x)).mean((2, 3))) * 20


def trained():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = Net()
        net(torch.rand(8, 3, 6, 5)).sum().backward()
    net.calls, net.unset = torch.zeros(()), None
    return net


def attacked_model():
    """Train mode with mixed flags, gradients in `.grad`, statistics away from their initial values."""
    net = trained().train()
    net.features[1].eval()
    net.frozen.eval()
    return net


@pytest.fixture
def model():
    return attacked_model()


def batch(count=COUNT):
    generator = torch.Generator().manual_seed(1)
    x = torch.rand(count, 3, 6, 5, generator=generator)
    x[0], x[1, :, :3] = x[0].round(), 0.0  # corners and faces of the box
    return x, torch.arange(count) % 4


@functools.cache
def another_model():
    """What transferred images are crafted on: not the attacked model, but one brought up alike."""
    net = trained()
    with torch.no_grad(), torch.random.fork_rng():
        torch.manual_seed(5)
        for parameter in net.parameters():
            parameter += 0.05 * parameter.std(correction=0) * torch.randn_like(parameter)
    return net


def has(name, setting):
    return setting in {field.name for field in dataclasses.fields(attacks.get(name).make)}


def needed(name):
    """Settings without which an attack does not exist, and short lengths."""
    return QUICK.get(name, {}) | ({"source": another_model()} if name == "transfer" else {})


def make(name, threat="linf:8/255", **settings):
    """An attack with those of the settings that it has."""
    known = {key: value for key, value in settings.items() if has(name, key)}
    return choose(attacks, {"name": name, "threat": threat, **needed(name), **known})


def aimed(name, target, y):
    """The attack's own choice of a target is a setting; where it has none, the caller names the classes."""
    return {"target": (y + 1) % 4} if target is not None and not has(name, "target") else {}


@functools.cache
def usual(name, threat="linf:8/255", target=None):
    """What the attack returns when nothing is unusual: several tests compare with it."""
    x, y = batch()
    x_adv = make(name, threat, target=target)(attacked_model(), x, y, **aimed(name, target, y))
    assert x_adv.data_ptr() != x.data_ptr()
    return x_adv


def everything(model):
    """All that an attack could leave changed, as comparable values."""
    state = [torch.get_rng_state(), torch.is_grad_enabled(), torch.is_inference_mode_enabled()]
    for name, module in model.named_modules():
        state += [name, module.training, len(module._forward_hooks), list(module._buffers)]
    for name, parameter in model.named_parameters():
        state += [name, parameter.detach().clone(), parameter.requires_grad, parameter.grad is None]
        state += [] if parameter.grad is None else [parameter.grad.clone()]
    for name, buffer in itertools.chain(*(module._buffers.items() for module in model.modules())):
        state += [name, None if buffer is None else buffer.clone(), id(buffer)]
    return state


def same(before, after):
    return len(before) == len(after) and all(
        torch.equal(a, b) if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor) else a is b or a == b
        for a, b in zip(before, after, strict=True)
    )


# ---------------------------------------------------------------- what comes back


@every_case
def test_images_lie_inside_ball_and_box(name, threat):
    x, _ = batch()
    for target in (None, "random"):
        attack, x_adv = make(name, threat, target=target), usual(name, threat, target)
        assert x_adv.shape == x.shape and x_adv.dtype == torch.float32 and x_adv.isfinite().all()
        assert attack.threat.contains(x_adv, x).all()
        assert not x_adv.requires_grad and x_adv.grad_fn is None and not x_adv.is_inference()


@every_attack
def test_a_ball_without_radius_gives_the_image_back(model, name):
    x, y = batch()
    for norm in ("linf", "l2", "l1"):
        assert torch.equal(make(name, f"{norm}:0")(model, x, y), x)


@every_case
def test_the_loss_rises(model, name, threat):
    """Not just any point of the ball: in eval mode the attacked loss is above the clean one."""
    x, _ = batch()
    model.eval()
    with torch.no_grad():
        y = model(x).argmax(dim=1)  # an image that is misclassified already leaves nothing to search for
    attack = make(name, threat)
    x_adv = attack(model, x, y)
    loss = nn.CrossEntropyLoss(reduction="none")
    with torch.no_grad():
        rise, wrong = loss(model(x_adv), y) - loss(model(x), y), model(x_adv).argmax(dim=1) != y
    assert (rise >= -1e-5).all()
    if name in ALL_OR_NOTHING:
        fallen = model(make("pgd", threat)(model, x, y)).argmax(dim=1) != y
        assert torch.equal(wrong, fallen)
    else:
        enough = 1e-4 if hasattr(attack, "allows") else 1e-3  # a patch is a small part of the image
        assert (rise > enough).sum() >= COUNT - 1


# ---------------------------------------------------------------- what stays as it was


@every_case
@pytest.mark.parametrize("mode", ["eval", "train"])
def test_nothing_else_is_touched(model, name, threat, mode):
    if mode == "train" and not has(name, "mode"):
        pytest.skip("knows evaluation mode only")
    x, y = batch()
    inputs, before = (x.clone(), y.clone()), everything(model)
    make(name, threat, mode=mode)(model, x, y)
    assert same(before, everything(model))
    assert torch.equal(x, inputs[0]) and torch.equal(y, inputs[1])


@every_attack
@pytest.mark.parametrize("after", [0, 1])
def test_nothing_is_touched_when_the_model_fails_midway(model, name, after):
    x, y = batch()
    model.fails_after = after
    before = everything(model)
    with pytest.raises(ArithmeticError):
        make(name, mode="train")(model, x, y)
    assert same(before, everything(model))


@pytest.mark.parametrize("what", ["flag", "buffer", "replaced", "gradient", "frozen", "weight", "random"])
def test_a_trace_left_behind_is_seen(model, what):
    """Mutants of the contract: `everything` must notice each of them."""
    before = everything(model)
    with torch.random.fork_rng():
        {
            "flag": lambda: model.features[1].train(),
            "buffer": lambda: model.features[1].running_mean.add_(1e-6),
            "replaced": lambda: setattr(model, "calls", model.calls.clone()),
            "gradient": lambda: model.head.weight.grad.add_(1e-6),
            "frozen": lambda: model.frozen.requires_grad_(True),
            "weight": lambda: model.head.weight.data.add_(1e-6),
            "random": lambda: torch.rand(1),
        }[what]()
        assert not same(before, everything(model))


def test_untouched_alone_restores_what_it_promises(model):
    before = everything(model)
    with pytest.raises(KeyError), torch.no_grad(), preserve_state(model, mode="train"):
        assert torch.is_grad_enabled() and all(module.training for module in model.modules())
        assert not any(parameter.requires_grad for parameter in model.parameters())
        model(torch.rand(4, 3, 6, 5))
        raise KeyError
    assert same(before, everything(model))
    with preserve_state(model):
        assert not any(module.training for module in model.modules())


# ---------------------------------------------------------------- wherever it is called


@every_attack
@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode, torch.enable_grad], ids=lambda c: c.__name__)
@pytest.mark.parametrize("target", [None, "random"])
def test_the_callers_gradient_mode_does_not_matter(model, name, context, target):
    attack, expected = make(name, target=target), usual(name, target=target)
    with context():
        inputs = batch()  # made inside: under inference_mode they are inference tensors
        goal = aimed(name, target, inputs[1])
        assert torch.equal(attack(model, *inputs, **goal), expected)
    assert torch.equal(attack(model, *inputs, **goal), expected)


@every_attack
def test_the_callers_default_type_does_not_matter_and_stays(model, name):
    inputs, expected = batch(), usual(name)
    torch.set_default_dtype(torch.float64)
    try:
        x_adv = make(name)(model, *inputs)
        assert torch.get_default_dtype() == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)
    assert x_adv.dtype == torch.float32 and torch.equal(x_adv, expected)


@every_attack
def test_an_image_that_wants_gradients_gets_none(model, name):
    x, y = batch()
    x_adv = make(name)(model, x.requires_grad_(), y)
    assert x.grad is None and not x_adv.requires_grad


@every_attack
def test_dropout_is_off_unless_asked_for(model, name):
    x, y = batch()
    attack = make(name, "linf:0.3")
    assert torch.equal(attack(model, x, y), attack(copy.deepcopy(model).eval(), x, y))
    if has(name, "mode"):
        noisy, quiet = (make(name, "linf:0.3", mode=mode, start="random", steps=3) for mode in ("train", "eval"))
        assert not torch.equal(noisy(model, x, y), quiet(model, x, y))


# ---------------------------------------------------------------- a pure function of its arguments


@every_case
def test_the_seed_alone_decides(model, name, threat):
    x, y = batch()
    attack, first = make(name, threat), usual(name, threat)
    torch.rand(7)  # whatever the global random state is
    assert torch.equal(first, attack(model, x, y))
    other = dataclasses.replace(attack, seed=1)(model, x, y)
    assert torch.equal(first, other) == (name in WITHOUT_CHANCE)


@every_case
@pytest.mark.parametrize("target", [None, "random"])
def test_neither_batch_nor_order_matters(model, name, threat, target):
    """Equal up to the noise of fp32, which depends on the size of a batch, over three steps."""
    x, y = batch()
    attack = make(name, threat, target=target)
    if has(name, "steps"):
        attack = dataclasses.replace(attack, steps=min(attack.steps, 3))
    keys = torch.tensor([10, 3, 77, 5, 2**40, 0])

    def attacked(rows, keys=keys):
        return attack(model, x[rows], y[rows], keys=keys[rows], **aimed(name, target, y[rows]))

    everyone, order = torch.arange(COUNT), torch.tensor([4, 2, 0, 5, 1, 3])
    whole, noise = attacked(everyone), NOISE.get(name, 2e-5)
    assert torch.allclose(torch.cat([attacked(rows) for rows in everyone.split([1, 3, 2])]), whole, atol=noise)
    assert torch.allclose(attacked(order), whole[order], atol=noise)
    if name not in WITHOUT_CHANCE:
        assert not torch.allclose(attacked(everyone, keys + 1), whole, atol=noise), "the keys do matter"


@every_attack
def test_an_attack_is_a_value(name):
    attack = make(name)
    assert attack == make(name) and hash(attack) == hash(make(name)) and attack != make(name, "l2:1")
    with pytest.raises(dataclasses.FrozenInstanceError):
        attack.seed = 3


@every_attack
def test_an_attack_is_written_and_read_back(name):
    if name == "transfer":
        pytest.skip("a module in memory cannot be written down; its own tests read sources from files")
    attack = make(name, "linf:8/255", seed=3)
    assert choose(attacks, plain(attack)) == attack


@every_attack
@pytest.mark.parametrize(
    "settings, words",
    [
        ({"steps": 0}, "at least 1|greater than or equal to 1"),
        ({"stps": 3}, r"did you mean 'attack\.steps'"),
        ({"threat": "linf:8"}, "linf:8/255"),
        ({"loss": "nothing"}, "'attack.loss'"),
    ],
)
def test_bad_settings_are_refused_by_name(name, settings, words):
    """A setting the attack does not have is refused as well, under its name."""
    setting = next(iter(settings)).replace("stps", "steps")
    with pytest.raises(UserError, match=words if has(name, setting) else next(iter(settings))):
        choose(attacks, {"name": name, "threat": "linf:0.1", **needed(name), **settings}, path="attack")


def test_every_attack_states_its_threat():
    """Those that change a patch as they like, or as little as possible, need none; the others say how far they go."""
    for name in attacks.names():
        assert isinstance(make(name).threat, Threat)
        entry = attacks.get(name)
        usual = {field.name: field.default for field in dataclasses.fields(entry.make)}["threat"]
        if usual is dataclasses.MISSING:
            with pytest.raises(UserError, match="'threat' is missing"):
                build(entry.make, entry.presets | needed(name))
        else:
            assert build(entry.make, entry.presets).threat == usual
            x = torch.zeros(1, 3, 4, 4)
            assert usual.contains(x + 1, x).all(), "without a threat the whole box is allowed"
