"""`hardtack adapt`: distil a surrogate of a model, then attack the model through it.

The surrogate's run folder has the weights of every round, the images crafted so far and `adapt.json` with the progress.
A repeated command goes on after the last finished round. The attack at the end is an ordinary evaluation: it is stored
with the results of the model, and every success is confirmed in fp32 on the model itself.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from hardtack.attacks import preserve_state
from hardtack.base.arrays import read_arrays, write_arrays
from hardtack.base.config import build, nested, plain, write_yaml
from hardtack.base.digests import json_digest
from hardtack.base.errors import UserError
from hardtack.base.files import local_path, write_text
from hardtack.base.limits import read_json
from hardtack.base.progress import Meter
from hardtack.base.runtime import Runtime
from hardtack.base.trust import remember_paths
from hardtack.data import load_data
from hardtack.engine import tensor_digest
from hardtack.evaluation.evaluation import Evaluation
from hardtack.evaluation.job import evaluate_target
from hardtack.evaluation.settings import EvaluationConfig
from hardtack.evaluation.target import Target, complete, load_target
from hardtack.models import Classifier, rebuild, save_weights
from hardtack.surrogates.distil import Distillation, DistillationRound
from hardtack.surrogates.settings import AdaptConfig

STATE, POINTS = "adapt.json", "points"
THROUGH_STEPS, CRAFTED_STEPS = 40, 50


@dataclass(frozen=True, kw_only=True)
class SurrogateAttack:
    """A surrogate and the attack through it."""

    folder: Path
    rounds: list[DistillationRound]
    match: str
    attacked: Evaluation

    def __str__(self) -> str:
        last, correct = self.rounds[-1], self.attacked.verdicts["clean_correct"]
        left = int(self.attacked.robust.sum())
        lines = [
            f"surrogate: {self.folder} ({len(self.rounds)} rounds, {last.queries:,} queries, learned the model's "
            f"{self.match})",
            f"  it predicts the model's class on {last.agreement:.1%} of the images; images that fool it fool the "
            f"model in {last.fooled_model:.1%} of all cases",
            f"attack through it: {int(correct.sum()) - left} of {int(correct.sum())} correctly classified images "
            f"broken, {left} left",
            str(self.attacked),
            f"other attacks through it: attack.transfer={self.folder}, for example suite=autoattack",
        ]
        return "\n".join(lines)


def adapt(run: str | Path | None = None, /, *, quiet: bool = False, **words: Any) -> SurrogateAttack:
    """Distil a surrogate of a run folder, or of `model=…` on `data=…`, and attack the model through it."""
    values = nested(words)
    config: AdaptConfig = build(AdaptConfig, complete(run, values))
    if config.runtime.world_size > 1:
        raise UserError("adapt runs in one process; start it without torchrun")
    if config.threat.eps == 0:
        raise UserError(f"adapt needs a threat with a radius above 0, found {config.threat}")
    target = load_target(run, dataclasses.replace(config, output=None))
    folder = local_path(config.output) if config.output else Path(f"{target.folder}-surrogate")
    if folder.resolve() == target.folder.resolve():
        raise UserError(f"output={folder} is the folder of the model itself; give the surrogate a folder of its own")
    surrogate, rounds, match = _distil(target, config, folder, quiet=quiet)
    write_yaml(folder / "config.yaml", {"data": plain(config.data)})
    save_weights(folder / "checkpoints" / "best.safetensors", surrogate, metadata={"classes": target.data.classes})
    attacked = _attack(target, config, folder, values, quiet=quiet)
    return SurrogateAttack(folder=folder, rounds=rounds, match=match, attacked=attacked)


# ---------------------------------------------------------------- the rounds


def _distil(
    target: Target, config: AdaptConfig, folder: Path, *, quiet: bool
) -> tuple[Classifier, list[DistillationRound], str]:
    device, home = config.runtime.torch_device, next(iter(target.model.parameters()), torch.empty(0)).device
    x, y = _images(target, config)
    state = _State(folder, target, config, x)
    target.model.to(device)
    try:
        with preserve_state(target.model), config.runtime.arithmetic("fp32"):
            task = Distillation(
                target.model, x, y, config.distillation(), threat=config.threat, seed=config.runtime.seed
            )
            surrogate = state.restore(task) or task.new_surrogate()
            first, total = len(state.rounds) + 1, config.rounds * config.steps
            done = len(state.rounds) * config.steps
            with Meter("adapt", total=total, done=done, quiet=quiet) as meter:
                for number in range(first, config.rounds + 1):
                    if state.rounds and task.broken.sum() == task.correct.sum():
                        break
                    result = task.run(number, surrogate, state.points, meter.advance)
                    state.add(result, surrogate)
                    meter.say(_line(number, result, int(task.correct.sum())))
            return surrogate.cpu().eval(), state.rounds, task.match
    finally:
        target.model.to(home)


def _line(number: int, result: DistillationRound, correct: int) -> str:
    return (
        f"round {number}: the surrogate agrees on {result.agreement:.1%} of the images; of the images crafted on it "
        f"{result.fooled_surrogate:.1%} fool it and {result.fooled_model:.1%} fool the model; {result.broken} of "
        f"{correct} attacked images broken so far"
    )


def _images(target: Target, config: AdaptConfig) -> tuple[Tensor, Tensor]:
    """The attacked images with their labels, followed by images of the training split, without labels."""
    device = config.runtime.torch_device
    attacked = target.data.batch(torch.arange(min(config.images, len(target.data))), device)
    parts = [attacked.x.clamp(0, 1)]
    if config.split != "train" and config.data is not None:
        shape, limit = target.data.image_shape, config.images
        settings = dataclasses.replace(config.data, image_size=shape[-1], limit=limit)
        try:
            more = load_data(settings, "train")
        except UserError:  # a set without a training split: the attacked images have to do
            return parts[0], attacked.y
        parts.append(more.batch(torch.arange(min(limit, len(more))), device).x.clamp(0, 1))
    return torch.cat([part for part in parts if part.shape[1:] == parts[0].shape[1:]]), attacked.y


class _State:
    """What is kept on disk between rounds."""

    def __init__(self, folder: Path, target: Target, config: AdaptConfig, x: Tensor) -> None:
        self.folder, self.points = folder, list[Tensor]()
        self.rounds: list[DistillationRound] = []
        settings = plain(dataclasses.replace(config, output=None, rounds=1, runtime=Runtime(seed=config.runtime.seed)))
        self.identity = json_digest(
            [settings, target.provenance.weights_sha256, target.provenance.model, tensor_digest({"x": x.cpu()})]
        )

    def restore(self, task: Distillation) -> Classifier | None:
        """The surrogate after the last finished round; None at the beginning."""
        file = self.folder / STATE
        if not file.is_file():
            if self.folder.is_dir() and any(self.folder.iterdir()):
                raise UserError(f"{self.folder} holds other files; give the surrogate a folder of its own: output=PATH")
            return None
        try:
            stored = read_json(file)
            rounds = [DistillationRound(**entry) for entry in stored["rounds"]]
        except (ValueError, KeyError, TypeError, AttributeError):
            raise UserError(f"{file} is damaged; delete {self.folder} and repeat the command") from None
        if stored.get("identity") != self.identity:
            raise UserError(
                f"{self.folder} holds a surrogate made with other settings, of another model or from other images; "
                "delete it, or choose another folder: output=PATH"
            )
        if not rounds:
            return None
        self.rounds = rounds
        for number in range(1, len(rounds) + 1):
            crafted = read_arrays(self.folder / POINTS / f"{number}.npz")["x"]
            self.points.append(torch.from_numpy(crafted))
        task.replay(self.points)
        task.queries = rounds[-1].queries
        return rebuild(self._weights(len(rounds))).to(task.x.device)

    def add(self, result: DistillationRound, surrogate: Classifier) -> None:
        self.rounds.append(result)
        number = len(self.rounds)
        write_arrays(self.folder / POINTS / f"{number}.npz", {"x": self.points[-1].numpy()})
        save_weights(self._weights(number), surrogate)
        entries = [dataclasses.asdict(entry) for entry in self.rounds]
        write_text(self.folder / STATE, json.dumps({"identity": self.identity, "rounds": entries}, indent=1) + "\n")

    def _weights(self, number: int) -> Path:
        return self.folder / "checkpoints" / f"round{number}.safetensors"


# ---------------------------------------------------------------- the attack at the end


def _attack(target: Target, config: AdaptConfig, folder: Path, values: Mapping[str, Any], *, quiet: bool) -> Evaluation:
    """PGD with the surrogate's gradient at the model's values, then images crafted on the surrogates of all rounds."""
    files = sorted((folder / "checkpoints").glob("round*.safetensors"), key=lambda file: int(file.stem[5:]))
    remember_paths({"transfer": str(folder), "source": [str(file) for file in files]})  # for `hardtack verify`
    attacks: list[dict[str, Any]] = [
        {"name": "pgd", "loss": "margin", "steps": THROUGH_STEPS, "transfer": str(folder)},
        {
            "name": "transfer", "source": [str(file) for file in files],
            "attack": {"name": "apgd", "steps": CRAFTED_STEPS},
        },
    ]  # fmt: skip
    if config.eot > 1:
        attacks[0]["eot"] = config.eot
    settings = {"suite": "attacks", "threat": config.threat, "attacks": attacks}
    evaluation = build(EvaluationConfig, settings)
    names = ("model", "data", "split", "n", "checkpoint", "runtime")
    typed = {name: value for name, value in values.items() if name in names}
    return evaluate_target(target, evaluation, config.runtime, {**typed, "attacks": attacks}, quiet=quiet)
