"""Your own corruption: one function; once registered, its name works in `suite=corruptions` and in `hardtack corrupt`.

On the command line: hardtack evaluate runs/x suite=corruptions types=grey,fog --import your_corruption.py
"""

import torch

import hardtack as ht
from hardtack.base import randomness
from hardtack.base.registry import corruptions


@corruptions.register("grey", help="colours fade, by another amount in every image")
def grey(x, keys, severity, constants):
    """x: N×3×H×W in [0,1]; keys: one for each image; severity: 1 to 5; constants: "cifar" or "imagenet"."""
    amount = severity / 5 * (0.5 + 0.5 * randomness.uniform(keys, (1, 1, 1)))
    return x + (x.mean(dim=1, keepdim=True) - x) * amount


if __name__ == "__main__":
    model = ht.load_model("vit_digits", seed=0)
    x, y, _ = ht.load_data("digits", "test").batch(torch.arange(64))
    print(ht.evaluate(model, (x, y), suite="corruptions", types=("grey", "fog"), severities=(1, 5), quiet=True))
