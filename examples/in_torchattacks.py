"""An attack of hardtack with the interface of torchattacks: `pip install torchattacks --no-deps`.

The adapter is the method `forward`. The other way round needs no code: `hardtack evaluate RUN attack=torchattacks:PGD`.
"""

import torch
import torchattacks

import hardtack as ht


class Hardtack(torchattacks.attack.Attack):
    def __init__(self, model, attack="apgd", threat="linf:8/255", **settings):
        super().__init__(attack, model)
        self.settings = {"attack": attack, "threat": threat, **settings}

    def forward(self, images, labels):
        return ht.attack(self.model, images, labels, **self.settings)


if __name__ == "__main__":
    model = ht.load_model("vit_digits", seed=0)
    x, _, _ = ht.load_data("digits", "test").batch(torch.arange(32))
    y = model(x).argmax(dim=1)  # an untrained network, so its own predictions are the labels
    x_adv = Hardtack(model, "apgd", threat="linf:0.1", steps=10)(x, y)
    print(f"{int((model(x_adv).argmax(dim=1) != y).sum())} of {len(x)} images are broken")
