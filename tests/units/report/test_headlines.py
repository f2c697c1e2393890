"""The first lines of the page: fair, about one column, and about the one that tells the runs apart."""

import numpy as np
import pytest
from surveyed import measured

from hardtack.report.headline_column import telling_column
from hardtack.report.headlines import headlines, verdict
from hardtack.report.remarks import remarks
from hardtack.results import append_result, append_results, leaderboard, read_runs, write_verdicts


@pytest.fixture
def folders(tmp_path):
    made = [tmp_path / name for name in ("plain", "robust")]
    for folder in made:
        folder.mkdir()
    return made


def attacked(folder, value, threat="linf:8/255", *, suite="pgd", attack="pgd steps=20", **more):
    about = {"suite": suite, "evaluation": f"{suite}-{attack}", "attack": attack, "threat": threat, **more}
    append_result(folder, measured(folder, "robust_accuracy", value, **about))


def clean(folder, value, **more):
    append_result(folder, measured(folder, "clean_accuracy", value, evaluation=f"clean-{sorted(more)}", **more))


def top(folder):
    runs = read_runs(folder)
    tables = leaderboard(runs)
    column = telling_column(tables, runs)
    cards = headlines(tables, column, [], {run.label: place for place, run in enumerate(runs)})
    return column, {card["title"]: card for card in cards}, verdict(column, runs)


def test_clean_accuracies_of_other_images_do_not_compete(folders, tmp_path):
    """On its own six images `plain` is never wrong; on those that both have seen `robust` is better."""
    clean(folders[0], 1.0, n=6)
    for folder, value in zip(folders, (0.7, 0.8), strict=True):
        clean(folder, value, data_description="first 360")
    _, cards, _ = top(tmp_path)
    card = cards["Most accurate on clean images"]
    assert (card["name"], card["value"]) == ("robust", "80.0%") and "digits/test, 360 images" in card["under"]


def test_of_images_that_as_many_runs_have_seen_those_of_the_attack_count(folders, tmp_path):
    """The fifty images stand first, but nothing there survives the attack."""
    for folder, (small, large) in zip(folders, ((0.9, 0.6), (0.7, 0.8)), strict=True):
        clean(folder, small, n=50)
        attacked(folder, 0.0, n=50, attack="apgd", suite="autoattack")
        clean(folder, large)
        attacked(folder, large / 2)
    column, cards, _ = top(tmp_path)
    assert leaderboard(read_runs(tmp_path))[0].n == 50 and column.first.n == 360
    assert cards["Most accurate on clean images"]["name"] == "robust"


def test_one_run_on_its_own_images_is_the_most_of_nothing(folders, tmp_path):
    clean(folders[0], 0.9, n=50)
    clean(folders[1], 0.8, n=60)
    attacked(folders[0], 0.3, n=50)
    _, cards, said = top(tmp_path)
    assert {"Clean accuracy", "Robust accuracy"} <= set(cards) and said == ""


def test_of_models_that_all_fall_none_is_called_most_robust(folders, tmp_path):
    for folder, value in zip(folders, (0.0, 0.01), strict=True):
        attacked(folder, value)
    _, cards, _ = top(tmp_path)
    assert "Most robust" not in cards and cards["Robust accuracy"]["value"] == "1.0%"


def test_a_radius_at_which_all_fall_gives_way_to_one_that_tells(folders, tmp_path):
    for folder, (near, far) in zip(folders, ((0.2, 0.0), (0.6, 0.01)), strict=True):
        attacked(folder, near, "linf:2/255")
        attacked(folder, far, "linf:16/255")
    column, cards, _ = top(tmp_path)
    assert column.threat == "linf:2/255"
    assert cards["Most robust"]["value"] == "60.0%"
    assert cards["Most robust"]["under"].startswith("ℓ∞ ≤ 2/255 · pgd · digits/test, 360 images")


def test_a_sweep_is_asked_only_where_the_tables_tell_nothing(folders, tmp_path):
    for folder, value in zip(folders, (0.1, 0.9), strict=True):
        attacked(folder, value, "linf:1/255", suite="sweep")
    attacked(folders[0], 0.0)
    attacked(folders[1], 0.02)
    assert top(tmp_path)[0].threat == "linf:1/255"
    for folder, value in zip(folders, (0.3, 0.4), strict=True):
        attacked(folder, value, "linf:4/255")
    assert top(tmp_path)[0].threat == "linf:4/255"


def test_what_most_runs_have_comes_before_what_tells_more(folders, tmp_path):
    attacked(folders[0], 0.5, "l2:1")
    attacked(folders[0], 0.01)
    attacked(folders[1], 0.0)
    assert top(tmp_path)[0].threat == "linf:8/255"


def test_the_strongest_attack_stands_for_its_threat(folders, tmp_path):
    for folder, (weak, strong) in zip(folders, ((0.3, 0.2), (0.9, 0.4)), strict=True):
        attacked(folder, weak, attack="fgsm")
        attacked(folder, strong, attack="autoattack standard", suite="autoattack")
    assert top(tmp_path)[0].first.attack == "autoattack standard"


def test_autoattack_comes_before_a_single_attack_that_spreads_runs_further(folders, tmp_path):
    for folder, (weak, strong) in zip(folders, ((0.3, 0.2), (0.9, 0.3)), strict=True):
        attacked(folder, weak, "l2:1")
        attacked(folder, strong, "linf:8/255", attack="autoattack standard", suite="autoattack")
    assert top(tmp_path)[0].first.suite == "autoattack"
    for folder in folders:
        attacked(folder, 0.01, "linf:8/255", attack="autoattack standard", suite="autoattack", created="2026-05-01")
    assert top(tmp_path)[0].threat == "l2:1", "where it leaves nothing it tells nothing"


def test_the_worst_case_comes_before_its_parts_unless_it_is_zero_for_all(folders, tmp_path):
    made = {"suite": "autoattack", "evaluation": "a", "attack": "autoattack", "threat": "linf:8/255+l2:1"}
    for folder, (part, worst) in zip(folders, ((0.1, 0.1), (0.8, 0.2)), strict=True):
        attacked(folder, part)
        append_results(folder, [measured(folder, "worst_case_accuracy", worst, **made)])
    assert top(tmp_path)[0].first.metric == "worst_case_accuracy"
    for folder in folders:
        append_result(folder, measured(folder, "worst_case_accuracy", 0.0, **{**made, "created": "2026-05-01"}))
    assert top(tmp_path)[0].first.metric == "robust_accuracy"


def test_the_sentence_names_attack_and_threat_and_pairs_the_verdicts_of_its_radius(folders, tmp_path):
    """`robust` at the near radius is what a mixture of both radii would get wrong."""
    for folder, (near, far) in zip(folders, ((100, 0), (160, 3)), strict=True):
        columns = {"index": np.arange(360), "robust": np.arange(360) < far}
        columns |= {"robust@linf:2/255": np.arange(360) < near, "robust@linf:9/255": columns["robust"]}
        write_verdicts(folder / "verdicts" / "sweep.parquet", columns)
        for threat, count in (("linf:2/255", near), ("linf:9/255", far)):
            attacked(folder, count / 360, threat, suite="sweep", verdicts="verdicts/sweep.parquet")
    said = top(tmp_path)[2]
    assert said.startswith("Under pgd at ℓ∞ ≤ 2/255, robust is ahead of plain by 16.7 points on the same 360 images")


# ---------------------------------------------------------------- the story, and what no check can see


def story(folders, *values):
    """The sentence for runs with these accuracies, clean and under attack, on the same hundred images."""
    images = np.arange(100)
    for folder, (plain, robust) in zip(folders, values, strict=True):
        verdicts = {"index": images, "clean_correct": images < plain, "robust@linf:8/255": images < robust}
        write_verdicts(folder / "verdicts" / "aa.parquet", verdicts)
        about = {"suite": "autoattack", "evaluation": "aa", "n": 100, "verdicts": "verdicts/aa.parquet"}
        hits = {"attack": "autoattack standard", "threat": "linf:8/255"}
        append_results(
            folder,
            [
                measured(folder, "clean_accuracy", plain / 100, **about),
                measured(folder, "robust_accuracy", robust / 100, **about, **hits),
            ],
        )
    return top(folders[0].parent)[2]


def test_the_sentence_tells_which_model_the_attack_breaks(tmp_path):
    folders = [tmp_path / name for name in ("standard", "trades", "adversarial")]
    for folder in folders:
        folder.mkdir()
    said = story(folders, (97, 0), (96, 72), (95, 70))
    assert said.startswith(
        "Under autoattack at ℓ∞ ≤ 8/255, standard falls from 97.0% to 0.0%, while trades keeps 72.0%; trades and "
        "adversarial do not differ significantly: 2.0 points on the same 100 images (exact paired test"
    )
    said = story(folders, (97, 0), (96, 72), (95, 1))
    assert "adversarial and standard fall to 1.0% or below, while trades keeps 72.0%, 71.0 points more on the" in said
    said = story(folders, (97, 40), (96, 72), (95, 70))
    assert said.startswith("Under autoattack at ℓ∞ ≤ 8/255, trades and adversarial do not differ"), "none is broken"
    assert "fall" not in story(folders, (97, 0), (96, 4), (95, 3)), "none keeps anything"
    assert "fall" not in story(folders, (12, 0), (96, 72), (95, 70)), "what was wrong before did not fall"


def limits_of(folder):
    """What the card of warnings says of these runs, and the remarks behind it."""
    found = remarks(read_runs(folder))
    (card,) = headlines([], None, [], {}, found)
    return found, card


def classes(value, count, **more):
    """What a clean accuracy stores about its classes."""
    return {"value": value, "extra": {"per_class": {"classes": [str(number) for number in range(count)]}}, **more}


def test_pgd_alone_and_chance_do_not_pass_every_check(folders, tmp_path):
    for folder in folders:
        attacked(folder, 0.3)
        append_result(folder, measured(folder, "clean_accuracy", **classes(0.8, 10)))
    found, card = limits_of(tmp_path)
    assert (card["value"], card["kind"]) == ("none", "careful") and card["interval"].startswith("but PGD alone")
    assert [remark.code for remark in found if remark.message] == ["attacks by gradients alone"]
    assert [concern["name"] for concern in found[0].concerns] == ["plain", "robust"]
    for folder in folders:
        attacked(folder, 0.2, suite="autoattack", attack="autoattack standard")
    found, card = limits_of(tmp_path)
    assert not [remark for remark in found if remark.message] and "PGD" not in card["interval"]
    append_result(folders[0], measured(folders[0], "clean_accuracy", **classes(0.12, 10, created="2026-05-01")))
    found, card = limits_of(tmp_path)
    assert card["interval"].startswith("but near chance") and found[0].concerns[0]["name"] == "plain"
    append_result(folders[0], measured(folders[0], "clean_accuracy", **classes(0.12, 100, created="2026-06-01")))
    assert "chance" in limits_of(tmp_path)[1]["interval"], "2 % of 100 classes: 12 % is above chance, but by little"
    append_result(folders[0], measured(folders[0], "clean_accuracy", **classes(0.32, 100, created="2026-07-01")))
    assert "chance" not in limits_of(tmp_path)[1]["interval"]


@pytest.mark.parametrize(
    "attack, alone",
    [
        ("autoattack standard tier=exact", False), ("autoattack rand tier=exact", True), ("apgd_ce+square", False),
        ("autoattack:apgd-ce n_iter=10", True), ("autoattack:square n_queries=10", False),
        ("foolbox:BoundaryAttack steps=10", False), ("foolbox:LinfPGD linesearch=true", True), ("nes queries=9", False),
    ],
)  # fmt: skip
def test_which_attacks_follow_gradients_alone(folders, tmp_path, attack, alone):
    """Only names tell: a setting may hold any word, and AutoAttack for random models has no Square."""
    attacked(folders[0], 0.2, suite="attacks", attack=attack)
    codes = [remark.code for remark in limits_of(folders[0])[0]]
    assert ("attacks by gradients alone" in codes) == alone


def test_only_runs_with_all_checks_and_evidence_pass(folders, tmp_path):
    """Numbers without verdict files are not verifiable, numbers of others were never checked."""
    append_result(folders[0], measured(folders[0], "clean_accuracy", 0.9, verdicts="verdicts/e-1.parquet"))
    assert limits_of(folders[0])[1]["interval"] == "but nothing was attacked, 1 evaluation not verifiable"
    append_result(folders[1], measured(folders[1], "clean_accuracy", 0.9, extra={"source": "reported"}))
    assert limits_of(folders[1])[1]["interval"] == "but nothing was checked"
