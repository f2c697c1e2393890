"""Certificates by randomised smoothing against closed forms, and weakened variants of them that must be noticed."""

import dataclasses
import json
import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from torch import nn

import hardtack as ht
from hardtack.attacks.pool.verifier import Verifier
from hardtack.base import randomness
from hardtack.base.errors import UserError
from hardtack.base.progress import Meter
from hardtack.base.runtime import Runtime
from hardtack.commands.cli import main
from hardtack.data import load_data
from hardtack.evaluation import measure_views, smoothing
from hardtack.evaluation.smoothing import SmoothedView, largest_radius, vote
from hardtack.results import certificates, read_results, read_verdicts, to_json, write_verdicts
from hardtack.results.agreement import check_results, recount
from hardtack.results.certificates import certificate
from hardtack.results.evidence import write_evidence
from hardtack.results.intervals import clopper_pearson_lower
from hardtack.results.record import comparable
from tiny_runs import CLASSES, Linear, images, write_data

CPU = Runtime(device="cpu")


# ---------------------------------------------------------------- statistics


@pytest.mark.parametrize("k, n", [(1, 10), (5, 10), (10, 10), (60, 100), (99, 100), (180, 200)])
@pytest.mark.parametrize("alpha", [0.001, 0.025, 0.1])
def test_the_lower_bound_is_where_so_many_successes_have_the_probability_alpha(k, n, alpha):
    bound = float(clopper_pearson_lower(np.array([k]), n, alpha)[0])
    p = Fraction(bound)
    tail = sum(math.comb(n, i) * p**i * (1 - p) ** (n - i) for i in range(k, n + 1))
    assert float(tail) == pytest.approx(alpha, rel=1e-9)


def test_bounds_of_published_tables():
    """Two-sided 95 % intervals for 5, 8 and 10 of 10, whose lower ends are one-sided bounds at 2.5 %."""
    low = clopper_pearson_lower(np.array([0, 5, 8, 10]), 10, 0.025)
    assert low.tolist() == pytest.approx([0, 0.1871, 0.4439, 0.6915], abs=5e-5)
    all_of_them = 0.001 ** (1 / 100_000)
    assert clopper_pearson_lower(np.array([100_000]), 100_000, 0.001)[0] == pytest.approx(all_of_them, rel=1e-12)


def test_the_certificate_of_unanimous_copies_is_the_published_one():
    """Cohen et al., figure 3: at n = 100,000 and alpha 0.001 no radius beyond 3.8 sigma is certified."""
    made = certificate(np.array([100_000, 50_000, 49_000]), 100_000, sigma=0.5, alpha=0.001)
    assert made["radius"][0] == pytest.approx(3.81 * 0.5, rel=1e-3)
    assert made["radius"][0] == pytest.approx(largest_radius(sigma=0.5, n=100_000, alpha=0.001), rel=1e-6)
    assert made["abstained"].tolist() == [False, True, True] and made["radius"][1:].tolist() == [0, 0]
    assert largest_radius(sigma=1, n=9, alpha=0.001) == 0 < largest_radius(sigma=1, n=10, alpha=0.001)


def test_predict_abstains_where_the_two_most_frequent_classes_may_be_equally_likely():
    counts = np.array([[6, 4, 0], [9, 1, 90], [50, 41, 9], [0, 10, 0], [0, 11, 0]])
    p_values = [
        min(1, 2 * sum(math.comb(a + b, i) for i in range(b + 1)) / 2 ** (a + b))
        for a, b in ((6, 4), (90, 9), (50, 41), (10, 0), (11, 0))
    ]
    expected = [int(row.argmax()) if p <= 0.001 else -1 for row, p in zip(counts, p_values, strict=True)]
    assert vote(counts, 0.001).tolist() == expected == [-1, 2, -1, -1, 1]
    assert vote(np.array([[20], [5]]), 0.001).tolist() == [0, -1]


# ---------------------------------------------------------------- closed form


class Plane(nn.Module):
    """Two classes with a hyperplane between them: smoothing does not move it, and every radius is known."""

    def __init__(self, size):
        super().__init__()
        slope = torch.randn(size, generator=torch.Generator().manual_seed(5))
        self.head = nn.Linear(size, 2)
        self.head.weight.data, self.head.bias.data = torch.stack([slope, -slope]) / slope.norm() / 2, torch.zeros(2)

    def forward(self, x):
        return self.head(x.flatten(1) - 0.5)


def at_distances(model, distance, shape):
    """Images at these signed distances from the plane, near and at the corners of [0,1]: noise leaves the box."""
    corners = (torch.rand(len(distance), *shape, generator=torch.Generator().manual_seed(6)) < 0.5).float()
    normal = (model.head.weight[0] - model.head.weight[1]).detach()
    x = corners.flatten(1)
    return (x - ((x - 0.5) @ normal - distance)[:, None] * normal).view(-1, *shape)


SHAPE, SIGMA = (3, 4, 4), 0.5
PLANE = Plane(48)
NEAR = torch.linspace(-1.2, 1.2, 24)
POINTS = at_distances(PLANE, NEAR, SHAPE)


def view(**settings):
    return SmoothedView(**{"sigma": SIGMA, "n0": 40, "n": 3000, "alpha": 0.001, "seed": 0, **settings})


def columns(of, x, model=PLANE, index=None, batch_size=1000):
    index = torch.arange(len(x)) if index is None else index
    y = torch.zeros(len(x), dtype=torch.int64)
    return {
        name.removesuffix("@smoothing"): value.numpy()
        for name, value in of.columns(Verifier(model, CPU, batch_size=batch_size), x, y, index).items()
    }


def test_counts_and_radii_of_a_plane():
    exact, found = NEAR.abs().double().numpy(), columns(view(n=20_000, n0=2000), POINTS)
    p = np.array([0.5 * (1 + math.erf(value / SIGMA / math.sqrt(2))) for value in exact])
    assert (np.abs(found["count"] / 20_000 - p) < 4.5 * np.sqrt(p * (1 - p) / 20_000)).all()
    assert (found["prediction"] == (NEAR < 0).numpy()).all() and (found["samples"] == 20_000).all()
    assert (found["radius"] < exact).all() and (found["radius"] > 0.9 * exact - 0.05).all()
    assert not found["abstained"][exact > 0.1].any() and (found["vote"][exact > 0.1] == (NEAR < 0)[exact > 0.1]).all()
    assert (columns(view(n=500), POINTS)["radius"] < found["radius"] + 0.02).all(), "few copies certify less"


@pytest.mark.parametrize("wrong", ["cut off at the box", "half the noise", "no noise for half of the pixels"])
def test_other_noise_is_noticed(monkeypatch, wrong):
    normal, copies = randomness.normal_pairs, SmoothedView._copies

    def cut_off(self, *given):
        for shown in copies(self, *given):
            yield shown._replace(images=shown.images.clamp(0, 1))

    def partly(keys, shape, stream=0):
        noise = normal(keys, shape, stream)
        noise.view(len(keys), -1)[:, 24:] = 0
        return noise

    if wrong == "cut off at the box":
        monkeypatch.setattr(SmoothedView, "_copies", cut_off)
    else:
        half = lambda *given: normal(*given) / 2  # noqa: E731
        monkeypatch.setattr(randomness, "normal_pairs", partly if "pixels" in wrong else half)
    with pytest.raises(AssertionError):
        test_counts_and_radii_of_a_plane()


ON_THE_PLANE = at_distances(PLANE, torch.zeros(1000), SHAPE)


def false_certificates():
    """How often a class is certified on the boundary itself, where neither has more than half of the copies."""
    return 1 - columns(view(alpha=0.1, n=500, n0=500), ON_THE_PLANE)["abstained"].mean()


def test_false_certificates_are_as_frequent_as_alpha_allows():
    assert 0.07 < false_certificates() < 0.125  # 0.1 ± 2.5 standard deviations, and a little less for whole counts


@pytest.mark.parametrize("wrong", ["the same copies select", "a two-sided bound", "a bound that is none", "one noise"])
def test_weakened_certificates_are_noticed(monkeypatch, wrong):
    bound, keys = certificates.clopper_pearson_lower, randomness.make_keys
    if wrong == "the same copies select":
        monkeypatch.setattr(smoothing, "ESTIMATION", smoothing.SELECTION)
    elif wrong == "one noise":
        monkeypatch.setattr(randomness, "make_keys", lambda index, *words: keys(0 * index, *words))
    else:
        other = {"a two-sided bound": lambda k, n, alpha: bound(k, n, alpha / 2), "a bound that is none": _share}
        monkeypatch.setattr(certificates, "clopper_pearson_lower", other[wrong])
    with pytest.raises(AssertionError):
        test_false_certificates_are_as_frequent_as_alpha_allows()


def _share(k, n, alpha):
    return k / n


def test_the_noise_of_an_image_is_its_own():
    """The same counts in any batch, order and company, at any number of copies shown together."""
    few = view(n=400, n0=30)
    whole = columns(few, POINTS)
    order = torch.randperm(24, generator=torch.Generator().manual_seed(0))
    for found in (
        columns(few, POINTS[order], index=order),
        {name: np.concatenate([columns(few, POINTS[i : i + 1], index=torch.tensor([i]))[name] for i in order.tolist()])
         for name in ("count", "radius")},
        columns(few, POINTS[order], index=order, batch_size=33),
    ):  # fmt: skip
        assert (found["count"] == whole["count"][order]).all() and (found["radius"] == whole["radius"][order]).all()
    assert (columns(dataclasses.replace(few, seed=1), POINTS)["count"] != whole["count"]).any()
    again = columns(few, POINTS[:1].expand(9, -1, -1, -1))["count"]
    assert len(set(again.tolist())) > 3, "equal images with other numbers see other noise"


def test_packed_batches_as_on_a_gpu_show_the_same_copies(monkeypatch):
    class OnGpu(torch.Tensor):
        is_cuda = True

    small = view(n=30, n0=8)
    keys = randomness.make_keys(torch.arange(6), 0)
    alone = list(small._copies(POINTS[:6], keys, 8, 16))
    packed = list(small._copies(POINTS[:6].as_subclass(OnGpu), keys, 8, 16))
    assert [len(part.rows) for part in alone] == [8] * 6 and [len(part.rows) for part in packed] == [48]
    for name in ("images", "rows"):
        parts = [torch.cat([getattr(part, name).as_subclass(torch.Tensor) for part in of]) for of in (alone, packed)]
        assert torch.equal(*parts)


# ---------------------------------------------------------------- the suite


SETTINGS = {"sigma": 0.1, "n0": 20, "n": 200, "radii": [0, "1/10", 0.2, 9]}


def evaluate(model=None, folder=None, count=12, **own):
    x = images(count)
    y = Linear(scale=1.0)(x).argmax(dim=1)
    model = model or Linear(scale=1.0)
    return ht.evaluate(
        model, (x, y), suite="smoothing", smoothing={**SETTINGS, **own}, folder=folder, runtime=CPU, quiet=True
    )


def test_numbers_of_the_suite():
    found = evaluate()
    results = {(result.metric, result.threat): result for result in found.results}
    radius, right = (
        found.verdicts["radius@smoothing"],
        found.verdicts["prediction@smoothing"] == found.verdicts["label"],
    )
    assert right.sum() > 9 and (radius > 0).sum() > 8
    for text, value in (("l2:0", 0), ("l2:0.1", 0.1), ("l2:0.2", 0.2), ("l2:9", 9)):
        assert results["certified_accuracy", text].value == (right & (radius > value)).mean()
    assert results["average_certified_radius", None].value == pytest.approx((radius * right).mean())
    voted = found.verdicts["vote@smoothing"] == found.verdicts["label"]
    assert results["smoothed_accuracy", None].value == voted.mean()
    assert [flag["code"] for flag in found.flags] == [
        "radius_out_of_reach"
    ] and "certified at l2:0.2, l2:9: with" in found.flags[0]["message"]
    assert found.robust_accuracy is None and found.curve == []
    assert found.certified[:2] == [
        ("l2:0", results["certified_accuracy", "l2:0"].value),
        ("l2:0.1", results["certified_accuracy", "l2:0.1"].value),
    ]
    assert results["certified_accuracy", "l2:0.1"].extra["forwards"] == 12 * (1 + 220)
    robust = dataclasses.replace(results["certified_accuracy", "l2:0.1"], metric="robust_accuracy")
    assert comparable(robust) != comparable(results["certified_accuracy", "l2:0.1"])


def test_certificates_that_do_not_follow_from_their_counts_disagree(tmp_path):
    evaluate(folder=tmp_path)
    results, (path,) = read_results(tmp_path), (tmp_path / "verdicts").glob("*.parquet")
    columns, record = read_verdicts(path), json.loads((tmp_path / "evidence" / f"{path.stem}.json").read_text())
    assert not check_results(tmp_path, results)[path.stem].wrong
    for name, change in (("radius", 1.01), ("lower_bound", 1.0001), ("samples", 2), ("count", 0.9)):
        forged = dict(columns) | {f"{name}@smoothing": columns[f"{name}@smoothing"] * change}
        lines = []
        for result in results:
            again = recount(result, forged)
            lines.append(dataclasses.replace(result, value=again.value, low=again.low, high=again.high))
        write_verdicts(path, forged)
        (tmp_path / "results.jsonl").write_text("".join(to_json(result) + "\n" for result in lines))
        facts = {key: record[key] for key in ("facts", "common", "flags")}
        write_evidence(tmp_path, lines, forged, **facts)
        wrong = check_results(tmp_path, read_results(tmp_path))[path.stem].wrong
        assert wrong and all("smoothing" in str(entry) for entry in wrong), name


def test_default_radii_are_multiples_of_sigma():
    radii = [result.threat for result in evaluate(radii=None, sigma=0.12).results if result.threat]
    assert radii == ["l2:0", "l2:0.12", "l2:0.24", "l2:0.36"]


class Brittle(nn.Module):
    """Right without noise: the labels are those of the parity of the brightest grey level."""

    def forward(self, x):
        parity = (x.flatten(1).amax(dim=1) * 1000).round() % 2
        return 8 * torch.stack([parity, 1 - parity], dim=1)


def test_flags_of_models_without_noise_and_of_undecided_images():
    x = images(40)
    y = Brittle()(x).argmax(dim=1)
    found = ht.evaluate(Brittle(), (x, y), suite="smoothing", smoothing=SETTINGS, runtime=CPU, quiet=True)
    assert {"many_abstentions"} <= {flag["code"] for flag in found.flags}
    undefended = evaluate(sigma=40.0)
    (message,) = [flag["message"] for flag in undefended.flags if flag["code"] == "not_trained_with_noise"]
    assert "objective=gaussian objective.sigma=40" in message and "100.0% of the images" in message


def test_pieces_do_not_matter_and_a_stopped_evaluation_goes_on(tmp_path, monkeypatch):
    monkeypatch.setitem(measure_views._PASSES, "cpu", 700)  # three images
    shown, notes = [], []
    monkeypatch.setattr(Meter, "note", lambda meter, text, share=0.0: notes.append((text, share)))

    class Counting(Linear):
        def forward(self, x):
            shown.append(len(x))
            if self.training or sum(shown) > limit:
                raise RuntimeError("out of power")
            return super().forward(x)

    limit, model = 10**9, Counting(scale=1.0).eval()
    whole = evaluate(model, tmp_path / "whole")
    needed = sum(shown)
    assert {text for text, _ in notes} == {"smoothing"} and len({share for _, share in notes}) >= 6
    shown.clear()
    limit = needed // 2
    with pytest.raises(RuntimeError, match="out of power"):
        evaluate(model, tmp_path / "stopped")
    shown.clear()
    limit = 10**9
    rest = evaluate(model, tmp_path / "stopped")
    assert sum(shown) < 0.8 * needed
    monkeypatch.setitem(measure_views._PASSES, "cpu", 10**6)
    shown.clear()
    recalled, one_piece = evaluate(model, tmp_path / "whole"), evaluate(model)
    assert sum(shown) < 1.1 * needed, "the finished evaluation is recalled"
    for found in (rest, recalled, one_piece):
        for name, values in whole.verdicts.items():
            assert (found.verdicts[name] == values).all(), name
        assert [(r.metric, r.value, r.low, r.flags) for r in found.results] == [
            (r.metric, r.value, r.low, r.flags) for r in whole.results
        ]


@pytest.mark.gpu
def test_counts_of_half_precision_on_a_gpu_are_those_of_fp32_and_of_the_cpu():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 30 * 30, 10)).eval()
    x = images(48, side=32)
    y = model(x).argmax(dim=1)
    counts = {}
    for name, device, exact in (("half", "cuda", False), ("fp32", "cuda", True), ("cpu", "cpu", True)):
        own = {"sigma": 0.25, "n": 1000, "n0": 50, "exact": exact}
        found = ht.evaluate(
            model, (x, y), suite="smoothing", smoothing=own, runtime=Runtime(device=device), quiet=True
        )  # fmt: skip
        counts[name] = found.verdicts["count@smoothing"]
        assert found.certified[0][1] > 0.5
    assert np.abs(counts["half"] - counts["fp32"]).max() <= 1 and np.abs(counts["cpu"] - counts["fp32"]).max() <= 3
    assert len(set(counts["fp32"].tolist())) > 10


@pytest.mark.parametrize(
    "own, words",
    [
        ({"sigma": 0}, "sigma"),
        ({"sigma": float("inf")}, "finite"),
        ({"alpha": 0.7}, "alpha"),
        ({"n": 0}, "n"),
        ({"radii": []}, "radii"),
        ({"radii": "wide"}, "neither a finite number nor a fraction"),
        ({"radii": ["l2:1"]}, "neither a finite number nor a fraction"),
        ({"radii": [-1]}, "negative"),
        ({"sigmas": 1}, r"did you mean 'smoothing\.sigma'"),
    ],
    ids=str,
)
def test_bad_settings(own, words):
    with pytest.raises(UserError, match=words):
        evaluate(**own)


def test_from_the_command_line_with_verification_comparison_and_report(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_data(tmp_path / "d.npz", test=8)
    (tmp_path / "net.py").write_text(
        "import torch\n\ndef build(num_classes):\n    torch.manual_seed(0)\n"
        f"    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, {CLASSES}))\n"
    )
    words = ["model=net.py:build", "data=npz:d.npz", "data.workers=0", "runtime.device=cpu"]
    own = ["suite=smoothing", "smoothing.n=150", "smoothing.n0=10", "smoothing.sigma=0.2"]
    for name in ("a", "b"):
        assert main(["evaluate", *words, *own, f"runtime.seed={'ab'.index(name)}", f"output=runs/{name}"]) == 0
    out = capsys.readouterr().out
    assert "certified accuracy l2:0.4" in out and "average certified radius" in out
    assert main(["verify", "runs/a", "sample=3"]) == 0, capsys.readouterr().out
    assert main(["compare", "runs/a", "runs/b"]) == 0
    assert "certified accuracy l2:0.2" in capsys.readouterr().out
    assert main(["plan", *words, *own]) == 0
    assert f"{8 * 161:,}" in capsys.readouterr().out
    assert main(["evaluate", *words, "suite=curve", "attack=ddn", "threat=l2:0.5", "output=runs/a"]) == 0
    assert main(["report", "runs", "--output", "page.html"]) == 0
    page = (tmp_path / "page.html").read_text()
    assert "Certified accuracy" in page and "attacked, without noise" in page
    assert main(["evaluate", *words, *own, "threat=l2:1"]) == 2
    assert "'threat' is a setting of suite=" in capsys.readouterr().err
    (first, *_) = read_results("runs/a")
    assert load_data("npz:d.npz", "test").labels.shape[0] == first.n


def test_attacks_by_name_from_the_command_line(tmp_path, monkeypatch, capsys):
    """An upper bound beside the lower one: every attack that people ask for by name, in one list."""
    monkeypatch.chdir(tmp_path)
    write_data(tmp_path / "d.npz", test=8)
    listed = (
        "attacks=[deepfool, ddn, {name: ead, steps: 20, searches: 2}, {name: nes, steps: 5}, {name: spsa, steps: 5}, "
        "{name: boundary, steps: 50}, {name: hopskipjump, steps: 2}]"
    )
    model = ["model=vit_digits", "model.options.depth=1", "model.options.width=16", "model.options.patch_size=4"]
    words = [*model, "data=npz:d.npz", "data.workers=0", "runtime.device=cpu", "suite=attacks", "threat=l2:0.02"]
    assert main(["evaluate", *words, listed, "output=runs/a"]) == 0
    assert "robust accuracy l2:0.02" in capsys.readouterr().out
    (result,) = [result for result in read_results("runs/a") if result.metric == "robust_accuracy"]
    names = ["deepfool", "ddn", "ead", "nes", "spsa", "boundary", "hopskipjump"]
    assert result.attack == "+".join(names)
    assert main(["list", "attacks"]) == 0
    shown = capsys.readouterr().out
    assert all(f"\n{name} " in shown for name in names)
    assert main(["evaluate", *words, "attacks=[deepfol]", "output=runs/a"]) == 2
    assert "did you mean 'deepfool'" in capsys.readouterr().err
