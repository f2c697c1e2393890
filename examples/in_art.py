"""An attack of hardtack as an EvasionAttack of ART: `pip install adversarial-robustness-toolbox`.

The adapter is the method `generate`. The other way round needs no code: `hardtack evaluate runs/x attack=art:DeepFool`.
"""

import torch
from art.attacks import EvasionAttack
from art.estimators.classification import PyTorchClassifier

import hardtack as ht


class Hardtack(EvasionAttack):
    _estimator_requirements = (PyTorchClassifier,)

    def __init__(self, estimator, attack="apgd", threat="linf:8/255", **settings):
        super().__init__(estimator=estimator)
        self.settings = {"attack": attack, "threat": threat, **settings}

    def generate(self, x, y=None, **kwargs):
        labels = torch.from_numpy(self.estimator.predict(x) if y is None else y)
        labels = labels if labels.ndim == 1 else labels.argmax(dim=1)
        return ht.attack(self.estimator.model, torch.from_numpy(x), labels, **self.settings).numpy()


if __name__ == "__main__":
    model = ht.load_model("vit_digits", seed=0)
    x, _, _ = ht.load_data("digits", "test").batch(torch.arange(32))
    shape = {"input_shape": (3, 32, 32), "nb_classes": 10, "clip_values": (0.0, 1.0), "device_type": "cpu"}
    classifier = PyTorchClassifier(model, loss=torch.nn.CrossEntropyLoss(), **shape)
    x_adv = Hardtack(classifier, "apgd", threat="linf:0.1", steps=10).generate(x.numpy())
    before, after = (classifier.predict(images).argmax(axis=1) for images in (x.numpy(), x_adv))
    print(f"the prediction of {int((before != after).sum())} of {len(x)} images changed")
