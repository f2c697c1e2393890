"""RSPC's occluder: how many patches it takes and which, the gradient that passes its choice, and its file."""

import pytest
import torch

from hardtack.base.errors import UserError
from hardtack.models import Occluder, load_model, load_occluder, save_occluder, save_weights


def images(count=6, side=32, seed=0):
    return torch.rand(count, 3, side, side, generator=torch.Generator().manual_seed(seed))


def scoring(*scores, share=0.5):
    """Shows 8×8 images to an occluder that gives the four patches these scores, and says which it occludes."""
    occluder = Occluder(8, 4, share)
    with torch.no_grad():
        occluder.weigh.weight.fill_(1 / 48)
        occluder.mix.weight.copy_(torch.diag(torch.tensor(scores)) / torch.nn.functional.gelu(torch.tensor(1.0)))
    return occluder(torch.ones(1, 3, 8, 8))[0].flatten().tolist()


@pytest.mark.parametrize("side, patch, count", [(224, 16, 20), (32, 4, 7), (64, 4, 26), (28, 4, 5), (16, 4, 2)])
def test_a_tenth_by_the_quantile_rule(side, patch, count):
    torch.manual_seed(0)
    occluder = Occluder(side, patch, 0.1)
    x = images(3, side)
    mask = occluder(x)
    assert mask.shape == (3, side // patch, side // patch) and set(mask.unique().tolist()) == {0.0, 1.0}
    assert mask.sum(dim=(1, 2)).tolist() == [count] * 3 == [occluder.count] * 3
    scores = occluder.scores(x)
    kept = scores > torch.quantile(scores, 0.1, dim=1, keepdim=True)
    assert torch.equal(mask.flatten(1), 1 - kept.float())


def test_the_lowest_scores_are_occluded_and_ties_all_together():
    assert scoring(3.0, -1.0, 2.0, 0.5) == [0, 1, 0, 1]
    assert scoring(3.0, 1.0, 1.0, 0.5) == [0, 1, 1, 1]
    assert scoring(1.0, 1.0, 1.0, 1.0, share=0.1) == [1, 1, 1, 1]


def test_the_gradient_passes_clipped_and_towards_lower_scores():
    torch.manual_seed(0)
    occluder, x = Occluder(8, 4), images(1, 8)
    gradient = torch.tensor([[[0.5, -3.0], [7.0, 0.0]]])
    occluder(x).backward(gradient)
    straight = [weight.grad.clone() for weight in occluder.parameters()]
    occluder.zero_grad()
    occluder.scores(x).backward(-torch.tensor([[0.5, -1.0, 1.0, 0.0]]))
    for found, expected in zip(straight, occluder.parameters(), strict=True):
        assert torch.equal(found, expected.grad) and found.abs().sum() > 0


def test_half_precision_around_it_changes_nothing():
    torch.manual_seed(0)
    occluder, x = Occluder(64, 4), images(4, 64)
    with torch.autocast("cpu", torch.bfloat16):
        inside = occluder(x)
    assert torch.equal(inside, occluder(x)) and inside.dtype == torch.float32


def test_its_parameters_are_the_papers():
    assert [p.numel() for p in Occluder(224, 16).parameters()] == [768, 38416]


def test_it_takes_pixels_and_normalises_them_itself():
    torch.manual_seed(0)
    plain = Occluder(32, 4)
    normal = Occluder(32, 4, mean=(0.5, 0.4, 0.3), std=(0.2, 0.3, 0.4))
    normal.load_state_dict({**plain.state_dict(), "mean": normal.mean, "std": normal.std})
    x = images()
    normalised = (x - torch.tensor([0.5, 0.4, 0.3])[:, None, None]) / torch.tensor([0.2, 0.3, 0.4])[:, None, None]
    assert torch.equal(normal.scores(x), plain.scores(normalised))
    assert not torch.equal(normal.scores(x), plain.scores(x))


def test_there_and_back(tmp_path):
    torch.manual_seed(0)
    occluder, x = Occluder(32, 8, 0.3, mean=(0.5, 0.5, 0.5), std=(0.25, 0.25, 0.25)), images()
    save_occluder(tmp_path / "occluder.safetensors", occluder)
    back = load_occluder(tmp_path / "occluder.safetensors")
    assert (back.image_size, back.patch_size, back.share) == (32, 8, 0.3)
    assert torch.equal(back.scores(x), occluder.scores(x)) and torch.equal(back(x), occluder(x))


def test_other_files_are_refused(tmp_path):
    file = tmp_path / "model.safetensors"
    save_weights(file, load_model("vit_digits", depth=1))
    with pytest.raises(UserError, match="holds no occluder"):
        load_occluder(file)
    with pytest.raises(UserError, match="there is no weights file"):
        load_occluder(tmp_path / "nowhere.safetensors")


@pytest.mark.parametrize(
    "sizes, words",
    [((32, 5), "cannot be cut"), ((32, 0), "cannot be cut"), ((32, 4, 0), "share"), ((32, 4, 1.5), "share")],
)
def test_impossible_sizes(sizes, words):
    with pytest.raises(UserError, match=words):
        Occluder(*sizes)


def test_images_of_another_size():
    with pytest.raises(UserError, match="takes images of 3×32×32, found 3×16×16"):
        Occluder(32, 4)(images(2, 16))
