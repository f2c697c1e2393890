"""Can these attacks find an adversarial example on this model when one certainly exists (`hardtack selftest`)?

    choose a point on the boundary of the ball → refit the last layer so that only this point is misclassified → attack

The classifier keeps its features and gets two new outputs: class 0 for the image and for many random points well inside
the ball, class 1 for one random point on its boundary. An attack that does not find class 1 misses an adversarial
example that exists, and its robust accuracy is too high. The idea is that of Zimmermann et al. ("Increasing confidence
in adversarial robustness evaluations", 2022), who found that most of the published evaluations they tested fail. The
test also tries as many random points as the attack had passes; if these succeed too, the test is too easy.
"""

from __future__ import annotations

import copy
import dataclasses
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from hardtack.attacks import preserve_state
from hardtack.attacks.adaptive import AdaptiveAttack
from hardtack.attacks.input_guard import guard_input
from hardtack.attacks.pool import fast_copy
from hardtack.attacks.pool.verifier import Verifier
from hardtack.base import randomness
from hardtack.base.config import build, parse_words
from hardtack.base.errors import UserError
from hardtack.base.progress import Meter
from hardtack.base.runtime import Runtime
from hardtack.data import Dataset
from hardtack.data.spans import check_pair, count, head
from hardtack.evaluation.job import read_job
from hardtack.evaluation.measure import Measure
from hardtack.evaluation.sanity import check_inputs
from hardtack.evaluation.settings import EvaluationConfig
from hardtack.evaluation.suites import make_suite
from hardtack.evaluation.target import load_target
from hardtack.evaluation.threat_stages import ThreatStages
from hardtack.threats import Threat

IMAGES, INNER = 16, 200
ENOUGH = 0.9  # share of the planted points that must be found
TOO_EASY = 0.5  # if random points find this share, the test is not informative
_WITHIN = 0.95  # inner points lie within this share of the radius
_HARDNESS = 0.9  # position of the decision boundary between the highest inner score and the planted one
_RIDGE = 0.01
_FLOOR = 0.1  # least scale of a feature, as a share of the root mean square of all scales
_ROUNDING = 2.0**-8  # of bf16: a smaller separation would be noise in a bf16 search
_MOST_RANDOM = 2000


@dataclass(frozen=True, kw_only=True)
class SelfTest:
    """How many planted points were found. `testable`: images for which one could be planted."""

    threat: str
    attacks: tuple[str, ...]
    images: int
    testable: int
    found: int
    random_found: int
    blind: int  # missed, and the gradients were zero or NaN
    flat: int  # missed, and no attack could raise its loss

    @property
    def informative(self) -> bool:
        return self.testable > 0 and self.random_found < TOO_EASY * self.testable

    @property
    def passed(self) -> bool:
        return self.informative and self.found >= ENOUGH * self.testable

    def __str__(self) -> str:
        names = ", ".join(self.attacks)
        verdict = "PASSED" if self.passed else "FAILED" if self.informative else "UNINFORMATIVE"
        lines = [
            f"selftest {verdict}: {names} at {self.threat}",
            f"  planted adversarial examples found   {_share(self.found, self.testable)}   (needed: {ENOUGH:.0%})",
            f"  found by as many random points       {_share(self.random_found, self.testable)}",
        ]
        if self.testable < self.images:
            lines.append(f"  not testable                         {_share(self.images - self.testable, self.images)}")
        return "\n".join([*lines, textwrap.fill(self._meaning(), 100, initial_indent="  ", subsequent_indent="  ")])

    def _meaning(self) -> str:
        if not self.testable:
            return (
                "No point could be planted: the model's features hardly change inside the ball. The test says nothing "
                "about the attacks; try a larger threat, or look for rounding in the model."
            )
        if not self.informative:
            return (
                "Random points find the planted examples too: the test is too easy to distinguish strong attacks from "
                "weak ones. It says nothing about the attacks; try a smaller threat, or inner=1000."
            )
        if self.passed:
            return (
                "The attacks work on this model: where an adversarial example certainly exists, they find one. This is "
                "a necessary condition, not a proof: a stronger attack may still lower the robust accuracy."
            )
        return (
            f"The attacks missed {self.testable - self.found} adversarial examples that certainly exist. The robust "
            f"accuracy that they give for this model is too high: do not publish it. {self._reason()}"
        )

    def _reason(self) -> str:
        if self.blind:
            return (
                f"Reason: for {self.blind} of them the gradient is zero or NaN, because an operation of the model has "
                "none (rounding, argmax, detach). Use an attack without gradients (attacks=[square]) or a "
                "differentiable approximation of the model."
            )
        if self.flat:
            return (
                f"Reason: for {self.flat} of them the loss never rose above its start. Try attack=apgd or more steps."
            )
        return "Reason: the loss rises, but not far enough. Try more steps, or suite=autoattack tier=max."


def _share(count: int, of: int) -> str:
    return f"{count:>3} of {of} ({count / of:.0%})" if of else "none"


# ---------------------------------------------------------------- the test


def selftest(run: str | Path | None, words: Iterable[str] = ()) -> SelfTest:
    """Settings are those of `evaluate`, and inner=200 (random points). Default: suite=autoattack tier=fast n=16."""
    values = parse_words(words)
    inner = values.pop("inner", INNER)
    job = read_job(run, {**_defaults(values), "n": IMAGES, **values})
    config, *more = job.configs()
    if more:
        raise UserError(f"selftest takes one suite at a time, found suite={job.suite}")
    target = load_target(run, job)
    return test_attacks(target.model, target.data, config=config, runtime=job.runtime, n=len(target.data), inner=inner)


def _defaults(values: dict[str, Any]) -> dict[str, Any]:
    """The suite, where none is named: an attack that is named is tested alone."""
    if "suite" in values or "attacks" in values:
        return {"suite": "attacks"}
    return {"suite": "pgd"} if "attack" in values else {"suite": "autoattack", "tier": "fast"}


def test_attacks(
    model: nn.Module,
    data: Dataset | tuple[Tensor, Tensor],
    *,
    config: EvaluationConfig | None = None,
    runtime: Runtime | None = None,
    n: int = IMAGES,
    inner: int = INNER,
    quiet: bool = False,
    **settings: Any,
) -> SelfTest:
    """Test the attacks of an evaluation on the first `n` images; settings are those of EvaluationConfig.

    The labels of the images are not used: the planted classes take their place.
    """
    check_pair(data)
    if not isinstance(inner, int) or inner < 2:
        raise UserError(f"inner must be a whole number of points, at least 2, found {inner}")
    runtime = dataclasses.replace(runtime or Runtime(), compile=False)  # every image has a model of its own
    config = config or build(EvaluationConfig, {**_defaults(settings), **settings})
    trial = _trial(config, runtime.seed)
    device, home = runtime.torch_device, next(iter(model.parameters()), torch.empty(0)).device
    model.to(device)
    try:
        x, y = head(data, device, first=min(n, count(data)))
        check_inputs(x, y)
        x, index = x.clamp(0, 1), torch.arange(len(x), device=device)
        attacked: list[_Attacked] = []
        with preserve_state(model), guard_input(model), Meter("selftest", total=len(x), quiet=quiet) as meter:
            twin, layer = _with_new_head(model, x[:2], runtime)
            for image, key in zip(x.split(1), index.split(1), strict=True):
                if _plant(twin, layer, image, key, trial.threat, runtime, inner):
                    attacked.append(_attack(twin, image, key, trial, config, runtime, meter))
                meter.advance(1)
    finally:
        model.to(home)
    return SelfTest(
        threat=str(trial.threat), attacks=tuple(dict.fromkeys(stage.name for stage in trial.stages)), images=len(x),
        testable=len(attacked), found=sum(image.found for image in attacked),
        random_found=sum(image.random for image in attacked),
        blind=sum(image.blind and not image.found for image in attacked),
        flat=sum(image.flat and not image.found for image in attacked),
    )  # fmt: skip


test_attacks.__test__ = False  # type: ignore[attr-defined]  # its name is not meant for pytest


def _trial(config: EvaluationConfig, seed: int) -> ThreatStages:
    """The stages to be tested: those of the largest radius, where a suite has several."""
    trials = [trial for trial in make_suite(config).threat_stages(config, seed) if trial.threat.eps > 0]
    if not trials:
        raise UserError(f"suite={config.suite} has no attacks to test")
    if len(trials) > 1 and not trials[-1].follows:
        raise UserError("selftest takes one threat at a time: leave union out, and test each threat by threat=…")
    adaptive = [stage.attack for stage in trials[-1].stages if isinstance(stage.attack, AdaptiveAttack)]
    if any(attack.gradients.transfer is not None for attack in adaptive):
        raise UserError(
            "selftest gives the model another last layer, which the model of attack.transfer does not have; test the "
            "attacks without attack.transfer"
        )
    if any(stage.attack.limits for stage in trials[-1].stages):
        raise UserError("selftest works with threats that are lp balls, not with attacks on patches or single pixels")
    return trials[-1]


# ---------------------------------------------------------------- planting


def _with_new_head(model: nn.Module, probe: Tensor, runtime: Runtime) -> tuple[nn.Module, nn.Linear]:
    """A copy of the model whose last layer has two outputs, and that layer; added after the logits if there is none."""
    with torch.no_grad(), runtime.arithmetic("fp32"):
        try:
            twin = copy.deepcopy(model).requires_grad_(False)
            last = fast_copy.last_layer(twin, probe)
        except (RuntimeError, TypeError, AttributeError):  # it cannot be copied
            twin, last = model, None
        if last is not None:
            layer = nn.Linear(last.in_features, 2).to(probe.device).requires_grad_(False)
            for parent in twin.modules():
                for name in [name for name, child in parent._modules.items() if child is last]:
                    setattr(parent, name, layer)
            return twin.eval(), layer
        layer = nn.Linear(model(probe).shape[1], 2).to(probe.device).requires_grad_(False)
    return nn.Sequential(model, layer).eval(), layer


def _plant(
    twin: nn.Module, layer: nn.Linear, x: Tensor, index: Tensor, threat: Threat, runtime: Runtime, inner: int
) -> bool:
    """Set the new layer so that only a point on the boundary is class 1; False if its features cannot be separated."""
    key = randomness.fold(index, runtime.seed)
    keys = randomness.fold(key.expand(inner), torch.arange(1, inner + 1, device=x.device))
    inside = threat.random_point(x.expand(inner, *x.shape[1:]), keys, _WITHIN * threat.radius)
    points = torch.cat([x, inside, _boundary_point(x, key, threat)])
    features = _features(twin, layer, points, runtime)
    rest, planted = features[:-1], features[-1]
    mean = rest.mean(dim=0)
    scale = (rest.var(dim=0) + (_ROUNDING * mean) ** 2).sqrt()
    # a feature that is constant inside the ball, such as a dead ReLU, would decide alone and give no gradient
    scale = scale.clamp_min(_FLOOR * scale.square().mean().sqrt()).clamp_min(1e-12)
    rest, planted = (rest - mean) / scale, (planted - mean) / scale
    weight = _discriminant(rest, planted)
    score, highest = rest @ weight, planted @ weight
    boundary = score.amax() + _HARDNESS * (highest - score.amax())
    below = boundary - score[0]  # distance of the clean image, whose margin becomes 4, so that no loss saturates
    if not (highest > score.amax() and below > 0):
        return False
    row = 4 / below * weight / scale
    with torch.no_grad():
        layer.weight.copy_(torch.stack([-row / 2, row / 2]))
        layer.bias.copy_((row @ mean + 4 / below * boundary) / 2 * torch.tensor([1.0, -1.0], device=x.device))
    classes = Verifier(twin, runtime).logits(points).argmax(dim=1)  # after rounding the layer to fp32
    return not classes[:-1].any() and bool(classes[-1])


def _boundary_point(x: Tensor, key: Tensor, threat: Threat) -> Tensor:
    """A random point at full radius: a corner of the linf ball, a direction of the others; clipped to [0,1]."""
    shape = tuple(x.shape[1:])
    sign = (randomness.bits(key, shape, stream=1) & 1).to(x.dtype) * 2 - 1
    size = {
        "linf": lambda: torch.ones_like(x),
        "l2": lambda: randomness.normal(key, shape, stream=2).abs(),
        "l1": lambda: -torch.log1p(-randomness.uniform(key, shape, stream=2)),
    }[threat.norm]()
    delta = sign * size
    return (x + delta * (threat.radius / threat.size(delta)).reshape(-1, 1, 1, 1)).clamp(0, 1)


def _features(twin: nn.Module, layer: nn.Linear, points: Tensor, runtime: Runtime) -> Tensor:
    """The input of the new layer, N×features in fp64."""
    inputs: list[Tensor] = []
    hook = layer.register_forward_pre_hook(lambda module, args: inputs.append(args[0].double()))
    try:
        Verifier(twin, runtime).logits(points)
    finally:
        hook.remove()
    return torch.cat(inputs)


def _discriminant(rest: Tensor, planted: Tensor) -> Tensor:
    """Fisher's direction (C + λ)⁻¹ planted, C the covariance of the rest; by Woodbury's identity, for many features."""
    n = len(rest)
    gram = rest @ rest.T + n * _RIDGE * torch.eye(n, dtype=rest.dtype, device=rest.device)
    return (planted - rest.T @ torch.linalg.solve(gram, rest @ planted)) / _RIDGE


# ---------------------------------------------------------------- attacking


class _Attacked(NamedTuple):
    found: bool  # the attacks found the planted class
    random: bool  # random points did
    blind: bool
    flat: bool


def _attack(
    twin: nn.Module,
    x: Tensor,
    index: Tensor,
    trial: ThreatStages,
    config: EvaluationConfig,
    runtime: Runtime,
    meter: Meter,
) -> _Attacked:
    """Run the attacks as an evaluation would, then as many random points."""
    measure = Measure(twin, [dataclasses.replace(trial, follows=False)], config, runtime, like=x)
    columns, _, _ = measure(x, torch.zeros_like(index), index, wanted=0, notebook=None, meter=meter)
    tries = min(max(int(columns["forwards"][0]), 1), _MOST_RANDOM)
    keys = randomness.fold(index.expand(tries), runtime.seed, torch.arange(tries, device=x.device), 1)
    points = trial.threat.random_point(x.expand(tries, *x.shape[1:]), keys)
    lucky, blind = measure.verifier.logits(points).argmax(dim=1).any(), columns["zero_gradient"] | columns["not_finite"]
    return _Attacked(not columns["robust"][0], bool(lucky), bool(blind[0]), bool(columns["flat_loss"][0]))
