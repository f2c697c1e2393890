"""`hardtack gauntlet`: how often evaluators are silently wrong, on defences whose truth is known."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from hardtack.base.errors import UserError
from hardtack.base.files import local_path
from hardtack.base.registry import verbs
from hardtack.commands.words import Words, say, split_target

if TYPE_CHECKING:
    from hardtack.base.runtime import Runtime
    from hardtack.evaluation.gauntlet import Core, GauntletResult
    from hardtack.threats import Threat

DIGITS = {"core": "digits/standard", "robust": "digits/adversarial", "threat": "linf:0.1"}
FITTED_ON = 5000  # training images that parts of a defence are fitted on, at most


@verbs.register("gauntlet", settings="hardtack.evaluation.gauntlet.settings:GauntletConfig")
def gauntlet(words: Words = None) -> None:
    """Test evaluators on defences whose truth is known: [bold]hardtack gauntlet evaluators=fast,verified[/bold].

    Settings: evaluators=fast,verified,exact,max,rand,… ([bold]hardtack list evaluators[/bold]), mechanisms=NAMES or
    families (default: all; [bold]hardtack list mechanisms[/bold]), core=digits or the run folder or recipe of an
    undefended model, robust=RUN (an adversarially trained one), recipe.train.epochs=5 (of recipes), threat=linf:0.1,
    seed=0, n=100, output=runs/gauntlet, fresh=true (measure known rows again), runtime.device=cuda. If it is
    interrupted, the same command resumes it.
    Exit code 1 if a number is silently wrong: more than one point above the truth, without a red flag.
    """
    first, settings = split_target(words)
    from hardtack.base.config import parse_words

    values = parse_words(settings)
    if first is not None and "core" in values:
        raise UserError(f"the command names the core twice: {first} and core={values['core']}")
    result = run(**(values if first is None else {**values, "core": first}))
    say(result)
    raise typer.Exit(1 if result.silent else 0)


def run(*, quiet: bool = False, **values: Any) -> GauntletResult:
    """Run the gauntlet with the settings of the command line."""
    from hardtack.base.config import build, nested
    from hardtack.base.registry import evaluators
    from hardtack.evaluation.gauntlet import run_gauntlet, select_mechanisms
    from hardtack.evaluation.gauntlet.settings import GauntletConfig

    values = nested(values)
    for name in ("evaluators", "mechanisms"):
        if isinstance(values.get(name), str):
            values[name] = [word.strip() for word in values[name].split(",") if word.strip()]
    config = build(GauntletConfig, values)
    select_mechanisms(config.mechanisms)  # unknown names are refused before a core is trained
    for name in config.evaluators:
        evaluators.get(name)
    folder = local_path(config.output)
    core = load_core(
        config.core, folder=folder, n=config.n, robust=config.robust, threat=config.threat, recipe=config.recipe,
        runtime=config.runtime, quiet=quiet,
    )  # fmt: skip
    runtime = dataclasses.replace(config.runtime, seed=config.seed)
    return run_gauntlet(
        core, evaluators=config.evaluators, mechanisms=config.mechanisms, seed=config.seed, folder=folder,
        runtime=runtime, fresh=config.fresh, quiet=quiet,
    )  # fmt: skip


def load_core(
    name: str,
    *,
    folder: str | Path,
    n: int = 100,
    robust: str | None = None,
    threat: Threat | None = None,
    recipe: Mapping[str, Any] | None = None,
    runtime: Runtime | None = None,
    quiet: bool = False,
) -> Core:
    """The core of a gauntlet, from a run folder. `digits` and recipes are trained in `folder` when missing there."""
    from hardtack.base.config import build
    from hardtack.base.runtime import Runtime
    from hardtack.evaluation.gauntlet import Core
    from hardtack.evaluation.target import TargetConfig, complete, load_run, load_target
    from hardtack.threats import Threat

    runtime = runtime or Runtime()
    if name == "digits":
        robust, threat = robust or DIGITS["robust"], threat or Threat.parse(DIGITS["threat"])
    if threat is None:
        raise UserError("core=RUN needs a threat under which the undefended core has no robust accuracy: threat=…")

    def images(split: str, count: int) -> tuple[Any, Any, Any]:
        settings = build(TargetConfig, complete(run, {"n": count, "split": split}))
        target = load_target(run, settings)
        batch = target.data.batch(range(len(target.data)), device)
        return batch.x.clone(), batch.y.clone(), target

    run = run_of(DIGITS["core"] if name == "digits" else name, Path(folder), recipe or {}, quiet=quiet)
    robust_run = None if robust is None else run_of(robust, Path(folder), recipe or {}, quiet=quiet)
    device = runtime.torch_device
    x, y, target = images("test", n)
    train_x, train_y, _ = images("train", FITTED_ON)
    return Core(
        name=name, model=target.model.to(device).eval(), x=x, y=y, train_x=train_x, train_y=train_y,
        threat=threat, classes=target.data.num_classes,
        robust=None if robust_run is None else load_run(robust_run).to(device).eval(),
    )  # fmt: skip


def run_of(name: str, folder: Path, recipe: Mapping[str, Any], *, quiet: bool) -> Path:
    """The run folder of this name; of a recipe, one inside `folder`, trained now if it is missing or unfinished."""
    from hardtack.commands.recipe_files import is_recipe
    from hardtack.commands.train import train

    if not is_recipe(name):
        return Path(name)
    own = name.removeprefix("recipes/").removesuffix(".yaml").replace("/", "-")
    return train(name, output=str(folder / "cores" / own), quiet=quiet, **recipe)
