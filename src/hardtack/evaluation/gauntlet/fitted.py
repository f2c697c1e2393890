"""Small networks that are fitted in closed form: random convolutional features, an activation, a linear head.

Defences that change a network's activations or its input code need weights that fit them. A ridge regression on fixed
random features (Coates and Ng 2012; Rahimi and Recht 2007) gives such weights in a second, without a training loop, and
the same ones every time.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hardtack.evaluation.gauntlet.gradients import Surrogate
from hardtack.evaluation.gauntlet.mechanism import Core, Draw

SCALE = 10.0  # of the logits: their targets are 0 and this number
FITTING_BATCH = 500


class FittedNet(nn.Module):
    """`code` → random filters, taken from the training images → `activation` → pooled to a 4×4 grid → linear head.

    `after` comes between the pooled features and the head, in evaluation only.
    """

    def __init__(
        self,
        core: Core,
        draw: Draw,
        *,
        activation: nn.Module,
        code: nn.Module | None = None,
        pool: nn.Module | None = None,
        norm: nn.BatchNorm2d | None = None,
        after: nn.Module | None = None,
        width: int = 64,
    ) -> None:
        super().__init__()
        self.code, self.activation = code or nn.Identity(), activation
        self.pool, self.norm, self.after = (
            pool or nn.AdaptiveAvgPool2d(4),
            norm or nn.Identity(),
            after or nn.Identity(),
        )
        with torch.no_grad():
            self.filters = self._filters(core, draw, width)
            self.eval().to(core.train_x.device)
            if norm is not None:
                self._fit_norm(norm, core.train_x[:FITTING_BATCH])
            features = torch.cat([self.features(part) for part in core.train_x.split(FITTING_BATCH)])
            self.head = nn.Linear(features.shape[1], core.classes).to(features.device)
            self._fit_head(features, core.train_y)
        self.requires_grad_(False)

    def _filters(self, core: Core, draw: Draw, width: int) -> nn.Conv2d:
        """Filters that are centred patches of coded training images, of unit length."""
        side = core.shape[-1]
        size = 7 if side >= 24 else 3
        rows = torch.randint(len(core.train_x), (width,), generator=draw.generator)
        coded = self.code(core.train_x[rows.to(core.train_x.device)])
        corners = torch.randint(coded.shape[-1] - size + 1, (width, 2), generator=draw.generator).tolist()
        patches = torch.stack([
            image[:, top : top + size, left : left + size] for image, (top, left) in zip(coded, corners, strict=True)
        ])  # fmt: skip
        patches = patches + 0.05 * draw.normal(*patches.shape).to(patches)
        patches = patches - patches.mean(dim=(1, 2, 3), keepdim=True)
        filters = nn.Conv2d(coded.shape[1], width, size, stride=2, padding=size // 2)
        filters.weight.copy_(patches / patches.flatten(1).norm(dim=1).view(-1, 1, 1, 1))
        filters.bias.copy_(0.2 * draw.normal(width))  # type: ignore[union-attr]
        return filters

    def _fit_norm(self, norm: nn.BatchNorm2d, x: Tensor) -> None:
        activity = self.filters(self.code(x))
        norm.running_mean, norm.running_var = activity.mean(dim=(0, 2, 3)), activity.var(dim=(0, 2, 3))

    def _fit_head(self, features: Tensor, labels: Tensor) -> None:
        """Ridge regression onto `SCALE` for the label and 0 for the other classes."""
        features, labels = features.cpu(), labels.cpu()  # not every device has double precision
        centre = features.mean(dim=0)
        centred = (features - centre).double()
        targets = SCALE * F.one_hot(labels, self.head.out_features).double()
        gram = centred.T @ centred
        gram += 0.01 * gram.diagonal().mean() * torch.eye(len(gram), dtype=gram.dtype)
        weight = torch.linalg.solve(gram, centred.T @ (targets - targets.mean(dim=0))).float()
        self.head.weight.copy_(weight.T)
        self.head.bias.copy_(targets.mean(dim=0).float() - centre @ weight)

    def features(self, x: Tensor) -> Tensor:
        return self.pool(self.activation(self.norm(self.filters(self.code(x))))).flatten(1)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.after(self.features(x)))


class _SharedWeights(nn.Module):
    """A fitted network with another activation, code or pruning in place of its own; the weights are the same."""

    def __init__(self, net: FittedNet, *, activation: nn.Module | None, code: nn.Module | None) -> None:
        super().__init__()
        self.net = net
        self.activation, self.code = activation or net.activation, code or net.code

    def forward(self, x: Tensor) -> Tensor:
        net = self.net
        return net.head(net.pool(self.activation(net.norm(net.filters(self.code(x))))).flatten(1))


def smooth_insider(net: FittedNet, *, activation: nn.Module | None = None, code: nn.Module | None = None) -> nn.Module:
    """BPDA on a fitted network: its own values, the gradient with a smooth activation or code."""
    return Surrogate(net, _SharedWeights(net, activation=activation, code=code))
