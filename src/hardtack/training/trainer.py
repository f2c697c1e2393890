"""The training loop. `Trainer.step` is one update; the rest decides when to log, validate, call, stop and save.

A run folder with a saved state of the same recipe is continued from it, to the bit on the CPU. Of two calls for one
folder the second waits, and finds what the first has saved. Otherwise the model starts from `model.weights` if given,
else from the seed. Batches are a function of (seed, epoch, step), augmentation and attacks of (seed, epoch, image),
dropout of (seed, step, rank), so a state contains no random generators.
"""

from __future__ import annotations

import itertools
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from hardtack.base import randomness
from hardtack.base.allocator import keep_freed_memory
from hardtack.base.capture import Captured
from hardtack.base.config import flat, plain, write_yaml
from hardtack.base.lock import hold
from hardtack.base.lost_process import explain_lost_process
from hardtack.base.progress import Meter
from hardtack.data import Batch, Dataset, batches, make_augment
from hardtack.models import normalisation
from hardtack.objectives.contract import Objective
from hardtack.training.acceleration import channels_last, count_steps
from hardtack.training.averaging import has_statistics, make_average, new_statistics
from hardtack.training.callbacks import Callback, Callbacks, TrainingEvent
from hardtack.training.checkpoint import (
    Progress,
    RunState,
    architecture_of,
    load_state,
    restore,
    save_state,
    training_lock,
)
from hardtack.training.freezing import freeze
from hardtack.training.gradient_checks import FiniteCheck, explain_batch_norm_error
from hardtack.training.later_compilation import LaterCompilation
from hardtack.training.loss_gradient import GradientFunction, LossGradient, accelerate
from hardtack.training.optimise import set_rates, take_step
from hardtack.training.recipe import Recipe
from hardtack.training.recompute import checkpoint_blocks
from hardtack.training.schedule import Schedule
from hardtack.training.sharding import any_process, fill, split_models, whole
from hardtack.training.sharpness import MicroBatch, buffers_restored, copy_prepared
from hardtack.training.signals import catch_sigterm, exit_with_first_process
from hardtack.training.startup_notes import check_classes, start_facts, startup_notes
from hardtack.training.trackers import TrackedRun
from hardtack.training.tracking import RunLog, Window
from hardtack.training.validation import Validate, Validation

STATISTICS_STEPS = 50  # batches from which averaged weights take their batch-norm statistics


class Trainer:
    """`validate` measures a model on held-out data; training itself knows nothing of evaluation."""

    def __init__(
        self, recipe: Recipe, model: nn.Module, data: Dataset, *, validate: Validate | None = None, quiet: bool = False,
        folder: Path | None = None, callbacks: Callbacks | None = None,
    ) -> None:  # fmt: skip
        self.recipe, self.runtime, self.config, self.data = recipe, recipe.runtime, recipe.train, data
        self.folder, self.quiet = folder or recipe.folder, quiet or not recipe.runtime.is_main
        self.progress, self.callbacks, self.last_means = Progress(), callbacks or Callbacks(), dict[str, float]()
        self.validation = Validation(recipe, data, self.progress, validate, self.folder)
        check_classes(model, data)
        self.device = self.runtime.torch_device
        batch_size, accumulate = self.config.batch_size, self.config.accumulate
        self.steps_per_epoch = count_steps(data, batch_size, accumulate=accumulate, processes=self.runtime.world_size)
        self.model = channels_last(model.to(self.device)).train()
        freeze(self.model, self.config.freeze)
        self.average = make_average(self.model, ema=self.config.ema, swa_from=self.config.swa_from)
        if self.config.checkpoint_blocks:
            checkpoint_blocks(self.model)
        self.objective: Objective = recipe.objective.build(self.model).to(self.device)
        self.steps_per_epoch *= self.objective.replays
        self.total = self.config.epochs * self.steps_per_epoch
        scales = recipe.optimiser.scales(self.objective.optimised)
        self.sharpness, self.penalty = recipe.sharpness, recipe.penalty.build(self.model)
        models = [self.model, *([self.average.model] if self.average is not None else [])]
        self.unsplit = split_models(models, self.objective, self.runtime) if self.runtime.shards else None
        self.optimiser = recipe.optimiser.build(self.objective.optimised, scales)
        self.parameters = [parameter for group in self.optimiser.param_groups for parameter in group["params"]]
        self.schedule = Schedule(recipe.schedule, recipe.optimiser.lr, float(self.config.epochs), self.steps_per_epoch)
        units = normalisation(self.model)
        self.augment = make_augment(recipe.augment, data.num_classes, data, **units).to(self.device)
        self.window, self.finite = Window(), FiniteCheck(self.optimiser, self.device)
        self.state = RunState(
            plain(recipe), architecture_of(self.model), self.progress, self.window, self.objective, self.optimiser,
            self.average,
        )  # fmt: skip
        self.saved_step, self.saved_at, self.extends = 0, time.monotonic(), False
        self.gradient: GradientFunction = LossGradient(self.objective, self.runtime, accumulate=accumulate)
        self.augmented: Callable[..., tuple[Tensor, Tensor, Tensor]] = self._augmented

    # ------------------------------------------------------------ one update

    def step(self, batch: Batch) -> dict[str, Tensor]:
        """Take the gradient of the batch (a second one at displaced weights with SAM or AWP), clip, check, update."""
        micro_batches: Iterable[MicroBatch] = self._micro_batches(batch)
        if self.sharpness.is_active(self.progress.done / self.steps_per_epoch):
            micro_batches = [copy_prepared(micro_batch) for micro_batch in micro_batches]
            means = self._backward(micro_batches)
            with self.sharpness.displaced(self.parameters), buffers_restored(self.objective):
                self.objective.zero_grad(set_to_none=True)
                means["sharpness"] = self._backward(micro_batches)["loss"] - means["loss"]
        else:
            means = self._backward(micro_batches)
        if self.penalty is not None:
            means["penalty"] = whole(self.penalty.add())
        norm = whole(nn.utils.clip_grad_norm_(self.parameters, self.config.clip or torch.inf))
        self.finite.watch(self.progress.done, means["loss"], norm)
        set_rates(self.optimiser, *self.schedule.at(self.progress.done))
        take_step(self.optimiser)
        self.objective.finish_step()
        self.objective.zero_grad(set_to_none=True)
        self.progress.done += 1
        if self.average is not None:
            self.average.after_step(self.model, self.progress.done)
        return means | {"gradient_norm": norm.float()}

    def _micro_batches(self, batch: Batch) -> Iterator[MicroBatch]:
        """Augmented as a whole; each part is attacked when its turn comes."""
        epoch = self.progress.done / self.steps_per_epoch
        x, y, keys = self.augmented(*batch, torch.full((), int(epoch), device=self.device))
        for x_, y_, keys_ in zip(*(t.chunk(self.config.accumulate) for t in (x, y, keys)), strict=True):
            with self.runtime.arithmetic():
                prepared = self.objective.prepare(x_, y_, keys=keys_, epoch=epoch)
            yield x_, y_, prepared

    def _backward(self, micro_batches: Iterable[MicroBatch]) -> dict[str, Tensor]:
        """Add up the gradients of the mean loss; returns the means of what the objective reports."""
        torch.manual_seed(self._dropout_seed())  # so that a second pass drops the same units
        means: dict[str, Tensor] = {}
        for number, (x, y, prepared) in enumerate(micro_batches, start=1):
            last = number == self.config.accumulate
            parts = self.gradient(x, y, prepared, last=last)
            for name, value in parts.items():
                means[name] = means.get(name, 0) + value.detach().float() / self.config.accumulate
        return means

    def _augmented(self, x: Tensor, y: Tensor, index: Tensor, epoch: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        keys = randomness.make_keys(index, self.runtime.seed, epoch)
        return *self.augment(x, y, keys), keys

    def _dropout_seed(self) -> int:
        words = (self.runtime.seed, self.progress.done, self.runtime.rank)
        return int(randomness.make_keys(torch.zeros(1, dtype=torch.int64), *words)) & (2**63 - 1)

    # ------------------------------------------------------------ the run

    def fit(self) -> Path:
        """Train to the end, or continue where a killed run stopped; returns the run folder."""
        with explain_lost_process(self.runtime.world_size, "The last saved state is kept"):
            return self._fit()

    def _fit(self) -> Path:
        keep_freed_memory()
        self.runtime.join()
        lock = training_lock(self.folder, self.recipe.name) if self.runtime.is_main else None
        devices = [self.device.index] if self.device.type == "cuda" else []
        with hold(lock, self.runtime.share), torch.random.fork_rng(devices):
            if (state := self._saved_state()) is not None:
                restore(self.state, state, self.device, self.folder)
            self.accelerate()
            if self.runtime.is_main:
                write_yaml(self.folder / "config.yaml", self.recipe)
            with (
                catch_sigterm() as received,
                exit_with_first_process(received),
                explain_batch_norm_error(),
                Meter(self.recipe.name, total=self.total, done=self.progress.done, quiet=self.quiet) as meter,
                RunLog(self.recipe.name, meter) as log,
            ):
                self._start(log)
                later = LaterCompilation(self.objective, self.runtime, self.config, self.gradient, note=log.note)
                while self.progress.done < self.total and not self.progress.stopped:
                    self._epoch(log, received, later)
            self.runtime.wait()
        return self.folder

    def _saved_state(self) -> dict[str, Any] | None:
        state = load_state(self.folder, plain(self.recipe), steps_per_epoch=self.steps_per_epoch)
        self.extends = state is not None and state["recipe"]["train"]["epochs"] != self.config.epochs
        return state

    def accelerate(self) -> None:
        """Record, compile and distribute, as the runtime asks for; once, before the first step."""
        if self.runtime.captures:
            self.augmented = Captured(self._augmented)
        if not self.runtime.shards:  # FSDP compiles and distributes block by block
            self.gradient = accelerate(self.objective, self.runtime, self.config)

    def _start(self, log: RunLog) -> None:
        if self.runtime.is_main:
            settings = flat(plain(self.recipe))
            run = TrackedRun(name=self.recipe.name, folder=self.folder, settings=settings, step=self.progress.done)
            log.open(run, self.config.track)
        model = self.model if self.unsplit is None else self.unsplit
        for line in startup_notes(
            self.recipe, self.progress, total=self.total, model=model, objective=self.objective, data=self.data
        ):
            log.note(line)
        if self.extends:
            before, epochs = self.progress.extended_from[-1], self.config.epochs
            log.write("extended", step=self.progress.done, epoch=before, epochs=epochs)
            log.note(
                f"extends the finished run of {before} epochs to {epochs}: the learning rate goes on at its place in "
                f"the schedule of {epochs} epochs, so this is not a run of {epochs} epochs from the start"
            )
        if self.progress.done == 0 and (facts := start_facts(self.recipe, model)):
            log.write("start", step=0, epoch=0, **facts)

    def _epoch(self, log: RunLog, received: list[int], later: LaterCompilation) -> None:
        epoch, start = divmod(self.progress.done, self.steps_per_epoch)
        logged_at = time.monotonic()
        for batch in self._replayed(epoch, start):
            parts = self.step(batch)
            self.window.add(parts)
            self._call(self.callbacks.on_step, parts)
            self.gradient = later.after_step(self.gradient, self.total - self.progress.done, batch)
            log.meter.advance(self.config.batch_size)
            ended = self.progress.done % self.steps_per_epoch == 0
            if self.progress.done % self.config.log_every == 0 or ended:
                logged_at = self._log_means(log, logged_at)
            if not ended:
                self._save_if_due(log, received)
        self._call(self.callbacks.on_epoch, self.last_means)
        self._finish_epoch(epoch + 1, log)  # before saving: a continued run does not validate this epoch again
        self._save_if_due(log, received, ended=True)

    def _call(self, callback: Callback | None, metrics: Mapping[str, Any], model: nn.Module | None = None) -> None:
        if callback is None:
            return
        done, progress = self.progress.done, self.progress
        epoch = done / self.steps_per_epoch
        callback(TrainingEvent(done, self.total, epoch, metrics, model or self.model, self.folder, progress))

    def _replayed(self, epoch: int, start: int) -> Iterator[Batch]:
        """The batches of the epoch from step `start` on, each as often as the objective asks for."""
        first, seen = divmod(start, self.objective.replays)
        for batch in self.batches(epoch, first):
            yield from itertools.repeat(batch, self.objective.replays - seen)
            seen = 0

    def batches(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        return batches(
            self.data, self.config.batch_size, device=self.device, shuffle_seed=self.runtime.seed, epoch=epoch,
            start=start, drop_last=True, rank=self.runtime.rank, world_size=self.runtime.world_size,
        )  # fmt: skip

    def _log_means(self, log: RunLog, since: float) -> float:
        self.finite.check()
        steps, means = self.window.flush(self.runtime.world_size)
        now, done = time.monotonic(), self.progress.done
        rate = round(steps * self.config.batch_size / max(now - since, 1e-9), 1)
        epoch, lr = done / self.steps_per_epoch, self.schedule.at(done - 1)[0]
        means |= self.objective.radius((done - 1) / self.steps_per_epoch)
        self.last_means = means
        log.write("train", step=done, epoch=epoch, **means, lr=lr, images_per_s=rate)
        return now

    def _finish_epoch(self, epoch: int, log: RunLog) -> None:
        """Validate and save when that is due. `epoch` is the number of epochs that have ended."""
        if self.average is not None:
            self.average.after_epoch(self.model, epoch)
        if self.validation.is_due(epoch):
            self._refresh_statistics(epoch)
            # every process validates by itself: waiting for the first one would exceed the time limit of an exchange
            model = self._exported_model()
            scores = self.validation.run(model, epoch, objective=self.objective, average=self.average, log=log)
            if scores:
                self._call(self.callbacks.on_validation, scores, model)
            self.validation.stop_early(epoch, log)
            self._save()
        self.runtime.wait()

    def _exported_model(self) -> nn.Module:
        model = self.average.model if self.average is not None and self.average.begun else self.model
        return model if self.unsplit is None else fill(self.unsplit, model)

    def _refresh_statistics(self, epoch: int) -> None:
        """Weights averaged over epochs need batch-norm statistics: from a pass over part of the next epoch's images."""
        average = self.average
        if average is None or average.copies_statistics or not average.begun or not has_statistics(self.model):
            return
        with buffers_restored(self.objective), new_statistics(self.model, average.model), torch.no_grad():
            for batch in itertools.islice(self.batches(epoch), STATISTICS_STEPS):
                for x, y, prepared in self._micro_batches(batch):
                    with self.runtime.arithmetic():
                        self.objective.forward(x, y, **prepared)

    # ------------------------------------------------------------ saving

    def _save_if_due(self, log: RunLog, received: list[int], *, ended: bool = False) -> None:
        """Save the state when the time has come, and exit after a signal.

        States that are split over processes are saved when all processes agree. Otherwise the first process saves and
        exits, and the others exit with it.
        """
        overdue = time.monotonic() - self.saved_at > self.config.checkpoint_every_s
        leave, save = bool(received), bool(received) or overdue
        if self.runtime.shards:
            if not ended and self.progress.done % self.config.log_every:
                return
            leave, save = any_process((leave, save), self.device)
        elif not self.runtime.is_main:
            return
        if save and self.saved_step != self.progress.done:
            self._save()
        if leave:
            log.say(f"was stopped by a signal and saved at step {self.progress.done}: repeat the command to continue")
            raise SystemExit(128 + signal.SIGTERM)

    def _save(self) -> None:
        self.finite.check()
        self.saved_step, self.saved_at = self.progress.done, time.monotonic()
        if self.runtime.is_main or self.runtime.shards:
            state = self.state.collect()
            if self.runtime.is_main:
                save_state(self.folder, state)
