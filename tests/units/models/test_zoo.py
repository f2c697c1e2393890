"""Our own architectures against known sizes, timm and the machinery they must work under."""

import inspect
import re

import pytest
import timm
import torch

from hardtack.base.errors import UserError
from hardtack.base.registry import models
from hardtack.commands.cli import main
from hardtack.models import load_model, parameter_count
from hardtack.models.catalog import make_body
from hardtack.models.classifier import probe
from hardtack.models.facts import uninitialised
from hardtack.models.zoo.vit import VisionTransformer


def tiny(**options):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return VisionTransformer(width=32, depth=2, heads=2, **options)


@pytest.mark.parametrize("class_token", [False, True])
@pytest.mark.parametrize("layer_scale", [None, 0.1])
def test_vit_is_timms_vit(class_token, layer_scale):
    """The same parameter names and, with the same weights, the same function as timm's."""
    ours = tiny(class_token=class_token, layer_scale=layer_scale)
    pooling = {"global_pool": "token" if class_token else "avg", "final_norm": True, "fc_norm": False}
    theirs = timm.models.VisionTransformer(
        img_size=32,
        patch_size=4,
        embed_dim=32,
        depth=2,
        num_heads=2,
        num_classes=10,
        **{"init_values": layer_scale, "class_token": class_token, **pooling},
    )
    theirs.load_state_dict(ours.state_dict())
    x = torch.rand(3, 3, 32, 32)
    assert torch.allclose(ours.eval()(x), theirs.eval()(x), atol=1e-6)


def test_vit_compiles_to_one_graph_and_trains_under_autocast():
    model = tiny(drop_path=0.3).train()
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    x = torch.rand(4, 3, 32, 32, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        loss = compiled(x).float().square().sum()
    loss.backward()
    assert x.grad is not None and x.grad.isfinite().all()


def test_vit_under_function_transforms():
    model = tiny().eval()
    x = torch.rand(3, 3, 32, 32)

    def logits(image):
        return torch.func.functional_call(model, dict(model.named_parameters()), (image[None],))[0]

    jacobian = torch.func.vmap(torch.func.jacrev(logits))(x)
    leaf = x.clone().requires_grad_()
    (row,) = torch.autograd.grad(model(leaf)[:, 4].sum(), leaf)
    assert jacobian.shape == (3, 10, 3, 32, 32)
    assert torch.allclose(jacobian[:, 4], row, atol=1e-6)


def test_drop_path_drops_whole_images_and_keeps_the_mean():
    drop = load_model("vit_digits", drop_path=0.5, depth=2).body.blocks[1].drop_path.train()
    out = drop(torch.ones(4000, 2, 3))
    per_image = out.flatten(1)
    assert set(out.unique().tolist()) == {0.0, 2.0}
    assert (per_image == per_image[:, :1]).all()
    assert abs(out.mean().item() - 1) < 0.1
    assert torch.equal(drop.eval()(out), out)


@pytest.mark.parametrize(
    "options, words",
    [
        ({"patch_size": 5}, "cannot be cut"),
        ({"heads": 5}, "shared among 5 heads"),
        ({"drop_path": 1.0}, "drop_path"),
        ({"deph": 3}, "did you mean 'depth'"),
        ({"depth": "many"}, "integer"),
        ({"depth": 0}, "at least 1"),
        ({"head_hidden": 0}, "head_hidden must be at least 1"),
        ({"initial_std": 0.0}, "initial_std must be positive"),
        ({"initial_std": -0.02}, "initial_std must be positive"),
        ({"num_classes": 1}, "at least 2"),
    ],
)
def test_impossible_knobs_are_refused(options, words):
    with pytest.raises(UserError, match=words):
        load_model("vit_digits", **options)


def with_ratio():
    """A name for every constructor whose MLPs have a ratio."""
    found = {}
    for name in models.names():
        make = models.get(name).make
        if "mlp_ratio" in inspect.signature(make).parameters:
            found.setdefault(make, name)
    return sorted(found.values())


@pytest.mark.parametrize("name", with_ratio())
@pytest.mark.parametrize("ratio", [0.0, -1.0, 1e-4, float("inf"), float("nan")])
def test_an_mlp_without_hidden_units_is_refused(name, ratio):
    with (
        torch.device("meta"),
        uninitialised(),
        pytest.raises(UserError, match=r"mlp_ratio(' *: input should be a finite number| must .*).*found"),
    ):
        make_body(name, num_classes=10, options={"mlp_ratio": ratio})


def without_size():
    """A name for every constructor that takes images of any size."""
    groups = {models.get(name).make: name for name in models.names()}
    return [name for make, name in groups.items() if "image_size" not in inspect.signature(make).parameters]


@pytest.mark.parametrize("name", without_size())
def test_a_size_that_a_network_does_not_take_is_refused(name):
    """Networks that were not built for a size are asked, and what they crash on is said with name and size."""
    for size in (1, 7):
        try:
            with torch.device("meta"), uninitialised():
                body = make_body(name, num_classes=10, image_size=size, options={})
                probe(body.module, size)
        except UserError as error:
            assert name in str(error) and re.search(rf"\b{size}\b", str(error))


@pytest.mark.parametrize(
    "words, code, hint",
    [
        (["list", "models", "pvtv2_b0", "image_size=28"], 0, "pvtv2_b0_32"),
        (["list", "models", "resnet8_cifar", "image_size=1"], 0, "resnet8_cifar"),
        (["describe", "vit.arg", "num_classes=abc"], 2, "num_classes must be a whole number, found 'abc'"),
        (["describe", "vit.arg", "image_size=abc"], 2, "image_size must be a whole number, found 'abc'"),
        (["describe", "densenet121_224", "image_size=8"], 2, "model 'densenet121_224': it cannot take 8×8 images"),
    ],
)
def test_sizes_on_the_command_line(words, code, hint, capsys):
    assert main(words) == code
    out, err = capsys.readouterr()
    assert hint in " ".join((out + err).split()) and "pvtv2_b0_224" not in out


def test_asking_for_a_size_leaves_no_trace():
    with pytest.raises(UserError, match=r"model 'pvtv2_b0_224': it cannot take 16×16 images \(.*[Kk]ernel size"):
        load_model("pvtv2_b0_224", image_size=16)
    torch.manual_seed(0)
    expected, state = load_model("densenet.arg", depths=[1, 1]).state_dict(), torch.get_rng_state()
    torch.manual_seed(0)
    model = load_model("densenet.arg", depths=[1, 1], image_size=32)
    assert torch.equal(state, torch.get_rng_state())
    assert all(torch.equal(value, expected[key]) for key, value in model.state_dict().items())


def test_knobs_reach_the_network():
    model = load_model("vit_tiny_patch4_32", patch_size=8, depth=1, class_token=True, image_size=64)
    assert model.body.pos_embed.shape == (1, 65, 192) and model.image_size == 64
    assert parameter_count(load_model("resnet8_cifar", width=8)) < 25_000


def test_registering_leaves_nothing_behind_in_the_modules():
    modules = {inspect.getmodule(models.get(name).make) for name in models.names()}
    left = [
        f"{module.__name__}.{name}"
        for module in modules
        for name, value in vars(module).items()
        if name.startswith("_") and not name.startswith("__") and name.islower() and not callable(value)
    ]
    assert not left, "variables of loops; a function keeps them to itself"


def test_functions_for_imagenet_alone_have_its_classes():
    for make in {models.get(name).make for name in models.names()}:
        names = [name for name in models.names() if models.get(name).make is make]
        if all(name.endswith("_224") for name in names):
            assert inspect.signature(make).parameters["num_classes"].default == 1000, names
