"""The model contract over every structure that is registered, and a cross-section of timm's.

Names that share a constructor and differ in sizes alone (width, depth, heads, patch) are one structure: the smallest
of them goes through the contract, shortened to one block per stage and 64 pixels where it takes them. The facts of
every name are measured at full size, on the meta device. Marked slow: every name at full depth and size.
"""

import copy
import functools
import inspect
import json

import pytest
import torch

from hardtack.base.errors import UserError
from hardtack.base.registry import models
from hardtack.commands.model_options import TABLE
from hardtack.models import find_blocks, load_model, rebuild, save_weights, tap
from hardtack.models.describe import table_row
from hardtack.models.facts import known, measure, usual
from hardtack.models.zoo import vgg
from hardtack.models.zoo.from_timm import from_timm

SMALL = {"image_size": 32, "patch_size": 4, "depth": 2}
TIMM = {
    "timm:vit_tiny_patch16_224": SMALL,
    "timm:deit_tiny_distilled_patch16_224": SMALL,
    "timm:eva02_tiny_patch14_224": SMALL,
    "timm:xcit_nano_12_p8_224": {"image_size": 32, "depth": 2},
    "timm:convnext_atto": {"image_size": 32},
}
SIZES = {
    "num_classes", "image_size", "patch_size", "stem_patch", "stem_depths", "stem_width", "width", "widths", "depth",
    "depths", "heads", "mlp_ratio", "mlp_ratios", "token_ratio", "growth", "widening", "window", "reductions",
    "cell_widths", "layer_scale", "head_scale", "dropout",
}  # fmt: skip


def options_of(name):
    """Every option of a registered name, defaults included."""
    entry = models.get(name)
    defaults = {key: value.default for key, value in inspect.signature(entry.make).parameters.items()}
    return {**defaults, **entry.presets}


def structures():
    """The smallest name of every structure. Numbers of blocks masked or gated count as: none, or some."""
    groups = {}
    for name in models.names():
        options = {key: value for key, value in options_of(name).items() if key not in SIZES}
        if isinstance(options.get("masked_blocks"), int):
            options["masked_blocks"] = options["masked_blocks"] > 0
        groups.setdefault((models.get(name).make, repr(options)), []).append(name)
    return [min(names, key=lambda name: known()[name].gflops) for names in groups.values()]


TWINS = {"wide_resnet50_2_224", "resnext50_32x4d_224"}  # timm's ResNet-50 with other widths
NAMES = [*(name for name in structures() if name not in TWINS), *TIMM]


def shortened(name):
    """Fewer blocks of the same kind."""
    knobs, options = options_of(name), {}
    if isinstance(knobs.get("depths"), tuple | list):
        options["depths"] = tuple(1 for _ in knobs["depths"])
    if isinstance(knobs.get("depth"), int):
        options["depth"] = 10 if models.get(name).family == "wide_resnet" else min(knobs["depth"], 2)
    if isinstance(knobs.get("plain_depth"), int):
        options["plain_depth"] = 1  # ConViT: a gated block and a plain one
    if isinstance(knobs.get("masked_blocks"), int):
        options["masked_blocks"] = min(knobs["masked_blocks"], 1)
    return options


@functools.lru_cache(maxsize=2)
def loaded(name):
    """Only the latest are kept: some are large."""
    if name in TIMM:
        return load_model(name, num_classes=7, seed=3, **TIMM[name])
    options = shortened(name)
    if usual(name)[0] == 224:
        try:
            return load_model(name, num_classes=7, seed=3, image_size=64, **options)
        except UserError:
            pass  # it insists on its size
    return load_model(name, num_classes=7, seed=3, **options)


@pytest.fixture(scope="module", params=NAMES)
def model(request):
    """Tests come grouped by model. timm's VGG gets narrow linear layers: they have 120 of its 138 million numbers."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vgg, "from_timm", functools.partial(from_timm, mlp_ratio=0.02))
        yield loaded(request.param)


@pytest.fixture(autouse=True)
def one_thread():
    """Batches of two images: threads that wait for each other cost more than they bring."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def images(model, count=2):
    size = model.image_size or 32
    return torch.rand(count, 3, size, size, generator=torch.Generator().manual_seed(0))


def test_pixels_to_logits(model):
    x = images(model)
    with torch.no_grad():
        logits = model(x)
        assert logits.shape == (2, 7) and logits.dtype == torch.float32 and logits.isfinite().all()
        assert torch.equal(logits, model(x)), "eval mode must be deterministic"
        alone = model(x[:1])
        assert torch.equal(logits, model.body((x - 0.5) / 0.5)), "normalisation is the first layer"
    close = torch.allclose(alone, logits[:1], atol=1e-5 * logits.abs().max().clamp_min(1))
    assert close, "an image's logits depend on its batch mates"
    assert model.num_classes == 7 and not model.training and model.architecture["mean"] == [0.5] * 3


def test_it_trains_in_bf16_and_its_input_has_a_gradient(model):
    x = images(model).requires_grad_()
    (gradient,) = torch.autograd.grad(model(x).square().sum(), x)
    assert gradient.isfinite().all() and gradient.abs().sum() > 0
    state = {name: value.clone() for name, value in model.named_buffers()}
    model.train()
    try:
        with torch.autocast("cpu", torch.bfloat16):
            loss = model(x.detach()).float().square().sum()
        loss.backward()
        missing = [name for name, parameter in model.named_parameters() if parameter.grad is None]
        assert loss.isfinite() and not missing, f"without a gradient: {missing[:5]}"
        assert all(parameter.grad.isfinite().all() for parameter in model.parameters())
    finally:
        model.zero_grad(set_to_none=True)
        model.eval()
        for name, value in model.named_buffers():
            value.copy_(state[name])


def test_a_file_alone_brings_the_model_back(model, tmp_path):
    x, state = images(model, 1), torch.get_rng_state()
    save_weights(tmp_path / "a.safetensors", model, metadata={"epoch": 3})
    again = rebuild(tmp_path / "a.safetensors")
    (tmp_path / "a.safetensors").unlink()  # some are half a gigabyte
    assert torch.equal(state, torch.get_rng_state())
    assert again.architecture == {**model.architecture, "options": again.architecture["options"]}
    with torch.no_grad():
        assert torch.equal(again(x), model(x))


def test_taps_listen_without_a_trace(model):
    x = images(model).requires_grad_()
    hooks = [len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules()]
    plain = model(x)
    with tap(model) as taps:
        assert torch.equal(model(x), plain)
    assert hooks == [len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules()]
    assert len(taps.features) == len(taps.feature_names) > 0
    assert len(taps.attention) == len(taps.attention_names) == len(taps.attention_kinds)
    assert bool(taps.note) == (not taps.attention), "taps without attention must say why"
    assert all(feature.ndim == 3 and len(feature) == 2 for feature in taps.features)
    with tap(model) as alone:
        model(x[:1])
    for together, one in zip(taps.features, alone.features, strict=True):
        close = torch.allclose(together[:1], one, atol=1e-4 * max(1.0, one.abs().max().item()))
        assert close, "the features of an image are mixed with those of another"
    for feature, prefix in zip(taps.features, taps.prefixes, strict=True):
        side = (feature.shape[1] - prefix) ** 0.5
        assert side == int(side) or "mobilevit" in model.architecture["name"], "patches of a square image fill a square"
    for weights, kind in zip(taps.attention, taps.attention_kinds, strict=True):
        assert weights.ndim == 4 and torch.allclose(weights.sum(-1), torch.ones(()), atol=1e-5)
        assert kind != "token" or weights.shape[-1] == weights.shape[-2]
        assert kind != "class" or weights.shape[-2] == 1
    total = sum(f.square().mean() for f in taps.features) + sum(a.square().sum() for a in taps.attention)
    (gradient,) = torch.autograd.grad(total, x)
    assert gradient.isfinite().all() and gradient.abs().sum() > 0
    there = {attending.kind for block in find_blocks(model) for attending in block.attending}
    heard = {*taps.attention_kinds, *(["channel"] if taps.channel_attention else [])}
    part = {"window": "token"}  # MobileViT's blocks attend to all they are given, which is a part of an image
    assert {part.get(kind, kind) for kind in there} == {part.get(kind, kind) for kind in heard}, "one was silent"


def stirred(model):
    """A copy whose branches all matter: layer scales start so small that a block would pass for its identity."""
    twin, generator = copy.deepcopy(model), torch.Generator().manual_seed(1)
    for parameter in twin.parameters():
        if parameter.ndim <= 1 or parameter.shape.numel() == max(parameter.shape):
            parameter.data.add_(0.5 * torch.rand(parameter.shape, generator=generator))
    return twin


def test_blocks_are_the_sum_of_their_branches(model):
    twin, seen = stirred(model), {}

    def keep(block):
        return lambda module, args, output: seen.update({block.name: (block, args[0].clone(), output.clone())})

    blocks = [block for block in find_blocks(twin) if block.branches]
    for block in blocks:
        block.module.register_forward_hook(keep(block))
    with torch.no_grad():
        twin(images(twin))
        for block, x, output in seen.values():
            made = x
            for branch in block.branches:
                made = branch(made)
            assert torch.allclose(made, output, atol=1e-5 * output.abs().max().clamp_min(1)), block.name
            assert made.shape != x.shape or (made - x).abs().max() > 1e-3, "the check is void on an identity"


def test_every_constructor_is_represented():
    names = {*NAMES, *TWINS} - set(TIMM)
    assert {models.get(name).make for name in names} == {models.get(name).make for name in models.names()}


@pytest.mark.parametrize("name", models.names())
def test_the_table_of_facts_is_true(name, monkeypatch):
    monkeypatch.setattr(vgg, "from_timm", from_timm)
    assert known()[name] == measure(name), "write it again: python -m hardtack.models.facts"


def test_the_table_of_descriptions_is_true():
    table = json.loads(TABLE.read_text(encoding="utf-8"))
    assert list(table) == [name for name in known() if known()[name].source == "ours"]
    for name, row in table.items():
        assert row == table_row(name), f"{name}: write it again: python -m hardtack.models.describe"


@pytest.mark.slow
@pytest.mark.parametrize("name", models.names())
def test_forward_and_backward_at_full_size(name):
    size, classes = usual(name)
    model = load_model(name, num_classes=classes, seed=0)
    x = torch.rand(1, 3, model.image_size or size, model.image_size or size, requires_grad=True)
    logits = model(x)
    (gradient,) = torch.autograd.grad(logits.square().sum(), x)
    assert logits.shape == (1, classes) and logits.isfinite().all() and gradient.isfinite().all()


@pytest.mark.slow
@pytest.mark.parametrize("name", models.names())
def test_it_is_one_graph(name):
    """No graph breaks, forward or back; the backend compiles nothing, the tracing is what a compiler sees."""
    torch._dynamo.reset()
    model = loaded(name).train()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    x = images(model).requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        loss = compiled(x).float().square().sum()
    loss.backward()
    model.eval()
    assert x.grad.isfinite().all()
