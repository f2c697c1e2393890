"""A name becomes a network: our own by their registered name, timm's as `timm:NAME`, a user's as `mine.py:build`.

Nothing here knows about pixels or normalisation; `build` puts that around what comes out.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import sys
import typing
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from hardtack.base import config
from hardtack.base.errors import UserError, did_you_mean
from hardtack.base.registry import Entry, models
from hardtack.models.classifier import Triple, as_triple, probe
from hardtack.models.from_file import Place, make_own, place_of

TIMM = "timm:"
# Arguments of timm's factory that load files or lead elsewhere: weights come in by one door only.
_NOT_OPTIONS = {"checkpoint_path", "pretrained_cfg", "pretrained_cfg_overlay", "cache_dir"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Published:
    """Weights that timm publishes for one of our own networks; `architecture` says how that network was built."""

    name: str
    state: Mapping[str, Tensor]
    mean: Triple
    std: Triple
    architecture: Mapping[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Body:
    """A network before normalisation, with what is known about it.

    `options` are all knobs that were in force, so that a file written today is rebuilt the same tomorrow.
    `mean` and `std` are those of published weights, None where nothing was loaded. `published` are such weights
    that are still to be fitted to the module: it may be of another size than they were trained at. A user's own
    network says by itself how many classes it has, and has a digest of its code.
    """

    module: nn.Module
    options: dict[str, Any]
    image_size: int | None
    source: str
    mean: Triple | None = None
    std: Triple | None = None
    published: Published | None = None
    num_classes: int | None = None
    code_sha256: str | None = None


def make_body(
    name: str,
    *,
    num_classes: int,
    image_size: int | None = None,
    pretrained: bool = False,
    trained: bool = False,
    options: Mapping[str, Any],
) -> Body:
    """`trained`: weights from a file will be loaded into it."""
    for word, number in {"num_classes": num_classes, "image_size": image_size}.items():
        if number is not None and not isinstance(number, int):
            raise UserError(f"{word} must be a whole number, found {number!r}")
    if num_classes < 2:
        raise UserError(f"num_classes must be at least 2, found {num_classes}")
    if image_size is not None and image_size < 1:
        raise UserError(f"image_size must be at least 1 pixel, found {image_size}")
    for word in {"image_size", "num_classes"} & options.keys():
        raise UserError(f"'{word}' is a separate setting, not an option")
    if name.startswith(TIMM):
        return _timm_body(name.removeprefix(TIMM), num_classes, image_size, pretrained, trained, dict(options))
    if (place := place_of(name)) is not None:
        return _place_body(place, num_classes, image_size, pretrained, dict(options))
    body = _own_body(name, num_classes, image_size, dict(options))
    if not pretrained:
        return body
    published = _published(name)
    return dataclasses.replace(body, mean=published.mean, std=published.std, published=published)


# ---------------------------------------------------------------- the user's


def _place_body(
    place: Place, num_classes: int, image_size: int | None, pretrained: bool, options: dict[str, Any]
) -> Body:
    if pretrained:
        raise UserError(
            f"{place.short} has no published weights: load them in your function, or give model.weights=FILE"
        )
    made = make_own(place, num_classes=num_classes, image_size=image_size, options=options)
    return Body(
        module=made.module, options=options, image_size=made.image_size, source="own", mean=made.mean, std=made.std,
        num_classes=made.num_classes, code_sha256=made.code_sha256,
    )  # fmt: skip


# ---------------------------------------------------------------- our own


def _own_body(name: str, num_classes: int, image_size: int | None, options: dict[str, Any]) -> Body:
    entry = _entry(name)
    takes_size = "image_size" in inspect.signature(entry.make).parameters
    if takes_size and image_size is not None:
        options["image_size"] = image_size
    try:
        settings = _settings(entry, options)
        module = entry.make(num_classes=num_classes, **settings)
        if image_size is not None and not takes_size:
            _require_fit(module, lambda: entry.make(num_classes=num_classes, **settings), image_size)
    except UserError as error:
        raise UserError(f"model '{name}': {error}") from None
    size = settings.pop("image_size", image_size)
    return Body(module=module, options=settings, image_size=size, source="hardtack")


_CHEAP = 256  # pixels: a pass of one image up to this side takes less time than the imports of one without numbers


def _require_fit(module: nn.Module, make: Callable[[], nn.Module], image_size: int) -> None:
    """Whether a network that was not built for a size takes it: one pass says so, without numbers for large images."""
    parameter = next(module.parameters(), None)
    if image_size > _CHEAP and not (parameter is not None and parameter.is_meta):
        with torch.device("meta"):
            module = make()
    try:
        probe(module, image_size)
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"it cannot take {image_size}×{image_size} images ({_reason(error)})") from error


def is_usual(name: str, options: Mapping[str, Any]) -> bool:
    """Whether these are all the settings of a registered network, as its name alone gives them."""
    usual = _settings(_entry(name), {})
    usual.pop("image_size", None)
    return bool(config.plain(usual) == config.plain(dict(options)))


def _published(name: str) -> Published:
    entry = _entry(name)
    if not entry.published:
        raise UserError(f"model '{name}' has no published weights; give a file as weights=, or take a timm: model")
    published = fetch_published(entry.published)
    options = _settings(entry, {})  # defaults too: a knob turned now that nobody turned then is a change
    options.pop("image_size", None)
    if isinstance(options.get("stem"), int):  # XCiT's small patches come from weights of large ones
        options["patch_size"] = options["stem"]
    architecture = {"name": f"timm:{entry.published}", "options": options, **published.architecture}
    return dataclasses.replace(published, architecture=architecture)


def fetch_published(name: str) -> Published:
    """Download what timm publishes under `name`: the only place where our own networks reach for the net."""
    module = _create(name, True)
    published: Any = module.pretrained_cfg
    return Published(
        name=name,
        state=module.state_dict(),
        mean=as_triple("mean", published.get("mean"), default=0.5),
        std=as_triple("std", published.get("std"), default=0.5),
        architecture={"image_size": published["input_size"][-1]},
    )


def _entry(name: str) -> Entry:
    if name not in models:
        import timm

        if timm.is_model(name):
            raise UserError(f"hardtack has no model '{name}', but timm has one: write '{TIMM}{name}'")
        if "/" in name or "\\" in name:
            raise UserError(
                f"there is no model '{name}'; a run folder is given as it is on the command line, and in Python to "
                "hardtack.load_run; a file of weights is given as weights=FILE beside the name of its model"
            )
    return models.get(name)


def _settings(entry: Entry, options: Mapping[str, Any]) -> dict[str, Any]:
    """Every knob of a model: its constructor's defaults, the presets of its name, and what is asked for."""
    knobs = _knobs(entry.make)
    chosen = config.build(knobs, {**entry.presets, **options})
    return {field.name: getattr(chosen, field.name) for field in dataclasses.fields(knobs)}


def _knobs(make: Any) -> type:
    """The keyword parameters of a constructor as a dataclass, so that `config` checks names and types."""
    hints = typing.get_type_hints(make.__init__ if inspect.isclass(make) else make)
    fields = [
        (name, hints.get(name, Any), _field(parameter.default))
        for name, parameter in inspect.signature(make).parameters.items()
        if name != "num_classes" and parameter.kind is not inspect.Parameter.VAR_KEYWORD
    ]
    return dataclasses.make_dataclass("Knobs", fields, frozen=True, kw_only=True)


def _field(default: Any) -> Any:
    if default is inspect.Parameter.empty:
        return dataclasses.field()
    return dataclasses.field(default_factory=lambda: default)  # allows lists and mappings as defaults


# ---------------------------------------------------------------- timm's


def _timm_body(
    name: str, num_classes: int, image_size: int | None, pretrained: bool, trained: bool, options: dict[str, Any]
) -> Body:
    import timm

    if not timm.is_model(name):
        names = timm.list_models(include_tags=False)
        raise UserError(f"timm has no model '{name}'{did_you_mean(name, names)}")
    for word in _NOT_OPTIONS & options.keys():
        raise UserError(f"'{word}' is not an option of timm:{name}; give weights by pretrained= or weights=")
    sizing = {} if image_size is None else {"img_size": image_size}
    try:
        module = _create(name, pretrained, num_classes=num_classes, **sizing, **options)
    except TypeError as error:
        if "'img_size'" not in str(error):
            raise _unknown_option(name, error) from None
        try:  # convolutional networks take any size and no such argument
            module = _create(name, pretrained, num_classes=num_classes, **options)
        except TypeError as second:
            raise _unknown_option(name, second) from None
    published = getattr(module, "pretrained_cfg", {}) or {}
    size = image_size or _fixed_size(module, published, pretrained)
    if size is not None:
        _require_size(module, name, size)
    # a downloaded file holds the published weights, or was trained from them: it wants their statistics
    mean = as_triple("mean", published.get("mean"), default=0.5) if pretrained or trained else None
    std = as_triple("std", published.get("std"), default=0.5) if pretrained or trained else None
    return Body(module=module, options=options, image_size=size, source=f"timm {timm.__version__}", mean=mean, std=std)


def published_classes(name: str, pretrained: bool) -> int | None:
    """How many classes the published weights of a model tell apart; None where none are asked for."""
    theirs = name.removeprefix(TIMM) if name.startswith(TIMM) else models.get(name).published if name in models else ""
    if not pretrained or not theirs:
        return None
    import timm

    published = timm.models.get_pretrained_cfg(theirs)
    return None if published is None else published.num_classes


def published_crop(name: str, pretrained: bool) -> float | None:
    """The share of the shorter side that timm's centre crop keeps for a model: `crop_pct` of its published weights.

    Models `timm:NAME` have one with any weights, as in timm's own scripts; our own only with published weights.
    """
    theirs = name.removeprefix(TIMM) if name.startswith(TIMM) else models.get(name).published if name in models else ""
    if not theirs or not (pretrained or name.startswith(TIMM)):
        return None
    import timm

    published = timm.models.get_pretrained_cfg(theirs)
    return None if published is None else published.crop_pct


def _create(name: str, pretrained: bool, **settings: Any) -> nn.Module:
    import timm

    try:
        return timm.create_model(name, pretrained=pretrained, **settings)
    except TypeError:
        raise
    except Exception as error:
        reason = _reason(error)
        if pretrained:
            raise UserError(
                f"could not load published weights of timm:{name} ({type(error).__name__}: {reason}); "
                f"check the connection, or give a downloaded file as model.weights= (Python: weights=)"
            ) from error
        raise UserError(f"timm:{name} cannot be built with {settings}: {reason}") from error


def _unknown_option(name: str, error: TypeError) -> UserError:
    import timm

    match = re.search(r"(\w+)\.__init__\(\) got an unexpected keyword argument '(\w+)'", str(error))
    if match is None:
        return UserError(f"timm:{name} cannot be built: {error}")
    cls = getattr(sys.modules[timm.models.model_entrypoint(name).__module__], match[1], None)
    knobs = [] if cls is None else list(inspect.signature(cls).parameters)
    hint = did_you_mean(match[2], knobs) or (f"; known: {', '.join(knobs)}" if knobs else "")
    return UserError(f"timm:{name} has no option '{match[2]}'{hint}")


def _fixed_size(module: nn.Module, published: Mapping[str, Any], pretrained: bool) -> int | None:
    """The one size the network was built for; None for networks that take any."""
    size = getattr(getattr(module, "patch_embed", None), "img_size", None)
    if isinstance(size, tuple) and size[0] == size[1]:
        return int(size[0])
    if pretrained or published.get("fixed_input_size"):
        return int(published["input_size"][-1])
    return None


def _require_size(module: nn.Module, name: str, size: int) -> None:
    try:
        probe(module, size)
    except Exception as error:
        raise UserError(
            f"timm:{name} cannot take {size}×{size} images ({_reason(error)}); "
            f"choose another image_size or smaller patches (options: patch_size)"
        ) from error


def _reason(error: Exception) -> str:
    return " ".join(str(error).split())[:200]
