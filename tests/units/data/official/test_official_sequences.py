"""CIFAR-P's arrays and ImageNet-P's videos: one video at a time, frames as stored."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import tiny_official as tiny
import torch

from hardtack.base.errors import UserError
from hardtack.data.official import OfficialP, mark_regenerated, open_official
from hardtack.data.official.sequences import read_video


def opened(path: Path, **options: str) -> OfficialP:
    found = open_official(path, **options)  # type: ignore[arg-type]
    assert isinstance(found, OfficialP)
    return found


def test_cifar_p_frames_are_the_stored_ones(tmp_path: Path) -> None:
    folder = tiny.cifar_p(tmp_path / "CIFAR-10-P", ("tilt", "brightness", "gaussian_noise_2", "spatter"))
    files = opened(folder)
    assert (files.kind, files.source) == ("cifar10p", "official")
    assert files.types == ("brightness", "tilt", "spatter", "gaussian_noise_2") and files.count("tilt") == 4
    assert "spatter" not in files.missing and "snow" not in files.missing and "scale" in files.missing
    videos = list(files.videos("tilt", start=1))
    assert [video.index for video in videos] == [1, 2, 3] and {video.label for video in videos} == {-1}
    expected = torch.from_numpy(np.load(folder / "tilt.npy")).permute(0, 1, 4, 2, 3)
    assert torch.equal(torch.stack([video.frames for video in videos]), expected[1:])
    assert videos[0].frames.dtype == torch.uint8 and videos[0].frames.is_contiguous()
    with pytest.raises(UserError, match=r"no type 'tillt' \(did you mean 'tilt'\?\)"):
        files.videos("tillt")


def test_cifar_p_with_labels_and_regenerated(tmp_path: Path) -> None:
    folder = tiny.cifar_p(tmp_path / "CIFAR-100-P")
    np.save(folder / "labels.npy", np.array([5, 6, 7, 99]))
    assert [video.label for video in opened(folder).videos("tilt")] == [5, 6, 7, 99]
    assert opened(folder).kind == "cifar100p"
    mark_regenerated(folder)
    assert opened(folder).source == "regenerated"
    np.save(folder / "labels.npy", np.arange(3))
    with pytest.raises(UserError, match=r"4 videos but labels.npy has 3 labels"):
        open_official(folder)


def test_cifar_p_of_another_shape_is_refused(tmp_path: Path) -> None:
    folder = tiny.cifar_p(tmp_path / "set")
    np.save(folder / "tilt.npy", tiny.pixels(4, 3, 3, 32, 32))
    with pytest.raises(UserError, match=r"shape \(4, 3, 3, 32, 32\); expected uint8, videos×frames×32×32×3"):
        open_official(folder)


def _smooth(frames: int, side: int = 224) -> np.ndarray:
    """Ramps, which survive a video codec, brighter from frame to frame."""
    ramp = np.linspace(20, 180, side)
    image = np.stack([np.tile(ramp, (side, 1)), np.tile(ramp[:, None], (1, side)), np.full((side, side), 90)], -1)
    return np.stack([image + 30 * number for number in range(frames)]).clip(0, 255).astype(np.uint8)


def test_imagenet_p_videos(tmp_path: Path) -> None:
    pytest.importorskip("av", reason="videos need av")
    root, frames = tmp_path / "ImageNet-P", _smooth(3)
    for synset in ("n02110958", "n01440764"):
        for number in range(3):
            tiny.video(root / "weather" / "snow" / synset / f"ILSVRC2012_val_{number}.mp4", frames[: 3 - number % 2])
    files = opened(root)
    assert (files.kind, files.source, files.types) == ("imagenet_p", "official", ("snow",)) and files.count("snow") == 6
    assert "6 of 50,000 videos" in files.description and "1 of 10 types" in files.description
    for workers in (0, 2):
        videos = list(files.videos("snow", workers=workers))
        assert [(video.label, video.index) for video in videos] == [
            (0, 0),
            (0, 1),
            (0, 2),
            (254, 3),
            (254, 4),
            (254, 5),
        ]
        assert [len(video.frames) for video in videos] == [3, 2, 3, 3, 2, 3]
    difference = videos[0].frames.int() - torch.from_numpy(frames).permute(0, 3, 1, 2).int()
    assert videos[0].frames.dtype == torch.uint8 and difference.abs().max() <= 3  # colour conversion both ways
    assert [video.index for video in files.videos("snow", start=2, stop=4)] == [2, 3]
    early = files.videos("snow", workers=2)
    next(early)
    early.close()  # a reader that stops early leaves no work behind


def test_a_video_that_is_broken_short_or_small_is_named(tmp_path: Path) -> None:
    pytest.importorskip("av", reason="videos need av")
    (tmp_path / "bad.mp4").write_bytes(b"nothing")
    with pytest.raises(UserError, match=r"cannot read the video .*bad.mp4"):
        read_video(tmp_path / "bad.mp4", 224)
    with pytest.raises(UserError, match=r"1 frames of 224×224; expected two or more"):
        read_video(tiny.video(tmp_path / "short.mp4", _smooth(1)), 224)
    with pytest.raises(UserError, match=r"2 frames of 64×64; expected two or more of 224×224"):
        read_video(tiny.video(tmp_path / "small.mp4", _smooth(2, 64)), 224)


def test_without_av_the_extra_is_named_and_the_set_still_opens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "av", None)
    for synset in tiny.SYNSETS:
        (tmp_path / "set" / "tilt" / synset).mkdir(parents=True)
        (tmp_path / "set" / "tilt" / synset / "1.mp4").write_bytes(b"")
    files = opened(tmp_path / "set")
    assert files.types == ("tilt",) and files.count("tilt") == 3
    with pytest.raises(UserError, match=r"pip install 'hardtack\[video\]'"):
        files.videos("tilt")
    with pytest.raises(UserError, match="one type; name the folder that holds the types"):
        open_official(tmp_path / "set" / "tilt")
    with pytest.raises(UserError, match=r"TYPE/SYNSET/\*.mp4, as in ImageNet-P"):
        open_official(tmp_path / "set", kind="imagenet_c")
