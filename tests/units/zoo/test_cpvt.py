"""CPVT: sizes, the position generator by a literal loop and against timm's, any image size, knobs."""

import pytest
import torch
from family_checks import assert_one_graph, assert_recomposes, on_meta, sizes, stirred
from timm.models.twins import PosConv

from hardtack.base.errors import UserError
from hardtack.models import parameter_count
from hardtack.models.catalog import make_body
from hardtack.models.zoo.cpvt import ConditionalTransformer, PositionGenerator


def tiny(**options):
    torch.manual_seed(0)
    return stirred(ConditionalTransformer(**{"width": 12, "depth": 2, "heads": 2, **options}))


def test_parameter_counts():
    small = {"cpvt.arg": 9_495_562, "cpvt_tiny_patch4_32": 5_352_010}  # paper 3 prints 9.49
    assert sizes("cpvt", 10).items() >= small.items()
    assert parameter_count(on_meta("cpvt.arg", class_token=False)) == 9_495_050
    large = sizes("cpvt", 1000)  # DeiT's 5,717,416 and 22,050,664 less 197 positions, plus 10 weights a channel
    assert large["cpvt_tiny_patch16_224"] == 5_717_416 - 197 * 192 + 10 * 192
    assert large["cpvt_small_patch16_224"] == 22_050_664 - 197 * 384 + 10 * 384


def test_position_generator_by_a_loop_and_by_timms():
    generator = stirred(PositionGenerator(width=4))
    x = torch.randn(2, 4, 3, 5)
    weight, bias = generator.proj.weight, generator.proj.bias
    literal = x + bias[:, None, None]
    for row in range(3):
        for column in range(5):
            for down in (-1, 0, 1):
                for right in (-1, 0, 1):
                    if 0 <= row + down < 3 and 0 <= column + right < 5:
                        tap = weight[:, 0, down + 1, right + 1]
                        literal[:, :, row, column] += tap * x[:, :, row + down, column + right]
    assert torch.allclose(generator(x), literal, atol=1e-6)
    theirs = PosConv(4, 4)
    theirs.proj[0].load_state_dict(generator.proj.state_dict())
    assert torch.allclose(generator(x).flatten(2).mT, theirs(x.flatten(2).mT, (3, 5)), atol=1e-6)


@pytest.mark.parametrize("class_token", [False, True])
def test_positions_come_after_the_first_block_and_pass_the_class_token_by(class_token):
    model = tiny(class_token=class_token)
    x = torch.randn(1, 6 + class_token, 12)
    placed = model.place(x, (2, 3))
    on_grid = x[:, class_token:].mT.unflatten(2, (2, 3))
    assert torch.equal(placed[:, :class_token], x[:, :class_token])
    assert torch.equal(placed[:, class_token:], model.positions(on_grid).flatten(2).mT)
    heard = []
    model.positions.register_forward_hook(lambda *_: heard.append("positions"))
    for number, block in enumerate(model.blocks):
        block.register_forward_hook(lambda *_, number=number: heard.append(number))
    model(torch.rand(1, 3, 8, 12))
    assert heard == [0, "positions", 1]


def test_without_positions_patches_could_be_shuffled():
    """It is the generator alone that tells the network where a patch was."""
    model = tiny()
    x = torch.rand(2, 3, 8, 8)
    swapped = torch.cat([x[..., 4:], x[..., :4]], dim=-1)
    assert not torch.allclose(model(x), model(swapped), atol=1e-3)
    with torch.no_grad():
        model.positions.proj.weight.zero_()
    assert torch.allclose(model(x), model(swapped), atol=1e-5)


@pytest.mark.parametrize("height, width", [(32, 32), (48, 48), (16, 24), (4, 4)])
def test_any_size(height, width):
    model = tiny()
    x = torch.rand(2, 3, height, width)
    assert model(x).shape == (2, 10)
    wider = torch.cat([x, torch.rand(2, 3, height, 3)], dim=-1)  # less than a patch more: the rest is not seen
    assert torch.equal(model(wider), model(x))


def test_branches_and_knobs():
    model = tiny(activation="silu", drop_path=0.4, class_token=True)
    assert_recomposes(model.blocks[1], torch.randn(2, 7, 12), kinds=["attention", "mlp"])
    assert model.num_prefix_tokens == 1 and isinstance(model.blocks[0].mlp.act, torch.nn.SiLU)
    assert [block.drop_path.rate for block in model.blocks] == [0.0, 0.4]


@pytest.mark.parametrize(
    "options, words", [({"heads": 5}, "5 heads"), ({"patch_size": 0}, "patch_size"), ({"drop_path": 1.0}, "drop_path")]
)
def test_impossible_knobs_are_refused(options, words):
    with pytest.raises(UserError, match=words):
        make_body("cpvt_tiny_patch4_32", num_classes=10, options=options)


def test_one_graph():
    assert_one_graph(tiny(class_token=True), torch.rand(2, 3, 8, 8))
