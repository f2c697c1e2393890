"""`ht.attack`: adversarial images of one batch, in a training loop, a script or a notebook.

    x_adv = ht.attack(model, x, y, "pgd", threat="linf:8/255", steps=20)
    found = ht.attack(model, x, y, "apgd", threat=["linf:4/255", "linf:8/255"], details=True)
    found[1].success, found[1].size

Random starts are fresh in every call: their one seed is drawn from torch's generator, so that `torch.manual_seed`
repeats a whole loop. With `seed=` or `keys=` the call is a function of its arguments alone.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, overload

import numpy as np
import torch
from torch import Tensor, nn

from hardtack.attacks import Attack, preserve_state
from hardtack.attacks.adaptive import adapted, choose_attack, split_settings
from hardtack.attacks.contract import as_attack, settings_of
from hardtack.attacks.input_guard import CHANGES_INPUT, guard_input
from hardtack.attacks.pool.verifier import Verifier
from hardtack.base import randomness
from hardtack.base.config import build
from hardtack.base.errors import UserError
from hardtack.base.registry import attacks
from hardtack.base.runtime import Runtime
from hardtack.data.given import unit_images
from hardtack.data.given.arrays import Array, as_labels, as_tensor
from hardtack.evaluation.keywords import AnyAttack, AnyThreat
from hardtack.evaluation.sanity import check_classes, check_inputs, check_logits
from hardtack.evaluation.suite import evaluate
from hardtack.models.dtypes import takes_model
from hardtack.models.first_images import first_logits
from hardtack.models.given import AnyModel, takes_one_channel
from hardtack.threats import Threat

AUTOATTACK = "autoattack"


class Attacked(NamedTuple):
    """What `details=True` returns. Successes are verified as in an evaluation: in fp32, inside the ball and the box."""

    x_adv: Tensor
    success: Tensor  # N bool: misclassified, or classified as the target
    size: Tensor  # N: of the change, in the norm of the threat
    prediction: Tensor  # N int64: the class of the adversarial image
    threat: Threat


@overload
def attack(
    model: AnyModel, x: Array, y: Array, attack: AnyAttack = ..., *, threat: AnyThreat | None = ...,
    keys: Array | None = ..., seed: int | None = ..., details: Literal[False] = ..., **settings: Any,
) -> Tensor: ...  # fmt: skip
@overload
def attack(
    model: AnyModel, x: Array, y: Array, attack: AnyAttack = ..., *, threat: AnyThreat | None = ...,
    keys: Array | None = ..., seed: int | None = ..., details: Literal[True], **settings: Any,
) -> Attacked: ...  # fmt: skip
@overload
def attack(
    model: AnyModel, x: Array, y: Array, attack: AnyAttack = ..., *, threat: Sequence[AnyThreat],
    keys: Array | None = ..., seed: int | None = ..., details: Literal[False] = ..., **settings: Any,
) -> list[Tensor]: ...  # fmt: skip
@overload
def attack(
    model: AnyModel, x: Array, y: Array, attack: AnyAttack = ..., *, threat: Sequence[AnyThreat],
    keys: Array | None = ..., seed: int | None = ..., details: Literal[True], **settings: Any,
) -> list[Attacked]: ...  # fmt: skip
@takes_model
def attack(
    model: Any, x: Any, y: Any, attack: AnyAttack = "pgd", *,
    threat: AnyThreat | Sequence[AnyThreat] | None = None, keys: Array | None = None, seed: int | None = None,
    details: bool = False, **settings: Any,
) -> Any:  # fmt: skip
    """Adversarial images for x (N×3×H×W in [0,1]) with labels y, as float32 tensors of that shape.

    Other arrays of images are taken as `evaluate` takes them: NumPy's, channels last, whole numbers 0 … 255, grey.

    `attack`: a registered name (`hardtack list attacks`), "autoattack" (with `tier` and `version`), a dict of a name
    and settings, a class, or an attack made in Python. The settings are those of the attack and, for any attack by
    gradients, `smooth`, `nes`, `bpda`, `transfer` and `eot` (attacks/adaptive.py). `target`: a class for each image.

    A list of threats gives a list of results, one for each. `details=True` returns an `Attacked` with the images, which
    of them succeed, the size of each change and the predictions. `seed` and `keys` (one int64 for each image) fix what
    is random; without them every call draws anew from torch's generator.
    """
    x, y = _batch(model, x, y)
    keys = None if keys is None else _one_each(keys, "keys", x)
    if isinstance(attack, Mapping):
        settings = {**attack, **settings}
        threat, seed = settings.pop("threat", None) if threat is None else threat, settings.pop("seed", seed)
        attack = settings.pop("name", "pgd")
    several = isinstance(threat, Sequence) and not isinstance(threat, str)
    if several and not threat:
        raise UserError('the list of threats is empty; give one or more, for example ["linf:4/255", "linf:8/255"]')
    given: list[Any] = list(threat) if several else [threat]  # type: ignore[arg-type]
    threats = [None if each is None else Threat.parse(each) for each in given]
    if "eps" in settings:
        raise UserError('eps is part of the threat: threat="linf:8/255", or a list of threats')
    drawn = None if seed is not None or keys is not None else randomness.fresh_word()
    found = [_one(model, x, y, attack, each, keys, seed, drawn, details, dict(settings)) for each in threats]
    return found if several else found[0]


def _batch(model: nn.Module, x: Any, y: Any) -> tuple[Tensor, Tensor]:
    """The images and labels as tensors on one device; arrays go to that of the model."""
    labels, _ = as_labels(y)
    images = unit_images(x, count=len(labels))
    if not isinstance(x, Tensor):
        images = images.to(next(model.parameters(), images).device)
    labels = labels.to(images.device)
    if images.shape[1] == 1 and len(images) and not takes_one_channel(model, images[:1]):
        images = images.expand(-1, 3, -1, -1).contiguous()
    check_inputs(images, labels, num_classes=getattr(model, "num_classes", None))
    return images, labels


def _one_each(value: Any, what: str, x: Tensor) -> Tensor:
    """A whole number for each image, from a tensor, an array or a list."""
    numbers = as_tensor(value, what)
    if numbers.shape != x.shape[:1] or numbers.is_floating_point() or numbers.dtype == torch.bool:
        kind, shape = str(numbers.dtype).removeprefix("torch."), "×".join(map(str, numbers.shape)) or "one number"
        raise UserError(f"{what} must be one whole number for each of the {len(x)} images, found {kind} {shape}")
    return numbers.to(x.device, torch.int64)


def _one(
    model: nn.Module, x: Tensor, y: Tensor, attack: Any, threat: Threat | None, keys: Tensor | None, seed: int | None,
    drawn: int | None, details: bool, settings: dict[str, Any],
) -> Tensor | Attacked:  # fmt: skip
    if attack == AUTOATTACK:
        x_adv = _autoattack(model, x, y, threat, seed if drawn is None else drawn, keys, settings)
        judge: Attack = as_attack(_Unchanged(threat or _DEFAULT))
        return _judged(model, x_adv, x, y, judge, None) if details else x_adv
    with guard_input(model) as guard, preserve_state(model), torch.no_grad():
        logits = first_logits(model, x[:8]).float()
        check_logits(logits, y[:8])
        check_classes(y, "label", logits.shape[1])
    if guard.changed:
        warnings.warn(CHANGES_INPUT, stacklevel=4)
    target = None
    if isinstance(settings.get("target"), Tensor | np.ndarray | list | tuple):
        target = _one_each(settings.pop("target"), "target", x)
        check_classes(target, "target", logits.shape[1])
    chosen = made(attack, threat, seed if drawn is None else drawn, settings)
    chosen, _ = chosen.settle(model, x[:8].clone()) if chosen.has_gradient_source else (chosen, "")
    if drawn is not None:
        keys = randomness.fold(torch.arange(len(x), device=x.device), drawn)
    x_adv = chosen(model, x, y, keys=keys, **({} if target is None else {"target": target}))
    return _judged(model, x_adv, x, y, chosen, target) if details else x_adv


def made(attack: Any, threat: Threat | None, seed: int | None, settings: Mapping[str, Any]) -> Attack:
    """The attack from a name, a class or an instance, with this threat and seed where it has such settings."""
    wanted = {key: value for key, value in (("threat", threat), ("seed", seed)) if value is not None}
    if isinstance(attack, str):
        return choose_attack({"name": attack, **settings, **_taken(wanted, attacks.get(attack).make)})
    if isinstance(attack, type):
        own, gradients = split_settings(settings, attack)
        return adapted(as_attack(build(attack, {**own, **_taken(wanted, attack)})), gradients)
    as_attack(attack)  # refuses what cannot be called
    if settings:
        raise UserError(f"{', '.join(settings)}: an attack that was made in Python already has its settings")
    mine = settings_of(attack)
    if threat is not None and "threat" not in mine:
        raise UserError(f"{type(attack).__name__} has no field threat that threat={threat} could replace")
    replaced = {key: value for key, value in wanted.items() if key == "threat" and value != mine.get(key)}
    return as_attack(dataclasses.replace(attack, **replaced) if replaced else attack)


def _taken(wanted: Mapping[str, Any], kind: Any) -> dict[str, Any]:
    """The threat, and the seed where attacks of this kind have one."""
    fields = {item.name for item in dataclasses.fields(kind)} if dataclasses.is_dataclass(kind) else set()
    return {key: value for key, value in wanted.items() if key in fields or key == "threat"}


# ---------------------------------------------------------------- what was found


def _judged(model: nn.Module, x_adv: Tensor, x: Tensor, y: Tensor, attack: Attack, target: Tensor | None) -> Attacked:
    try:
        threat = attack.threat
    except AttributeError:
        raise UserError(
            f"details=True needs the threat that {attack.name} attacks within: make it a dataclass with a field threat"
        ) from None
    runtime = Runtime(device=str(x.device) if x.device.type == "cuda" else x.device.type, compile=False)
    with preserve_state(model):
        verdict = Verifier(model, runtime, votes=attack.eot)(x_adv, x, y, attack, target)
    return Attacked(x_adv, verdict.wrong, threat.size(x_adv - x), verdict.predicted, threat)


# ---------------------------------------------------------------- AutoAttack

_DEFAULT = Threat.parse("linf:8/255")


@dataclasses.dataclass(frozen=True)
class _Unchanged:
    """Stands for the list of attacks where its images are judged."""

    threat: Threat

    def __call__(self, model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        return x


def _autoattack(
    model: nn.Module, x: Tensor, y: Tensor, threat: Threat | None, seed: int | None, keys: Tensor | None,
    settings: dict[str, Any],
) -> Tensor:  # fmt: skip
    """The images of an evaluation; those that no attack broke come back as they are."""
    if keys is not None:
        raise UserError('"autoattack" numbers the images itself: give seed=… instead of keys=…')
    known = ("tier", "version", "batch_size", "runtime")
    if unknown := [key for key in settings if key not in known]:
        raise UserError(f'{", ".join(unknown)}: the settings of "autoattack" are threat, {", ".join(known)} and seed')
    device = str(x.device) if x.device.type == "cuda" else x.device.type
    runtime = settings.pop("runtime", None) or Runtime(device=device, seed=(seed or 0) % 2**31)
    measured = evaluate(
        model, (x, y), suite=AUTOATTACK, threat=threat or _DEFAULT, runtime=runtime, quiet=True, consistency=False,
        examples=len(x), keep=False, **{"audit": 0, **settings},
    )  # fmt: skip
    broken = torch.from_numpy(~measured.robust & measured.verdicts["clean_correct"])
    images = torch.from_numpy(measured.examples["x_adv"]).permute(0, 3, 1, 2)
    return torch.where(broken[:, None, None, None].to(x.device), images.to(x.device, x.dtype), x)
