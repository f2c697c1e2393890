"""Small official robustness files in their exact layouts: arrays, class folders of real JPEGs, videos."""

from __future__ import annotations

import tarfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from PIL import Image

SYNSETS = ("n01440764", "n01443537", "n01484850")
"""ImageNet's classes 0, 1 and 2."""


def pixels(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def cifar_c(
    root: Path, types: Iterable[str] = ("fog", "snow"), *, each: int = 10, classes: int = 10, side: int = 32
) -> Path:
    """`each` images in each of five severities; labels 0, 1, … again and again, once per severity."""
    root.mkdir(parents=True, exist_ok=True)
    for seed, name in enumerate(types):
        np.save(root / f"{name}.npy", pixels(5 * each, side, side, 3, seed=seed))
    one = (np.arange(each) * max(1, classes // each)) % classes
    np.save(root / "labels.npy", np.tile(one, 5).astype(np.uint8))
    return root


def tar_of(folder: Path, file: Path, *, mode: str = "w") -> Path:
    with tarfile.open(file, mode) as archive:
        archive.add(folder, arcname=folder.name)
    return file


def class_folders(
    root: Path, names: Iterable[str], *, each: int = 1, side: int | tuple[int, int] = 224, stem: str = "image_"
) -> Path:
    height, width = side if isinstance(side, tuple) else (side, side)
    for place, name in enumerate(names):
        (root / name).mkdir(parents=True)
        for number in range(each):
            # one colour per image survives JPEG and tells the images apart
            image = Image.new("RGB", (width, height), ((37 * place) % 256, (91 * number) % 256, 128))
            image.save(root / name / f"{stem}{number:08d}.JPEG", quality=95)
    return root


def imagenet_c(
    root: Path, types: Iterable[str] = ("fog",), *, names: Iterable[str] = SYNSETS, group: str = "", side: int = 224,
    severities: Iterable[int] = (1, 2, 3, 4, 5), each: int = 1,
) -> Path:  # fmt: skip
    names = tuple(names)
    for kind in types:
        for severity in severities:
            class_folders(root / group / kind / str(severity), names, side=side, each=each, stem="ILSVRC2012_val_")
    return root


def cifar_p(root: Path, types: Iterable[str] = ("brightness", "tilt"), *, videos: int = 4, frames: int = 3) -> Path:
    root.mkdir(parents=True, exist_ok=True)
    for seed, name in enumerate(types):
        np.save(root / f"{name}.npy", pixels(videos, frames, 32, 32, 3, seed=seed))
    return root


def video(file: Path, frames: np.ndarray) -> Path:
    """frames F×H×W×3 as H.264 with full-resolution colour, as ImageNet-P's are; needs `av`."""
    import av

    file.parent.mkdir(parents=True, exist_ok=True)
    with av.open(str(file), "w") as container:
        stream = container.add_stream("libx264", rate=1, options={"crf": "0"})
        stream.height, stream.width, stream.pix_fmt = frames.shape[1], frames.shape[2], "yuv444p"
        for frame in frames:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(frame, format="rgb24")))
        container.mux(stream.encode())
    return file
