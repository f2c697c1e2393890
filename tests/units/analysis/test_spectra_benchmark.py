"""The statistics of benchmarks/spectra.py, on numbers whose correlations are known."""

import importlib.util
import json
import re
from pathlib import Path

import numpy as np
import pytest

FILE = Path(__file__).parents[3] / "benchmarks" / "spectra.py"
SPEC = importlib.util.spec_from_file_location("benchmark_spectra", FILE)
spectra = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(spectra)


DOCS = Path(__file__).parents[3] / "docs" / "experiments_cauchy.md"
RECORD = json.loads((FILE.parent / "results" / "spectra.json").read_text())
ROWS = {
    "block": "blocks, mean (the paper's)", "residual": "blocks without the identity",
    "attention": "attention branches (three families)", "mlp": "MLP branches (four families)",
    "stretch": "all blocks together", "features": "pixels to the last block", "network": "pixels to logits",
    "block attacked": "blocks, at attacked images (linf:0.05)",
    "network attacked": "pixels to logits, at attacked images",
    "margin over network": "margin / σ_max, pixels to logits",
}  # fmt: skip


def networks(value, robust):
    """A network for each family and training; both functions take their numbers."""
    return [
        {"family": family, "training": training, "sigma": value(i, j), "accuracy": robust(i, j)}
        for i, family in enumerate(spectra.FAMILIES)
        for j, training in enumerate(spectra.TRAININGS)
    ]


def test_within_and_between_families_are_told_apart():
    """Robustness falls with σ from training to training and rises with it from family to family."""
    rows = networks(lambda i, j: 100 * i + j, lambda i, j: 100 * i - j)
    within = spectra.correlation(rows, "sigma", "accuracy", "within families")
    between = spectra.correlation(rows, "sigma", "accuracy", "between families")
    together = spectra.correlation(rows, "sigma", "accuracy", "together")
    assert within == [-1.0, -1.0, -1.0] and between == [1.0, 1.0, 1.0]
    assert together[0] > 0.9, "over all networks the families decide"


def test_without_a_relation_the_interval_has_zero_in_it():
    generator = np.random.default_rng(3)
    noise = generator.random((2, len(spectra.FAMILIES), len(spectra.TRAININGS)))
    rows = networks(lambda i, j: noise[0, i, j], lambda i, j: noise[1, i, j])
    for stratum in spectra.WITHIN:
        value, low, high = spectra.correlation(rows, "sigma", "accuracy", stratum)
        assert low < 0 < high and low <= value <= high


def test_networks_without_the_quantity_are_left_out():
    rows = networks(lambda i, j: j, lambda i, j: j)
    for row in rows:
        if row["family"] == "PreActResNet":
            del row["sigma"]
    assert spectra.correlation(rows, "sigma", "accuracy", "within families")[0] == 1.0
    assert spectra.correlation([row for row in rows if "sigma" not in row], "sigma", "accuracy", "together") is None


def test_accuracies_that_are_all_equal_rank_nothing():
    rows = networks(lambda i, j: j, lambda i, j: 0.0)
    assert spectra.correlation(rows, "sigma", "accuracy", "within families") is None


def test_every_training_is_of_one_half():
    halves = [set(spectra.HALVES[name]) for name in ("without attacks", "with attacks")]
    assert not halves[0] & halves[1] and halves[0] | halves[1] == set(spectra.TRAININGS)
    attacked = [name for name, words in spectra.TRAININGS.items() if "attack" in words.get("objective", {})]
    assert set(attacked) == halves[1]


@pytest.mark.parametrize("family", spectra.FAMILIES)
def test_every_network_can_be_built(family):
    import hardtack as ht

    about = spectra.FAMILIES[family]
    model = ht.load_model(about["name"], num_classes=10, image_size=32, **about.get("options", {}))
    assert 3e4 < sum(parameter.numel() for parameter in model.parameters()) < 4e5


def test_rank_correlations_are_scipys():
    from scipy import stats

    generator = np.random.default_rng(0)
    for _ in range(20):
        x, y = generator.integers(0, 20, (2, 12)).tolist()  # with ties
        assert spectra.rank_correlation(x, y) == pytest.approx(stats.spearmanr(x, y)[0])
    assert spectra.rank_correlation([1, 1, 2, 3], [1, 2, 3, 4]) is None, "three different values rank too little"


@pytest.mark.parametrize("quantity", ROWS)
def test_the_table_of_the_documentation_is_that_of_the_record(quantity):
    found = RECORD["spearman"]["all"][spectra.DISTANCE][quantity]
    line = next(line for line in DOCS.read_text().splitlines() if line.startswith(f"| {ROWS[quantity]} |"))
    cells = [[float(n.replace("−", "-")) for n in re.findall(r"[−\d.]+", cell)] for cell in line.split("|")[2:5]]
    assert cells == [found[within] or [] for within in spectra.WITHIN]


@pytest.mark.parametrize("half", spectra.HALVES)
def test_the_record_follows_from_its_networks(half):
    """The correlations, without their intervals, which take minutes."""
    inside = [row for row in RECORD["networks"] if row["training"] in spectra.HALVES[half]]
    for target, quantities in RECORD["spearman"][half].items():
        for quantity, found in quantities.items():
            grid = spectra.Grid(inside, quantity, target)
            for within in spectra.WITHIN:
                value = grid.mean(*(np.arange(size) for size in grid.x.shape), within)
                assert (found[within] is None) == (value is None)
                assert value is None or value == pytest.approx(found[within][0], abs=0.02), (target, quantity, within)
