"""The Cauchy paper's ViT and CoViT: sizes, mixers written out, pooling, knobs."""

import pytest
import torch

from hardtack.base.errors import UserError
from hardtack.base.registry import models
from hardtack.models import load_model, parameter_count
from hardtack.models.catalog import make_body
from hardtack.models.facts import uninitialised
from hardtack.models.zoo.cauchy import CauchyTransformer, GroupedConvolution, PairedAttention

MILLIONS = {  # at 10 classes, 224 pixels
    "cauchy_vit_s1": 3.65, "cauchy_vit_s2": 3.65, "cauchy_vit_s3": 13.11, "cauchy_vit_s4": 13.11,
    "cauchy_vit_m1": 25.72, "cauchy_vit_m2": 25.72, "cauchy_vit_m3": 26.82, "cauchy_vit_l": 39.43,
    "covit_s1": 3.65, "covit_s2": 3.06, "covit_s3": 13.11, "covit_s4": 10.75, "covit_s5": 11.80,
    "covit_m1": 25.71, "covit_m2": 21.52, "covit_m3": 20.99, "covit_m4": 23.09, "covit_m5": 22.10,
    "covit_l1": 31.56, "covit_l2": 41.54,
    "cauchy_vit_t1": 0.92, "cauchy_vit_t2": 0.92, "cauchy_vit_t3": 1.71, "cauchy_vit_t4": 1.71,
    "covit_t1": 0.92, "covit_t2": 0.77, "covit_t3": 1.71, "covit_t4": 1.41,
}  # fmt: skip
SIXTEENTHS = {"cauchy_vit_m3", "cauchy_vit_l", "covit_m5", "covit_l1", "covit_l2"}  # the paper's patch-32 networks


def on_meta(name):
    with torch.device("meta"), uninitialised():
        return make_body(name, num_classes=10, options={}).module


def tiny(**options):
    torch.manual_seed(0)
    return CauchyTransformer(**{"width": 16, "depth": 2, "image_size": 16, **options})


def test_parameter_counts():
    names = {name for name in models.names() if models.get(name).family in ("cauchy_vit", "covit")}
    assert names == {f"{name}_{size}" for name in MILLIONS for size in (32, 224)}
    assert {name: round(parameter_count(on_meta(f"{name}_224")) / 1e6, 2) for name in MILLIONS} == MILLIONS


def test_token_counts():
    tokens = {name: [on_meta(f"{name}_{size}").pos_embed.shape[1] for size in (224, 32)] for name in MILLIONS}
    assert tokens == {name: [50, 17] if name in SIXTEENTHS else [197, 65] for name in MILLIONS}


def test_the_small_forms_differ_in_stem_and_positions_only():
    for name in ("cauchy_vit_l", "covit_m2"):
        large, small = ({k: v.shape for k, v in on_meta(f"{name}_{size}").state_dict().items()} for size in (224, 32))
        differing = {key for key in large if large[key] != small[key]}
        assert large.keys() == small.keys() and differing == {"patch_embed.proj.weight", "pos_embed"}


@pytest.mark.parametrize("kernels", [(3,), (1, 3, 3, 5), (7, 7), (5, 3, 5)])
def test_grouped_convolution_is_a_loop(kernels):
    torch.manual_seed(0)
    tokens, group = 6, 2
    width = group * len(kernels)
    mixer = GroupedConvolution(width=width, kernels=kernels).double()
    weights = [row for conv in mixer.convolutions for row in conv.weight.split(group)]  # one group×group×kernel each
    biases = [row for conv in mixer.convolutions for row in conv.bias.split(group)]
    x = torch.randn(2, tokens, width, dtype=torch.float64)
    mixed = torch.zeros_like(x)
    for image in range(2):
        for index, kernel in enumerate(kernels):
            assert weights[index].shape == (group, group, kernel)
            for token in range(tokens):
                for output in range(group):
                    total = biases[index][output].clone()
                    for step in range(kernel):
                        place = token + step - (kernel - 1) // 2
                        if 0 <= place < tokens:
                            for channel in range(group):
                                total += (
                                    weights[index][output, channel, step] * x[image, place, group * index + channel]
                                )
                    mixed[image, token, group * index + output] = total
    assert torch.allclose(mixer(x), mixed @ mixer.proj.weight.T + mixer.proj.bias, atol=1e-12)


def test_paired_attention_is_its_formula():
    torch.manual_seed(0)
    mixer = PairedAttention(width=6, heads=2).double()
    x = torch.randn(1, 4, 6, dtype=torch.float64)
    (q, k), v = mixer.qk(x)[0].chunk(2, dim=-1), mixer.v(x)[0]
    mixed = torch.zeros(4, 6, dtype=torch.float64)
    for part in (slice(0, 3), slice(3, 6)):
        for i in range(4):
            scores = torch.stack([q[i, part] @ k[j, part] / 3**0.5 for j in range(4)])
            weights = scores.exp() / scores.exp().sum()
            mixed[i, part] = sum(weights[j] * v[j, part] for j in range(4))
    assert torch.allclose(mixer(x)[0], mixer.proj(mixed), atol=1e-12)


@pytest.mark.parametrize("mixer", [{"heads": 2}, {"kernels": (3, 3)}])
def test_the_head_pools_the_class_token_too(mixer):
    model = tiny(**mixer).eval()
    seen = []
    model.blocks[-1].register_forward_hook(lambda module, args, output: seen.append(output))
    logits = model(torch.rand(2, 3, 16, 16))
    assert seen[0].shape == (2, 17, 16) and model.num_prefix_tokens == 1
    assert torch.allclose(logits, model.head(model.norm(seen[0].sum(1) / 17)), atol=1e-5)
    assert not torch.allclose(logits, model.head(model.norm(seen[0][:, 1:].mean(1))), atol=1e-3)


@pytest.mark.parametrize("mixer, kind", [({"heads": 2}, "attention"), ({"kernels": (1, 3)}, "convolution")])
def test_blocks_are_their_branches(mixer, kind):
    block = tiny(**mixer, drop_path=0.5).eval().blocks[1]
    x = torch.randn(2, 5, 16)
    mix, feed = block.branches()
    assert (mix.kind, feed.kind) == (kind, "mlp")
    assert torch.allclose(block(x), feed(mix(x)), atol=1e-5)


def test_class_token_and_positions_start_from_a_standard_normal():
    model = tiny(heads=2, width=512, image_size=32)
    assert abs(model.pos_embed.std().item() - 1) < 0.02 and abs(model.cls_token.std().item() - 1) < 0.1


def test_knobs_reach_the_network():
    body = load_model("covit_t2_32", depth=3, kernels=(1, 5), drop_path=0.2, mlp_ratio=2, patch_size=8).body
    assert [conv.kernel_size for conv in body.blocks[0].mixer.convolutions] == [(1,), (5,)]
    assert [block.drop_path.rate for block in body.blocks] == [0.0, 0.1, 0.2]
    assert body.blocks[0].mlp.fc1.out_features == 256 and body.pos_embed.shape == (1, 17, 128)
    assert isinstance(load_model("covit_t2_32", kernels=None, heads=4).body.blocks[0].mixer, PairedAttention)


@pytest.mark.parametrize(
    "options, words",
    [
        ({"heads": 4}, "heads .* or kernels"),
        ({"kernels": None}, "heads .* or kernels"),
        ({"kernels": (2, 3)}, "must be odd"),
        ({"kernels": ()}, "must be odd"),
        ({"kernels": (3, 3, 3)}, "cannot be shared among 3 kernels"),
        ({"kernels": None, "heads": 3}, "shared among 3 heads"),
        ({"patch_size": 5}, "cannot be cut"),
        ({"depth": 0}, "at least 1"),
    ],
)
def test_impossible_knobs_are_refused(options, words):
    with pytest.raises(UserError, match=words):
        load_model("covit_t2_32", **options)


@pytest.mark.parametrize("mixer", [{"heads": 2}, {"kernels": (1, 3)}])
def test_compiles_to_one_graph(mixer):
    model = tiny(**mixer, drop_path=0.1, depth=1).train()
    x = torch.rand(2, 3, 16, 16, requires_grad=True)
    torch.compile(model, fullgraph=True, backend="eager")(x).square().sum().backward()
    assert x.grad is not None and x.grad.isfinite().all()
    assert all(parameter.grad is not None for parameter in model.parameters())
