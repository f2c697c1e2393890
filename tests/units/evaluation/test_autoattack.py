"""AutoAttack, lists of attacks, unions and curves from end to end: numbers, provenance, interruptions, flags."""

import dataclasses
import functools
import itertools

import numpy as np
import pytest
import torch
from torch import nn

import hardtack as ht
from hardtack.attacks import APGD, FAB, Square
from hardtack.attacks import autoattack as ensemble
from hardtack.base.errors import UserError
from hardtack.results import comparable, read_arrays, read_results
from hardtack.threats import Threat
from row_models import Rows, row_pair
from tiny_runs import Linear, images

LIST = (
    {"name": "apgd_ce", "steps": 5},
    {"name": "apgd_t", "steps": 5, "targets": 2},
    {"name": "fab_t", "steps": 4, "targets": 2},
    {"name": "square", "steps": 12},
)


@pytest.fixture
def short(monkeypatch):
    """The same lists with few steps: what is tested is how they are run."""
    for kind, steps in ((APGD, 10), (FAB, 5), (Square, 300)):
        monkeypatch.setattr(ensemble, kind.__name__, functools.partial(kind, steps=steps))


def measure(model, data=None, **settings):
    settings = {"threat": "linf:0.03", "suite": "attacks", **settings}
    if settings["suite"] == "attacks":
        settings = {"attacks": LIST, **settings}
    return ht.evaluate(model, row_pair(model) if data is None else data, quiet=True, **settings)


def codes(measured):
    return {flag["code"]: flag["level"] for flag in measured.flags}


# ---------------------------------------------------------------- what comes out


@pytest.mark.parametrize("tier", ["exact", "verified", "fast"])
@pytest.mark.parametrize("threat", ["linf:0.03", "l2:0.15", "l1:0.6"])
def test_every_verdict_holds_and_says_where_it_comes_from(short, tmp_path, tier, threat):
    model = Rows()
    x, y = row_pair(model)
    y = torch.where(torch.arange(24) < 3, (y + 1) % 5, y)  # three wrong from the start
    measured = measure(model, (x, y), suite="autoattack", tier=tier, threat=threat, folder=tmp_path)
    v = measured.verdicts
    broken = v["clean_correct"] & ~v["robust"]
    assert v["clean_correct"].sum() == 21 and 0 < broken.sum() < 21
    assert [by is not None for by in v["broken_by"]] == broken.tolist()
    stages = {stage.name for stage in ensemble.autoattack(Threat.parse(threat), tier=tier)}
    assert {by.split()[0] for by in v["broken_by"][broken]} <= stages
    assert all(by.split()[1] == threat for by in v["broken_by"][broken])
    kept = stored(tmp_path, measured)
    assert list(kept) == v["index"][broken].tolist()
    x_adv = torch.stack(list(map(torch.from_numpy, kept.values())))
    rows = torch.as_tensor(broken.nonzero()[0])
    assert Threat.parse(threat).contains(x_adv, x[rows]).all()
    predicted = model(x_adv).argmax(dim=1)
    assert (predicted != y[rows]).all() and predicted.tolist() == v["adversarial_prediction"][broken].tolist()
    assert v["size"][broken] == pytest.approx(Threat.parse(threat).size(x_adv - x[rows]).numpy(), rel=1e-5)
    assert (v["broken_at_step"][broken] >= 0).all() and (v["broken_at_step"][~broken] == -1).all()
    aimed = np.array([by is not None and by.startswith(("apgd_t", "fab_t")) for by in v["broken_by"]])
    assert (v["target"][aimed] >= 0).all() and (v["target"][aimed] != y.numpy()[aimed]).all()
    assert not (v["forwards"][~v["clean_correct"]]).any()
    assert v["forwards"][v["robust"]].min() > v["forwards"][broken].min() > 0
    assert measured.results[-1].extra["forwards"] == v["forwards"].sum()
    assert sum(measured.results[-1].extra["broken_by"].values()) == broken.sum()


def stored(folder, measured):
    """Index → the image that decided, from all chunks."""
    found = {}
    for path in sorted((folder / "adversarial" / measured.id).glob("*.npz")):
        arrays = read_arrays(path)
        found |= dict(zip(arrays["index"].tolist(), arrays["x_adv"], strict=True))
    return dict(sorted(found.items()))


def test_passes_are_those_of_the_official_lists():
    """What a surviving image costs, without the checks and confirmations: a number derived from the constants."""
    model = Rows(classes=12, rough=0.05)
    data = row_pair(model, 2)
    measured = measure(model, data, suite="autoattack", tier="exact", threat="linf:0.0005")
    assert measured.robust_accuracy == 1, "chosen to survive"
    assert measured.verdicts["forwards"].tolist() == [101 + 9 * 101 + 9 * 200 + 5001] * 2
    assert measured.verdicts["backwards"].tolist() == [101 + 9 * 101 + 9 * 100] * 2


def test_an_image_that_is_broken_at_once_costs_few_passes():
    model = Rows(rough=3)
    measured = measure(model, suite="autoattack", tier="exact", threat="linf:0.2", batch_size=3)
    assert measured.robust_accuracy == 0 and measured.verdicts["forwards"].max() <= 20
    assert set(measured.verdicts["broken_by"]) == {"apgd_ce linf:0.2"}


def test_a_union_is_the_worst_of_its_threats():
    model = Rows()
    threats = ["linf:0.01", "l2:0.08", "l1:0.4"]
    union = measure(model, threat=threats[0], union=threats[1:])
    alone = [measure(model, threat=threat) for threat in threats]
    for threat, one in zip(threats, alone, strict=True):
        assert (union.verdicts[f"robust@{threat}"] == one.robust).all()
    together = np.logical_and.reduce([one.robust for one in alone])
    assert (union.robust == together).all() and 0 < together.sum() < max(one.robust.sum() for one in alone)
    _, *each, worst = union.results
    assert [(r.metric, r.threat) for r in each] == [("robust_accuracy", threat) for threat in threats]
    assert [r.value for r in each] == [one.robust_accuracy for one in alone]
    assert worst.metric == "worst_case_accuracy" and worst.value == together.mean() == union.robust_accuracy
    assert worst.threat == "+".join(threats)
    first = [next((t for t, one in zip(threats, alone, strict=True) if not one.robust[i]), None) for i in range(24)]
    assert [by and by.split()[1] for by in union.verdicts["broken_by"]] == first and len(set(first)) == 4
    assert (union.verdicts["forwards"] == sum(one.verdicts["forwards"] for one in alone)).all()


def test_a_threat_named_twice_is_one():
    twice = measure(Rows(), union=["linf:0.03"])
    assert [r.metric for r in twice.results] == ["clean_accuracy", "robust_accuracy"]


def test_a_list_of_attacks_breaks_the_union_of_their_images():
    model = Rows()
    alone = [measure(model, attacks=(one,)).robust for one in LIST]
    assert (measure(model).robust == np.logical_and.reduce(alone)).all()
    both = measure(model, attacks=("pgd", APGD(threat="linf:0.03", steps=5)))
    assert both.results[-1].attack == "pgd+apgd_ce"


@pytest.mark.parametrize("suite", ["attacks", "curve"])
def test_an_attack_with_another_threat_is_refused(suite):
    """Its images lie in its own ball; under the name of the smaller one they would be false verdicts."""
    wide = APGD(threat="linf:0.3") if suite == "attacks" else ht.attacks.MinimumNorm(threat="l2:3")
    given = {"attacks": (wide,)} if suite == "attacks" else {"attack": wide}
    with pytest.raises(UserError, match=r"is made for .* about linf:0\.0"):
        measure(Rows(), suite=suite, threat="linf:0.01", **given)


def test_attacks_of_the_user_are_verified_too():
    @dataclasses.dataclass(frozen=True)
    class Lying:
        threat: Threat = Threat("linf", "0.03")  # noqa: RUF009

        def __call__(self, model, x, y):
            return 1 - x

    measured = measure(Rows(), attacks=(Lying(),))
    assert measured.robust_accuracy == 1


# ---------------------------------------------------------------- curves


def linear_pair(count=40):
    model = ht.wrap(Linear(classes=2, scale=0.05), num_classes=2)
    x = images(count, seed=4)
    return model, (x, model(x).argmax(dim=1))


@pytest.mark.parametrize(
    "attack, threat, flagged",
    [("fmn", "l1:0.4", False), ("deepfool", "linf:0.01", False), ("hopskipjump", "linf:0.01", False),
     ("ead", "l1:0.4", False), ("fab", "l2:0.1", False), ("ddn", "linf:0.01", True), ("pgd", "l2:0.1", True)],
)  # fmt: skip
def test_a_curve_of_an_attack_that_does_not_search_for_the_smallest_perturbation_is_flagged(attack, threat, flagged):
    model, data = linear_pair(8)
    steps = {} if attack == "fab" else {"steps": 3}
    curve = measure(model, data, suite="curve", threat=threat, attack={"name": attack, **steps})
    assert ("no_minimum_norm" in codes(curve)) == flagged


@pytest.mark.parametrize("norm, eps", [("linf", 0.01), ("l2", 0.12), ("l1", 0.4)])
def test_a_curve_agrees_with_single_radii(norm, eps):
    model, data = linear_pair()
    curve = measure(model, data, suite="curve", threat=f"{norm}:{eps}", sweep=["0", "1/2", "1", "2"])
    assert [threat for threat, _ in curve.curve] == [str(Threat(norm, str(eps)).scaled(f)) for f in (0, 0.5, 1, 2)]
    values = [value for _, value in curve.curve]
    assert values == sorted(values, reverse=True) and values[0] == 1 and 0 < values[2] < 1
    for threat, value in curve.curve[1:]:
        single = measure(model, data, attacks=({"name": "apgd", "steps": 100},), threat=threat).robust_accuracy
        assert abs(value - single) < 1.5 / 40, "at most one image sits on the very edge"
    assert curve.verdicts["forwards"].max() <= 110, "one search"
    names = [name for name in curve.verdicts if name.startswith("robust@")]
    for small, large in itertools.pairwise(names):
        assert not (curve.verdicts[large] & ~curve.verdicts[small]).any()


# ---------------------------------------------------------------- stopped and taken up


class Mortal(Rows):
    """Fails at its `limit`-th call."""

    def __init__(self, limit=None):
        super().__init__()
        self.calls, self.limit = 0, limit

    def forward(self, x):
        self.calls += 1
        if self.limit is not None and self.calls > self.limit:
            raise RuntimeError("out of power")
        return super().forward(x)


@pytest.fixture
def notes_at_every_look(monkeypatch):
    monkeypatch.setattr("hardtack.evaluation.measure.NOTE_EVERY_S", -1.0)
    ticks = itertools.count()

    class Clock:
        monotonic = staticmethod(lambda: float(next(ticks)))

    monkeypatch.setattr("hardtack.attacks.pool.pool.time", Clock)


def same(found, folder, expected, reference):
    assert found.id == expected.id and found.results[-1].value == expected.results[-1].value
    for name, column in expected.verdicts.items():
        if name not in ("zero_gradient", "flat_loss", "not_finite"):  # of fallen images, what late tries showed
            assert np.array_equal(found.verdicts[name], column, equal_nan=column.dtype.kind == "f"), name
    ours, theirs = stored(folder, found), stored(reference, expected)
    assert list(ours) == list(theirs) and all(np.array_equal(ours[index], theirs[index]) for index in theirs)
    for name in expected.examples:
        assert np.array_equal(found.examples[name], expected.examples[name], equal_nan=name == "size"), name


JOBS = {
    "list": ({"union": ["l2:0.1"]}, {}),
    "list, other slots": ({"union": ["l2:0.1"]}, {"batch_size": 5}),
    "list, other chunks": ({"union": ["l2:0.1"]}, {"chunk_size": 5}),
    "fast": ({"suite": "autoattack", "tier": "fast"}, {}),
    "fast, other slots": ({"suite": "autoattack", "tier": "fast"}, {"batch_size": 64}),
    "curve": ({"suite": "curve"}, {}),
}


@pytest.mark.parametrize("job, change", JOBS.values(), ids=JOBS)
def test_a_killed_evaluation_ends_with_the_same_verdicts(tmp_path, notes_at_every_look, short, job, change):
    settings, data = {"batch_size": 7, "examples": 12, **job}, row_pair(Rows(), 12)
    whole = Mortal()
    expected = measure(whole, data, folder=tmp_path / "whole", **settings)
    assert 0 < expected.robust_accuracy < 1
    moments = np.linspace(14, whole.calls - 1, 4).astype(int).tolist()
    for number, limit in enumerate(moments[1::2] if change else moments):
        folder, last = tmp_path / str(number), Mortal()
        with pytest.raises(RuntimeError, match="out of power"):
            measure(Mortal(limit), data, folder=folder, **settings)
        assert not read_results(folder)
        same(measure(last, data, folder=folder, **{**settings, **change}), folder, expected, tmp_path / "whole")
    if not change and "suite" not in job:
        assert last.calls < whole.calls / 2, "what was noted down was made again"


def test_an_evaluation_that_is_killed_repeatedly_ends_with_the_same_verdicts(tmp_path, notes_at_every_look, short):
    """Every attempt gets a little further; what one noted of an earlier stage must not be taken for the next."""
    settings, data = {"batch_size": 7, "examples": 12, "union": ["l2:0.1"], "audit": 0}, row_pair(Rows(), 12)
    expected = measure(Mortal(), data, folder=tmp_path / "whole", **settings)
    for attempt in range(60):
        try:
            found = measure(Mortal(17 + attempt), data, folder=tmp_path / "again", **settings)
            break
        except RuntimeError:
            continue
    assert attempt >= 3
    same(found, tmp_path / "again", expected, tmp_path / "whole")


@pytest.mark.parametrize("size", [5, 24])
def test_chunk_size_does_not_change_the_verdicts(tmp_path, size):
    model = Rows()
    expected = measure(model, folder=tmp_path / "a", examples=24, union=["l2:0.1"])
    found = measure(model, folder=tmp_path / "b", examples=24, union=["l2:0.1"], chunk_size=size, batch_size=7)
    same(found, tmp_path / "b", expected, tmp_path / "a")


# ---------------------------------------------------------------- flags


class Seen(nn.Module):
    """The rows through another pair of eyes."""

    def __init__(self, before=None, after=None, **options):
        super().__init__()
        self.rows, self.before, self.after = Rows(**options), before, after

    def forward(self, x):
        logits = self.rows(x if self.before is None else self.before(x))
        return logits if self.after is None else self.after(logits)


def quantised(levels=8):
    return Seen(lambda x: (x * levels).round() / levels)


@pytest.mark.parametrize("tier", ["exact", "fast"])
def test_quantised_inputs_mask_gradients_and_square_breaks_them(short, tier):
    measured = measure(quantised(), suite="autoattack", tier=tier, threat="linf:0.1")
    assert codes(measured)["zero_gradient"] == codes(measured)["masked_gradients"] == "red"
    by = [name.split()[0] for name in measured.verdicts["broken_by"] if name]
    assert by.count("square") > 3 and measured.robust_accuracy < 0.9


def test_a_detached_input_is_flagged(short):
    found = codes(measure(Seen(lambda x: x.detach()), suite="autoattack", tier="exact", threat="linf:0.05"))
    assert found["zero_gradient"] == "red" and found["masked_gradients"] == "red"


def test_square_alone_is_no_sign_of_masking():
    model = Rows()
    for union in ([], ["l2:0.3"]):
        square = {"name": "square", "steps": 40}
        assert "masked_gradients" not in codes(measure(model, attacks=(square,), union=union, threat="linf:0.1"))
    assert "masked_gradients" not in codes(measure(model, suite="autoattack", tier="fast"))


def test_saturated_outputs_stop_cross_entropy_and_not_the_margin(short):
    model = Seen(after=lambda z: z * 1e4)
    measured = measure(model, suite="autoattack", tier="exact")
    assert codes(measured)["zero_gradient"] == "red"
    assert measured.verdicts["zero_gradient"].mean() > 0.5
    honest = measure(Rows(), suite="autoattack", tier="exact")
    assert measured.robust_accuracy <= honest.robust_accuracy + 1 / 24, "the ratio of logits is blind to their scale"


class Noisy(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.rows, self.scale = Rows(), scale

    def forward(self, x):
        logits = self.rows(x)
        return logits + self.scale * torch.randn_like(logits)


def test_random_outputs_are_flagged_unless_they_are_averaged(short, monkeypatch):
    monkeypatch.setattr(ensemble, "EOT", 4)
    data = row_pair(Rows(), 12)
    torch.manual_seed(0)
    one = measure(Noisy(2.0), data, suite="autoattack", tier="fast", threat="linf:0.001")
    assert codes(one)["random_outputs"] == "red"
    rand = measure(Noisy(2.0), data, suite="autoattack", tier="exact", version="rand", threat="linf:0.001")
    assert "random_outputs" not in codes(rand)
    assert rand.clean_accuracy > one.clean_accuracy, "twenty draws vote"
    assert rand.results[-1].attack == "autoattack rand tier=exact"


@pytest.mark.parametrize("tier", ["fast", "max"])
def test_versions_that_a_tier_does_not_have_are_refused(tier):
    with pytest.raises(UserError, match="rand"):
        measure(Rows(), suite="autoattack", tier=tier, version="rand")


def test_logits_that_depend_on_the_batch_are_flagged():
    model = Seen(lambda x: x - x.mean(dim=0, keepdim=True))
    assert codes(measure(model, row_pair(Rows())))["batch_dependent"] == "red"


def test_nan_during_the_attack_is_flagged_and_is_no_success(short):
    """Right on the eight-bit grid, NaN beside it."""

    def off(x):
        away = (x * 255 - (x * 255).round()).abs().amax(dim=(1, 2, 3), keepdim=True) > 1e-3
        return x.masked_fill(away, torch.nan)

    x, y = row_pair(Rows())
    x = (x * 255).round() / 255
    y = Rows()(x).argmax(dim=1)
    for tier in ("exact", "fast"):
        measured = measure(Seen(off), (x, y), suite="autoattack", tier=tier, threat="linf:0.031")
        assert codes(measured)["not_finite"] == "red"
        wrong = measured.verdicts["clean_correct"] & ~measured.robust
        assert not wrong.any() or all(by.startswith("square") for by in measured.verdicts["broken_by"][wrong])


@pytest.mark.parametrize("door", ["grad", "backward"])
def test_a_model_that_optimises_while_it_predicts_is_flagged(door):
    class Purifying(Rows):
        def forward(self, x):
            with torch.enable_grad():
                inner = x.detach().requires_grad_()
                value = super().forward(inner).logsumexp(dim=1).sum()
                if door == "grad":
                    (gradient,) = torch.autograd.grad(value, inner)
                else:
                    value.backward()
                    gradient = inner.grad
            return super().forward(x + 0.001 * gradient.sign())

    model = Purifying()
    with torch.no_grad():
        data = row_pair(Rows())
    assert codes(measure(model, data, attacks=("apgd_ce",)))["dynamic"] == "red"


def test_constant_outputs_are_flagged():
    model = Seen(after=lambda z: z * 0 + torch.tensor([2.0, 1.0, 0.0, 0.0, 0.0]))
    data = (row_pair(Rows())[0], torch.zeros(24, dtype=torch.int64))
    assert codes(measure(model, data))["constant_outputs"] == "red"


def test_a_loss_that_no_attack_can_raise_is_flagged():
    class Repelling(torch.autograd.Function):
        """Right logits, gradients that lead the wrong way."""

        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            return -gradient

    model = Seen(Repelling.apply, rough=0.3)
    measured = measure(model, attacks=({"name": "apgd_ce", "steps": 20},), threat="linf:0.01")
    assert codes(measured).get("flat_loss") == "yellow"
    assert "flat_loss" not in codes(measure(Rows(rough=0.3), attacks=({"name": "apgd_ce", "steps": 20},)))


@pytest.mark.parametrize("tier", ["exact", "verified", "fast"])
def test_an_ordinary_model_has_no_flag_under_autoattack(short, tier):
    assert codes(measure(Rows(classes=12), suite="autoattack", tier=tier)) == {}


def test_replacements_because_of_few_classes_are_flagged(short):
    found = measure(Rows(classes=3), suite="autoattack", tier="exact")
    notes = [flag["message"] for flag in found.flags if flag["code"] == "few_classes"]
    assert any("margin was used" in note for note in notes) and any("2 wrong classes" in note for note in notes)


# ---------------------------------------------------------------- the record


def test_tiers_and_versions_never_share_a_column(short):
    model = Rows(classes=12)
    kinds = [
        ("exact", "standard"),
        ("verified", "standard"),
        ("fast", "standard"),
        ("exact", "plus"),
        ("exact", "rand"),
    ]
    found = [measure(model, suite="autoattack", tier=tier, version=version).results[-1] for tier, version in kinds]
    assert [r.attack for r in found] == [f"autoattack {version} tier={tier}" for tier, version in kinds]
    assert len({comparable(result) for result in found}) == len(kinds)


def test_another_seed_is_the_same_measurement(short):
    one, two = (measure(Rows(), suite="autoattack", runtime=ht.Runtime(seed=s)).results[-1] for s in (0, 1))
    assert comparable(one) == comparable(two)


def test_a_result_lists_its_stages(short):
    result = measure(Rows(classes=12), suite="autoattack", tier="exact").results[-1]
    assert result.attack_settings == {"version": "standard", "tier": "exact"}
    assert [stage["name"] for stage in result.extra["stages"]] == ["apgd_ce", "apgd_t", "fab_t", "square"]
    rounds = measure(Rows(classes=12), suite="autoattack", tier="fast").results[-1].extra["stages"][0]["rounds"]
    assert len(rounds) > 1 and rounds[-1]["near"] < 1 and all(part["tries"] for part in rounds)


def test_a_list_belongs_to_its_suite():
    with pytest.raises(UserError, match="suite=attacks"):
        measure(Rows(), suite="pgd", attacks=("apgd_ce",))
    with pytest.raises(UserError, match=r"attacks=\["):
        measure(Rows(), suite="attacks", attacks=())


# ---------------------------------------------------------------- memory


class Small(Rows):
    """Has memory for five images."""

    def forward(self, x):
        if len(x) > 5:
            raise torch.OutOfMemoryError("CUDA out of memory (not really)")
        return super().forward(x)


@pytest.mark.parametrize("attacks", [LIST, ("pgd",)], ids=["pooled", "batches"])
def test_too_little_memory_halves_the_batch(attacks, monkeypatch):
    monkeypatch.setattr("hardtack.evaluation.suite.head", lambda data, device: (data[0][:4], data[1][:4]))
    expected = measure(Rows(), attacks=attacks)
    found = measure(Small(), row_pair(Rows()), attacks=attacks, batch_size=24)
    assert (found.robust == expected.robust).all() and 0 < found.robust_accuracy < 1
    assert (found.verdicts["broken_at_step"] == expected.verdicts["broken_at_step"]).all()


def test_a_search_without_gradients_raises_no_flat_loss_flag():
    measured = measure(Rows(classes=4), suite="attacks", attacks=({"name": "square", "steps": 5},), threat="linf:0.001")
    assert measured.robust.any() and "flat_loss" not in [flag["code"] for flag in measured.flags]


def test_rounds_with_too_few_classes_are_flagged():
    few, many = (measure(Rows(classes=c), suite="autoattack", tier="fast", threat="linf:0.001") for c in (3, 12))
    assert "few_classes" in [flag["code"] for flag in few.flags]
    assert "few_classes" not in [flag["code"] for flag in many.flags]


def test_printed_results_name_attacks_and_threats():
    text = str(measure(Rows(classes=4), suite="attacks", attacks=("apgd_ce",), threat="linf:0.01"))
    assert text.startswith("apgd_ce on ") and "(attacks-" in text.split("\n")[0]


# ---------------------------------------------------------------- partial progress


def test_the_notes_of_version_0_1_0_are_ignored(tmp_path, short):
    """They have other columns: the piece starts again, and ends with the same verdicts."""
    from hardtack.attacks.pool.attempts import AttackInputs
    from hardtack.attacks.pool.verdicts import VerdictTable
    from hardtack.evaluation.measure import _Notes

    class Old:
        def read(self):
            return {"0.stage": np.array(1), "0.standing": np.zeros(4, dtype=bool), "0.ledger.used": np.zeros((4, 1))}

    x, y = row_pair(Rows(), 4)
    table = VerdictTable(AttackInputs(x, y, torch.arange(4), Rows()(x)))
    notes = _Notes(Old(), table)
    assert not notes.exist and notes.trial == notes.stage == 0 and notes.attempts is None and table.robust.all()


def test_progress_counts_the_images_that_the_result_will_count(monkeypatch, notes_at_every_look, short):
    from hardtack.base.progress import Meter

    lines = []
    monkeypatch.setattr(Meter, "note", lambda self, text, share: lines.append(text))
    found = measure(Mortal(), row_pair(Rows(), 12), suite="autoattack", tier="fast", batch_size=7, audit=0)
    robust = int(found.robust.sum())
    assert 0 < robust < 12 and lines[-1].endswith(f": {robust} of 12 images still correct")
    counts = [int(line.split(": ")[1].split()[0]) for line in lines]
    assert counts == sorted(counts, reverse=True) and counts[0] <= 12
