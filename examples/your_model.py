"""Your own module: wrap it so that normalisation is inside, then attack and measure it in [0,1] pixels."""

import torch
from torch import nn

import hardtack as ht

network = nn.Sequential(  # any module from normalised images to logits
    nn.Conv2d(3, 16, 3, stride=2, padding=1), nn.ReLU(),
    nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.ReLU(),
    nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(512, 10),
)  # fmt: skip
model = ht.wrap(network, mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5), num_classes=10)

x, y, _ = ht.load_data("digits", "train").batch(torch.arange(1000))
optimiser = torch.optim.Adam(model.parameters(), lr=3e-3)
for _ in range(60):
    rows = torch.randperm(len(x))[:100]
    nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
    optimiser.step()
    optimiser.zero_grad()

x, y, _ = ht.load_data("digits", "test").batch(torch.arange(200))
x_adv = ht.attack(model, x, y, "pgd", threat="linf:8/255", steps=20)
print(f"largest change of a pixel: {(x_adv - x).abs().max() * 255:.2f}/255")
print(ht.evaluate(model, (x, y), suite="pgd", threat="linf:8/255", quiet=True))
