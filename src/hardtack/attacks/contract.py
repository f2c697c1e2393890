"""The attack contract: one small class with a documented default for every part that an attack may leave out.

An attack is a frozen value with settings. It is called as `attack(model, x, y) -> x_adv`, the model is an argument, and
nothing but the result changes: weights, `.grad`, buffers, training flags and the global random state stay as they were.

    @attacks.register("my_attack", help="one line for `hardtack list attacks`")
    @dataclass(frozen=True, kw_only=True)
    class MyAttack(Attack):
        threat: Threat
        steps: int = 10

        def search(self, model, x, y, *, keys=None, target=None, verdict=True) -> AttackOutcome: ...

There are two kinds. A *batch attack* implements `search` on a whole batch of images. A *pooled attack* sets `pooled`
and implements `length`, `begin` and `advance`: the pool (attacks/pool) then runs many of its attempts side by side and
stops an image's attempts as soon as a success is verified. Any other callable of (model, x, y) is accepted as well:
`as_attack` gives it the defaults of this class.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from hardtack.attacks.input_guard import guard_input
from hardtack.attacks.losses import is_code
from hardtack.attacks.outcome import AttackOutcome, nothing_yet
from hardtack.attacks.pool.search import Cost, NewItems, PlannedAttempt, State
from hardtack.attacks.preserve_state import Mode, preserve_state
from hardtack.base.config import plain
from hardtack.base.errors import UserError
from hardtack.base.registry import attacks
from hardtack.models.user_code import UserFunction
from hardtack.threats import Threat


class Attack:
    """What every attack offers. Only `threat` and one of the two ways to search have no default.

    threat    the ball around each image that the attack may use; successes outside of it do not count
    seed      changes everything that is random in the attack
    mode      the mode of the model while it is attacked
    eot       passes that are averaged against a random model (expectation over transformation)
    loss      the name of the loss that it maximises, where it has one
    steps     steps of one attempt
    restarts  attempts from different starting points
    target    how one target class is chosen, which is then aimed at; null: untargeted
    targets   how many of the likeliest wrong classes are aimed at one after the other; 0: untargeted
    reach     only reaching the target class counts as a success; otherwise any misclassification does
    """

    threat: Threat
    seed: int = 0
    mode: Mode = "eval"
    eot: int = 1
    loss: str | None = None
    steps: int | None = None
    restarts: int = 1
    target: str | None = None
    targets: int = 0
    reach: bool = False

    # ------------------------------------------------------------ calling it

    def __call__(
        self, model: nn.Module, x: Tensor, y: Tensor, *, keys: Tensor | None = None, target: Tensor | None = None
    ) -> Tensor:
        """Adversarial images for `x` (N×3×H×W in [0,1]).

        `keys` (N int64) identify the images, so that each has its own random numbers whatever the batch (default: the
        position in the batch). `target`: the class to reach, one for each image.
        """
        return self.run(model, x, y, keys=keys, target=target).x_adv

    def run(
        self, model: nn.Module, x: Tensor, y: Tensor, *, keys: Tensor | None = None, target: Tensor | None = None
    ) -> AttackOutcome:
        """The adversarial images, and what the search observed."""
        with preserve_state(model, mode=self.mode), guard_input(model):
            # copies, because tensors made in inference mode cannot take part in a gradient
            target = None if target is None else target.clone()
            return self.search(model, x.detach().clone(), y.clone(), keys=keys, target=target, verdict=True)

    def search(
        self,
        model: nn.Module,
        x: Tensor,
        y: Tensor,
        *,
        keys: Tensor | None = None,
        target: Tensor | None = None,
        verdict: bool = True,
    ) -> AttackOutcome:
        """The search on one batch, without synchronising with the device where that can be avoided.

        The caller has put the model into `preserve_state`. Without `verdict` the caller needs only the images, and a
        pass that would only tell whether they succeed may be saved. A pooled attack writes `search = search_alone`.
        """
        raise NotImplementedError(f"{type(self).__name__} implements no search")

    # ------------------------------------------------------------ what it may do, and how it is described

    def settle(self, model: nn.Module, like: Tensor) -> tuple[Self, str]:
        """The attack with the settings that it takes from the model written out, and a note if it has to do without.

        `like` are a few images of the data set. Settings that do not fit the model are refused here.
        """
        return self, ""

    @property
    def limits(self) -> str:
        """What may change within the threat, in words: `2 patches of 8×8, chosen by attention`. Empty: no limit."""
        return ""

    def allows(self, x_adv: Tensor, x: Tensor, model: nn.Module | None = None) -> Tensor:
        """One bool per image: the change keeps to the attack's own limits, beyond those of the threat."""
        return torch.ones(len(x), dtype=torch.bool, device=x.device)

    @property
    def name(self) -> str:
        """The name under which results mention the attack: the registered one, else that of the class."""
        return attacks.name_of(self) or type(self).__name__

    def settings(self) -> dict[str, Any]:
        """Its settings by name."""
        return settings_of(self)

    def described(self) -> dict[str, Any]:
        """Name and settings as plain values, as they are stored with results and enter the evaluation's id."""
        return plain(self) | code_of_loss(self.loss)

    def shortened(self, steps: int) -> Self | None:
        """A short form that shows how many images survive the first few steps; None where the attack has no steps."""
        if self.steps is None:
            return None
        short = {"steps": min(steps, self.steps), "restarts": 1, "targets": min(self.targets, 1), "plans": ()}
        mine = self.settings()
        return dataclasses.replace(self, **{name: value for name, value in short.items() if name in mine})  # type: ignore[type-var]

    def batch_cost(self, classes: int, shape: tuple[int, ...]) -> Cost | None:
        """Passes of one image C×H×W by a batch attack, at most; None: `plan` runs it on a small model to count them."""
        return None

    leaves_when_fooled: ClassVar[bool] = False
    """Whether a batch attack spends nothing more on an image that is fooled, so that `batch_cost` is seldom reached."""

    @property
    def whole_batches(self) -> bool:
        """Whether an image's result depends on the others of its batch, for example by random numbers for all of them.

        Measuring a sample again then means measuring all images again.
        """
        return False

    # ------------------------------------------------------------ what the pool needs

    uses_logit_gradient: ClassVar[bool] = True
    """Whether its only gradient is that of the logits, so that a gradient source (gradients.py) can replace it."""

    has_gradient_source: ClassVar[bool] = False
    """Whether its gradient is not the model's own (adaptive.py): it then searches on the model itself in fp32, whatever
    the precision of the pool, and asks the model about images that it does not mean to return."""

    smallest_in: ClassVar[tuple[str, ...]] = ()
    """Norms in which it searches for the smallest perturbation, so that one search gives the curve over all radii; an
    attack without any uses the whole radius that it is given."""

    check_interval: ClassVar[int] = 1
    """The pool may check this attack's attempts so many times more rarely than others'."""

    @property
    def pooled(self) -> bool:
        """Whether the pool can run it by the methods below; otherwise evaluation calls `search` batch by batch."""
        return False

    def attempts(self, classes: int) -> list[PlannedAttempt]:
        """The attempts on every image, in order: target after target, each with its restarts."""
        ranks = range(min(self.targets, classes - 1)) if self.targets else (-1,)
        return [PlannedAttempt(rank, restart, self.steps or 0) for rank in ranks for restart in range(self.restarts)]

    def length(self, steps: int) -> int:
        """The largest number of calls of `advance` that an attempt of so many steps needs."""
        return steps + 1

    def cost(self, classes: int) -> Cost:
        """Passes through the model that one call of `advance` needs for each row."""
        return Cost(self.eot, self.eot)

    def last_cost(self, classes: int) -> Cost:
        """Passes that the call of `finish` needs for each row."""
        return self.cost(classes)

    def attempt_cost(self, passes: int, steps: int, classes: int) -> Cost:
        """Passes through the model of an attempt of `steps` steps that ended after so many calls."""
        if passes < self.length(steps):
            return self.cost(classes).times(passes)
        return self.cost(classes).times(passes - 1).plus(self.last_cost(classes))

    def begin(self, items: NewItems) -> State:
        """The state of new attempts, one row each; the model is not called. See pool/search.py."""
        raise NotImplementedError(f"{type(self).__name__} is not made for the pool")

    def advance(self, model: nn.Module, state: State) -> State:
        """The entries of the state that one pass over all rows changes. No row may depend on another."""
        raise NotImplementedError(f"{type(self).__name__} is not made for the pool")

    def finish(self, model: nn.Module, state: State) -> State:
        """The same for the last pass of every row, which an attack may do without a gradient."""
        return self.advance(model, state)

    looks_ahead: ClassVar[bool] = False
    """Whether the pool calls `draw` and `advance_ahead` instead of `advance`: for a search whose passes seldom change
    anything, and whose random numbers are known before."""

    @property
    def most_ahead(self) -> int:
        """The largest number of passes of one item that `advance_ahead` should make at once on a GPU."""
        return 8

    def draw(self, state: State, count: int) -> State:
        """What is random in the next `count` passes of every row (N×count×…), and their number `since` (N)."""
        raise NotImplementedError(f"{type(self).__name__} does not look ahead")

    def advance_ahead(self, model: nn.Module, state: State, drawn: State, *, ahead: int, interval: int) -> State:
        """Up to `ahead` passes of every row at once, as if they had been made one after the other.

        Each row counts in `t` the passes that it made: those up to the first that changes what the next ones depend on.
        `interval`: a row that claims a success makes no pass beyond the next multiple, where the pool verifies it.
        """
        raise NotImplementedError(f"{type(self).__name__} does not look ahead")


# ---------------------------------------------------------------- attacks that do not inherit from it

_CONTRACT_ONLY = ("search", "settle", "limits", "allows", "begin", "advance")


@dataclass(frozen=True)
class ForeignAttack(Attack):
    """Any callable of (model, x, y), with the defaults of the contract. It reports nothing but its images."""

    given: Callable[..., Tensor]

    def __post_init__(self) -> None:
        kind = type(self.given)
        if offered := [name for name in _CONTRACT_ONLY if name in dir(kind)]:
            raise UserError(
                f"{kind.__name__} defines {', '.join(offered)}, which only an attack of the contract may: "
                f"write class {kind.__name__}(hardtack.attacks.Attack)"
            )
        for name, value in settings_of(self.given).items():
            if name in ("threat", "seed", "mode", "eot", "steps", "restarts"):
                object.__setattr__(self, name, value)

    def __call__(
        self, model: nn.Module, x: Tensor, y: Tensor, *, keys: Tensor | None = None, target: Tensor | None = None
    ) -> Tensor:
        """Called as it is, with `keys` where it takes them."""
        named = {"keys": keys} if "keys" in inspect.signature(self.given).parameters else {}
        return self.given(model, x, y, **named, **({} if target is None else {"target": target}))

    def run(
        self, model: nn.Module, x: Tensor, y: Tensor, *, keys: Tensor | None = None, target: Tensor | None = None
    ) -> AttackOutcome:
        return self.search(model, x, y, keys=keys, target=target)

    def search(
        self,
        model: nn.Module,
        x: Tensor,
        y: Tensor,
        *,
        keys: Tensor | None = None,
        target: Tensor | None = None,
        verdict: bool = True,
    ) -> AttackOutcome:
        x_adv = self(model, x, y, keys=keys, target=target)
        if not isinstance(x_adv, Tensor) or x_adv.shape != x.shape or x_adv.dtype != x.dtype:
            found = f"{x_adv.dtype} {tuple(x_adv.shape)}" if isinstance(x_adv, Tensor) else type(x_adv).__name__
            wanted = f"{x.dtype} {tuple(x.shape)}"
            kind = type(self.given).__name__
            raise UserError(f"{kind} must return images of the type and shape it was given, {wanted}, found {found}")
        return nothing_yet(x)._replace(x_adv=x_adv.detach())

    @property
    def whole_batches(self) -> bool:
        """Random numbers that come without keys are those of the batch."""
        return "keys" not in inspect.signature(self.given).parameters

    @property
    def name(self) -> str:
        return attacks.name_of(self.given) or type(self.given).__name__

    def settings(self) -> dict[str, Any]:
        return settings_of(self.given)

    def described(self) -> dict[str, Any]:
        return plain(self.given)

    def shortened(self, steps: int) -> ForeignAttack | None:
        if self.steps is None:
            return None
        short = {"steps": min(steps, self.steps), "restarts": 1, "targets": min(self.settings().get("targets", 0), 1)}
        kept = {name: value for name, value in short.items() if name in self.settings()}
        return ForeignAttack(dataclasses.replace(self.given, **kept))  # type: ignore[type-var]


def as_attack(given: Any) -> Attack:
    """The attack itself or, for any other callable of (model, x, y), one that has the defaults of the contract."""
    if isinstance(given, Attack):
        return given
    if not callable(given):
        raise UserError(f"an attack is called as attack(model, x, y), but {type(given).__name__} cannot be called")
    return ForeignAttack(given)


def code_of_loss(loss: str | None) -> dict[str, str]:
    """The digest of a loss that stands in a user's file, for the record; nothing for any other loss."""
    return {"loss_sha256": UserFunction.parse(str(loss), "loss").digest} if is_code(loss) else {}


def settings_of(value: Any) -> dict[str, Any]:
    """The fields of a dataclass by name; nothing for any other value."""
    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return {}
    return {item.name: getattr(value, item.name) for item in dataclasses.fields(value)}


def own_threat(make: Any) -> Threat | None:
    """The default of the field `threat` of an attack's class: what it is made for, as attacks on patches are for any
    change of a few patches. None for attacks in a norm ball, whose radius is for the user to say."""
    fields: tuple[Any, ...] = dataclasses.fields(make) if dataclasses.is_dataclass(make) else ()
    mine = next((item for item in fields if item.name == "threat"), None)
    if mine is None or (mine.default is dataclasses.MISSING and mine.default_factory is dataclasses.MISSING):
        return None
    return mine.default if mine.default_factory is dataclasses.MISSING else mine.default_factory()


def unusual_settings(attack: Attack) -> dict[str, Any]:
    """The settings that differ from their defaults, so that different attacks are described by different words."""
    given = attack.given if isinstance(attack, ForeignAttack) else attack
    unusual: dict[str, Any] = {}
    fields: tuple[Any, ...] = dataclasses.fields(given) if dataclasses.is_dataclass(given) else ()
    for item in fields:
        usual = item.default if item.default_factory is dataclasses.MISSING else item.default_factory()
        value = getattr(given, item.name)
        if item.name not in ("threat", "seed", "weights") and item.init and value != usual:
            unusual[item.name] = plain(value) if not isinstance(value, str | int | float) else value
    return unusual
