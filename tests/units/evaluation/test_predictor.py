"""Predictions of a coarse copy, and fp32 where rounding could change them: always those of fp32, whatever the copy."""

import numpy as np
import pytest
import torch
from torch import nn

import hardtack as ht
from hardtack.attacks.pool import verifier
from hardtack.attacks.pool.verifier import Verifier
from hardtack.base.errors import UserError
from hardtack.base.runtime import Runtime
from hardtack.evaluation import measure_views, predictor
from hardtack.evaluation.predictor import SAFETY, CoarseCopy, make_predictor, ranking, rounding_error
from hardtack.evaluation.views import likeliest
from hardtack.results import read_results

CPU = Runtime(device="cpu")


class Pixels(nn.Module):
    """The logits are the pixels: whatever logits a test wants."""

    def forward(self, x):
        return x.flatten(1)


def images(count, classes=12, seed=0):
    """Logits as images N×3×2×(classes/6)."""
    return torch.randn(count, 3, 2, classes // 6, generator=torch.Generator().manual_seed(seed)) * 3


def half(x):
    return x.flatten(1).bfloat16().float()


def predict(monkeypatch, coarse, x, *, places=1, batch=16, shown=50, sample=128):
    monkeypatch.setattr(
        predictor, "coarse_copies", lambda model, runtime, probe: iter([CoarseCopy("rounded", coarse, 0.1)])
    )
    made = make_predictor(Verifier(Pixels(), CPU, batch_size=batch), x[:sample], places)
    if made is None:
        return None, None, None
    answers = [made.predict(part, places, "view") for part in x.split(shown)]
    made.finish()
    return made, *(torch.cat([getattr(answer, name) for answer in answers]) for name in ("classes", "lead"))


@pytest.mark.parametrize("places", [1, 5])
def test_rounded_logits_give_the_predictions_of_fp32_with_few_exact_passes(monkeypatch, places):
    x = images(3000)
    made, classes, _ = predict(monkeypatch, half, x, places=places)
    assert torch.equal(classes, likeliest(x.flatten(1), places))
    # without fp32 some of them are others: the test can fail
    assert not torch.equal(ranking(half(x), places).classes, classes)
    assert made.counts.images == 3000 and 0 < made.counts.exact < (0.1 if places == 1 else 0.6) * 3000
    assert made.counts.batches == -(-made.counts.exact // 16)  # gathered over the batches, in full ones


def test_equal_logits_are_decided_as_in_fp32(monkeypatch):
    x = images(400)
    flat = x.view(400, -1)
    flat[::3, 7] = flat[::3].amax(dim=1)  # two classes share the largest logit
    flat[::3, 2] = flat[::3, 7]
    _, classes, _ = predict(monkeypatch, half, x)
    assert torch.equal(classes[:, 0], flat.argmax(dim=1)) and (classes[::3, 0] <= 2).all()


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_rows_whose_coarse_logits_are_not_finite_are_computed_in_fp32(monkeypatch, value):
    x = images(600)

    def overflows(part):
        logits = half(part)
        logits[part.flatten(1)[:, 3] > 4, 5] = value
        return logits

    _, classes, lead = predict(monkeypatch, overflows, x)
    assert torch.equal(classes, likeliest(x.flatten(1), 1))
    assert lead[x.flatten(1)[:, 3] > 4].isposinf().all() and not lead.isposinf().all()


def test_logits_that_are_not_finite_in_fp32_are_refused(monkeypatch):
    x = images(400)
    x.view(400, -1)[333, 4] = torch.nan
    with pytest.raises(UserError, match="NaN or infinite logits on images under view"):
        predict(monkeypatch, half, x)


def test_an_error_that_no_sample_shows_widens_the_bound_and_reopens_small_leads(monkeypatch):
    x = images(2000)

    def worse_later(part):
        logits = half(part)
        rows = part.flatten(1)[:, 0] > 4.5  # one image in fifteen, none of the sample
        logits[rows, 1] += 2.0
        return logits

    x[:128, 0, 0, 0].clamp_(max=4.0)
    made, classes, lead = predict(monkeypatch, worse_later, x)
    wrong = classes[:, 0] != x.flatten(1).argmax(dim=1)
    assert wrong.any() and made.rounding >= 2.0 and made.bound >= SAFETY * made.rounding
    assert (lead[wrong] < SAFETY * made.rounding).all()  # which is where `look_again` looks
    later = made.predict(x, 1, "view")
    made.finish()
    assert torch.equal(later.classes, likeliest(x.flatten(1), 1))


def test_errors_behind_large_leads_are_found_by_the_images_that_are_measured_at_intervals(monkeypatch):
    x = images(2000)
    x[:128, 0, 0, 0].clamp_(max=2.0)

    def sure_and_wrong(part):
        logits = half(part)
        logits[part.flatten(1)[:, 0] > 2.5, 1] += 20.0
        return logits

    made, classes, lead = predict(monkeypatch, sure_and_wrong, x)
    wrong = classes[:, 0] != x.flatten(1).argmax(dim=1)
    assert wrong.sum() > 100 and made.rounding > 19 and (lead[wrong] < SAFETY * made.rounding).all()


def test_ragged_batches_are_padded_to_a_few_sizes_as_graphs_need_them(monkeypatch):
    x, sizes = images(700), []

    def coarse(part):
        sizes.append(len(part))
        return half(part)

    monkeypatch.setattr(Runtime, "captures", property(lambda runtime: True))
    for module in (predictor, verifier):
        monkeypatch.setattr(module, "Captured", lambda function: function)
    for shown in (64, 50, 33, 7, 1, 700):
        made, classes, _ = predict(monkeypatch, coarse, x, shown=shown, sample=64)
        assert torch.equal(classes, likeliest(x.flatten(1), 1)) and made.width == 64
    assert set(sizes[4:]) <= {64, 32, 16, 8, 4}


def test_memory_that_does_not_suffice_halves_the_coarse_batch(monkeypatch):
    x = images(300)

    def small_device(part):
        if len(part) > 20:
            raise torch.OutOfMemoryError
        return half(part)

    made, classes, _ = predict(monkeypatch, small_device, x)
    assert made.width == 16 and torch.equal(classes, likeliest(x.flatten(1), 1))


def test_a_copy_that_is_too_coarse_or_not_finite_is_not_used(monkeypatch):
    x = images(300)
    noise = torch.Generator().manual_seed(1)
    assert predict(monkeypatch, lambda part: half(part) + torch.randn(len(part), 12, generator=noise), x)[0] is None
    assert predict(monkeypatch, lambda part: half(part) * torch.nan, x)[0] is None
    x[5] = torch.nan
    assert predict(monkeypatch, half, x)[0] is None


def test_the_next_finer_copy_is_taken(monkeypatch):
    rough, fine = (lambda part: (part.flatten(1) / 4).round() * 4), (lambda part: part.flatten(1).half().float())
    for copies, best in (((rough, half, fine), half), ((rough, fine), fine), ((fine, half), fine)):
        listed = [CoarseCopy("", copy, share) for copy, share in zip(copies, (0.1, 0.1, 0.3), strict=False)]
        monkeypatch.setattr(predictor, "coarse_copies", lambda *_, listed=listed: iter(listed))
        assert make_predictor(Verifier(Pixels(), CPU), images(200), 1).coarse.logits is best


def test_the_error_of_a_lead_is_the_largest_over_all_pairs_of_classes():
    exact = torch.tensor([[1.0, 2.0, 3.0], [0.0, 0.0, 9.0]])
    coarse = exact + torch.tensor([[0.5, 0.0, -0.25], [torch.nan, 0.0, 0.0]])
    assert rounding_error(coarse, exact).tolist() == [0.75, 0.0]
    ranked = ranking(torch.tensor([[1.0, 4.0, 3.5], [2.0, 2.0, -1.0]]), 2)
    assert ranked.lead.tolist() == [0.5, 0.0] and ranked.classes[0].tolist() == [1, 2]


# ---------------------------------------------------------------- whole suites


class Small(nn.Module):
    """A small convolution net with random weights; leads are spread over two orders of magnitude."""

    num_classes = 10

    def __init__(self, seed=0):
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.convolution, self.head = nn.Conv2d(3, 8, 3, stride=2), nn.Linear(8 * 7 * 7, 10)

    def forward(self, x):
        return 8 * self.head(self.convolution(x - 0.5).relu().flatten(1))


X = torch.rand(96, 3, 16, 16, generator=torch.Generator().manual_seed(0)).pow(
    torch.linspace(0.3, 3, 96)[:, None, None, None]
)
Y = Small()(X).argmax(dim=1)
SUITES = {
    "corruptions": {"types": ("fog", "gaussian_noise", "pixelate"), "severities": (1, 4), "confidence": False},
    "perturbations": {"types": ("rotate", "gaussian_noise")},
    "patches": {"patches": {"kinds": ["occlude", "pgd"], "masks": 3, "patch_size": 4}, "confidence": False},
}
SMOOTHING = {"smoothing": {"smoothing": {"sigma": 0.2, "n0": 20, "n": 36}}}  # batches of 20, of 24 and of 12


def rounded(model, digits=8):
    """The model with its logits rounded to so many binary digits, as bf16 does."""

    def coarse(x):
        logits = model(x)
        step = 2.0 ** (logits.abs().clamp_min(1e-9).log2().floor() - digits)
        return (logits / step).round() * step

    return coarse


@pytest.fixture
def on_the_cpu(monkeypatch):
    """Coarse copies as a GPU would have them; the made predictors are listed."""
    made, make = [], predictor.make_predictor

    def listed(*given):
        made.append(make(*given))
        return made[-1]

    def use(coarse):
        monkeypatch.setattr(measure_views, "COARSE_ON", ("cpu",))
        monkeypatch.setattr(measure_views, "make_predictor", listed)
        monkeypatch.setattr(
            predictor, "coarse_copies", lambda model, runtime, probe: iter([CoarseCopy("rounded", coarse(model), 0.1)])
        )
        return made

    return use


def evaluated(suite, folder, model=None, **settings):
    words = {
        **{**SUITES, **SMOOTHING}[suite],
        "batch_size": 24,
        "chunk_size": 48,
        "quiet": True,
        "runtime": CPU,
        **settings,
    }
    return ht.evaluate(model or Small(), (X, Y), suite=suite, folder=folder, **words)


def stored(folder):
    """The bytes of the verdict file, and the results without times."""
    (file,) = folder.glob("verdicts/*.parquet")
    drop = {"seconds", "created", "extra"}
    lines = [{name: value for name, value in vars(line).items() if name not in drop} for line in read_results(folder)]
    return file.read_bytes(), lines, [{**line.extra, "seconds": None} for line in read_results(folder)]


@pytest.mark.parametrize("suite", {**SUITES, **SMOOTHING})
def test_a_suite_stores_the_same_bytes_with_a_coarse_copy(suite, tmp_path, on_the_cpu):
    plain = evaluated(suite, tmp_path / "plain")
    made = on_the_cpu(rounded)
    coarse = evaluated(suite, tmp_path / "coarse")
    assert coarse.id == plain.id and stored(tmp_path / "coarse") == stored(tmp_path / "plain")
    (used,) = made
    assert used.counts.images == 96 * (plain.results[0].extra["forwards"] // 96 - 1 if suite != "patches" else 6)
    assert 0 < used.counts.exact < used.counts.images / 3
    assert not list(tmp_path.glob("coarse/verdicts/.*"))  # the leads are gone


@pytest.mark.parametrize("suite", {**SUITES, **SMOOTHING})
def test_what_was_accepted_before_an_error_was_known_is_looked_at_again(suite, tmp_path, on_the_cpu):
    plain = evaluated(suite, tmp_path / "plain")
    wrong = []

    def worse_later(model):
        fine = rounded(model)

        def coarse(x):
            logits = fine(x)
            if len(x) == (12 if suite == "smoothing" else 48):  # a piece, not the sample: the runner-up gains
                second = logits.topk(2, dim=1).indices[:, 1]
                logits[torch.arange(len(x)), second] += 0.5
            wrong.append(int((logits.argmax(dim=1) != model(x).argmax(dim=1)).sum()))
            return logits

        return coarse

    made = on_the_cpu(worse_later)
    coarse = evaluated(suite, tmp_path / "coarse")
    assert sum(wrong) > 0 and made[0].rounding >= 0.5
    assert coarse.id == plain.id and stored(tmp_path / "coarse")[:2] == stored(tmp_path / "plain")[:2]


def test_an_interrupted_evaluation_looks_again_at_the_pieces_before(tmp_path, on_the_cpu):
    evaluated("corruptions", tmp_path / "plain")
    calls = []

    def stops(model):
        def coarse(x):
            logits = rounded(model)(x)
            if len(x) == 48:  # not the sample
                calls.append(len(x))
                second = logits.topk(2, dim=1).indices[:, 1]
                logits[torch.arange(len(x)), second] += 0.3 if len(calls) < 10 else 0.0
            if len(calls) == 9:  # in the second piece: a piece has six views
                raise KeyboardInterrupt
            return logits

        return coarse

    made = on_the_cpu(stops)
    with pytest.raises(KeyboardInterrupt):
        evaluated("corruptions", tmp_path / "coarse")
    assert list(tmp_path.glob("coarse/verdicts/.*/scratch/00000000-00000048.leads.npz"))
    calls.extend([0] * 100)  # from now on the copy is precise, and nothing that it measures says that it was not
    evaluated("corruptions", tmp_path / "coarse")
    assert len(made) == 2 and made[1].rounding < 0.1
    assert stored(tmp_path / "coarse")[0] == stored(tmp_path / "plain")[0]


def test_damaged_leads_end_in_one_line(tmp_path, on_the_cpu):
    calls = []

    def stops(model):
        def coarse(x):
            calls.append(len(x) == 48)
            if calls[-1] and sum(calls) == 9:
                raise KeyboardInterrupt
            return rounded(model)(x)

        return coarse

    on_the_cpu(stops)
    with pytest.raises(KeyboardInterrupt):
        evaluated("corruptions", tmp_path)
    (leads,) = tmp_path.glob("verdicts/.*/scratch/*.leads.npz")
    leads.write_bytes(b"no leads")
    with pytest.raises(UserError, match=r"leads.npz is damaged; delete .* and repeat"):
        evaluated("corruptions", tmp_path)


class Random(Small):
    def forward(self, x):
        return super().forward(x) + torch.rand(len(x), 10)


class OfTheBatch(Small):
    def forward(self, x):
        return super().forward(x - x.mean(dim=0, keepdim=True))


@pytest.mark.parametrize("model", [Random(), OfTheBatch()])
def test_models_that_are_random_or_depend_on_the_batch_are_measured_in_fp32_alone(model, tmp_path, on_the_cpu):
    made = on_the_cpu(rounded)
    found = evaluated("corruptions", tmp_path, model)
    assert not made and found.flags[0]["level"] == "red"


def test_a_cpu_makes_no_coarse_copy(monkeypatch):
    monkeypatch.setattr(predictor, "coarse_copies", lambda *_: pytest.fail("a coarse copy was made"))
    evaluated("corruptions", None)


def test_probabilities_are_computed_in_fp32_even_beside_a_coarse_copy(tmp_path, on_the_cpu):
    made = on_the_cpu(rounded)
    with_probabilities = evaluated("corruptions", tmp_path / "both", confidence=True)
    assert not made and "certainty@fog/1" in with_probabilities.verdicts
    assert with_probabilities.results[1].extra.keys() >= {"confidence", "calibration_error"}


def test_without_confidence_the_predictions_are_the_same_and_the_probabilities_are_left_out():
    for suite, column, kept in (
        ("corruptions", "confidence@fog/1", "correct@"),
        ("patches", "confidence@pgd", "right@"),
    ):
        whole, few = (evaluated(suite, None, confidence=confidence) for confidence in (True, False))
        assert whole.id != few.id and column in whole.verdicts and column not in few.verdicts
        for name in few.verdicts:
            assert np.array_equal(few.verdicts[name], whole.verdicts[name])
        assert {name for name in whole.verdicts if name.startswith(kept)} <= few.verdicts.keys()
        left_out = {result.metric for result in whole.results} - {result.metric for result in few.results}
        assert left_out == ({"patch_confidence"} if suite == "patches" else set())
        values = {(r.metric, r.attack): r.value for r in whole.results}
        assert all(values[result.metric, result.attack] == result.value for result in few.results)
