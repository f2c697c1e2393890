"""Our own architectures against known sizes, timm and the machinery they must work under."""

import pytest
import timm
import torch

from hardtack.errors import UserError
from hardtack.models import load_model, parameter_count
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
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
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
        ({"num_classes": 1}, "at least 2"),
    ],
)
def test_impossible_knobs_are_refused(options, words):
    with pytest.raises(UserError, match=words):
        load_model("vit_digits", **options)


def test_knobs_reach_the_network():
    model = load_model("vit_tiny_patch4_32", patch_size=8, depth=1, class_token=True, image_size=64)
    assert model.body.pos_embed.shape == (1, 65, 192) and model.image_size == 64
    assert parameter_count(load_model("resnet8_cifar", width=8)) < 25_000
