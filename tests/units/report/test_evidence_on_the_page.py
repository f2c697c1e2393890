"""The page, `compare` and exports mark numbers that their evidence contradicts, and name those without any."""

import shutil

import pytest
import torch

import hardtack as ht
from forgeries import FORGERIES, change
from hardtack.commands.cli import main
from hardtack.results import leaderboard, read_runs
from tiny_runs import Linear, images

X = images(16)
X[:6] = (X[:6] + (Linear().head.weight[torch.arange(6) % 4].view(6, 3, 8, 8) > 0)).clamp(0, 1)  # robust images
Y = Linear()(X).argmax(dim=1)


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    folder = tmp_path_factory.mktemp("page") / "mine"
    measured = ht.evaluate(
        Linear(), (X, Y), suite="attacks", attacks=[{"name": "apgd_ce", "steps": 5}], threat="linf:0.1", quiet=True,
        folder=folder,
    )  # fmt: skip
    assert 0 < measured.robust_accuracy < 0.9
    return folder, measured


@pytest.fixture
def run(original, tmp_path):
    return shutil.copytree(original[0], tmp_path / "mine"), original[1]


def page_of(folder):
    assert main(["report", str(folder), "-o", str(folder / "page.html")]) == 0
    return (folder / "page.html").read_text()


def test_a_genuine_run_agrees(run):
    text = page_of(run[0])
    assert "agrees with its verdict file" in text and "disagrees" not in text and "not verifiable" not in text


def test_a_forged_value_is_marked_named_and_no_headline(run):
    folder, measured = run
    change(folder, value=0.99, low=0.97, high=1.0)
    text = page_of(folder)
    value = f"{measured.robust_accuracy:.4g}"
    assert "disagrees" in text and f"value: stored 0.99, expected {value}" in text
    headlines = text[text.index('class="headlines"') : text.index("</header>")]
    assert "99.0" not in headlines
    (table,) = [table for table in leaderboard(read_runs(folder)) if table.metric == "robust_accuracy"]
    assert [flag["code"] for flag in table.rows[0].flags if flag["level"] == "red"] == ["disagrees"]
    assert "disagrees" in (folder / "card.md").read_text(), "the card too"


def test_a_number_without_evidence_is_named_not_verifiable(run):
    folder, measured = run
    (folder / "verdicts" / f"{measured.id}.parquet").unlink()
    text = page_of(folder)
    assert "not verifiable" in text and f"verdicts/{measured.id}.parquet is missing" in text


def test_compare_and_exports_mark_it(run, capsys):
    folder, measured = run
    other = shutil.copytree(folder, folder.parent / "other")
    change(other, value=0.99)
    assert main(["compare", str(folder), str(other)]) == 0
    text = capsys.readouterr().out
    assert "RED FLAG disagrees: other" in text and "stored 0.99" in text
    assert f"{measured.robust_accuracy:.2%}" in text and "99.00%" not in text
    assert main(["export", str(other), "format=csv"]) == 0
    assert "red:disagrees" in capsys.readouterr().out


# forgeries that no file of the folder contradicts: `verify` finds them with the settings, the model or the data
CONSISTENT = {
    "attack_renamed", "more_steps_claimed", "words_claim_more_steps", "model_renamed_and_resealed", "data_renamed",
    "data_description_changed", "digest_of_weights_changed", "checkpoint_renamed", "protocol_claimed", "seed_changed",
    "precision_changed", "flag_added", "interval_renamed", "parameters_changed", "field_added", "labels_changed",
    "metric_renamed_to_a_real_one", "clean_predictions_set_correct", "hard_images_left_out", "rows_of_other_images",
    "certainties_changed", "sizes_of_perturbations_changed", "adversarial_predictions_changed", "examples_changed",
    "images_changed_without_reseal", "images_outside_the_threat", "images_removed", "threat_changed_everywhere",
    "classes_changed", "id_changed_with_its_files", "field_given_twice",
    "audit_removed", "audit_of_more_images_claimed", "audit_by_square_claimed",
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(set(FORGERIES) - CONSISTENT))
def test_a_forgery_that_the_files_contradict_is_marked(run, name):
    folder, measured = run
    FORGERIES[name][0](folder, measured.id)
    (read,) = read_runs(folder)
    texts = [agreement.text for agreement in read.agreements.values()]
    assert any("DISAGREES" in text or "not verifiable" in text for text in texts), texts
