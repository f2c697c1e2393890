"""An attack of hardtack inside foolbox: `pip install foolbox`. The adapter is the method `run`.

The other way round, foolbox's attacks in hardtack, needs no code: `hardtack evaluate runs/x attack=foolbox:LinfPGD`.
"""

import eagerpy as ep
import foolbox
import torch
from foolbox.attacks.base import FixedEpsilonAttack

import hardtack as ht


class Hardtack(FixedEpsilonAttack):
    distance = foolbox.distances.linf

    def __init__(self, network, attack="apgd", **settings):
        self.network, self.attack, self.settings = network, attack, settings

    def run(self, model, inputs, criterion, *, epsilon, **kwargs):
        images, labels = ep.astensor(inputs).raw, ep.astensor(criterion.labels).raw
        x_adv = ht.attack(self.network, images, labels, self.attack, threat=f"linf:{epsilon}", **self.settings)
        return ep.astensor(x_adv)


if __name__ == "__main__":
    network = ht.load_model("vit_digits", seed=0)
    x, _, _ = ht.load_data("digits", "test").batch(torch.arange(32))
    y = network(x).argmax(dim=1)  # an untrained network, so its own predictions are the labels
    model = foolbox.PyTorchModel(network, bounds=(0, 1), device="cpu")
    _, _, success = Hardtack(network, "apgd", steps=10)(model, x, y, epsilons=[0.0005, 0.01])
    for eps, broken in zip((0.0005, 0.01), success, strict=True):
        print(f"linf:{eps}: foolbox counts {int(broken.sum())} of {len(x)} images as broken")
