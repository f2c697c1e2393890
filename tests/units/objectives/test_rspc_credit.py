"""Which patches the occluder's gradient moves: the rules on small tensors, and the trap that they lead out of."""

import pytest
import torch
from torch import nn

from hardtack.models import wrap
from hardtack.objectives import OccluderConfig
from hardtack.objectives.rspc_credit import credited
from rspc_toys import Halved, build
from tiny_runs import CLASSES, images, labels

MASK = torch.tensor([[1.0, 1.0, 0.0, 0.0], [1.0, 0.0, 1.0, 0.0]])
GRADIENT = torch.tensor([[3.0, 1.0, 5.0, -7.0], [0.5, 9.0, 0.1, 0.0]])
SCORES = torch.tensor([[0.0, 1.0, 2.0, 9.0], [0.0, 5.0, 0.5, 4.0]])


def test_as_published_every_patch_has_its_own_entry():
    assert torch.equal(credited(GRADIENT, MASK, SCORES), GRADIENT)


def test_hidden_patches_alone_are_moved_each_against_the_mean_of_those_of_the_batch():
    wanted = torch.tensor([[1.85, -0.15, 0.0, 0.0], [-0.65, 0.0, -1.05, 0.0]])
    assert torch.allclose(credited(GRADIENT, MASK, SCORES, hidden_only=True), wanted)


def test_every_image_counts_the_same_and_the_whole_stays_as_large():
    found = credited(GRADIENT, MASK, SCORES, per_image=True)
    norms = found.norm(dim=1)
    assert torch.allclose(norms[0], norms[1]) and torch.allclose(found.norm(), GRADIENT.norm())
    assert torch.allclose(found / norms[:, None], GRADIENT / GRADIENT.norm(dim=1, keepdim=True))
    assert not credited(torch.zeros(2, 4), MASK, SCORES, per_image=True).any(), "0/0 is nothing"


def test_the_gradient_fades_away_from_the_threshold():
    found = credited(torch.ones(2, 4), MASK, SCORES, temperature=0.5)[0]
    width = 0.5 * SCORES[0].std()
    rise = torch.sigmoid((SCORES[0] - 1.5) / width)  # between the last hidden patch and the first that is not
    assert torch.allclose(found, 4 * rise * (1 - rise))
    assert found[:3].min() > found[3] > 0 and found[1:3].min() > found[0]
    assert torch.allclose(credited(GRADIENT, MASK, SCORES, temperature=1e6), GRADIENT), "all alike where it is wide"
    assert not credited(GRADIENT, MASK, torch.ones(2, 4), temperature=1.0).isnan().any()


def test_patches_that_are_hidden_more_often_than_others_are_pushed_back():
    nothing = credited(GRADIENT, MASK, SCORES, variety=2.0) - GRADIENT
    size = GRADIENT.square().mean().sqrt()
    # hidden in 2, 1, 1 and 0 of two images, 1 on average
    assert torch.allclose(nothing, -2.0 * size * torch.tensor([1.0, 0.0, 0.0, -1.0]).expand(2, 4))
    equally = torch.tensor([[1.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 1.0]])
    assert torch.equal(credited(GRADIENT, equally, SCORES, variety=2.0), GRADIENT)


@pytest.mark.parametrize("settings", [{"explore": 1.5}, {"variety": -1.0}, {"temperature": 0.0}, {"credit": "some"}])
def test_settings_that_mean_nothing_are_refused(settings):
    with pytest.raises(Exception, match=next(iter(settings))):
        OccluderConfig(**settings)


def test_explored_masks_are_those_of_the_image_s_key():
    """A share of the images has random masks, whatever the batch; what the occluder itself would hide is unchanged."""
    x, keys = images(64), torch.arange(64)
    player = build(share=0.25, occluder=OccluderConfig(explore=0.5)).opponent
    own, played = player(x), player(x, keys)
    changed = (own != played).flatten(1).any(1)
    assert 0.3 < changed.float().mean() < 0.7
    assert torch.equal(played.flatten(1).sum(1), own.flatten(1).sum(1)), "as many patches as ever"
    assert played[changed].flatten(1).mean(0).min() > 0, "every patch is tried"
    assert torch.equal(torch.cat([player(x[:5], keys[:5]), player(x[5:], keys[5:])]), played)
    assert torch.equal(build(share=0.25).opponent(x, keys), build(share=0.25).opponent(x)), "by default none"


class TwoPatchesMatter(nn.Module):
    """Features that depend on the patch in row 0, column 0 a little, and on that in row 1, column 2 much."""

    def __init__(self):
        super().__init__()
        self.block, self.head = Halved(0.5), nn.Linear(3 * 64, CLASSES)
        self.register_buffer("strength", torch.zeros(8, 8))
        self.strength[:2, :2], self.strength[2:4, 4:6] = 0.2, 1.0

    def forward(self, x):
        return self.head(self.block(x * self.strength).flatten(1))


def hidden_after(steps, **occluder):
    """How often the strong patch is hidden after so many steps, by an occluder that begins with the weak one."""
    model = wrap(TwoPatchesMatter(), image_size=8, num_classes=CLASSES).train()
    objective = build(model, share=0.06, occluder=OccluderConfig(lr=0.02, **occluder))
    assert objective.opponent.occluder.count == 1
    with torch.no_grad():
        objective.opponent.occluder.weigh.weight.fill_(0.3)
        objective.opponent.occluder.mix.weight.zero_()
        objective.opponent.occluder.mix.weight[0] = -0.1
    x = images(32, seed=9)
    assert objective.masks(x)[:, 0, 0].all()
    for step in range(steps):
        x, y = images(32, seed=step), labels(32, seed=step)
        objective(x, y, **objective.prepare(x, y, keys=torch.arange(32) + 1000 * step))["loss"].backward()
        objective.finish_step()
        objective.zero_grad()
    return objective.masks(images(32, seed=9))[:, 1, 2].float().mean().item()


def test_the_published_gradient_stays_with_the_patch_it_began_with():
    """A patch that is not hidden has no gradient, however much hiding it would do."""
    assert hidden_after(60) == 0


def test_by_what_hiding_does_the_patch_that_matters_more_is_found():
    assert hidden_after(60, credit="hidden", explore=0.3) > 0.95
