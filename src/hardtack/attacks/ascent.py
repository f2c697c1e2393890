"""One ascent loop; FGSM, PGD and momentum PGD are settings of it, in every norm and for every loss.

    start → repeat: gradient of the loss at the iterate → steepest step of the norm → project to ball ∩ box

FGSM (Goodfellow et al. 2015) is one step of length eps; PGD (Madry et al. 2018) several shorter ones from a
random point; momentum PGD (Dong et al. 2018) steps along a running mean of gradients.

`search` is the loop over one batch: training compiles it, and `attack(model, x, y)` calls it. In an evaluation the pool
runs the same steps (pooled_ascent.py), and an image leaves as soon as it is broken.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from hardtack.attacks import pooled_ascent
from hardtack.attacks.contract import Attack
from hardtack.attacks.losses import Loss, LossName, get_loss
from hardtack.attacks.outcome import AttackOutcome, Step, better, nothing_yet, succeeds
from hardtack.attacks.targets import TargetChoice, choose_target
from hardtack.base import randomness
from hardtack.base.config import Number, check
from hardtack.base.errors import UserError
from hardtack.base.registry import attacks
from hardtack.threats import DENSE_L1, Ball, Threat

Count = Annotated[int, Field(ge=1)]
Length = Annotated[Number, Field(gt=0)]


def ascent_step(
    model: nn.Module,
    x_adv: Tensor,
    x: Tensor,
    y: Tensor,
    reference: Tensor | None,
    velocity: Tensor,
    eps: Tensor,
    length: Tensor,
    *,
    loss: Loss,
    ball: Ball,
    momentum: float,
    sign: float,
    eot: int = 1,
) -> Step:
    """One step of the loop, without host synchronisation: what torch.compile turns into one graph."""

    def objective(image: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        logits = model(image).float()
        value = sign * loss(logits, y, reference)
        return value.sum(), (value.detach(), logits.detach())

    gradient, (value, logits) = input_gradient(objective, x_adv)
    for _ in range(eot - 1):  # one pass at a time, so that memory does not grow with their number
        more, (another_value, other_logits) = input_gradient(objective, x_adv)
        gradient, value, logits = gradient + more, value + another_value, logits + other_logits
    gradient, value, logits = gradient / eot, value / eot, logits / eot
    zero = ~(gradient.flatten(1).abs().amax(dim=1) > 0)  # NaN included: it points nowhere either
    gradient = gradient.nan_to_num(0.0, 0.0, 0.0)
    if momentum:
        scale = gradient.abs().mean(dim=(1, 2, 3), keepdim=True).clamp_min(1e-30)
        gradient = velocity = momentum * velocity + gradient / scale
    moved = ball.project(x_adv + ball.steepest_step(gradient, x_adv, length), x, eps)
    return Step(moved, velocity, value, logits, zero)


def input_gradient(objective: Callable, x: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """Gradient of `objective(x) -> (scalar, extras)` with respect to the image alone."""
    if torch.compiler.is_compiling():
        # torch.func.grad traces into one graph; in eager mode it would refuse custom autograd functions
        return torch.func.grad(objective, has_aux=True)(x)
    x = x.detach().requires_grad_()
    value, extras = objective(x)
    if not value.requires_grad:  # the model cuts the path to its input, which is to be flagged, not to crash
        return torch.zeros_like(x), extras
    return torch.autograd.grad(value, x, materialize_grads=True)[0], extras


@attacks.register("momentum_pgd", momentum=1.0, help="PGD along a running mean of gradients (MI-FGSM)")
@attacks.register("rfgsm", steps=1, relative_step=1.25, help="FGSM from a random point of the ball (fast AT)")
@attacks.register("fgsm", steps=1, relative_step=1.0, start="clean", help="one gradient step of length eps")
@attacks.register("pgd", help="projected gradient ascent from a random start")
@dataclass(frozen=True, kw_only=True)
class Ascent(Attack):
    """Projected gradient ascent.

    step            length of a step in pixel units; null: relative_step decides
    relative_step   length of a step in multiples of eps; null: 2.5/steps
    start           random: a random point of the ball; clean: the image; gaussian: the image with 0.001 × Gaussian
                    noise; nudged: a random point with 1e-5 added to every pixel (the XCiT thesis)
    momentum        decay of the running mean of gradients along which it steps; 0: the gradient itself
    loss            the loss that it maximises (hardtack list losses), or FILE.py:NAME of your own; null: ce, in TRADES
                    kl
    keep            the point it returns: the best, which costs one more forward pass, or the last; null: best in an
                    evaluation, last in training
    dense           take the l1 steps of the Adversarial Robustness Toolbox, which change all pixels and find less

    Paper: fgsm: Goodfellow et al. 2015, Explaining and Harnessing Adversarial Examples (arXiv:1412.6572)
    Paper: pgd: Madry et al. 2018, Towards Deep Learning Models Resistant to Adversarial Attacks (arXiv:1706.06083)
    Paper: momentum_pgd: Dong et al. 2018, Boosting Adversarial Attacks with Momentum (arXiv:1710.06081)
    Paper: rfgsm: Wong et al. 2020, Fast Is Better than Free: Revisiting Adversarial Training (arXiv:2001.03994)
    """

    threat: Threat
    steps: Count = 10
    step: Length | None = None
    relative_step: Length | None = None
    start: Literal["random", "clean", "gaussian", "nudged"] = "random"
    restarts: Count = 1
    momentum: Annotated[float, Field(ge=0)] = 0.0
    loss: LossName | None = None
    target: TargetChoice | None = None
    keep: Literal["best", "last"] | None = None
    mode: Literal["eval", "train"] = "eval"
    eot: Count = 1
    dense: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        check(self)
        if self.step is not None and self.relative_step is not None:
            raise UserError("give step (pixel units) or relative_step (multiples of eps), not both")
        if self.start == "clean" and self.restarts > 1:
            raise UserError("restarts from the clean image repeat the same search; use start=random")
        if self.loss == "kl" and self.start == "clean":
            raise UserError("the kl loss has zero gradient at the clean image; use start=random or gaussian")
        if self.dense and self.threat.norm != "l1":
            raise UserError(f"dense steps exist in l1 only, found {self.threat}")
        self._refuse_targeted_kl(self.target)

    def search(
        self,
        model: nn.Module,
        x: Tensor,
        y: Tensor,
        *,
        keys: Tensor | None = None,
        target: Tensor | None = None,
        eps: Tensor | None = None,
        length: Tensor | None = None,
        ball: Any = None,
        step: Callable[..., Step] = ascent_step,
        verdict: bool = False,
    ) -> AttackOutcome:
        """The loop over one batch, without host synchronisation; the caller has put the model into `preserve_state`.

        `eps` replaces the threat's radius (warm-up), `length` the step length, `ball` the threat's geometry; `step` may
        be a compiled `ascent_step`. With `keep: last`, only a `verdict` (one more forward pass) tells what succeeded.
        """
        self._refuse_targeted_kl(target)
        y = y.argmax(dim=1) if y.is_floating_point() else y
        eps = torch.as_tensor(self.threat.radius if eps is None else eps, dtype=x.dtype, device=x.device)
        length = self.step_length(eps) if length is None else length
        keys = torch.arange(len(x), device=x.device) if keys is None else keys
        goal, reference = self._goal(model, x, y, keys, target)
        sign = 1.0 if target is None and self.target is None else -1.0
        loss, ball = get_loss(self.loss or "ce"), self.ball if ball is None else ball
        fixed = {"loss": loss, "ball": ball, "momentum": self.momentum, "sign": sign, "eot": self.eot}

        best, evaluated = nothing_yet(x), verdict or self.keep != "last"
        for restart in range(self.restarts):
            x_adv = self.starting_point(x, eps, randomness.make_keys(keys, self.seed, restart), ball)
            velocity = torch.zeros_like(x)
            for taken in range(self.steps):
                moved = step(model, x_adv, x, goal, reference, velocity, eps, length, **fixed)
                if evaluated:
                    best = better(best, x_adv, moved, goal, sign, restart * self.steps + taken)
                x_adv, velocity = moved.x_adv, moved.velocity
            if evaluated:
                draws = self.draws(model, x_adv)
                value = sign * torch.stack([loss(draw, goal, reference) for draw in draws]).mean(dim=0)
                logits = draws.mean(dim=0)
                last = Step(x_adv, velocity, value, logits, best.zero_gradient)
                best = better(best, x_adv, last, goal, sign, (restart + 1) * self.steps)
        if self.keep != "last":
            return best
        return best._replace(x_adv=x_adv, fooled=succeeds(logits, goal, sign) if evaluated else best.fooled)

    # ------------------------------------------------------------ the same loop in the pool

    @property
    def pooled(self) -> bool:
        """Not with a target, the last iterate or train mode: the pool stops at the first misclassified iterate."""
        return self.keep != "last" and self.target is None and self.mode == "eval"

    begin, advance = pooled_ascent.begin, pooled_ascent.advance
    finish, last_cost = pooled_ascent.finish, pooled_ascent.last_cost

    def step_from(self, model: nn.Module, x_adv: Tensor, x: Tensor, y: Tensor, velocity: Tensor, clean: Tensor) -> Step:
        """One untargeted step at the attack's own radius; `clean` are the logits of `x`."""
        eps = torch.full_like(x[0, 0, 0, 0], self.threat.radius)
        return ascent_step(
            model, x_adv, x, y, clean if self.loss == "kl" else None, velocity, eps, self.step_length(eps),
            loss=get_loss(self.loss or "ce"), ball=self.ball, momentum=self.momentum, sign=1.0, eot=self.eot,
        )  # fmt: skip

    # ------------------------------------------------------------ the parts of a step

    @property
    def ball(self) -> Ball:
        return DENSE_L1 if self.dense else self.threat.ball

    def step_length(self, eps: Tensor) -> Tensor:
        """The length of one step in a ball of radius `eps`, in pixel units."""
        relative = self.relative_step or 2.5 / self.steps
        return eps * relative if self.step is None else torch.full_like(eps, self.step)

    def _refuse_targeted_kl(self, target: object) -> None:
        if target is not None and self.loss == "kl":
            raise UserError("the kl loss has no targeted form; use ce, margin, dlr or pm")

    @torch.no_grad()
    def draws(self, model: nn.Module, x: Tensor) -> Tensor:
        """Logits of `eot` passes, to be averaged: eot×N×C."""
        return torch.stack([model(x).float() for _ in range(self.eot)])

    def starting_point(self, x: Tensor, eps: Tensor, keys: Tensor, ball: Any) -> Tensor:
        if self.start == "clean":
            return x
        if self.start == "gaussian":  # TRADES's own start: a speck of noise, so that KL has a gradient
            return ball.project(x + 0.001 * randomness.normal(keys, tuple(x.shape[1:])), x, eps)
        point = ball.random_point(x, eps, keys)
        return ball.project(point + 1e-5, x, eps) if self.start == "nudged" else point

    def _goal(
        self, model: nn.Module, x: Tensor, y: Tensor, keys: Tensor, target: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """The labels to leave (or, targeted, to reach) and the clean logits where they are needed."""
        needs_clean = self.loss == "kl" or (target is None and self.target is not None)
        if not needs_clean:
            return (y, None) if target is None else (target, None)
        clean = self.draws(model, x).mean(dim=0)
        if target is None and self.target is not None:
            target = choose_target(clean, y, randomness.make_keys(keys, self.seed), self.target)
        return (y if target is None else target), clean
