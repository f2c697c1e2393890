"""An objective inside a Lightning module: `pip install lightning`."""

import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import hardtack as ht


class Robust(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        network = nn.Sequential(
            nn.Conv2d(3, 16, 3, stride=2, padding=1), nn.ReLU(),
            nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.ReLU(),
            nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(512, 10),
        )  # fmt: skip
        self.model = ht.wrap(network, mean=0.5, std=0.5, num_classes=10)
        self.objective = ht.objective("adversarial", self.model, threat="linf:0.05", steps=2)

    def training_step(self, batch, number):
        parts = self.objective(*batch)
        self.log_dict({f"train/{name}": value for name, value in parts.items()})
        return parts["loss"]

    def on_before_zero_grad(self, optimiser) -> None:  # after every update
        self.objective.finish_step()

    def configure_optimizers(self):
        return torch.optim.AdamW(self.objective.optimised.parameters(), lr=5e-3)


lightning.seed_everything(0, verbose=False)
images, labels, _ = ht.load_data("digits", "train").batch(torch.arange(640))
loader = DataLoader(TensorDataset(images, labels), batch_size=64, shuffle=True)
module = Robust()
quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False}
lightning.Trainer(max_epochs=8, accelerator="cpu", devices=1, **quiet).fit(module, loader)

x, y, _ = ht.load_data("digits", "test").batch(torch.arange(100))
print(ht.evaluate(module.model, (x, y), suite="pgd", threat="linf:0.05", quiet=True))
