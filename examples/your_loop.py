"""Your own training loop: an objective gives the loss, attack included; `ht.attack` makes images where you need it."""

import torch
from torch import nn

import hardtack as ht

torch.manual_seed(0)  # weights, batches and the starts of attacks: the same numbers in every run
network = nn.Sequential(
    nn.Conv2d(3, 16, 3, stride=2, padding=1), nn.ReLU(),
    nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.ReLU(),
    nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(512, 10),
)  # fmt: skip
model = ht.wrap(network, mean=0.5, std=0.5, num_classes=10)  # from [0,1] pixels to logits
objective = ht.objective("trades", model, threat="linf:0.05", steps=3, beta=2)
optimiser = torch.optim.AdamW(objective.optimised.parameters(), lr=5e-3)

x, y, _ = ht.load_data("digits", "train").batch(torch.arange(1000))
for step in range(100):
    rows = torch.randperm(len(x))[:64]
    parts = objective(x[rows], y[rows])
    optimiser.zero_grad()
    parts["loss"].backward()
    optimiser.step()
    objective.finish_step()  # moves what the optimiser does not: RSPC's occluder, the perturbations of `free`
    if step % 25 == 24:
        print(f"step {step + 1}  loss {parts['loss']:.3f}  robust accuracy {parts['robust_accuracy']:.0%}")

x, y, _ = ht.load_data("digits", "test").batch(torch.arange(100))
mild, strong = ht.attack(model.eval(), x, y, "apgd", threat=["linf:0.02", "linf:0.05"], details=True)
print(f"broken at {mild.threat}: {mild.success.sum()}, at {strong.threat}: {strong.success.sum()} of {len(x)}")
