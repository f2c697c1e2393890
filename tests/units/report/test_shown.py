"""What a newcomer stumbled over: words, order, pills, and pictures that showed nothing."""

import re

import numpy as np
import pytest
from run_folders import make_run, make_runs
from surveyed import attacked, calibrated, corrupted, flipping, measured
from test_attack_examples import gallery, run

from hardtack.report import charts, wording, write_figures, write_page
from hardtack.report.attack_examples import attack_examples, magnification
from hardtack.results import append_result, append_results, leaderboard, read_runs


@pytest.fixture
def folders(tmp_path):
    made = [tmp_path / name for name in ("plain", "robust")]
    for folder in made:
        folder.mkdir()
    return made


def page(folder):
    return write_page(folder, folder / "report.html").read_text()


def section(text, name):
    return text.split(f'<section id="{name}">')[1].split("</section>")[0]


def facts(folder):
    """The lines of the provenance by their columns."""
    table = section(page(folder), "provenance")
    names = re.findall(r'<th scope="col">(.*?)</th>', table)
    rows = re.findall(r"<tr><th.*?</th>(.*?)</tr>", table.split("<tbody>")[1], re.S)
    shared = dict(re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", table))
    cells = [re.findall(r"<td>(.*?)</td>", row, re.S) for row in rows]
    return [{**shared, **dict(zip(names[1:], row, strict=True))} for row in cells]


# ---------------------------------------------------------------- words and order


def test_metrics_have_names_people_use():
    assert wording.metric_name("top5_accuracy") == "Top-5 accuracy"


def test_what_was_imported_has_no_images_and_no_interval_and_is_reported_once(folders, tmp_path):
    about = {"suite": "reported", "n": 0, "half": None, "extra": {"source": "reported"}, "threat": "linf:8/255"}
    append_result(folders[0], measured(folders[0], "robust_accuracy", 0.6, **about))
    attacked(folders[1], standing=100, wrong=20)
    imported, measured_here = facts(tmp_path)
    assert imported["Measured"].startswith("reported, not measured here<")
    assert (imported["Images"], imported["Interval"]) == ("—", "—") and measured_here["Images"] == "360"


def test_the_interval_is_that_of_the_number_the_evaluation_was_made_for(folders, tmp_path):
    made = {"suite": "corruptions", "evaluation": "c"}
    cells = {"attack": "fog/1", "attack_settings": {"type": "fog", "severity": 1}}
    results = [
        measured(folders[0], "clean_accuracy", 0.9, **made),
        measured(folders[0], "corrupted_accuracy", 0.5, **made, **cells),
        measured(folders[0], "mean_corrupted_accuracy", 0.5, interval="bootstrap 95%", **made),
    ]
    append_results(folders[0], results)
    assert [line["Interval"] for line in facts(tmp_path)] == ["bootstrap 95%"]


def test_attacks_come_first_then_corruptions_flips_and_clean(folders, tmp_path):
    for folder in folders:
        corrupted(folder, level=0.8, types=("fog",), severities=(1,))
        flipping(folder, level=0.05)
        append_result(folder, measured(folder, "clean_accuracy", 0.9, n=20))
    attacked(folders[0], standing=100, wrong=20)
    metrics = [table.metric for table in leaderboard(read_runs(tmp_path))]
    assert metrics == [
        "worst_case_accuracy", "robust_accuracy", "mean_corrupted_accuracy", "mean_flip_probability", "mean_flip_rate",
        "clean_accuracy",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "settings, said", [({"jpeg": 85}, "stored as JPEG 85"), ({"overlays": "drawn"}, "frost: drawn")]
)
def test_tables_and_charts_of_corruptions_say_how_the_images_were_made(folders, tmp_path, settings, said):
    made = {"suite": "corruptions", "evaluation": "c"}
    cell = {"attack": "frost/1", "attack_settings": {"type": "frost", "severity": 1, **settings}}
    append_result(folders[0], measured(folders[0], "corrupted_accuracy", 0.5, **made, **cell))
    append_result(folders[0], measured(folders[0], "mean_corrupted_accuracy", 0.5, attack_settings=settings, **made))
    protocol = {"suite": "protocol", "protocol": "p 1", "evaluation": "p", "extra": {"column": "C", "place": 0}}
    append_result(
        folders[0], measured(folders[0], "mean_corrupted_accuracy", 0.5, attack_settings=settings, **protocol)
    )
    text = page(tmp_path)
    assert section(text, "leaderboard").count(said) == section(text, "protocols").count(said) == 1
    assert section(text, "corruptions").count(said) == 2


# ---------------------------------------------------------------- pills and panels


def pills(text, name):
    return re.findall(r'class="chip".*?</span>(.*?)</button>', section(text, name))


def test_a_section_has_pills_only_for_its_own_runs(tmp_path):
    for name in ("a", "b", "c"):
        (tmp_path / name).mkdir()
        calibrated(tmp_path / name, gap=0.1)
    for name in ("a", "c"):
        corrupted(tmp_path / name, level=0.9, types=("fog",), severities=(1,))
        attacked(tmp_path / name, standing=100, wrong=20)
    flipping(tmp_path / "b", level=0.05)
    text = page(tmp_path)
    assert pills(text, "corruptions") == pills(text, "breakdown") == pills(text, "classes") == ["a", "c"]
    assert pills(text, "calibration") == ["a", "b", "c"] and pills(text, "flips") == [], "one needs no switch"


def test_calibration_names_no_colour_and_takes_no_more_room_than_its_panels(folders, tmp_path):
    calibrated(folders[0], gap=0.2)
    calibrated(folders[1], gap=0.1)
    calibrated(folders[1], gap=0.1, n=100)
    text = section(page(tmp_path), "calibration")
    assert "hatched: the gap" in text and "red" not in re.sub(r"<[^>]*>", "", text).split()
    assert re.findall(r'class="card chart (.*?)"', text) == ["reliability of-two", "reliability"]
    assert '<div class="charts">' in text


# ---------------------------------------------------------------- examples


def spared(indices, *, of=None, **about):
    """A gallery in which only the images `of` were attacked: the others were wrong already."""
    made = gallery(indices, **about)
    for row, index in enumerate(indices):
        if index not in (of or ()):
            made.x_adv[row], made.size[row], made.clean_prediction[row] = made.x[row] / 255, np.nan, 1
    return made


def test_images_that_were_not_attacked_are_not_shown_beside_those_that_were():
    (shown,) = attack_examples([run("a", spared([1, 2, 3, 4], of=[3]))])
    assert [example.index for example in shown.examples] == [3]
    (both,) = attack_examples([run("a", spared([1, 2, 3], of=[2, 3])), run("b", spared([1, 2, 3], of=[3]))])
    assert [example.index for example in both.examples] == [3, 2], "where both were attacked first"


def test_a_run_of_which_nothing_was_attacked_has_one_card_and_its_exhibit_stands_last():
    first, last = attack_examples([run("a", spared([1, 2, 3], threat="l2:1")), run("b", gallery([5, 6]))])
    assert (len(first.examples), first.attacked) == (2, True)
    assert (len(last.examples), last.attacked) == (1, False)


def test_images_that_were_not_attacked_do_not_weaken_the_magnification():
    many = spared(list(range(300)), of=[7])
    assert magnification([many]) == 16


def test_an_image_that_was_not_attacked_has_no_grey_square(tmp_path):
    folder = make_run(tmp_path / "trades")
    (path,) = (folder / "examples").glob("*.npz")
    arrays = dict(np.load(path))
    wrong = arrays["label"] + 1
    np.savez(path, **{**arrays, "size": np.full(6, np.nan), "clean_prediction": wrong, "x_adv": arrays["x"] / 255.0})
    text = section(page(tmp_path), "examples")
    assert text.count("<article") == 1 and text.count("<img") == 2 and "magnified" not in text
    assert "No image here was attacked: all were misclassified without attack." in text


def test_numbered_classes_are_called_classes(tmp_path):
    make_run(tmp_path / "trades")
    assert "<b>class 3</b>" in section(page(tmp_path), "examples")
    assert wording.class_name("tench") == "tench"


# ---------------------------------------------------------------- figures


def test_figures_of_one_kind_are_told_apart_by_their_images(folders, tmp_path):
    for n in (100, 360):
        calibrated(folders[0], gap=0.1, n=n)
    corrupted(folders[0], level=0.9, types=("fog",), severities=(1,))
    corrupted(folders[0], level=0.8, types=("fog",), severities=(1,), source="official")
    names = {path.stem for path in write_figures(tmp_path, tmp_path / "figures", formats=["svg"])}
    assert names == {
        "calibration-digits-test-100", "calibration-digits-test-360", "corruptions-digits-test-360-official",
        "corruptions-digits-test-360-regenerated", "corruption-types-digits-test-360-official",
        "corruption-types-digits-test-360-regenerated",
    }  # fmt: skip


def test_figures_carry_their_caption(tmp_path):
    from matplotlib import rc_context

    from hardtack.report import figures

    for folder in make_runs(tmp_path):
        calibrated(folder, gap=0.1)
    drawn = [chart for part in charts.sections(read_runs(tmp_path))[:-1] for chart in part["charts"]]
    assert max(len(chart["caption"]) for chart in drawn) > 100
    drawn = [{**chart, "caption": f"{chart['caption']} · {chart['caption']}"} for chart in drawn]
    with rc_context(figures.STYLE):
        for (name, figure), chart in zip(figures._figures(drawn), drawn, strict=True):
            said = figure._supxlabel.get_text().replace("\n", " ")
            assert said == chart["caption"] and "digits/test, 360 images" in said, name
            figure.draw_without_rendering()
            box = figure._supxlabel.get_window_extent()
            assert box.x0 >= 0 and box.x1 <= figure.bbox.x1, "no line is cut off"
