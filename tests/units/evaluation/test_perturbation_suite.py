"""suite=perturbations: flips counted by hand, the right frame to compare with, official files, chunks, and mFR."""

import numpy as np
import pytest
import torch
from torch import nn

import hardtack as ht
from hardtack.attacks.pool.verifier import Verifier
from hardtack.base.errors import UserError
from hardtack.base.runtime import Runtime
from hardtack.commands.cli import main
from hardtack.data.official import mark_regenerated
from hardtack.data.perturbations import PERTURBATIONS, frame_count, sequence
from hardtack.evaluation import Measurement
from hardtack.evaluation.plan import plan_evaluation
from hardtack.evaluation.suites.perturbations import (
    ALEXNET_FLIPS,
    FlipView,
    best,
    flips_and_distance,
    mean_flip_rate,
    official_sequences,
    sequence_results,
)
from hardtack.results import per_image, read_results, read_verdicts, to_json, write_verdicts
from tiny_runs import settings as run_settings
from tiny_runs import write_data


class Bright(nn.Module):
    """Class 1 where the mean is above a half; six more classes that never win, ranked by single pixels."""

    num_classes = 8

    def forward(self, x):
        margin = 20 * (x.mean(dim=(1, 2, 3)) - 0.5)
        return torch.cat([torch.stack([-margin, margin], dim=1), x.flatten(1)[:, :6] - 9], dim=1)


GENERATOR = torch.Generator().manual_seed(0)
X = torch.rand(20, 3, 16, 16, generator=GENERATOR) * torch.linspace(0.6, 1.4, 20)[:, None, None, None]
X = X.clamp(0, 1)
X[10] = 0.502 + 0.2 * (X[10] - X[10].mean())  # so close to a half that noise decides
Y = torch.zeros(20, dtype=torch.long)
FEW = {"suite": "perturbations", "types": ("brightness", "gaussian_noise", "scale"), "quiet": True}


def flips_by_hand(predictions, first):
    """The published loop over one video's predictions."""
    result, before = [], predictions[0]
    for prediction in predictions[1:]:
        result.append(int(before != prediction))
        if not first:
            before = prediction
    return np.mean(result)


def distance_by_hand(logits, first):
    """The published top-5 distance over one video's logits (frames×classes)."""
    ramp = np.minimum(np.arange(logits.shape[1]), 5)
    ranks = [np.argsort(np.argsort(-frame, kind="stable"), kind="stable") for frame in logits]
    result, before = [], np.argsort(ranks[0])
    for rank in ranks[1:]:
        result.append(np.abs(ramp[:5] - ramp[rank[before]][:5]).sum())
        if not first:
            before = np.argsort(rank)
    return np.mean(result)


def test_flips_and_distances_of_every_image():
    found = ht.evaluate(Bright(), (X, Y), **FEW)
    for name in FEW["types"]:
        frames = [Bright()(frame) for frame in sequence(X, torch.arange(20), name)]
        videos = torch.stack(frames, dim=1).numpy()
        first = name == "gaussian_noise"
        flips = [flips_by_hand(video.argmax(1), first) for video in videos]
        distances = [distance_by_hand(video, first) for video in videos]
        assert np.allclose(found.verdicts[f"flips@{name}"], flips, atol=1e-12) and max(flips) > 0
        assert np.allclose(found.verdicts[f"distance@{name}"], distances, atol=1e-12)
        (result,) = [one for one in found.results if one.attack == name]
        assert result.metric == "flip_probability" and result.value == pytest.approx(np.mean(flips))
        assert result.low <= result.value <= result.high and result.interval == "bootstrap 95%"
        assert result.extra["top5_distance"] == pytest.approx(np.mean(distances))
        assert result.attack_settings["against"] == ("first" if first else "previous")
        assert result.attack_settings["frames"] == frame_count(name) and result.extra["source"] == "regenerated"
    mean = found.results[-1]
    assert mean.metric == "mean_flip_probability" and mean.attack == "gaussian_noise, brightness, scale"
    assert mean.value == pytest.approx(np.mean([found.verdicts[f"flips@{name}"].mean() for name in FEW["types"]]))
    assert mean.extra["forwards"] == 20 * (1 + 3 * 31)
    shown = str(found)
    assert "gaussian noise" in shown and "mean flip probability" in shown and "flip probability linf" not in shown


def test_one_change_counts_once_between_neighbours_and_often_against_the_first():
    ranked = best(torch.eye(6)[torch.tensor([0, 0, 1, 1, 1])])[:, None]  # class 0, 0, 1, 1, 1
    assert flips_and_distance(ranked, "rotate")[0].item() == 1 / 4
    assert flips_and_distance(ranked, "shot_noise")[0].item() == 3 / 4
    swapped = flips_and_distance(ranked, "rotate")[1].item()
    assert swapped == 2 / 4  # two classes have changed places, one place each


def test_a_class_that_leaves_the_five_counts_as_sixth():
    logits = torch.tensor([[9.0, 8, 7, 6, 5, 4, 3, 2], [1.0, 8, 7, 6, 5, 4, 3, 2]])
    # class 0 goes from first to last, so 5 places; the four behind it move up by one each
    assert flips_and_distance(best(logits)[:, None], "tilt")[1].item() == 5 + 4
    assert flips_and_distance(best(logits[:, :3])[:, None], "tilt")[1].item() == 2 + 2  # fewer classes than five


def test_chunks_batches_and_resuming_change_nothing(tmp_path):
    whole = ht.evaluate(Bright(), (X, Y), **FEW)
    pieces = ht.evaluate(Bright(), (X, Y), chunk_size=7, batch_size=3, folder=tmp_path, **FEW)
    again = ht.evaluate(Bright(), (X, Y), chunk_size=11, folder=tmp_path, **FEW)
    for other in (pieces, again):
        columns = [name for name in whole.verdicts if "@" in name]
        assert len(columns) == 6
        assert all(np.array_equal(whole.verdicts[name], other.verdicts[name]) for name in columns)
    assert [to_json(result) for result in again.results] == [to_json(result) for result in pieces.results]


def test_a_killed_perturbation_evaluation_is_resumed(tmp_path, monkeypatch):
    whole = ht.evaluate(Bright(), (X, Y), **FEW)
    looked, look = [], FlipView.columns

    def dies(self, verifier, x, y, index):
        looked.append(index.tolist())
        if len(looked) == 5:  # in the second chunk
            raise KeyboardInterrupt
        return look(self, verifier, x, y, index)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(FlipView, "columns", dies)
        ht.evaluate(Bright(), (X, Y), chunk_size=8, folder=tmp_path, **FEW)
    first, looked[:] = looked[0], []
    monkeypatch.setattr(FlipView, "columns", dies)
    looked += [[-1]] * 5  # dies no more
    found = ht.evaluate(Bright(), (X, Y), chunk_size=8, folder=tmp_path, **FEW)
    assert first == list(range(8)) and min(row for rows in looked[5:] for row in rows) == 8
    assert all(np.array_equal(whole.verdicts[name], found.verdicts[name]) for name in whole.verdicts if "@" in name)


def test_types_by_default_and_by_group():
    found = ht.evaluate(Bright(), (X[:2], Y[:2]), suite="perturbations", quiet=True)
    assert [one.attack for one in found.results if one.metric == "flip_probability"] == list(PERTURBATIONS["cifar"])
    assert found.results[-1].metric == "mean_flip_probability" and found.results[-1].attack == "10 types"
    noise = ht.evaluate(Bright(), (X[:2], Y[:2]), suite="perturbations", types="noise", quiet=True)
    assert noise.results[-1].attack == "gaussian_noise, shot_noise"


# ---------------------------------------------------------------- mFR


def test_mfr_is_in_units_of_alexnet():
    assert mean_flip_rate(ALEXNET_FLIPS) == pytest.approx(1.0)
    assert mean_flip_rate({name: value / 2 for name, value in ALEXNET_FLIPS.items()}) == pytest.approx(0.5)
    resnet = (0.1404, 0.1738, 0.0597, 0.0430, 0.0752, 0.0303, 0.0486, 0.0679, 0.0401, 0.1132)
    assert mean_flip_rate(dict(zip(ALEXNET_FLIPS, resnet, strict=True))) == pytest.approx(0.580, abs=5e-4)


COMMON = {"suite": "perturbations", "data": "made", "evaluation": "perturbations-1", "extra": {}}


def scored(flips, constants="imagenet"):
    """Results of two images whose mean flip probability of each type is given."""
    views = [FlipView(name=name, constants=constants, seed=0) for name in flips]
    columns = {f"flips@{name}": np.array([0.0, 2 * value]) for name, value in flips.items()}
    columns |= {f"distance@{name}": np.ones(2) for name in flips}
    flags = [{"level": "red", "code": "x", "message": ""}]
    measurement = Measurement(columns=columns, threat_stages=[], views=views, classes=(), flags=flags, common=COMMON)
    return sequence_results(measurement), columns


def test_a_model_that_flips_as_alexnet_has_an_mfr_of_one_and_a_flag():
    results, columns = scored(ALEXNET_FLIPS)
    rate = results[-1]
    assert rate.metric == "mean_flip_rate" and rate.value == pytest.approx(1.0)
    assert [flag["code"] for flag in rate.flags] == ["x", "unconfirmed_constants"]
    assert {flag["code"] for result in results[:-1] for flag in result.flags} == {"x"}
    for result in results[:-1]:  # what `hardtack verify` recounts
        assert per_image(result, columns).mean() == pytest.approx(result.value)


def test_mfr_needs_imagenets_constants_and_all_ten():
    some = dict.fromkeys(list(ALEXNET_FLIPS)[:9], 0.1)
    assert scored(some)[0][-1].metric == "mean_flip_probability"
    cifar = dict.fromkeys(PERTURBATIONS["cifar"], 0.1)
    assert scored(cifar, "cifar")[0][-1].metric == "mean_flip_probability"


# ---------------------------------------------------------------- official files


@pytest.fixture
def files(tmp_path):
    """CIFAR-10-P's layout: six videos of five frames, brighter or darker from frame to frame."""
    folder = tmp_path / "CIFAR-10-P"
    folder.mkdir()
    generator = np.random.default_rng(0)
    for name in ("brightness", "shot_noise"):
        colours = generator.integers(100, 156, (6, 5, 1, 1, 3), dtype=np.uint8)
        np.save(folder / f"{name}.npy", colours.repeat(32, axis=2).repeat(32, axis=3))
    return folder


X_32, Y_6 = torch.zeros(6, 3, 32, 32), torch.tensor([0, 1, 2, 3, 4, 5])


def test_official_files(files, tmp_path):
    settings = {"suite": "perturbations", "files": str(files), "types": ("brightness", "shot_noise"), "quiet": True}
    found = ht.evaluate(Bright(), (X_32, Y_6), **settings)
    for name in ("brightness", "shot_noise"):
        predicted = np.load(files / f"{name}.npy").mean(axis=(2, 3, 4)) > 127.5
        flips = [flips_by_hand(video, name == "shot_noise") for video in predicted]
        assert np.allclose(found.verdicts[f"flips@{name}"], flips) and 0 < np.mean(flips) < 1
    single = [one for one in found.results if one.metric == "flip_probability"]
    assert {one.extra["source"] for one in single} == {"official"}
    assert single[0].attack_settings == {
        "type": "shot_noise", "frames": 5, "against": "first", "constants": "cifar", "files": "cifar10p",
    }  # fmt: skip
    pieces = ht.evaluate(Bright(), (X_32, Y_6), chunk_size=4, batch_size=7, folder=tmp_path / "run", **settings)
    assert np.array_equal(pieces.verdicts["flips@brightness"], found.verdicts["flips@brightness"])
    mark_regenerated(files)
    again = ht.evaluate(Bright(), (X_32, Y_6), **settings)
    assert again.results[-1].extra["source"] == "regenerated"


def test_videos_are_found_by_the_images_numbers(files):
    (view,) = official_sequences(str(files), ("brightness",))
    verifier = Verifier(Bright(), Runtime(device="cpu"), batch_size=8)
    rows = torch.tensor([4, 0, 1, 5])
    whole = view.columns(verifier, X_32, Y_6, torch.arange(6))
    some = view.columns(verifier, X_32[:4], Y_6[rows], rows)
    assert all(torch.equal(some[name], whole[name][rows]) for name in whole)


def test_mistakes_about_files(files):
    given = {"suite": "perturbations", "files": str(files), "quiet": True}
    with pytest.raises(UserError, match=r"lacks gaussian_noise.*types=\[shot_noise,brightness\]"):
        ht.evaluate(Bright(), (X_32, Y_6), **given)
    with pytest.raises(UserError, match="6 videos, the data has an image numbered 7"):
        ht.evaluate(Bright(), (X_32[:1].expand(8, -1, -1, -1), Y[:8]), types="brightness", **given)
    with pytest.raises(UserError, match="frames of 32×32, the data images of 16×16"):
        ht.evaluate(Bright(), (X[:6], Y[:6]), types="brightness", **given)
    np.save(files / "labels.npy", np.array([0, 1, 2, 3, 4, 9]))
    with pytest.raises(UserError, match="video 5 has another label"):
        ht.evaluate(Bright(), (X_32, Y_6), types="brightness", **given)


@pytest.mark.parametrize(
    "settings, words",
    [
        ({"types": ("tillt",)}, "no perturbation 'tillt'.*did you mean 'tilt'"),
        ({"types": ("fog",)}, "no perturbation 'fog'"),
        ({"severities": (1,)}, "'severities' is a setting of suite=corruptions"),
    ],
)
def test_mistakes(settings, words):
    with pytest.raises(UserError, match=words):
        ht.evaluate(Bright(), (X, Y), suite="perturbations", quiet=True, **settings)


def test_the_plan_counts_every_frame():
    planned = plan_evaluation(Bright(), (X, Y), suite="perturbations", types=("translate", "rotate"))
    assert planned.most.forwards == 20 * (1 + 16 + 31) and "47 views of every image" in str(planned)


def test_the_command_and_its_verification_after_tampering(tmp_path, capsys):
    data = write_data(tmp_path / "data.npz", test=12)
    run = tmp_path / "run"
    words = run_settings(run, data, objective={"name": "standard"}, output=str(run))
    words["train"] |= {"epochs": 1, "ema": 0.0}
    ht.train(None, quiet=True, **words)
    assert main(["evaluate", str(run), "suite=perturbations", "types=[tilt,shot_noise]"]) == 0
    assert "tilt" in capsys.readouterr().out
    assert main(["verify", str(run)]) == 0
    assert [one.metric for one in read_results(run)][1:] == [*["flip_probability"] * 2, "mean_flip_probability"]
    (file,) = (run / "verdicts").glob("*.parquet")
    columns = read_verdicts(file)
    columns["flips@tilt"] = columns["flips@tilt"] + 0.25
    write_verdicts(file, columns)
    capsys.readouterr()
    assert main(["verify", str(run)]) == 1
    told = capsys.readouterr().out
    assert "flip_probability tilt: value: stored" in told
    assert "mean_flip_probability shot_noise, tilt: value: stored" in told
