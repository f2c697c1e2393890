"""An objective in a loop of Hugging Face accelerate, in any number of processes (`accelerate launch FILE`)."""

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import hardtack as ht

torch.manual_seed(0)
accelerator = Accelerator()
network = nn.Sequential(
    nn.Conv2d(3, 16, 3, stride=2, padding=1), nn.ReLU(),
    nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.ReLU(),
    nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(512, 10),
)  # fmt: skip
model = ht.wrap(network, mean=0.5, std=0.5, num_classes=10)
objective = ht.objective("trades", model, threat="linf:0.05", steps=2, beta=2)
images, labels, index = ht.load_data("digits", "train").batch(torch.arange(640))
loader = DataLoader(TensorDataset(images, labels, index), batch_size=64, shuffle=True)
optimiser = torch.optim.AdamW(objective.optimised.parameters(), lr=5e-3)
# the objective is what is prepared: its forward pass is the one whose gradients the processes exchange
objective, optimiser, loader = accelerator.prepare(objective, optimiser, loader)

for epoch in range(8):
    for x, y, keys in loader:
        own = accelerator.unwrap_model(objective)
        prepared = own.prepare(x, y, keys=keys + 10_000 * epoch)  # the attack; every image has its own start
        parts = objective(x, y, **prepared)
        optimiser.zero_grad()
        accelerator.backward(parts["loss"])
        optimiser.step()
        own.finish_step()

if accelerator.is_main_process:
    x, y, _ = ht.load_data("digits", "test").batch(torch.arange(100), accelerator.device)
    trained = accelerator.unwrap_model(objective).model
    print(ht.evaluate(trained, (x, y), suite="pgd", threat="linf:0.05", quiet=True))
