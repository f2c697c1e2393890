"""The training loop. `Trainer.step` is the whole of one update; the rest is when to log, judge, stop and save.

The start rule: a run folder that holds a state of the same recipe is continued from it, to the bit on the CPU;
otherwise the model starts from `model.weights` if given, else from the seed. Batches are a function of (seed,
epoch, step), augmentation and attacks of (seed, epoch, image), dropout of (seed, step, rank), so a state needs
no random generators.
"""

from __future__ import annotations

import contextlib
import copy
import itertools
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from hardtack.base import randomness
from hardtack.base.capture import Captured
from hardtack.base.config import plain, write_yaml
from hardtack.base.errors import UserError
from hardtack.base.progress import Meter
from hardtack.data import Batch, Dataset, batches, make_augment, steps_per_epoch
from hardtack.models import save_weights
from hardtack.training.averaging import has_statistics, make_average, new_statistics
from hardtack.training.checkpoint import load_state, restore, save_state, state_of
from hardtack.training.freezing import freeze
from hardtack.training.guard import FiniteGuard, check_gradient, enough_images, outlived, terminated
from hardtack.training.mask_snapshots import Exhibits
from hardtack.training.optimise import set_rates
from hardtack.training.overfitting import OVERFITS, first_overfit
from hardtack.training.recipe import Recipe
from hardtack.training.recompute import checkpoint_blocks
from hardtack.training.schedule import Schedule
from hardtack.training.sharding import agree, fill, shard, whole
from hardtack.training.sharpness import MicroBatch, keep, unwritten
from hardtack.training.startup_notes import check_classes, opening
from hardtack.training.tracking import Tracker, Window, radius_of

# An objective is (x, y, **prepared) -> {"loss": …, parts…}; `prepare(x, y, keys=, epoch=)` finds beforehand what needs
# no gradient of the weights. `attacked_in` is the mode in which it climbs a gradient at the images, if it does. One
# that owns more than the model says with `optimised` (a module) what the optimiser moves; the rest it moves itself in
# `finish()`, after every update, while the gradients of the whole batch are there. With `replays` every batch is
# trained on that many times in a row. `export(folder, name)` writes what belongs beside the weights NAME.safetensors;
# what `masks(x)` hides is kept as pictures. All of its state is in its `state_dict`, so that a killed run goes on
# with it.
Validate = Callable[[nn.Module], dict[str, float]]
"""Measures a model on held-out data; the value under "score" chooses the best checkpoint."""
STATISTICS_STEPS = 50  # batches from which averaged weights take their batch-norm statistics


class Trainer:
    def __init__(
        self,
        recipe: Recipe,
        model: nn.Module,
        data: Dataset,
        *,
        validate: Validate | None = None,
        quiet: bool = False,
    ) -> None:
        self.recipe, self.runtime, self.config = recipe, recipe.runtime, recipe.train
        self.folder, self.quiet = recipe.folder, quiet or not recipe.runtime.is_main
        self.data, self.validate = data, validate
        if self.config.patience is not None and validate is None:
            raise UserError("train.patience needs something to judge by: give data.validation, say 0.1")
        check_classes(model, data)
        self.device = self.runtime.torch_device
        self.steps_per_epoch = self._count_steps()
        self.model = _laid_out(model.to(self.device)).train()
        freeze(self.model, self.config.freeze)
        self.unsplit: nn.Module | None = None  # where a split model's weights come together to be judged
        self.average = make_average(self.model, ema=self.config.ema, swa_from=self.config.swa_from)
        if self.config.checkpoint_blocks:
            checkpoint_blocks(self.model)
        self.objective: Any = recipe.objective.build(self.model).to(self.device)
        self.replays: int = getattr(self.objective, "replays", 1)
        self.steps_per_epoch *= self.replays
        optimised = getattr(self.objective, "optimised", self.objective)
        scales = recipe.optimiser.scales(optimised)
        self.sharpness, self.penalty = recipe.sharpness, recipe.penalty.build(self.model)
        if self.runtime.shards:
            self._shard()
        self.optimiser = recipe.optimiser.build(optimised, scales)
        self.parameters = [parameter for group in self.optimiser.param_groups for parameter in group["params"]]
        self.schedule = Schedule(recipe.schedule, recipe.optimiser.lr, float(self.config.epochs), self.steps_per_epoch)
        self.augment = make_augment(recipe.augment, data.num_classes, data).to(self.device)
        self.done = 0  # optimiser steps taken
        self.best: float | None = None
        self.best_epoch = 0
        self.judged = self.model
        self.exhibits = Exhibits(recipe)
        self.history: list[dict[str, float]] = []  # scores of every judgement so far
        self.stopped = False  # before the last epoch, by train.patience
        self.saved, self.saved_at = 0, time.monotonic()  # steps that the last state had, and when it was written
        self.window = Window()
        self.guard = FiniteGuard(self.optimiser, self.device)
        self.wrapped: Callable[..., dict[str, Tensor]] = self.objective
        self.augmented: Callable[..., tuple[Tensor, Tensor, Tensor]] = self._augmented

    # ------------------------------------------------------------ one update

    def step(self, batch: Batch) -> dict[str, Tensor]:
        """Gradients of the whole batch; again where the weights are displaced; then clip, check and move them once."""
        micro_batches: Iterable[MicroBatch] = self._micro_batches(batch)
        if self.sharpness.due(self.done / self.steps_per_epoch):
            micro_batches = [keep(one) for one in micro_batches]
            means = self._backward(micro_batches)
            with self.sharpness.displaced(self.parameters), unwritten(self.objective):
                self.objective.zero_grad(set_to_none=True)
                means["sharpness"] = self._backward(micro_batches)["loss"] - means["loss"]
        else:
            means = self._backward(micro_batches)
        if self.penalty is not None:
            means["penalty"] = whole(self.penalty.add())
        norm = whole(nn.utils.clip_grad_norm_(self.parameters, self.config.clip or torch.inf))
        self.guard.watch(self.done, means["loss"], norm)
        set_rates(self.optimiser, *self.schedule.at(self.done))
        self.optimiser.step()
        if hasattr(self.objective, "finish"):
            self.objective.finish()
        self.objective.zero_grad(set_to_none=True)
        self.done += 1
        if self.average is not None:
            self.average.after_step(self.model, self.done)
        return means | {"gradient_norm": norm.float()}

    def _micro_batches(self, batch: Batch) -> Iterator[MicroBatch]:
        """Augmented and attacked, each when its turn comes."""
        epoch = self.done / self.steps_per_epoch
        x, y, keys = self.augmented(*batch, torch.full((), int(epoch), device=self.device))
        for x_, y_, keys_ in zip(*(t.chunk(self.config.accumulate) for t in (x, y, keys)), strict=True):
            with self.runtime.arithmetic():
                prepared = self.objective.prepare(x_, y_, keys=keys_, epoch=epoch)
            yield x_, y_, prepared

    def _backward(self, micro_batches: Iterable[MicroBatch]) -> dict[str, Tensor]:
        """Adds up the gradients of the mean loss; returns the means of what the objective reports."""
        torch.manual_seed(self._dropout_seed())  # so that a second pass drops what the first one dropped
        means: dict[str, Tensor] = {}
        for number, (x, y, prepared) in enumerate(micro_batches, start=1):
            last = number == self.config.accumulate
            with self.runtime.arithmetic(), self._synchronised(last=last):
                parts = self.wrapped(x, y, **prepared)
            with self.runtime.arithmetic(autocast=False):
                (check_gradient(parts["loss"]) / self.config.accumulate).backward()
            for name, value in parts.items():
                means[name] = means.get(name, 0) + value.detach().float() / self.config.accumulate
        return means

    def _augmented(self, x: Tensor, y: Tensor, index: Tensor, epoch: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        keys = randomness.make_keys(index, self.runtime.seed, epoch)
        return *self.augment(x, y, keys), keys

    @contextlib.contextmanager
    def _synchronised(self, *, last: bool) -> Iterator[None]:
        if last or not isinstance(self.wrapped, DistributedDataParallel):
            yield
        else:
            with self.wrapped.no_sync():
                yield

    def _dropout_seed(self) -> int:
        word = randomness.make_keys(torch.zeros(1, dtype=torch.int64), self.runtime.seed, self.done, self.runtime.rank)
        return int(word) & (2**63 - 1)

    # ------------------------------------------------------------ the run

    def fit(self) -> Path:
        """Train to the end (or go on from where a killed run stopped); returns the run folder."""
        devices = [self.device.index] if self.device.type == "cuda" else []
        self.runtime.join()
        with torch.random.fork_rng(devices):
            self._resume()
            self._wrap()
            total = self.config.epochs * self.steps_per_epoch
            if self.runtime.is_main:
                write_yaml(self.folder / "config.yaml", self.recipe)
            tracker = self._tracker()
            with (
                terminated() as stop,
                outlived(stop),
                enough_images(),
                Meter(self.recipe.name, total=total, done=self.done, quiet=self.quiet) as meter,
            ):
                self._say_start(tracker, meter)
                while self.done < total and not self.stopped:
                    self._epoch(tracker, meter, stop)
            if tracker is not None:
                tracker.close()
            self.runtime.wait()
        return self.folder

    def _say_start(self, tracker: Tracker | None, meter: Meter) -> None:
        """Where the run begins: anew, from other weights, or where it was stopped."""
        for line in opening(self):
            meter.say(f"{self.recipe.name} {line}")
        fitted = getattr(self.model, "fitted", None)
        if self.done == 0 and tracker is not None and fitted is not None:
            tracker.write("start", step=0, epoch=0, adapted=fitted.summary())

    def _epoch(self, tracker: Tracker | None, meter: Meter, stop: list[int]) -> None:
        epoch, start = divmod(self.done, self.steps_per_epoch)
        logged = time.monotonic()
        for batch in self._replayed(epoch, start):
            parts = self.step(batch)
            self.window.add(parts)
            meter.advance(self.config.batch_size)
            ended = self.done % self.steps_per_epoch == 0
            if self.done % self.config.log_every == 0 or ended:
                logged = self._log(tracker, logged)
            if not ended:
                self._pause(stop, meter)
        self._judge(epoch + 1, tracker, meter)  # a run that goes on must find its last epoch judged
        self._pause(stop, meter, ended=True)

    def _pause(self, stop: list[int], meter: Meter, *, ended: bool = False) -> None:
        """Saves the state when it is time to, and leaves when a signal came.

        Split states are saved where all processes come together. Otherwise the first process saves and leaves while
        the others keep it company: `outlived`.
        """
        overdue = time.monotonic() - self.saved_at > self.config.checkpoint_every_s
        leave, save = bool(stop), bool(stop) or overdue
        if self.runtime.shards:
            if not ended and self.done % self.config.log_every:
                return
            leave, save = agree((leave, save), self.device)
        elif not self.runtime.is_main:
            return
        if save and self.saved != self.done:
            self._save()
        if leave:
            meter.say(f"{self.recipe.name} leaves at step {self.done}, saved: repeat the command to go on")
            raise SystemExit(128 + signal.SIGTERM)

    def _replayed(self, epoch: int, start: int) -> Iterator[Batch]:
        """The epoch's batches from step `start` on, each as often as the objective asks for."""
        first, seen = divmod(start, self.replays)
        for batch in self._batches(epoch, first):
            yield from itertools.repeat(batch, self.replays - seen)
            seen = 0

    def _batches(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        return batches(
            self.data, self.config.batch_size, device=self.device, shuffle_seed=self.runtime.seed, epoch=epoch,
            start=start, drop_last=True, rank=self.runtime.rank, world_size=self.runtime.world_size,
        )  # fmt: skip

    def _log(self, tracker: Tracker | None, since: float) -> float:
        self.guard.check()
        steps, means = self.window.flush(self.runtime.world_size)
        now = time.monotonic()
        if tracker is not None:
            rate = round(steps * self.config.batch_size / max(now - since, 1e-9), 1)
            epoch, lr = self.done / self.steps_per_epoch, self.schedule.at(self.done - 1)[0]
            means |= radius_of(self.objective, (self.done - 1) / self.steps_per_epoch)
            tracker.write("train", step=self.done, epoch=epoch, **means, lr=lr, images_per_s=rate)
        return now

    def _judge(self, epoch: int, tracker: Tracker | None, meter: Meter) -> None:
        """After an epoch: validate when it is due, keep the best and the last weights, save the state."""
        if self.average is not None:
            self.average.after_epoch(self.model, epoch)
        due = epoch % self.recipe.validation.every == 0 or epoch == self.config.epochs
        if due:
            self._take_statistics(epoch)
            # every process judges for itself: the others would wait for the first one longer than they may
            self.judged = self._choose_judged()
            scores = self.validate(self.judged) if self.validate is not None else {}
            if scores and tracker is not None:
                tracker.write("validation", step=self.done, epoch=epoch, **scores)
                meter.say(f"{self.recipe.name} epoch {epoch}/{self.config.epochs}  " + _words(scores))
            self._watch_overfitting(scores, epoch, tracker, meter)
            if not scores or self.best is None or scores["score"] > self.best:
                self.best, self.best_epoch = scores.get("score"), epoch
                self._export("best", epoch, scores)
            self._export("last", epoch, {})
            if self.runtime.is_main:
                self.exhibits.write(self.objective, epoch)
            self._lose_patience(epoch, meter)
            self._save()
        self.runtime.wait()

    def _watch_overfitting(self, scores: dict[str, float], epoch: int, tracker: Tracker | None, meter: Meter) -> None:
        self.history.append(scores)
        if first_overfit(self.history) == len(self.history) - 1:
            meter.say(f"{self.recipe.name} {OVERFITS}")
            if tracker is not None:
                tracker.write("warning", step=self.done, epoch=epoch, warning="catastrophic_overfitting")

    def _choose_judged(self) -> nn.Module:
        model = self.average.model if self.average is not None and self.average.begun else self.model
        return model if self.unsplit is None else fill(self.unsplit, model)

    def _take_statistics(self, epoch: int) -> None:
        """Batch norms of weights averaged over epochs have seen no image: a pass over some of the next epoch's."""
        if self.average is None or self.average.borrows_statistics or not self.average.begun:
            return
        if has_statistics(self.model):
            some = itertools.islice(self._batches(epoch), STATISTICS_STEPS)
            with unwritten(self.objective), new_statistics(self.model, self.average.model), torch.no_grad():
                for batch in some:
                    for x, y, prepared in self._micro_batches(batch):
                        with self.runtime.arithmetic():
                            self.objective.forward(x, y, **prepared)

    def _lose_patience(self, epoch: int, meter: Meter) -> None:
        patience = self.config.patience
        if patience is not None and epoch - self.best_epoch >= patience and epoch < self.config.epochs:
            self.stopped = True
            meter.say(f"{self.recipe.name} stops: no epoch since {self.best_epoch} was better on the validation split")

    # ------------------------------------------------------------ state

    def _save(self) -> None:
        self.guard.check()
        self.saved, self.saved_at = self.done, time.monotonic()
        if not (self.runtime.is_main or self.runtime.shards):
            return
        state = state_of(self)
        if self.runtime.is_main:
            save_state(self.folder, state)

    def _resume(self) -> None:
        state = load_state(self.folder, plain(self.recipe))
        if state is not None:
            restore(self, state)

    def _export(self, name: str, epoch: int, scores: dict[str, float]) -> None:
        if not self.runtime.is_main:
            return
        facts = {"recipe": plain(self.recipe), "classes": list(self.data.classes), "epoch": epoch}
        average = self.average.kind if self.average is not None and self.average.begun else None
        facts |= {"validation": scores, "average": average}
        checkpoints = self.folder / "checkpoints"
        save_weights(checkpoints / f"{name}.safetensors", self.judged, metadata=facts)
        if hasattr(self.objective, "export"):
            self.objective.export(checkpoints, name)

    # ------------------------------------------------------------ set-up

    def _count_steps(self) -> int:
        share = self.runtime.world_size * self.config.accumulate
        if self.config.batch_size % share:
            raise UserError(f"train.batch_size {self.config.batch_size} does not divide into {share} micro-batches")
        return steps_per_epoch(self.data, self.config.batch_size, drop_last=True)

    def _shard(self) -> None:
        if hasattr(self.objective, "optimised"):
            raise UserError("runtime.shard is for objectives that train the model alone, and this one trains more")
        self.runtime.join()
        self.unsplit = copy.deepcopy(self.model).eval()
        for model in (self.model, *([self.average.model] if self.average is not None else [])):
            shard(model, self.runtime)

    def _wrap(self) -> None:
        if self.runtime.captures:
            self.augmented = Captured(self._augmented)
        if self.runtime.shards:
            return
        adversary = getattr(self.objective, "adversary", None)
        if adversary is not None:
            adversary.accelerate(self.runtime)
        if self.runtime.compiles:
            # graph replays hand out gradients in memory of their own; accumulation and DDP's buckets need ours
            alone = self.config.accumulate == 1 and self.runtime.world_size == 1
            mode = "reduce-overhead" if alone and self.runtime.captures else None
            self.objective.compile(mode=mode, fullgraph=True, dynamic=False)
        if self.runtime.world_size > 1:
            device_ids = [self.device] if self.device.type == "cuda" else None
            self.wrapped = DistributedDataParallel(self.objective, device_ids=device_ids)

    def _tracker(self) -> Tracker | None:
        if not self.runtime.is_main:
            return None
        self.folder.mkdir(parents=True, exist_ok=True)
        return Tracker(self.folder, resumed_step=self.done, tensorboard=self.config.tensorboard)


def _laid_out(model: nn.Module) -> nn.Module:
    """Channels-last on a GPU: convolutions are 1.5 to 2.5 times as fast, the rest does not notice (docs/models.md)."""
    on_gpu = any(parameter.is_cuda for parameter in model.parameters())
    return model.to(memory_format=torch.channels_last) if on_gpu else model


def _words(scores: dict[str, Any]) -> str:
    return "  ".join(f"{name} {value:.1%}" for name, value in scores.items() if name != "score")
