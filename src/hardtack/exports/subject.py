"""What is exported: the model of a run folder, a named model or one given in Python, with what is known of it."""

from __future__ import annotations

import dataclasses
import functools
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field
from torch import Tensor, nn

from hardtack.base.errors import UserError
from hardtack.data import Dataset
from hardtack.data.given import take
from hardtack.evaluation.class_subset import ClassSubset
from hardtack.evaluation.provenance import Provenance
from hardtack.evaluation.target import Target, TargetConfig, load_target
from hardtack.exports.comparison import ImageSet
from hardtack.exports.images import adversarial_images, clean_images, random_images
from hardtack.models import Classifier, find_weights, read_metadata
from hardtack.models.facts import usual
from hardtack.models.from_file import working_size
from hardtack.models.given import takes_one_channel

OLDEST_OPSET = 18  # that torch writes


@dataclass(frozen=True, kw_only=True)
class ModelExport(TargetConfig):
    """The settings of a model's export: a target, and

    format      a model as onnx, torch (torch.export) or hub (a folder in Hugging Face's layout); numbers as csv, latex
                or robustbench
    output      the file (of hub: the folder) to write; null: NAME.onnx, NAME.pt2 or NAME-hub, and of numbers the text
                is printed
    n           of a model: the number of clean images on which the file is compared with the model
    opset       of onnx: the version of the operators
    overwrite   of a model: replace a file or folder of an earlier export
    """

    format: Literal["onnx", "torch", "hub", "csv", "latex", "robustbench"] = "csv"
    n: Annotated[int, Field(ge=1)] | None = 128
    opset: int = OLDEST_OPSET
    overwrite: bool = False


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A model to export (on the CPU, in eval mode), `name` for files, and the images of the check."""

    model: nn.Module
    name: str
    shape: tuple[int, int, int]
    provenance: Provenance
    sets: list[ImageSet]
    folder: Path | None = None
    classes: list[str] = field(default_factory=list)

    @property
    def classifier(self) -> Classifier | None:
        """The model, if it is one of hardtack's: its body and its normalisation are known."""
        return self.model if isinstance(self.model, Classifier) else None


def of_run(run: str | Path | None, config: ModelExport, *, typed: bool) -> Subject:
    """The model that the settings name; `typed`: the user named the data too."""
    target_config = dataclasses.replace(config, output=None)  # which names the file here, not a run folder
    target, data = _load(run, target_config, typed=typed)
    model = target.model.model if isinstance(target.model, ClassSubset) else target.model
    n = config.n or (len(data) if data is not None else 128)
    shape = _shape(model, data)
    sets = [random_images(n, shape) if data is None else clean_images(data, n)]
    stored = adversarial_images(target.folder, target.provenance.weights_sha256, shape)
    return Subject(
        model=model.eval().cpu(), name=target.folder.resolve().name, shape=shape, provenance=target.provenance,
        sets=sets if stored is None else [*sets, stored], folder=target.folder, classes=_classes(run, config, data),
    )  # fmt: skip


def of_module(model: nn.Module, data: Any, config: ModelExport) -> Subject:
    """A model given in Python, from [0,1] pixels to logits."""
    taken = None if data is None else take(data, n=config.n, takes_grey=functools.partial(takes_one_channel, model))
    name = type(model.body if isinstance(model, Classifier) else model).__name__
    if taken is None:
        shape = _shape(model, None)
        sets = [random_images(config.n or 128, shape)]
    elif isinstance(taken, Dataset):
        sets = [clean_images(taken, len(taken))]
    else:
        sets = [ImageSet("images given in Python", taken[0].cpu().float())]
    channels, height, width = sets[0].x.shape[1:]
    provenance = Provenance(model=getattr(model, "architecture", {}).get("name", name))
    classes = list(taken.classes) if isinstance(taken, Dataset) else []
    return Subject(
        model=model, name=name, shape=(channels, height, width), provenance=provenance, sets=sets, classes=classes
    )


def _load(run: str | Path | None, config: ModelExport, *, typed: bool) -> tuple[Target, Dataset | None]:
    """The target, and its images; a run can be exported where the data it was trained on is not."""
    if config.data is None:
        return load_target(run, config, with_images=False), None
    try:
        target = load_target(run, config)
    except UserError as error:
        if typed or run is None:
            raise
        target = load_target(run, config, with_images=False)
        warnings.warn(f"the file is checked on random images, because the data of the run cannot be opened: {error}")
    return target, target.images


def _shape(model: nn.Module, data: Dataset | None) -> tuple[int, int, int]:
    """Channels, height and width of the images that the file will take."""
    if data is not None:
        channels, height, width = data.image_shape
        return channels, height, width
    size = getattr(model, "image_size", None)
    if size is None:
        name = getattr(model, "architecture", {}).get("name", "")
        size = usual(name)[0] if name and ":" not in name.removeprefix("timm:") else working_size(model)
    if size is None:
        raise UserError("the size of the images is not known: give data=NAME (Python: data), or model.image_size=SIDE")
    return 3, int(size), int(size)


def _classes(run: str | Path | None, config: ModelExport, data: Dataset | None) -> list[str]:
    """The names of the classes, from the weights' file, else from the data."""
    file = None
    if run is not None:
        file = find_weights(run, checkpoint=config.checkpoint)
    elif config.model is not None and config.model.weights:
        file = find_weights(config.model.weights)
    stored = read_metadata(file).get("classes") if file is not None else None
    return list(stored or (data.classes if data is not None else ()))


def as_batch(x: Tensor, shape: tuple[int, int, int]) -> Tensor:
    """Two images to trace a model with: with one, the number of images would be taken for a constant."""
    return x[:2].clone() if len(x) >= 2 else x.new_full((2, *shape), 0.5)
