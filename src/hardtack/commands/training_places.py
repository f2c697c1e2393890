"""`train --on`: one training in several processes, on this machine, on a Ray cluster or in a Slurm job."""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from hardtack.base.config import build, plain
from hardtack.base.cores import give_share_of_cores, usable_cores
from hardtack.base.digests import json_digest
from hardtack.base.errors import UserError
from hardtack.base.printable import printable
from hardtack.commands.executor_words import Place, command_elsewhere
from hardtack.commands.words import typed
from hardtack.training import Recipe

TORCHRUN = "torchrun --nproc-per-node={} -m hardtack {}"


def train_on(
    place: Place, recipes: Sequence[Recipe], train: Callable[[Recipe], Path], *, dry_run: bool = False
) -> None:
    """Train recipes, one after the other, where the words say; `train` trains one in this process."""
    if place.settings.get("per_gpu", 1) != 1:
        raise UserError(
            "per_gpu is for pieces of an evaluation or study: the processes of one training have a GPU each"
        )
    if dry_run and place.name != "slurm":
        raise UserError("--dry-run prints the script of --on slurm")
    if place.name not in PLACES:
        raise UserError(f"--on {place.name}: train runs on {', '.join(PLACES)}")
    PLACES[place.name](dict(place.settings), recipes, train, dry_run)


# ---------------------------------------------------------------- this machine


def _here(settings: dict[str, Any], recipes: Sequence[Recipe], train: Callable[[Recipe], Path], _: bool) -> None:
    """One process, or those that torchrun starts."""
    from hardtack.engine.executors.here import HereSettings, number_of_workers, visible_gpus

    gpus = len(visible_gpus(recipes[0].runtime))
    workers = number_of_workers(build(HereSettings, settings), gpus=gpus)
    if workers == 1:
        for recipe in recipes:
            train(recipe)
        return
    cores = max(1, usable_cores() // workers)
    give_share_of_cores(os.environ, cores)
    os.environ.setdefault("OMP_NUM_THREADS", str(cores))
    _launch(["--standalone", f"--nproc-per-node={workers}", "-m", "hardtack", *command_elsewhere(typed)])


def _launch(words: Sequence[str]) -> None:
    """torchrun in this process. What its processes have said is enough: its own report and traceback are left out."""
    from torch.distributed.elastic.multiprocessing import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.run import parse_args, run

    logging.disable(logging.CRITICAL)
    try:
        run(parse_args(list(words)))
    except SignalException as error:
        raise (KeyboardInterrupt if error.sigval == signal.SIGINT else SystemExit(128 + error.sigval)) from None
    except ChildFailedError as error:
        rank, failure = error.get_first_failure()
        if failure.exitcode < 0:
            raise UserError(
                f"process {rank} of the training was killed by {signal.Signals(-failure.exitcode).name}; the last "
                "saved state is kept: repeat the command to continue"
            ) from None
        raise typer.Exit(failure.exitcode) from None
    finally:
        logging.disable(logging.NOTSET)


def _torchrun(settings: dict[str, Any], recipes: Sequence[Recipe], train: Callable[[Recipe], Path], _: bool) -> None:
    if settings or int(os.environ.get("WORLD_SIZE", 1)) == 1:
        line = TORCHRUN.format(settings.get("workers", 4), " ".join(command_elsewhere(typed)))
        raise UserError(f"--on torchrun is for a process that torchrun has started; type: {line}")
    for recipe in recipes:
        train(recipe)


# ---------------------------------------------------------------- Ray


@dataclass(frozen=True)
class Training:
    """One recipe, as every process of a group trains it."""

    recipe: Recipe

    @property
    def title(self) -> str:
        return self.recipe.name

    def run(self, folder: Path) -> None:
        from hardtack.commands.recipe_validator import validator_of
        from hardtack.training.start import train_recipe

        train_recipe(self.recipe, validate=validator_of(self.recipe), folder=folder)


def _ray(settings: dict[str, Any], recipes: Sequence[Recipe], train: Callable[[Recipe], Path], _: bool) -> None:
    from hardtack.commands.words import say
    from hardtack.engine.executors.ray import RaySettings
    from hardtack.engine.executors.ray_group import run_group
    from hardtack.models.user_code import travelling_code
    from hardtack.training.checkpoint import training_lock
    from hardtack.training.start import check_start

    chosen: RaySettings = build(RaySettings, settings)
    for recipe in recipes:
        check_start(recipe)
        lock = training_lock(recipe.folder, recipe.name)
        run_group(Training(recipe), chosen, recipe.runtime, folder=recipe.folder, steps=travelling_code(), lock=lock)
        say(f"trained: {recipe.folder}")


# ---------------------------------------------------------------- Slurm


def _slurm(settings: dict[str, Any], recipes: Sequence[Recipe], train: Callable[[Recipe], Path], dry: bool) -> None:
    """A job of one task that runs this command under torchrun; its exit code and the weights say that it is done."""
    from hardtack.commands.words import say
    from hardtack.engine.executors.slurm import SlurmExecutorSettings
    from hardtack.engine.slurm import describe_array, run_array, torchrun_lines, training_task
    from hardtack.engine.slurm.outcome import has_succeeded

    if "workers" in settings:
        raise UserError("a training on Slurm takes slurm.nodes=N and slurm.gpus=N (of one node) instead of workers")
    chosen: SlurmExecutorSettings = build(SlurmExecutorSettings, settings)
    # other settings in the same folder are another job
    digest = json_digest([plain(recipe) for recipe in recipes])[:12]
    folder = recipes[0].folder.resolve() / ".slurm" / digest
    title = f"train {recipes[0].name}"
    tasks = [training_task(command_elsewhere(typed), label=recipes[0].name)]
    launch = torchrun_lines(chosen, folder=folder)
    if dry or chosen.dry_run:
        print(describe_array(tasks, chosen, folder=folder, title=title, launch=launch))
        return

    def is_done(_: object) -> bool:
        weights = [recipe.folder / "checkpoints" / "last.safetensors" for recipe in recipes]
        return has_succeeded(folder, 0) and all(path.is_file() for path in weights)

    run_array(
        tasks, chosen, folder=folder, title=title, is_done=is_done, tell=_tell, poll_s=chosen.poll_s, launch=launch
    )
    for recipe in recipes:
        say(f"trained: {recipe.folder}")


def _tell(line: str) -> None:
    print(printable(line), file=sys.stderr)


PLACES: Mapping[str, Callable[[dict[str, Any], Sequence[Recipe], Callable[[Recipe], Path], bool], None]] = {
    "here": _here,
    "torchrun": _torchrun,
    "ray": _ray,
    "slurm": _slurm,
}
