"""Distillation: a differentiable network learns the answers of a model from queries alone (Papernot et al. 2017).

    round 1   train on images and on noise around them, within the threat's ball and up to twice its radius
    round k   attack the surrogate → ask the model about the images found → train on with these answers

Random noise says little about the directions that attacks take; the images found by attacking the surrogate do. An
image that fools the surrogate alone teaches it where it is wrong, and one that fools both is a success. The model is
only called, never differentiated.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hardtack.attacks import APGD, preserve_state
from hardtack.base.errors import UserError
from hardtack.models import Classifier, load_model
from hardtack.surrogates.settings import DistillationConfig
from hardtack.threats import Threat

FARTHEST = 2  # times the threat's radius
TILES = 8  # a side, of noise that is constant on tiles
CRAFTING_STEPS = 20
LABEL_WEIGHT = 0.2  # of the predicted class, beside the logits
Tell = Callable[[int, str], None]


@dataclass(frozen=True, kw_only=True)
class DistillationRound:
    """What one round came to. Shares are of the images learned from; `broken` counts attacked images so far."""

    agreement: float  # the surrogate predicts the model's class on unchanged images
    fooled_surrogate: float  # by the images crafted on it
    fooled_model: float  # by the same images
    broken: int
    queries: int  # images shown to the model so far


class Distillation:
    """Learns the answers of `model` around the images `x`. The first `attacked` of them, with labels `y`, count."""

    def __init__(
        self, model: nn.Module, x: Tensor, y: Tensor, config: DistillationConfig, *, threat: Threat, seed: int = 0
    ) -> None:
        self.model, self.x, self.y, self.config, self.threat, self.seed = model, x, y, config, threat, seed
        self.queries = 0
        answers = self.ask(x)
        if answers.ndim != 2 or not answers.isfinite().any():
            raise UserError("the model returns no finite logits on these images, so there is nothing to learn")
        self.labels, self.classes = answers.argmax(dim=1), answers.shape[1]
        self.match = config.match if config.match != "auto" else informative(answers)
        self.scale = float(answers.std(dim=1).mean().clamp_min(1e-12))
        self.correct = self.labels[: len(y)] == y
        self.broken = torch.zeros_like(self.correct)

    def new_surrogate(self) -> Classifier:
        """An untrained surrogate, on the device of the images."""
        side = self.x.shape[-1]
        architecture = self.config.architecture(side)
        return load_model(architecture, num_classes=self.classes, image_size=side, seed=self.seed).to(self.x.device)

    @torch.no_grad()
    def ask(self, x: Tensor) -> Tensor:
        """The model's logits in fp32, the mean of `eot` passes."""
        self.queries += len(x) * self.config.eot
        parts = []
        for part in x.split(max(self.config.batch_size, 256)):
            passes = [self.model(part).float() for _ in range(self.config.eot)]
            parts.append(torch.stack(passes).mean(dim=0))
        return torch.cat(parts)

    def run(
        self, number: int, surrogate: nn.Module, points: list[Tensor], tell: Tell | None = None
    ) -> DistillationRound:
        """One round. `points` are the images crafted in earlier rounds (bytes, one for each image); it gains one."""
        devices = [self.x.device] if self.x.device.type == "cuda" else []
        with torch.random.fork_rng(devices):
            torch.manual_seed(1_000_003 * self.seed + number)
            self._train(surrogate, points, tell)
        crafted = self._craft(surrogate, number)
        points.append(to_bytes(crafted))
        with torch.no_grad():
            answers, own = self.ask(crafted).argmax(dim=1), _predict(surrogate, crafted)
            self._count(crafted[: len(self.y)], answers[: len(self.y)])
            agreement = _predict(surrogate, self.x) == self.labels
        return DistillationRound(
            agreement=float(agreement.float().mean()), fooled_surrogate=float((own != self.labels).float().mean()),
            fooled_model=float((answers != self.labels).float().mean()), broken=int(self.broken.sum()),
            queries=self.queries,
        )  # fmt: skip

    def replay(self, points: list[Tensor]) -> None:
        """Count again what the images of earlier rounds broke, after they were read from disk."""
        for stored in points:
            crafted = from_bytes(stored[: len(self.y)], self.x.device)
            self._count(crafted, self.ask(crafted).argmax(dim=1))

    def _count(self, crafted: Tensor, answers: Tensor) -> None:
        inside = self.threat.contains(crafted, self.x[: len(self.y)])
        self.broken |= self.correct & inside & (answers != self.y)

    # ------------------------------------------------------------ the parts of a round

    def _train(self, surrogate: nn.Module, points: list[Tensor], tell: Tell | None) -> None:
        surrogate.train()
        optimiser = torch.optim.AdamW(surrogate.parameters(), lr=self.config.lr, weight_decay=1e-4)
        for step, batch in enumerate(self._batches(points)):
            rate = 0.1 + 0.45 * (1 + math.cos(math.pi * step / self.config.steps))
            for group in optimiser.param_groups:
                group["lr"] = rate * self.config.lr
            loss = self._loss(surrogate(batch), self.ask(batch))
            optimiser.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(surrogate.parameters(), 1.0)
            optimiser.step()
            if tell is not None:
                tell(len(batch), f"loss {loss.item():.3f}")
        surrogate.eval()

    def _batches(self, points: list[Tensor]) -> Iterator[Tensor]:
        """Noisy images; after the first round half of a batch lies at crafted images, or on the way to them."""
        size = self.config.batch_size
        for _ in range(self.config.steps):
            around = size if not points else size // 2
            batch = [self._noisy(self.x[self._some(around)])]
            if points:
                rows = self._some(size - around)
                which = torch.randint(len(points), (len(rows),))
                stored = torch.stack([points[int(at)][int(row)] for at, row in zip(which, rows, strict=True)])
                crafted, x = from_bytes(stored, self.x.device), self.x[rows]
                share = torch.rand(len(rows), 1, 1, 1, device=x.device)
                share = torch.where(torch.rand_like(share) < 0.5, 1.0, share)
                batch.append(x + share * (crafted - x))
            yield torch.cat(batch)

    def _some(self, count: int) -> Tensor:
        return torch.randint(len(self.x), (count,)).to(self.x.device)

    def _noisy(self, x: Tensor) -> Tensor:
        """A third unchanged, a third at the threat's radius, a third at twice that; half of the noise on tiles."""
        fine = torch.randn_like(x)
        tiles = torch.randn(*x.shape[:2], *(min(TILES, side) for side in x.shape[2:]), device=x.device)
        coarse = F.interpolate(tiles, size=tuple(x.shape[2:]), mode="nearest")
        one = torch.rand(len(x), 1, 1, 1, device=x.device)
        noise = torch.where(one < 0.5, fine, coarse)
        if self.threat.norm == "linf":
            noise = noise.sign()
        if self.threat.norm == "l1":
            noise = noise * (torch.rand_like(x) < 0.05)
        noise = noise / self.threat.size(noise).clamp_min(1e-12).reshape(-1, 1, 1, 1)
        factor = torch.randint(FARTHEST + 1, (len(x), 1, 1, 1), device=x.device)
        return (x + factor * self.threat.radius * noise).clamp(0, 1)

    def _loss(self, own: Tensor, answers: Tensor) -> Tensor:
        label = F.cross_entropy(own, answers.argmax(dim=1))
        if self.match == "labels":
            return label
        wanted = (answers - answers.mean(dim=1, keepdim=True)) / self.scale
        return F.mse_loss(own - own.mean(dim=1, keepdim=True), wanted) + LABEL_WEIGHT * label

    def _craft(self, surrogate: nn.Module, number: int) -> Tensor:
        """Images that fool the surrogate, inside the ball, rounded inwards to 8 bits as they are stored."""
        attack = APGD(threat=self.threat, loss="margin", steps=CRAFTING_STEPS, seed=self.seed + number)
        parts = []
        for rows in torch.arange(len(self.x), device=self.x.device).split(256):
            x = self.x[rows]
            found = attack(surrogate, x, self.labels[rows], keys=rows)
            inwards = torch.where(found > x, (found * 255).floor(), (found * 255).ceil())
            parts.append(from_bytes(inwards.to(torch.uint8), x.device))
        return torch.cat(parts)


def informative(answers: Tensor) -> str:
    """`labels` if the logits of every image take two values at most, so that they say no more than a class."""
    ordered = answers.sort(dim=1).values
    distinct = 1 + (ordered.diff(dim=1).abs() > 1e-6 * answers.abs().amax().clamp_min(1e-30)).sum(dim=1)
    poor = (distinct <= 2).all() and answers.shape[1] > 2
    return "labels" if poor or not answers.isfinite().all() else "logits"


def to_bytes(x: Tensor) -> Tensor:
    return (x * 255).round().to(torch.uint8).cpu()


def from_bytes(x: Tensor, device: torch.device) -> Tensor:
    return x.to(device).float() / 255


@torch.no_grad()
def _predict(surrogate: nn.Module, x: Tensor) -> Tensor:
    return torch.cat([surrogate(part).argmax(dim=1) for part in x.split(256)])


def distil(
    model: nn.Module, x: Tensor, y: Tensor, *, threat: Threat | str, seed: int = 0, **settings: object
) -> tuple[Classifier, list[DistillationRound]]:
    """A surrogate of a model around images x with labels y, and what every round came to.

    `settings` are DistillationConfig's. An attack takes its gradient from the surrogate with `transfer=surrogate`.
    """
    config = DistillationConfig(**settings)  # type: ignore[arg-type]
    with preserve_state(model):
        distillation = Distillation(model, x, y, config, threat=Threat.parse(threat), seed=seed)
        surrogate = distillation.new_surrogate()
        points: list[Tensor] = []
        rounds = [distillation.run(number, surrogate, points) for number in range(1, config.rounds + 1)]
    return surrogate.eval(), rounds
