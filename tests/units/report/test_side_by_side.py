"""Two runs beside each other, best beside last, and the masks of an occluder: the values that the page lays out."""

from dataclasses import replace

import numpy as np
import pytest
from run_folders import make_run, make_runs, result
from test_training_charts import RUN

from hardtack.report import mask_snapshots, write_figures, write_page
from hardtack.report.side_by_side import best_and_last, side_by_side
from hardtack.results import append_results, read_runs, write_arrays

HITS = np.arange(360) < 180


# ---------------------------------------------------------------- two runs


def test_facts_and_settings_of_every_trained_run():
    other = replace(RUN, label="slow", metrics=RUN.metrics[:3])
    untrained = replace(RUN, label="bought", metrics=[])
    settings = [
        {"name": "a", "seed": "1", "lr": "0.1", "beta": "6"},
        {"name": "b", "seed": "1", "lr": "0.1"},
        {"name": "c", "seed": "1", "lr": "0.2"},
    ]
    found = side_by_side([RUN, untrained, other], settings)
    assert found["runs"] == [{"run": 0, "name": "fast"}, {"run": 2, "name": "slow"}]
    assert found["settings"] == [{"key": "lr", "values": ["0.1", "0.2"]}, {"key": "beta", "values": ["6", "—"]}]
    facts = {row["key"]: row["values"] for row in found["facts"]}
    assert facts["Best epoch"] == ["1", "1"] and facts["Epochs trained"] == ["2", "1"]
    assert facts["Robust accuracy, best epoch"] == ["30.0%", "30.0%"]
    assert facts["Robust accuracy, last epoch"] == ["10.0%", "30.0%"]
    assert facts["Training loss at the end"] == ["0.8", "1"] and facts["Images per second, median"] == ["95", "105"]
    assert facts["Warnings"] == ["catastrophic overfitting", "none"]


def test_one_trained_run_has_nothing_beside_it(tmp_path):
    assert side_by_side([RUN], [{}]) is None
    make_run(tmp_path / "trades")
    assert 'id="pair"' not in write_page(tmp_path, tmp_path / "report.html").read_text()


# ---------------------------------------------------------------- best and last


def measure(folder, checkpoint, hits, **more):
    about = {"evaluation": f"e-{checkpoint}", "suite": "pgd", "threat": "linf:8/255", "attack": "pgd steps=20"}
    append_results(folder, [result(folder, "robust_accuracy", hits, **{**about, "checkpoint": checkpoint, **more})])


def test_best_and_last_are_compared_where_both_were_measured_the_same_way(tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    measure(one, "best", HITS, weights_sha256="a")
    measure(one, "last", HITS & (np.arange(360) < 90), weights_sha256="b")
    measure(two, "best", HITS)
    measure(two, "last", HITS, attack="pgd steps=40")  # another attack
    (row,) = best_and_last(read_runs(tmp_path))
    assert (row["name"], row["difference"], row["same"]) == ("one", "-25.0", False)
    assert row["best"].startswith("50.0% (") and row["last"].startswith("25.0% (")
    assert row["what"] == "Robust accuracy, pgd, ℓ∞ ≤ 8/255, digits/test, 360 images"


# ---------------------------------------------------------------- masks


def hide(folder, epoch, hidden, *, images=None):
    """Masks of two images, 2×2 patches: the second hides the mirrored ones."""
    pixels = np.full((2, 8, 8, 3), 100, dtype=np.uint8) if images is None else images
    mask = np.array(hidden, dtype=bool)
    write_arrays(folder / "masks" / f"epoch_{epoch:04d}.npz", {"images": pixels, "masks": [mask, mask[:, ::-1]]})


@pytest.fixture
def hidden(tmp_path):
    (folder,) = make_runs(tmp_path, ("trades",))
    for epoch in range(1, 21):
        hide(folder, epoch, [[True, False], [False, False]] if epoch < 20 else [[True, True], [False, False]])
    return folder


def test_the_strip_has_first_and_last_epoch_and_every_mask_in_its_place(hidden):
    (run_masks,), problems = mask_snapshots.read_mask_snapshots(read_runs(hidden))
    assert problems == [] and len(run_masks.epochs) == mask_snapshots.SHOWN_EPOCHS
    assert (run_masks.epochs[0], run_masks.epochs[-1]) == (1, 20) and list(run_masks.epochs) == sorted(
        set(run_masks.epochs)
    )
    assert run_masks.varieties == [2] * 7 + [1]
    shown = mask_snapshots.snapshots_view(run_masks)
    assert shown["box"] == "0 0 2 2" and shown["patches"] == 4
    first, second = shown["images"]
    assert first["cells"][0] == {"path": "M0 0h1v1h-1z", "hidden": 1}
    assert second["cells"][0]["path"] == "M1 0h1v1h-1z"
    assert second["cells"][-1] == {"path": "M0 0h1v1h-1zM1 0h1v1h-1z", "hidden": 2}


def test_hidden_patches_are_painted_over_and_nothing_else():
    image = np.full((8, 8, 3), 100, dtype=np.uint8)
    drawn = mask_snapshots.covered(image, np.array([[False, True], [False, False]]), (200, 0, 0), strength=0.5)
    assert (drawn[:4, 4:] == (150, 50, 50)).all()
    assert (drawn[4:] == 100).all() and (drawn[:, :4] == 100).all()


def test_masks_stand_on_the_page_and_in_a_figure(hidden):
    text = write_page(hidden, hidden / "report.html").read_text()
    section = text.split('<section id="masks">')[1].split("</section>")[0]
    assert section.count("<svg") == 16 and section.count("data:image/png") == 2, "each image once"
    assert "2 of 4 patches hidden" in section
    names = {path.name for path in write_figures(hidden, hidden / "figures")}
    assert {"masks-trades.pdf", "masks-trades.svg", "masks-trades.png", "training-loss.pdf"} <= names


@pytest.mark.parametrize(
    "spoil, words",
    [
        (lambda path: path.write_bytes(b"PK"), "not a readable npz"),
        (lambda path: write_arrays(path, {"images": np.zeros(3)}), "must hold images"),
        (
            lambda path: hide(path.parent.parent, 20, np.eye(2), images=np.zeros((2, 8, 8, 3), np.uint8)),
            "shows other images",
        ),
    ],
)
def test_masks_that_cannot_be_shown_are_a_problem_and_not_the_pages_end(hidden, spoil, words):
    spoil(hidden / "masks" / "epoch_0020.npz")
    with pytest.warns(UserWarning, match=words):
        text = write_page(hidden, hidden / "report.html").read_text()
    assert words in text and '<section id="masks">' not in text
