"""An attack of another package as an attack of ours: `attack=foolbox:LinfPGD attack.steps=20`.

A file of this folder says which classes of a package are its public attacks, how they are made and called. Only these
can be named, and only where the package is installed. The settings are the numbers, words and switches that the class
takes, with the package's defaults; norm and radius come from the threat. What the attack returns is verified as
everything else is: in fp32, inside the ball and [0,1], misclassified.

    @packages.register("foolbox", help="…")
    class Foolbox(Package): ...

Random numbers of these attacks depend on the seed and on the images of the batch, not on each image by itself.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import importlib
import importlib.metadata
import inspect
import random
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from hardtack.attacks.contract import Attack
from hardtack.attacks.outcome import AttackOutcome, nothing_yet, succeeds
from hardtack.base.config import Number, check
from hardtack.base.errors import UserError, did_you_mean
from hardtack.base.limits import shorten
from hardtack.base.registry import Entry
from hardtack.threats import Threat


class Parameter(NamedTuple):
    """A setting of an attack of another package; `default` is `dataclasses.MISSING` where it must be given."""

    name: str
    type: Any
    default: Any


class Package:
    """What a file of this folder says about its package: which attacks it has, and how one is called.

    module      the module to import, and `install` the command that installs it
    kinds       the attacks by name; a class, or whatever `parameters` and `search` understand
    parameters  the settings of one of them
    norm        the norm that an attack searches in; None: that of the threat, or a smallest perturbation of any norm
    search      adversarial images for a batch
    """

    name: ClassVar[str]
    module: ClassVar[str]
    distribution: ClassVar[str]  # the name of the package for pip
    install: ClassVar[str]

    def kinds(self) -> dict[str, Any]:
        raise NotImplementedError

    def parameters(self, kind: Any) -> list[Parameter]:
        """Those that the signature of a class gives."""
        return [item for item in read_signature(kind) if item is not None]

    def norm(self, attack: PackageAttack) -> str | None:
        return None

    def search(self, attack: PackageAttack, model: nn.Module, x: Tensor, y: Tensor) -> Any:
        raise NotImplementedError

    # ------------------------------------------------------------ the same for all packages

    def load(self, module: str | None = None) -> Any:
        """A module of the package, or one line that says how to install it."""
        try:
            return importlib.import_module(module or self.module)
        except ImportError as error:
            missing = isinstance(error, ModuleNotFoundError) and error.name == self.module.partition(".")[0]
            why = "which is not installed" if missing else f"which cannot be imported here ({error})"
            raise UserError(
                f"attacks named {self.name}:NAME are those of {self.distribution}, {why}: {self.install}"
            ) from None

    def version(self) -> str:
        try:
            return f"{self.distribution} {importlib.metadata.version(self.distribution)}"
        except importlib.metadata.PackageNotFoundError:  # a folder on the path, for example a clone
            return self.distribution

    def entry(self, name: str) -> Entry:
        """The entry of `foolbox:LinfPGD`: a settings class made from what the package says."""
        kinds = self.kinds()
        wanted = name.partition(":")[2]
        if wanted not in kinds:
            listed = ", ".join(sorted(kinds)[:12]) + (" …" if len(kinds) > 12 else "")
            hint = did_you_mean(wanted, kinds) or f"; its attacks: {listed}"
            raise UserError(f"{self.distribution} has no attack '{shorten(wanted)}' that can be used here{hint}")
        make = settings_class(self, name, wanted, kinds[wanted])
        text = (inspect.getdoc(kinds[wanted]) or "").partition("\n")[0] if inspect.isclass(kinds[wanted]) else ""
        return Entry(name, make, {}, text or f"of {self.distribution}", self.name)


@dataclass(frozen=True, kw_only=True)
class PackageAttack(Attack):
    """An attack of another package. The classes that are used derive from it and have its settings as fields."""

    threat: Threat
    seed: int = 0

    package: ClassVar[Package]
    registered: ClassVar[str]  # foolbox:LinfPGD
    kind: ClassVar[Any]
    smallest_in: ClassVar[tuple[str, ...]] = ("linf", "l2", "l1")  # unknown: some of them do

    def __post_init__(self) -> None:
        check(self)
        norm = self.package.norm(self)
        if norm is not None and norm != self.threat.norm:
            raise UserError(
                f"{self.registered} searches in {norm}, and the threat is {self.threat}: give threat={norm}:EPS, or "
                f"name an attack that searches in {self.threat.norm}"
            )

    @property
    def given(self) -> dict[str, Any]:
        """The settings of the package's own attack, without those that are None: the package decides these."""
        own = {item.name: getattr(self, item.name) for item in dataclasses.fields(self)}
        return {name: value for name, value in own.items() if name not in ("threat", "seed") and value is not None}

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
        if target is not None:
            raise UserError(f"{self.registered} is called without a target; an attack of ours takes one")
        keys = torch.arange(len(x)) if keys is None else keys
        labels = y.argmax(dim=1) if y.is_floating_point() else y
        try:
            with _seeded(_seed(keys, self.seed)), torch.enable_grad():
                found = self.package.search(self, model, x, labels)
        except (UserError, torch.OutOfMemoryError):
            raise
        except Exception as error:  # whatever goes wrong in code that is not ours
            what = " ".join(str(error).split()) or type(error).__name__
            raise UserError(f"{self.registered} failed on {len(x)} images: {shorten(what, 300)}") from error
        if not isinstance(found, Tensor) or found.shape != x.shape:
            kind = f"{tuple(found.shape)}" if isinstance(found, Tensor) else type(found).__name__
            raise UserError(f"{self.registered} must return images of shape {tuple(x.shape)}, found {kind}")
        # a smallest perturbation may be larger than the threat allows, or no number: the clean image takes its place
        x_adv = found.detach().to(x)
        x_adv = torch.where(self.threat.contains(x_adv, x)[:, None, None, None], x_adv, x)
        outcome = nothing_yet(x)._replace(x_adv=x_adv)
        if not verdict:
            return outcome
        with torch.no_grad():
            logits = model(x_adv)
        fooled = succeeds(logits, labels, 1.0)
        return outcome._replace(fooled=fooled, not_finite=~logits.isfinite().all(dim=1))

    @property
    def whole_batches(self) -> bool:
        return True

    @property
    def name(self) -> str:
        return self.registered

    def described(self) -> dict[str, Any]:
        return {**super().described(), "package": self.package.version()}

    def __reduce__(self) -> tuple[Any, ...]:
        """The class is made when it is named: another process makes it again."""
        own = {item.name: getattr(self, item.name) for item in dataclasses.fields(self)}
        return _again, (self.registered, own)


class Shell(nn.Module):
    """The model as other packages expect one: in eval mode, also around a gradient source, and for NumPy's float64."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.training = False  # of this module alone: the caller has set the model's own mode

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.model(x.float())
        return logits


def _again(name: str, settings: Mapping[str, Any]) -> Attack:
    from hardtack.base.registry import attacks

    made: Attack = attacks.get(name).make(**settings)
    return made


def settings_class(package: Package, name: str, wanted: str, kind: Any) -> type[PackageAttack]:
    """The dataclass of the settings of one attack; its instances are the attack."""
    fields: list[Any] = []
    for item in package.parameters(kind):
        default = dataclasses.field() if item.default is dataclasses.MISSING else item.default
        fields.append((item.name, item.type, default))  # a field without a default hides that of the contract
    namespace = {"package": package, "registered": name, "kind": kind, "__module__": __name__, "__doc__": f"{name}."}
    made = dataclasses.make_dataclass(
        wanted, fields, bases=(PackageAttack,), namespace=namespace, frozen=True, kw_only=True
    )
    assert issubclass(made, PackageAttack)
    return made


# ---------------------------------------------------------------- settings from a signature

# what hardtack sets itself, or what is no setting of a search
OURS = frozenset({
    "self", "model", "estimator", "classifier", "norm", "eps", "max_epsilon", "verbose", "batch_size", "targeted",
    "target", "device", "n_classes", "tensorboard", "summary_writer", "init_attack", "distance", "seed", "threat",
    "mode", "eot",
})  # fmt: skip
_OF_WORDS = {"int": int, "float": Number, "bool": bool, "str": str}


def read_signature(kind: Any) -> list[Parameter | None]:
    """Numbers, words and switches that the constructor of a class takes.

    None stands for a parameter that must be given and cannot be written as a setting.
    """
    found: list[Parameter | None] = []
    for item in inspect.signature(kind.__init__).parameters.values():
        if item.name in OURS or item.kind in (item.VAR_POSITIONAL, item.VAR_KEYWORD):
            continue
        plain = _type_of(item)
        required = item.default is inspect.Parameter.empty
        if plain is None:
            found += [None] if required else []
        else:
            found.append(Parameter(item.name, plain, dataclasses.MISSING if required else item.default))
    return found


def _type_of(item: inspect.Parameter) -> Any:
    """`int`, `Number`, `bool` or `str`, and None where the default is; None for any other type."""
    text = item.annotation if isinstance(item.annotation, str) else inspect.formatannotation(item.annotation)
    if any(kind in text.lower() for kind in ("tuple[", "list[", "dict[", "callable")):
        return None
    words = set(re.findall(r"\w+", text)) & _OF_WORDS.keys()
    default = item.default
    if isinstance(default, bool):
        return bool
    if isinstance(default, str):
        return str
    if isinstance(default, float) or (isinstance(default, int) and "float" in words):
        return Number
    if isinstance(default, int):
        return int if "int" in words or (item.annotation is item.empty and default > 1) else int | float
    if default is not None and default is not item.empty:
        return None
    simple = next((_OF_WORDS[word] for word in ("float", "int", "bool", "str") if word in words), None)
    return None if simple is None else simple if default is item.empty else simple | None


def can_be_made(kind: type) -> bool:
    """Whether all that its constructor needs can be written as a setting."""
    return not inspect.isabstract(kind) and None not in read_signature(kind)


# ---------------------------------------------------------------- random numbers


def _seed(keys: Tensor, seed: int) -> int:
    """One seed for a batch of images."""
    digest = hashlib.sha256(keys.cpu().contiguous().numpy().tobytes() + str(seed).encode()).digest()
    return int.from_bytes(digest[:4], "little") % (2**31)


@contextlib.contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """The global generators of torch, NumPy and Python start from `seed` inside and are put back afterwards."""
    # a generator of another package may be NumPy's old global one: there is no other way to make it repeat itself
    numbers, words = np.random.get_state(), random.getstate()  # noqa: NPY002
    devices = list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []
    try:
        with torch.random.fork_rng(devices):
            torch.manual_seed(seed)
            np.random.seed(seed)  # noqa: NPY002
            random.seed(seed)
            yield
    finally:
        np.random.set_state(numbers)  # noqa: NPY002
        random.setstate(words)
