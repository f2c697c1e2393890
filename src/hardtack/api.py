"""The jobs behind the verbs, for Python and the command line alike: train, attack, evaluate."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from hardtack.attacks import call
from hardtack.attacks import preserve_state as preserve_state
from hardtack.base.config import build, choose, flat, merge, plain, read_yaml
from hardtack.base.errors import UserError
from hardtack.base.registry import attacks
from hardtack.base.runtime import Runtime
from hardtack.data import DataConfig, Dataset, load_data, load_training
from hardtack.data.decode import MixedSizes
from hardtack.data.paths import find_path
from hardtack.evaluation import Evaluation, EvaluationConfig, Subject, evaluate, make_trials, threat_of
from hardtack.evaluation.class_subset import class_subset
from hardtack.evaluation.sanity import NEW_HEAD, UNTRAINED, check_inputs, check_logits, class_names
from hardtack.evaluation.settings import ATTACKED, check_taken, not_taken
from hardtack.models import Classifier, ModelConfig, find_weights, load_model, read_metadata, rebuild
from hardtack.models.dtypes import names_dtypes
from hardtack.models.facts import usual
from hardtack.models.files import sha256
from hardtack.models.from_file import place_of, same_weights, state_sha256
from hardtack.recipes import find_recipe
from hardtack.training import Recipe, Trainer, Validate, read_recipe, validation_attack
from hardtack.training.checkpoint import begun_with
from hardtack.training.overfitting import one_step_judge
from hardtack.training.recipe import trained_threats


@names_dtypes
def attack(
    model: nn.Module, x: Tensor, y: Tensor, name: str = "pgd", *, keys: Tensor | None = None, **settings: Any
) -> Tensor:
    """Adversarial images for x (N×3×H×W in [0,1]): `attack(model, x, y, "pgd", threat="linf:8/255")`."""
    check_inputs(x, y, num_classes=getattr(model, "num_classes", None))
    with preserve_state(model), torch.no_grad():
        check_logits(model(x[:8]).float(), y[:8])
    given = {"target": settings.pop("target")} if isinstance(settings.get("target"), Tensor) else {}
    return call(choose(attacks, {"name": name, **settings}), model, x, y, keys=keys, **given)


# ---------------------------------------------------------------- training


def train(recipe: str | Path | Recipe | None = None, *, quiet: bool = False, **words: Any) -> Path:
    """Train a recipe (a file, its name, or a Recipe) and return its run folder.

    Words are the command line's: `train("recipes/digits/trades.yaml", **{"train.epochs": 5})`.
    """
    if not isinstance(recipe, Recipe):
        path = find_recipe(recipe) if recipe is not None else None
        recipe = read_recipe(path, **nested(words))
    data = load_training(recipe.data, recipe.augment)
    model = fresh_model(_without_start(recipe), data)
    return Trainer(recipe, model, data, validate=make_validator(recipe), quiet=quiet).fit()


def _without_start(recipe: Recipe) -> Recipe:
    """A run that goes on has all weights in its state: those it started from may be gone, or others by now."""
    known = begun_with(recipe.folder) if recipe.model.weights or recipe.model.pretrained else {}
    if not known:
        return recipe
    mean, std = tuple(known["mean"]), tuple(known["std"])  # which those weights may have brought along
    bare = dataclasses.replace(recipe.model, weights=None, adapt=False, pretrained=False, mean=mean, std=std)
    return dataclasses.replace(recipe, model=bare)


def fresh_model(recipe: Recipe, data: Dataset) -> Classifier:
    return load_model(
        recipe.model, num_classes=data.num_classes, image_size=data.image_shape[-1], seed=recipe.runtime.seed
    )


def make_validator(recipe: Recipe) -> Validate | None:
    """Clean and robust accuracy on the split cut from training; the test set plays no part in choosing."""
    if recipe.data.validation == 0:
        return None
    data = load_data(recipe.data, "validation")
    limit = recipe.validation.limit
    data = data if limit is None else data.first(limit)
    judge = validation_attack(recipe)
    runtime = dataclasses.replace(recipe.runtime, compile=False)
    own = recipe.validation.attack is not None
    union = () if own else trained_threats(recipe.objective)[1:]  # judged by the worst of all threats trained against
    common = {"batch_size": recipe.validation.batch_size, "examples": 0}

    def settings(attack: Any) -> EvaluationConfig:
        words = {"suite": "clean"} if attack is None else {"suite": "pgd", "union": union, **_as_words(attack)}
        return build(EvaluationConfig, {**common, **words})

    config, quick = settings(judge), one_step_judge(recipe.objective, judge)

    def validate(model: nn.Module) -> dict[str, float]:
        measured = evaluate(model, data, config=config, runtime=runtime, quiet=True)
        scores = {"clean_accuracy": measured.clean_accuracy}
        if measured.robust_accuracy is not None:
            scores["robust_accuracy"] = measured.robust_accuracy
        if quick is not None:
            one_step = evaluate(model, data, config=settings(quick), runtime=runtime, quiet=True)
            scores["fgsm_accuracy"] = float(one_step.robust.mean())
        return scores | {"score": scores.get("robust_accuracy", scores["clean_accuracy"])}

    return validate


def _as_words(judge: Any) -> dict[str, Any]:
    settings = plain(judge)
    return {"threat": settings.pop("threat"), "attack": settings}


def nested(words: dict[str, Any]) -> dict[str, Any]:
    """`{"train.epochs": 5}` as `{"train": {"epochs": 5}}`."""
    values: dict[str, Any] = {}
    for path, value in words.items():
        for key in reversed(path.split(".")):
            value = {key: value}
        values = merge(values, value)
    return values


# ---------------------------------------------------------------- evaluation


@dataclass(frozen=True, kw_only=True)
class EvaluationJob(EvaluationConfig):
    """The words of `evaluate`. `suite` may name several, joined by commas; `n`: only the first images."""

    checkpoint: str = "best"
    model: ModelConfig | None = None
    data: DataConfig | None = None
    split: Literal["train", "validation", "test"] = "test"
    n: Annotated[int, Field(ge=1)] | None = None
    output: str | None = None
    runtime: Runtime = field(default_factory=Runtime)

    def __post_init__(self) -> None:
        """Each suite is checked on its own."""

    def configs(self) -> list[EvaluationConfig]:
        """One for each suite named."""
        shared = {item.name: getattr(self, item.name) for item in dataclasses.fields(EvaluationConfig)}
        suites = [suite.strip() for suite in self.suite.split(",")]
        configs = []
        for suite in suites:
            mine = {name: value for name, value in shared.items() if name not in not_taken(suite)}
            configs.append(build(EvaluationConfig, {**mine, "suite": suite}))
        check_taken(self, suites)
        return configs


@dataclass(frozen=True, kw_only=True)
class Target:
    """A model with the data and the folder it is to be measured with."""

    model: nn.Module
    data: Dataset
    folder: Path
    subject: Subject


def evaluate_run(run: str | Path | None = None, /, *, quiet: bool = False, **words: Any) -> list[Evaluation]:
    """Evaluate a run folder, or `model=…` on `data=…`; everything is kept in the run folder (or `output`)."""
    values = nested(words)
    target, job = load_target(run, values)
    return [evaluate_target(target, config, job.runtime, values, quiet=quiet) for config in job.configs()]


def evaluate_target(
    target: Target, config: EvaluationConfig, runtime: Runtime, values: dict[str, Any], *, quiet: bool = False
) -> Evaluation:
    """One evaluation of a target; `values` are the words that asked for it, which the record keeps."""
    subject = dataclasses.replace(target.subject, words=_words(values, config))
    return evaluate(
        target.model, target.data, config=config, runtime=runtime, folder=target.folder, subject=subject, quiet=quiet
    )


def _words(values: dict[str, Any], config: EvaluationConfig) -> tuple[str, ...]:
    """The settings given, as they would be typed, for one of the suites."""
    taken = {name: value for name, value in plain(values).items() if name not in not_taken(config.suite)}
    given = {**flat(taken), "suite": config.suite}
    given |= {"threat": str(threat_of(config))} if config.suite in ATTACKED else {}
    given.pop("output", None)
    return tuple(f"{key}={_typed(value)}" for key, value in given.items())


def _typed(value: Any) -> str:
    return str(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else json.dumps(value)


def load_target(run: str | Path | None, values: dict[str, Any]) -> tuple[Target, EvaluationJob]:
    """The model and data that the words of an evaluation or attack name."""
    stored = {}
    if run is not None and (_run_folder(run) / "config.yaml").exists():
        stored = read_yaml(_run_folder(run) / "config.yaml").get("data", {})
    if isinstance(values.get("data"), str):
        values = {**values, "data": {"name": values["data"]}}
    if _same_place(values.get("data", {}), stored):
        values = merge({"data": stored} if stored else {}, values)
    else:  # a set without splits that the model was not trained on is measured whole
        values = merge({"data": {"test": 1.0}}, values)
    if isinstance(values.get("attack"), str):  # attack=fgsm is short for attack.name=fgsm
        values = {**values, "attack": {"name": values["attack"]}}
    if values.get("data") and not values["data"].get("name"):  # its default would be measured without a word
        raise UserError("'data.name' is missing: say which data, for example data=folder:PATH")
    values = _found_folders(values)
    job: EvaluationJob = build(EvaluationJob, values)
    for config in job.configs():  # a misspelt suite or attack is found before anything is loaded
        make_trials(config)
    target = _run_target(_run_folder(run), job) if run is not None else _model_target(job)
    model, data = class_subset(target.model, target.data)
    return dataclasses.replace(target, model=model, data=data), job


def _found_folders(values: dict[str, Any]) -> dict[str, Any]:
    """Folders of official files and of overlays lie where the data lies, unless their names say where."""
    root = values.get("data", {}).get("root")
    given = {name: str(values[name]) for name in ("files", "frost") if values.get(name) is not None}
    return {**values, **{name: str(find_path(path, root, kind=name)) for name, path in given.items()}}


def _same_place(asked: dict[str, Any], stored: dict[str, Any]) -> bool:
    """Whether the data asked for is the run's own, however its path is spelt."""

    def place(data: dict[str, Any]) -> str:
        kind, colon, path = str(data.get("name", "")).partition(":")
        return f"{kind}:{find_path(path, data.get('root'), kind=kind).resolve()}" if colon and path else kind

    try:
        return "name" not in asked or (bool(stored) and place(asked) == place(stored))
    except UserError:  # one of them is not there: the loader says which
        return asked.get("name") == stored.get("name")


def load_run(run: str | Path, *, checkpoint: str = "best") -> Classifier:
    """The trained model of a run folder."""
    return rebuild(_run_folder(run), checkpoint=checkpoint)


def _run_folder(run: str | Path) -> Path:
    folder = Path(run).expanduser()
    return folder.parent.parent if folder.is_file() and folder.parent.name == "checkpoints" else folder


def _run_target(folder: Path, job: EvaluationJob) -> Target:
    if job.model is not None:
        raise UserError("give a run folder or model=…, not both")
    if not folder.exists() and place_of(str(folder)):
        raise UserError(f"a model is a word: model={folder}")
    file = find_weights(folder, checkpoint=job.checkpoint)
    model = rebuild(file)
    data = _load_images(job, model)
    side = file.with_name(file.name + ".sha256")
    digest = side.read_text().split()[0] if side.exists() else sha256(file)
    name = model.architecture["name"]
    flags = class_names(read_metadata(file).get("classes"), data.classes)
    subject = Subject(run=folder.name, model=name, checkpoint=file.stem, weights_sha256=digest, flags=tuple(flags))
    return Target(
        model=model,
        data=data,
        folder=Path(job.output).expanduser() if job.output else folder,
        subject=subject,
    )


def _model_target(job: EvaluationJob) -> Target:
    if job.model is None or job.data is None:
        raise UserError("name a run folder, or a model and data: model=NAME data=NAME")
    asked = job.model
    size = asked.image_size or _native_size(asked) or job.data.image_size
    data = _images_for(asked, _sized(job, job.data.image_size or size))
    classes = None if asked.pretrained else _written_classes(asked) or data.num_classes
    model = load_model(asked, num_classes=classes, image_size=data.image_shape[-1], seed=job.runtime.seed)
    place, folder = place_of(asked.name), model_folder(asked, job.output)
    file = find_weights(asked.weights) if asked.weights else None
    digest = sha256(file) if file else state_sha256(model) if place else None
    trained = bool(file) or asked.pretrained
    if place and not trained:  # a function may load weights by itself: then no seed changes them
        other = load_model(asked, num_classes=classes, image_size=data.image_shape[-1], seed=job.runtime.seed + 1)
        trained = same_weights(model, other)
    flags = [] if trained else [UNTRAINED]
    if model.fitted is not None and any(key.endswith(".weight") for key in model.fitted.fresh):
        flags.append(NEW_HEAD)
    subject = Subject(
        run=folder.name, model=model.architecture["name"], checkpoint=file.stem if file else None,
        weights_sha256=digest, flags=tuple(flags),
    )  # fmt: skip
    return Target(model=model, data=data, folder=folder, subject=subject)


def model_folder(asked: ModelConfig, output: str | None) -> Path:
    """Where what is measured of a model by its name is kept, unless told."""
    place = place_of(asked.name)
    name = place.folder_name if place else asked.name.replace(":", "-").replace("/", "-")
    return Path(output or f"runs/{name}").expanduser()


def _images_for(asked: ModelConfig, job: EvaluationJob) -> Dataset:
    """Photographs of many sizes or wider than high, and a model that takes any, are cut to what it is meant for."""
    try:
        data = _load_images(job)
    except MixedSizes:
        if place_of(asked.name):
            raise
    else:
        if data.image_shape[-1] == data.image_shape[-2] or place_of(asked.name):
            return data
    return _load_images(_sized(job, usual(asked.name)[0]))


def _sized(job: EvaluationJob, size: int | None) -> EvaluationJob:
    assert job.data is not None
    return dataclasses.replace(job, data=dataclasses.replace(job.data, image_size=size))


def _written_classes(asked: ModelConfig) -> int | None:
    written = read_metadata(find_weights(asked.weights)) if asked.weights else {}
    return written.get("architecture", {}).get("num_classes")


def _native_size(asked: ModelConfig) -> int | None:
    """The size a network was made for, so that photographs of any size are cut to fit it.

    Our own small ones take the size of the data, as a user's do; those of 224 pixels are as particular as timm's.
    """
    if place_of(asked.name):
        written = read_metadata(find_weights(asked.weights)).get("architecture", {}) if asked.weights else {}
        return written.get("image_size")
    if not asked.name.startswith("timm:"):
        written = read_metadata(find_weights(asked.weights)).get("architecture", {}) if asked.weights else {}
        return written.get("image_size") or (224 if usual(asked.name)[0] == 224 else None)
    empty = dataclasses.replace(asked, pretrained=False, weights=None, adapt=False)
    return load_model(empty, num_classes=2, seed=0).image_size


def _load_images(job: EvaluationJob, model: Classifier | None = None) -> Dataset:
    if job.data is None:
        raise UserError("this run folder does not say which data it was trained on; give data=NAME")
    config = job.data
    if job.n is not None:  # so that no more images are decoded than are looked at
        config = dataclasses.replace(config, limit=min(job.n, config.limit or job.n))
    size = model.image_size if model is not None and config.image_size is None else None
    try:
        data = load_data(config, job.split)
    except MixedSizes:
        if model is None:
            raise
        size = model.image_size or usual(model.architecture["name"])[0]
        return load_data(dataclasses.replace(config, image_size=size), job.split)
    if size is not None and data.image_shape[-1] != size:
        data = load_data(dataclasses.replace(config, image_size=size), job.split)
    return data
