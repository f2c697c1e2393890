"""The page says what the run folders say, whatever they lack, and nothing a name could smuggle in."""

import json
import re
import subprocess
import sys

import numpy as np
import pytest
from run_folders import HOSTILE_CLASS, HOSTILE_NAME, make_run, make_runs, result, write_examples

from hardtack.errors import UserError
from hardtack.report import write_page, write_report
from hardtack.results import append_result, write_arrays


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    parent = tmp_path_factory.mktemp("runs")
    make_runs(parent)
    return write_page(parent, parent / "report.html").read_text(), parent


def chart_data(text):
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S).group(1))


def test_the_page_is_one_light_file_that_needs_nothing_else(page):
    text, parent = page
    assert len(text) < 1_000_000
    assert re.findall(r"https?://[^\"' ]+", text) == ["http://www.w3.org/2000/svg"]
    assert "default-src 'none'" in text
    assert str(parent) not in text


def test_the_page_shows_numbers_intervals_and_the_paired_test(page):
    text, _ = page
    assert "72.8%" in text and "68.0–77.1%" in text
    # trades holds on eleven images that adversarial loses, and loses none: p = 2 / 2^11
    assert "trades is ahead of adversarial by 3.1 points on the same 360 images" in text
    assert "p\u00a0=\u00a00.00098" in text


def test_curves_carry_their_bands_and_start_clean(page):
    chart = chart_data(page[0])["curve-0"]
    assert [series["name"] for series in chart["series"]] == ["adversarial", "standard", "trades"]
    for series in chart["series"]:
        assert [point[0] for point in series["points"]] == [0, 1, 2, 4, 8, 12, 16, 24, 32]
        assert all(low <= value <= high for _, value, low, high in series["points"])


def test_examples_state_factor_label_prediction_and_size(page):
    text, _ = page
    assert "magnified ×16 around grey" in text
    assert re.search(r"size 7\.\d/255", text)
    assert text.count('<article class="card example"') == 6


def test_configuration_lists_what_differs(page):
    differing = page[0].split("What differs between the runs")[1].split("</table>")[0]
    assert "objective.name" in differing and "train.epochs" not in differing


def test_flags_are_warnings_with_their_meaning(page):
    text, _ = page
    assert "the input gradient is exactly zero on 12 of 360 images" in text
    assert "Do not quote this number before the cause is understood." in text


def test_names_cannot_become_markup(tmp_path):
    make_run(tmp_path / HOSTILE_NAME, classes=[HOSTILE_CLASS] * 10)
    text = write_page(tmp_path, tmp_path / "report.html").read_text()
    assert "window.hacked" in text
    assert not re.search(r"<script>window|<img src=x", text)
    assert text.count("<script") == 2


@pytest.mark.parametrize("missing", ["sweep", "examples", "metrics", "flags"])
def test_a_run_may_lack_any_part(tmp_path, missing):
    make_run(tmp_path / "trades", **{missing: False})
    text = write_page(tmp_path / "trades", tmp_path / "report.html").read_text()
    section = {"sweep": "curves", "examples": "examples", "metrics": "training"}.get(missing)
    if section:
        assert f'<section id="{section}"' not in text
    else:
        assert "No check raised a warning" in text


def test_a_run_that_was_only_configured_still_has_a_page(tmp_path):
    (tmp_path / "bare").mkdir()
    (tmp_path / "bare" / "config.yaml").write_text("name: bare\n")
    text = write_page(tmp_path, tmp_path / "report.html").read_text()
    assert "No run here has been evaluated yet" in text


def test_twenty_runs_fit_on_a_page(tmp_path):
    for number in range(20):
        make_run(tmp_path / f"run-{number:02d}", seed=number)
    text = write_page(tmp_path, tmp_path / "report.html").read_text()
    assert "20 runs compared" in text and len(text) < 3_000_000
    assert len(chart_data(text)["curve-0"]["series"]) == 20


def test_results_that_are_not_comparable_stand_in_separate_tables(tmp_path):
    one, two = make_runs(tmp_path, ("adversarial", "trades"))
    robust = np.arange(360) % 2 == 0
    protocols = {one: "pgd-50", two: "pgd-100"}
    for folder, protocol in protocols.items():
        made = {"evaluation": protocol, "suite": "pgd", "threat": "linf:8/255", "protocol": protocol}
        append_result(folder, result(folder, "robust_accuracy", robust, **made))
    text = write_page(tmp_path, tmp_path / "report.html").read_text()
    tables = re.findall(r'<p class="protocol">(.*?)</p>.*?<tbody>(.*?)</tbody>', text, re.S)
    rows = {how.split(" · ")[1]: body.count("<tr>") for how, body in tables}
    assert rows["pgd-50"] == rows["pgd-100"] == 1
    assert sorted(rows.values()) == [1, 1, 2]


def test_a_broken_gallery_costs_a_warning_and_not_the_page(tmp_path):
    folder = make_run(tmp_path / "trades")
    write_arrays(folder / "examples" / "bad.npz", {"x": np.zeros(3)})
    text = write_page(folder, tmp_path / "report.html").read_text()
    assert "bad.npz lacks x_adv" in text and '<section id="examples"' in text


def test_images_that_were_wrong_already_are_not_called_attacked(tmp_path):
    folder = make_run(tmp_path / "trades", examples=False)
    write_examples(folder, 0, None, broken=np.zeros(6, dtype=bool))
    path = folder / "examples" / "pgd-8.npz"
    arrays = dict(np.load(path))
    write_arrays(path, {**arrays, "size": np.full(6, np.nan), "clean_prediction": arrays["adversarial_prediction"]})
    text = write_page(folder, tmp_path / "report.html").read_text()
    assert "not attacked" in text and "already when clean" in text and "size nan" not in text


def test_write_report_puts_the_page_above_the_runs_and_a_card_in_each(tmp_path):
    runs = make_runs(tmp_path)
    assert write_report(runs) == tmp_path.resolve() / "report.html"
    assert all((run / "card.md").is_file() for run in runs)
    assert write_report(tmp_path, tmp_path / "pages" / "a.html").is_file()
    assert write_report(runs[0], tmp_path / "pages") == tmp_path / "pages" / "report.html"
    with pytest.raises(UserError, match=r"page\.html"):
        write_report(tmp_path, tmp_path / "page.pdf")
    with pytest.raises(UserError, match="did you mean 'trades'"):
        write_report(tmp_path / "trade")


def test_reports_need_no_torch(tmp_path):
    make_runs(tmp_path)
    code = (
        "import sys; from hardtack.report import write_report, write_figures;"
        f"write_report({str(tmp_path)!r}); write_figures({str(tmp_path)!r}, {str(tmp_path / 'figures')!r});"
        "sys.exit('torch was imported' if 'torch' in sys.modules else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
