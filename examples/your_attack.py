"""Your own attack: a frozen dataclass that is called with the model; once registered, its name works everywhere.

On the command line: hardtack evaluate runs/x attack=best_of_noise --import your_attack.py

Any callable of (model, x, y) is an attack. An attack that needs more (limits of its own, a search in the pool, a
note about the model) inherits from `hardtack.attacks.Attack`, which documents every part and its default.
"""

from dataclasses import dataclass

import torch

import hardtack as ht
from hardtack.attacks import preserve_state
from hardtack.base.randomness import make_keys
from hardtack.base.registry import attacks


@attacks.register("best_of_noise", help="the most harmful of several random points of the ball")
@dataclass(frozen=True, kw_only=True)
class BestOfNoise:
    threat: ht.Threat
    tries: int = 10

    @torch.no_grad()
    def __call__(self, model, x, y, *, keys=None):
        keys = torch.arange(len(x)) if keys is None else keys
        best, worst_loss = x, torch.full((len(x),), -torch.inf)
        with preserve_state(model):
            for number in range(self.tries):
                x_try = self.threat.random_point(x, make_keys(keys, number))
                loss = torch.nn.functional.cross_entropy(model(x_try), y, reduction="none")
                best = torch.where((loss > worst_loss)[:, None, None, None], x_try, best)
                worst_loss = torch.maximum(loss, worst_loss)
        return best


if __name__ == "__main__":
    model = ht.load_model("vit_digits", seed=0)
    x, y, _ = ht.load_data("digits", "test").batch(torch.arange(64))
    x_adv = ht.attack(model, x, y, "best_of_noise", threat="linf:8/255", tries=5)
    print("inside the ball:", bool(ht.Threat.parse("linf:8/255").contains(x_adv, x).all()))
    print(ht.evaluate(model, (x, y), suite="pgd", threat="linf:8/255", attack={"name": "best_of_noise"}, quiet=True))
