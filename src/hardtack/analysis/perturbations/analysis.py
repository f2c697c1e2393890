"""The analysis `perturbations`: perturbations for a model and for other models, measured and tested on each model."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from hardtack.analysis.adversary import attacked, make_adversary
from hardtack.analysis.analysis import AnalysisContext, Arrays, Conclusion, OverImages, RowWork
from hardtack.analysis.other_models import read_others
from hardtack.analysis.perturbations.amplitude import amplitude
from hardtack.analysis.perturbations.conclusion import ITSELF, conclude
from hardtack.analysis.perturbations.picture import picture
from hardtack.analysis.perturbations.spectrum import mean_frequency, radial_power, rings
from hardtack.analysis.pictures import eight_bits
from hardtack.base.annotations import AN_ATTACK, MODELS
from hardtack.base.config import SEVERAL, check
from hardtack.base.errors import UserError
from hardtack.base.registry import analyses
from hardtack.evaluation.sanity import check_logits
from hardtack.evaluation.threat_stages import default_batch
from hardtack.threats import Threat

THESIS = Threat.parse("linf:4/255")


@analyses.register("perturbations", papers=("xcit",))
@dataclass(frozen=True, kw_only=True)
class Perturbations(OverImages):
    """Adversarial perturbations: pictures, amplitude, frequencies, what other models see in them, and transfer.

    threat     norm and radius of the perturbations; null: that of an attack that has one of its own, else linf:8/255
    attack     the attack, its name or settings, as in evaluate; by default PGD of 100 steps of 1.5 ε/100
    others     further models (run folders, weights files, published names) that classify perturbed images and the
               perturbation alone
    makers     all: the attack also runs on each of the others; itself: on this model only
    top        values of k for top-k accuracy on the perturbation alone
    pictures   images whose pictures are stored
    """

    threat: Threat | None = None
    attack: Annotated[Any, AN_ATTACK] = field(default_factory=dict)
    others: Annotated[Any, MODELS] = ()
    makers: Literal["all", "itself"] = "all"
    top: Annotated[tuple[Annotated[int, Field(ge=1)], ...], Field(min_length=1), SEVERAL] = (1, 5)
    pictures: Annotated[int, Field(ge=0)] = 8

    def __post_init__(self) -> None:
        check(self)
        attack = make_adversary(self.attack, self.threat, usual=THESIS, steps=100, reach=1.5)
        if not attack.threat.radius > 0:
            raise UserError(f"threat={attack.threat} allows no perturbation: give a radius above 0")
        object.__setattr__(self, "threat", attack.threat)
        object.__setattr__(self, "attack", attack)
        object.__setattr__(self, "others", read_others(self.others))
        if any(other.label == ITSELF for other in self.others):
            raise UserError(f"'{ITSELF}' is the name of the analysed model: give the other model another name")

    def fingerprints(self) -> tuple[str, ...]:
        """Digests of the weights of the other models."""
        return tuple(other.fingerprint() for other in self.others)

    def begin(self, context: AnalysisContext) -> RowWork:
        return _Perturbations(self, context)


class _Perturbations:
    """A row for each image."""

    def __init__(self, settings: Perturbations, context: AnalysisContext) -> None:
        self.settings, self.context, self.length = settings, context, context.count
        self.at_once = settings.batch_size or default_batch(context.shape, context.device.type)
        self.judges = {ITSELF: context.model, **{other.label: context.another(other) for other in settings.others}}
        self.makers = self.judges if settings.makers == "all" else {ITSELF: context.model}
        self.classes = self._check()

    def rows(self, start: int, stop: int) -> Arrays:
        x, y, index = self.context.images(start, stop)
        per_maker = [self._made(model, x, y, index) for model in self.makers.values()]
        measured = {name: torch.stack([arrays[name] for arrays in per_maker], dim=1) for name in per_maker[0]}
        measured |= {"index": index, "label": y, "rank_clean": self._ranks(x, y)[0]}
        measured |= {"spectrum_images": radial_power(x), "frequency_images": mean_frequency(x)}
        few = max(0, min(stop, self.settings.pictures) - start)  # only of the first images
        kept = {"images": eight_bits(x[:few]), "pictures": measured.pop("pictures")[:few]}
        return {name: value.cpu().numpy() for name, value in {**measured, **kept}.items()}

    def conclude(self, arrays: Arrays) -> Conclusion:
        conclusion = conclude(arrays, self.settings, makers=list(self.makers), judges=self.judges, classes=self.classes)
        return dataclasses.replace(conclusion, arrays={"frequencies": rings(*self.context.shape[-2:]).numpy()})

    @torch.no_grad()
    def _check(self) -> int:
        """The number of classes. A model without valid logits is refused."""
        x, y, _ = self.context.images(0, min(8, self.context.count))
        for name, model in self.judges.items():
            try:
                check_logits(logits := model(x).float(), y)
            except UserError as error:
                raise UserError(str(error) if name == ITSELF else f"{name}: {error}") from None
        return int(logits.shape[1])

    def _made(self, maker: nn.Module, x: Tensor, y: Tensor, index: Tensor) -> dict[str, Tensor]:
        """Measures of the perturbations for one model, and the predictions of all models on them."""
        threat = self.settings.attack.threat
        x_adv, blind = attacked(self.settings.attack, maker, x, y, index, self.context.seed)
        delta = x_adv - x
        shown, reversed = picture(delta, threat), picture(-delta, threat)
        alone = [self._ranks(image / 255, y) for image in (shown, reversed)]
        return {
            "rank_moved": self._ranks(x_adv, y)[0],
            "rank_alone": torch.stack([rank for rank, _ in alone], dim=-1),
            "answer_alone": torch.stack([answer for _, answer in alone], dim=-1),
            "spectrum": radial_power(delta),
            "frequency": mean_frequency(delta),
            "pictures": shown,
            "zero_gradient": blind,
            **{f"amplitude_{name}": value for name, value in amplitude(delta, threat).items()},
        }

    @torch.no_grad()
    def _ranks(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Rank of the label (the number of classes with a higher logit) and prediction of each model: N×models each."""
        logits = [model(x).float() for model in self.judges.values()]
        ranks = torch.stack([_rank(outputs, y) for outputs in logits], dim=1)
        return ranks, torch.stack([outputs.argmax(dim=1) for outputs in logits], dim=1)


def _rank(logits: Tensor, y: Tensor) -> Tensor:
    """The rank of the label, 0 if it is predicted. Of equal logits the first ranks higher; NaN gives the last rank."""
    mine, place = logits.gather(1, y[:, None]), torch.arange(logits.shape[1], device=y.device)
    ahead = (logits > mine) | ((logits == mine) & (place < y[:, None]))
    return torch.where(logits.isfinite().all(dim=1), ahead.sum(dim=1), logits.shape[1])
