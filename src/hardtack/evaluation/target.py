"""The target of a job: which model, with which weights, on which images, and the folder that receives the results.

Every command that looks at a model (evaluate, analyze, attack, verify, selftest, plan) finds its target here, so that
the digest of the weights, the flag of an untrained model and the folder are the same in all of them.

    complete(run, values)        fill in the data that the run was trained on
    build(TargetConfig, values)  check the settings
    load_target(run, config)     load the model and the images
"""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field
from torch import nn

from hardtack.base.config import merge, read_yaml
from hardtack.base.errors import UserError
from hardtack.base.files import local_path
from hardtack.base.limits import shorten
from hardtack.base.runtime import Runtime
from hardtack.base.trust import check_links, remember_paths, stored_settings
from hardtack.data import DataConfig, Dataset, load_data
from hardtack.data.decode import MixedSizes
from hardtack.data.paths import find_path
from hardtack.evaluation.class_subset import class_subset
from hardtack.evaluation.crop import crop_of_model, crop_of_run
from hardtack.evaluation.provenance import Provenance
from hardtack.evaluation.sanity import NEW_HEAD, UNTRAINED, class_names, flag
from hardtack.models import Classifier, ModelConfig, find_weights, load_model, read_metadata, rebuild
from hardtack.models.facts import usual
from hardtack.models.files import sha256
from hardtack.models.from_file import place_of, same_weights, state_sha256
from hardtack.models.kept import kept_module

_READINGS = 5  # of a checkpoint that is replaced while it is read


@dataclass(frozen=True, kw_only=True)
class TargetConfig:
    """The settings that name a target.

    checkpoint   of a run folder: which weights, best, last, or the name of another file in its checkpoints
    model        a model in place of a run folder (hardtack list settings model)
    data         the images, in place of a run folder's own (hardtack list settings data)
    split        which part of the data
    n            only the first n images; null: all of them
    output       the folder that receives the results; null: the run folder, or runs/MODEL
    runtime      where and how precisely everything is computed (hardtack list settings runtime)
    """

    checkpoint: str = "best"
    model: ModelConfig | None = None
    data: DataConfig | None = None
    split: Literal["train", "validation", "test"] = "test"
    n: Annotated[int, Field(ge=1)] | None = None
    output: str | None = None
    runtime: Runtime = field(default_factory=Runtime)


@dataclass(frozen=True, kw_only=True)
class Target:
    """A model, what is recorded about it, the folder of its results, and its images (None if none were loaded)."""

    model: nn.Module
    provenance: Provenance
    folder: Path
    images: Dataset | None

    @property
    def data(self) -> Dataset:
        """The images, of a target that was loaded with them."""
        assert self.images is not None
        return self.images


def complete(run: str | Path | None, values: Mapping[str, Any]) -> dict[str, Any]:
    """The settings as typed, with the data settings stored in the run folder where `data` names no other data."""
    values = dict(values)
    stored: dict[str, Any] = {}
    if run is not None and run_folder(run).is_dir():
        check_links(run_folder(run))
    if run is not None and (run_folder(run) / "config.yaml").exists():
        stored = _stored_data(run_folder(run))
    remember_paths(values)
    if isinstance(values.get("data"), str):
        values["data"] = {"name": values["data"]}
    if not isinstance(values.get("data", {}), Mapping):
        raise UserError(f"'data' names a data set, for example data=folder:PATH, found {values['data']!r}")
    if _is_same_data(values.get("data", {}), stored):
        values = stored_settings({"data": stored}, values, folder=run_folder(run)) if run and stored else values
    else:  # a data set without splits that the model was not trained on: all of it is test data
        values = merge({"data": {"test": 1.0, **crop_of_run(stored, values["data"])}}, values)
    if values.get("data") and not values["data"].get("name"):  # or the default data set would be measured silently
        raise UserError("'data.name' is missing: name the data set, for example data=folder:PATH")
    return values


def _stored_data(folder: Path) -> dict[str, Any]:
    """The data section of a run's configuration, without the sets that only training reads."""
    section = read_yaml(folder / "config.yaml", alone=True).get("data", {})
    section = {"name": section} if isinstance(section, str) else section
    if not isinstance(section, Mapping):
        raise UserError(f"{folder / 'config.yaml'}: 'data' must be a mapping, found {shorten(repr(section))}")
    return {key: value for key, value in section.items() if key not in ("extra", "synthetic")}


def load_target(run: str | Path | None, config: TargetConfig, *, with_images: bool = True) -> Target:
    """The model and images of a run folder, or of `config.model` and `config.data`."""
    target = _from_run(run_folder(run), config, with_images) if run is not None else _from_model(config, with_images)
    if target.images is None:
        return target
    model, data = class_subset(target.model, target.images)
    return dataclasses.replace(target, model=model, images=data)


def note_missing_images(target: Target, n: int | None, *, quiet: bool = False) -> Target:
    """The target with a flag, and a line on stderr, where there are fewer than the `n` images that were asked for."""
    if n is None or target.images is None or len(target.images) >= n:
        return target
    there = len(target.images)
    message = f"n={n:,}, but the data has {there:,} images: all {there:,} are used"
    if not quiet and int(os.environ.get("RANK", 0)) == 0:
        print(f"note: {message}", file=sys.stderr)
    flags = (*target.provenance.flags, flag("yellow", "fewer_images", message))
    return dataclasses.replace(target, provenance=dataclasses.replace(target.provenance, flags=flags))


def load_run(run: str | Path, *, checkpoint: str = "best", model: nn.Module | None = None) -> Classifier:
    """The trained model of a run folder. `model`: of a run that trained a module of the user's, such a module."""
    if model is None:
        return rebuild(run_folder(run), checkpoint=checkpoint)
    with kept_module(model):
        return rebuild(run_folder(run), checkpoint=checkpoint)


def run_folder(run: str | Path) -> Path:
    """The run folder, also where one of its checkpoint files is named."""
    folder = local_path(run)
    return folder.parent.parent if folder.is_file() and folder.parent.name == "checkpoints" else folder


def results_folder(run: str | Path | None, config: TargetConfig) -> Path:
    """The folder that receives the results: the run folder or that of the model, unless `output` says it."""
    if run is None:
        assert config.model is not None
        return _model_folder(config.model, config.output)
    return local_path(config.output) if config.output else run_folder(run)


def _is_same_data(named: Mapping[str, Any], stored: Mapping[str, Any]) -> bool:
    """Whether the data set named is the one the run was trained on, however its path is written."""

    def place(data: Mapping[str, Any]) -> str:
        kind, colon, path = str(data.get("name", "")).partition(":")
        return f"{kind}:{find_path(path, data.get('root'), kind=kind).resolve()}" if colon and path else kind

    try:
        return "name" not in named or (bool(stored) and place(named) == place(stored))
    except UserError:  # one of the paths does not exist: the loader says which
        return named.get("name") == stored.get("name")


# ---------------------------------------------------------------- a run folder


def _from_run(folder: Path, config: TargetConfig, with_images: bool) -> Target:
    if config.model is not None:
        name, trained = config.model.name, (folder / "checkpoints").is_dir()
        how = f"the run's weights in this model: model={name} model.weights={folder}" if trained else f"omit {folder}"
        raise UserError(f"give a run folder or model=NAME, not both ({how})")
    if not folder.exists() and place_of(str(folder)):
        raise UserError(f"{folder} is not a run folder; to name a model, write model={folder}")
    if folder.is_dir():
        check_links(folder)
    model, file, digest, classes = _read_checkpoint(folder, config.checkpoint)
    data = _load_images(config, model) if with_images else None
    flags = class_names(classes, data.classes) if data is not None else []
    name = model.architecture["name"]
    provenance = Provenance(
        run=folder.name, model=name, checkpoint=file.stem, weights_sha256=digest, flags=tuple(flags)
    )
    return Target(model=model, provenance=provenance, folder=results_folder(folder, config), images=data)


def _read_checkpoint(folder: Path, checkpoint: str) -> tuple[Classifier, Path, str, Any]:
    """The model, its file, the file's digest and class names, all of one version: training may replace the file."""
    for _ in range(_READINGS):
        file = find_weights(folder, checkpoint=checkpoint)
        version = _version(file)
        try:
            model, side_file = rebuild(file), file.with_name(file.name + ".sha256")
            digest = side_file.read_text().split()[0] if side_file.exists() else sha256(file)
            classes = read_metadata(file).get("classes")
        except (UserError, OSError):
            if _version(file) == version:
                raise
        else:
            if _version(file) == version:
                return model, file, digest, classes
    raise UserError(f"{file} was replaced {_READINGS} times while it was read; evaluate a checkpoint that stays")


def _version(file: Path) -> tuple[int, int, int] | None:
    """Changes when a file is replaced by another."""
    try:
        facts = file.stat()
    except OSError:
        return None
    return facts.st_ino, facts.st_size, facts.st_mtime_ns


# ---------------------------------------------------------------- a model by its name


def _from_model(config: TargetConfig, with_images: bool) -> Target:
    named = config.model
    if named is None and not with_images:
        raise UserError("name a run folder or a model: runs/x or model=NAME")
    if named is None or (with_images and config.data is None):
        raise UserError("name a run folder, or a model and data: model=NAME data=NAME")
    data = _images_of(named, config) if with_images else None
    shape: dict[str, Any] = {}
    if data is not None:
        classes = None if named.pretrained else _stored_architecture(named).get("num_classes") or data.num_classes
        height, side = data.image_shape[1:]
        shape = {"num_classes": classes, "image_size": None if height != side and place_of(named.name) else side}
    model = load_model(named, **shape, seed=config.runtime.seed)
    provenance = _provenance(named, model, shape, config)
    return Target(model=model, provenance=provenance, folder=_model_folder(named, config.output), images=data)


def _provenance(named: ModelConfig, model: Classifier, shape: dict[str, Any], config: TargetConfig) -> Provenance:
    """What is recorded about a model: its name, the digest of its weights, and whether they were trained."""
    place = place_of(named.name)
    file = find_weights(named.weights) if named.weights else None
    trained = bool(file) or named.pretrained
    if place and not trained:  # a user's function may load weights by itself: then no seed changes them
        trained = same_weights(model, load_model(named, **shape, seed=config.runtime.seed + 1))
    flags = [] if trained else [UNTRAINED]
    if model.fitted is not None and any(key.endswith(".weight") for key in model.fitted.fresh):
        flags.append(NEW_HEAD)
    return Provenance(
        run=_model_folder(named, config.output).name, model=model.architecture["name"],
        checkpoint=file.stem if file else None,
        weights_sha256=sha256(file) if file else state_sha256(model) if place else None, flags=tuple(flags),
    )  # fmt: skip


def _model_folder(named: ModelConfig, output: str | None) -> Path:
    """Where results of a model that is named directly are kept, unless `output` says it."""
    place = place_of(named.name)
    name = place.folder_name if place else named.name.replace(":", "-").replace("/", "-")
    return local_path(output or f"runs/{name}")


def _stored_architecture(named: ModelConfig) -> dict[str, Any]:
    """What the weights file says about its architecture."""
    return read_metadata(find_weights(named.weights)).get("architecture", {}) if named.weights else {}


def _native_size(named: ModelConfig) -> int | None:
    """The image size a network was made for, so that photographs of any size are cut to fit it.

    Our own small networks take the size of the data, as a user's do; those made for 224 pixels require that size, as
    timm's do.
    """
    if place_of(named.name):
        return _stored_architecture(named).get("image_size")
    if not named.name.startswith("timm:"):
        return _stored_architecture(named).get("image_size") or (224 if usual(named.name)[0] == 224 else None)
    empty = dataclasses.replace(named, pretrained=False, weights=None, adapt=False)
    return load_model(empty, num_classes=2, seed=0).image_size


# ---------------------------------------------------------------- images


def _images_of(named: ModelConfig, config: TargetConfig) -> Dataset:
    """The images; those of many sizes, or wider than high, are cut to the usual size of a model that takes any."""
    assert config.data is not None
    size = config.data.image_size or named.image_size or _native_size(named)
    cropped = dataclasses.replace(config.data, crop=crop_of_model(named, config.data))
    config = _sized(dataclasses.replace(config, data=cropped), size)
    try:
        data = _load_images(config)
    except MixedSizes:
        if place_of(named.name):
            raise
    else:
        if data.image_shape[-1] == data.image_shape[-2] or place_of(named.name):
            return data
    return _load_images(_sized(config, usual(named.name)[0]))


def _sized(config: TargetConfig, size: int | None) -> TargetConfig:
    assert config.data is not None
    return dataclasses.replace(config, data=dataclasses.replace(config.data, image_size=size))


def _load_images(config: TargetConfig, model: Classifier | None = None) -> Dataset:
    if config.data is None:
        raise UserError("this run folder does not say which data it was trained on; give data=NAME")
    data_config = config.data
    if config.n is not None:  # so that no more images are decoded than are used
        data_config = dataclasses.replace(data_config, limit=min(config.n, data_config.limit or config.n))
    try:
        return load_data(data_config, config.split, model_size=model.image_size if model is not None else None)
    except MixedSizes:
        if model is None:
            raise
        size = model.image_size or usual(model.architecture["name"])[0]
        return load_data(dataclasses.replace(data_config, image_size=size), config.split)
