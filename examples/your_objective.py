"""Your own objective: a frozen dataclass of settings and a module; once registered, `objective=focal` trains with it.

On the command line: hardtack train digits/standard objective=focal objective.gamma=3 --import your_objective.py
"""

import tempfile
from dataclasses import dataclass

import torch.nn.functional as F

import hardtack as ht
from hardtack.base.registry import objectives
from hardtack.objectives import Objective, ObjectiveConfig


@objectives.register("focal", help="cross-entropy that gives less weight to images that are already right")
@dataclass(frozen=True, kw_only=True)
class FocalConfig(ObjectiveConfig):
    gamma: float = 2.0

    def build(self, model):
        return Focal(model, self)


class Focal(Objective):
    def forward(self, x, y):
        loss = F.cross_entropy(self.model(x), y, reduction="none")
        weight = (1 - (-loss).exp()) ** self.config.gamma
        return {"loss": (weight * loss).mean(), "natural_loss": loss.mean().detach()}


if __name__ == "__main__":
    run = ht.train(
        quiet=True,
        data={"limit": 200},
        model="vit_digits",
        objective={"name": "focal", "gamma": 3},
        train={"epochs": 2, "batch_size": 50, "log_every": 1},
        output=tempfile.mkdtemp(),
    )
    print((run / "metrics.jsonl").read_text().splitlines()[-1])
