"""`hardtack selftest`: can these attacks find an adversarial example on this model when there certainly is one?

    plant a point on the rim of the ball → refit the last layer so that this point alone is wrong → attack

The classifier keeps its features and gets two new outputs: 0 for the image and many random points well inside the
ball, 1 for one random point of its rim. An attack that does not find class 1 misses what is there, and its robust
accuracy is too high. The idea is Zimmermann et al.'s ("Increasing confidence in adversarial robustness evaluations",
2022), who found most of the published evaluations they tested to fail. As many random points as the attack had passes
are tried beside it: where they succeed too, the test is too easy to say anything.
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
ENOUGH = 0.9  # of the planted points have to be found
TOO_EASY = 0.5  # a test that random points pass so often says nothing
_WITHIN = 0.95  # inner points lie in this part of the radius
_HARDNESS = 0.9  # where between the highest inner score and the planted one the boundary runs
_RIDGE = 0.01
_FLOOR = 0.1  # least scale of a feature, as a part of the root mean square of all
_ROUNDING = 2.0**-8  # of bf16: what separates must be larger, or a bf16 search would meet noise
_MOST_RANDOM = 2000


@dataclass(frozen=True, kw_only=True)
class SelfTest:
    """What came of the planted points. `testable`: images beside which one could be planted."""

    threat: str
    attacks: tuple[str, ...]
    images: int
    testable: int
    found: int
    random_found: int
    blind: int  # of the missed ones: the attacks met gradients that were zero or NaN
    flat: int  # of the missed ones: no attack could raise its loss

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
            f"  by as many random points             {_share(self.random_found, self.testable)}",
        ]
        if self.testable < self.images:
            lines.append(f"  not testable                         {_share(self.images - self.testable, self.images)}")
        return "\n".join([*lines, textwrap.fill(self._meaning(), 100, initial_indent="  ", subsequent_indent="  ")])

    def _meaning(self) -> str:
        if not self.testable:
            return (
                "No point could be planted: the model's features hardly change inside the ball. Nothing is known about "
                "the attacks; try a larger threat, or look for rounding in the model."
            )
        if not self.informative:
            return (
                "Random points find the planted examples too: the test is too easy to tell good attacks from bad ones. "
                "Nothing is known about the attacks; try a smaller threat, or inner=1000."
            )
        if self.passed:
            return (
                "The attacks are not blind on this model: where an adversarial example is certain, they find one. A "
                "necessary check, not a proof: a stronger attack may still lower the number you report."
            )
        return (
            f"The attacks missed {self.testable - self.found} adversarial examples that are certainly there. A robust "
            f"accuracy that they report for this model is too high: do not publish it. {self._reason()}"
        )

    def _reason(self) -> str:
        if self.blind:
            return (
                f"Why: on {self.blind} of them the gradient is zero or NaN: the model hides it (rounding, argmax, "
                "detach). Attack it without gradients (attacks=[square]) or through a smooth stand-in."
            )
        if self.flat:
            return f"Why: on {self.flat} of them the loss never rose above its start. Try attack=apgd or more steps."
        return "Why: the search rises but stops short. Try more steps, or suite=autoattack tier=max."


def _share(count: int, of: int) -> str:
    return f"{count:>3} of {of} ({count / of:.0%})" if of else "none"


# ---------------------------------------------------------------- the command, and its Python form


def selftest(run: str | Path | None, words: Iterable[str] = ()) -> SelfTest:
    """Words are those of `evaluate`; besides, inner=200 random points. Default: suite=autoattack tier=fast n=16."""
    values = parse_words(words)
    inner = values.pop("inner", INNER)
    job = read_job(run, {**_defaults(values), "n": IMAGES, **values})
    config, *more = job.configs()
    if more:
        raise UserError(f"selftest takes one suite at a time, found suite={job.suite}")
    target = load_target(run, job)
    return test_attacks(target.model, target.data, config=config, runtime=job.runtime, n=len(target.data), inner=inner)


def _defaults(values: dict[str, Any]) -> dict[str, Any]:
    """What no word says: an attack by itself is meant to be tested by itself."""
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
    """Test the attacks of an evaluation beside the first `n` images; settings are EvaluationConfig's.

    The images' labels play no part: the planted classes take their place.
    """
    check_pair(data)
    if not isinstance(inner, int) or inner < 2:
        raise UserError(f"inner is a number of points, at least 2, found {inner}")
    runtime = dataclasses.replace(runtime or Runtime(), compile=False)  # every image has a model of its own
    config = config or build(EvaluationConfig, {**_defaults(settings), **settings})
    trial = _trial(config, runtime.seed)
    device, home = runtime.torch_device, next(iter(model.parameters()), torch.empty(0)).device
    model.to(device)
    try:
        x, y = head(data, device, first=min(n, count(data)))
        check_inputs(x, y)
        x, index = x.clamp(0, 1), torch.arange(len(x), device=device)
        found: list[_Found] = []
        with preserve_state(model), Meter("selftest", total=len(x), quiet=quiet) as meter:
            twin, layer = _with_new_head(model, x[:2], runtime)
            for image, key in zip(x.split(1), index.split(1), strict=True):
                if _plant(twin, layer, image, key, trial.threat, runtime, inner):
                    found.append(_attack(twin, image, key, trial, config, runtime, meter))
                meter.advance(1)
    finally:
        model.to(home)
    return SelfTest(
        threat=str(trial.threat), attacks=tuple(dict.fromkeys(stage.name for stage in trial.stages)), images=len(x),
        testable=len(found), found=sum(one.fell for one in found), random_found=sum(one.random for one in found),
        blind=sum(one.blind and not one.fell for one in found), flat=sum(one.flat and not one.fell for one in found),
    )  # fmt: skip


test_attacks.__test__ = False  # type: ignore[attr-defined]  # its name is not meant for pytest


def _trial(config: EvaluationConfig, seed: int) -> ThreatStages:
    """The one trial to be tested: of several radii the largest."""
    trials = [trial for trial in make_suite(config).threat_stages(config, seed) if trial.threat.eps > 0]
    if not trials:
        raise UserError(f"suite={config.suite} attacks nothing that could be tested")
    if len(trials) > 1 and not trials[-1].follows:
        raise UserError("selftest takes one threat at a time: leave union out, and test each by threat=…")
    if any(stage.attack.limits for stage in trials[-1].stages):
        raise UserError("selftest plants points in lp balls; attacks on patches have another threat")
    return trials[-1]


# ---------------------------------------------------------------- planting


def _with_new_head(model: nn.Module, probe: Tensor, runtime: Runtime) -> tuple[nn.Module, nn.Linear]:
    """A copy of the model whose last layer has two outputs, and that layer. Without one, logits are the features."""
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
    """Set the new layer so that one point of the rim alone is class 1; False where its features do not stand out."""
    key = randomness.fold(index, runtime.seed)
    keys = randomness.fold(key.expand(inner), torch.arange(1, inner + 1, device=x.device))
    inside = threat.random_point(x.expand(inner, *x.shape[1:]), keys, _WITHIN * threat.radius)
    points = torch.cat([x, inside, _rim(x, key, threat)])
    features = _features(twin, layer, points, runtime)
    rest, planted = features[:-1], features[-1]
    mean = rest.mean(dim=0)
    scale = (rest.var(dim=0) + (_ROUNDING * mean) ** 2).sqrt()
    # a feature that never stirs inside the ball, such as a dead rectifier, would decide alone and show no way to it
    scale = scale.clamp_min(_FLOOR * scale.square().mean().sqrt()).clamp_min(1e-12)
    rest, planted = (rest - mean) / scale, (planted - mean) / scale
    weight = _discriminant(rest, planted)
    score, highest = rest @ weight, planted @ weight
    boundary = score.amax() + _HARDNESS * (highest - score.amax())
    below = boundary - score[0]  # of the clean image, whose margin becomes 4: no loss saturates there
    if not (highest > score.amax() and below > 0):
        return False
    row = 4 / below * weight / scale
    with torch.no_grad():
        layer.weight.copy_(torch.stack([-row / 2, row / 2]))
        layer.bias.copy_((row @ mean + 4 / below * boundary) / 2 * torch.tensor([1.0, -1.0], device=x.device))
    classes = Verifier(twin, runtime).logits(points).argmax(dim=1)  # as rounded to fp32
    return not classes[:-1].any() and bool(classes[-1])


def _rim(x: Tensor, key: Tensor, threat: Threat) -> Tensor:
    """A random point at full radius: a corner of the linf ball, a direction of the others; the box may cut it off."""
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
    """What the new layer is given, N×features in fp64."""
    seen: list[Tensor] = []
    hook = layer.register_forward_pre_hook(lambda module, given: seen.append(given[0].double()))
    try:
        Verifier(twin, runtime).logits(points)
    finally:
        hook.remove()
    return torch.cat(seen)


def _discriminant(rest: Tensor, planted: Tensor) -> Tensor:
    """Fisher's direction (C + λ)⁻¹ planted, C the covariance of the rest; by Woodbury's identity, for many features."""
    n = len(rest)
    gram = rest @ rest.T + n * _RIDGE * torch.eye(n, dtype=rest.dtype, device=rest.device)
    return (planted - rest.T @ torch.linalg.solve(gram, rest @ planted)) / _RIDGE


# ---------------------------------------------------------------- attacking


class _Found(NamedTuple):
    fell: bool
    random: bool
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
) -> _Found:
    """The attacks of the trial, as an evaluation would send them; then as many random points."""
    measure = Measure(twin, [dataclasses.replace(trial, follows=False)], config, runtime, like=x)
    columns, _, _ = measure(x, torch.zeros_like(index), index, wanted=0, notebook=None, meter=meter)
    tries = min(max(int(columns["forwards"][0]), 1), _MOST_RANDOM)
    keys = randomness.fold(index.expand(tries), runtime.seed, torch.arange(tries, device=x.device), 1)
    points = trial.threat.random_point(x.expand(tries, *x.shape[1:]), keys)
    lucky, blind = measure.verifier.logits(points).argmax(dim=1).any(), columns["zero_gradient"] | columns["not_finite"]
    return _Found(not columns["robust"][0], bool(lucky), bool(blind[0]), bool(columns["flat_loss"][0]))
