"""The page says what the run folders say, whatever they lack, and nothing a name could smuggle in."""

import itertools
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from run_folders import (
    HOSTILE_CLASS,
    HOSTILE_NAME,
    make_run,
    make_runs,
    result,
    write_config,
    write_examples,
    write_metrics,
)

from hardtack.base.errors import UserError
from hardtack.commands.cli import main
from hardtack.report import page as page_module
from hardtack.report import palette, wording, write_page, write_report
from hardtack.results import append_result, write_arrays


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    parent = tmp_path_factory.mktemp("runs")
    make_runs(parent)
    return write_page(parent, parent / "report.html").read_text(), parent


def chart_data(text):
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)
    return json.loads(found.group(1))["charts"]


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


def differing(folder):
    text = write_page(folder, folder / "report.html").read_text()
    rows = text.split("What differs between the runs")[1].split("</div>")[0].split("<tr>")[2:]
    return {re.search(r"<code>(.*?)</code>", row).group(1): re.findall(r"<td>(.*?)</td>", row) for row in rows}


def test_a_setting_that_a_run_does_not_have_is_no_difference(tmp_path):
    make_runs(tmp_path, ("adversarial", "trades"))
    before = differing(tmp_path)
    (make_run(tmp_path / "unconfigured") / "config.yaml").unlink()
    after = differing(tmp_path)
    assert set(after) == set(before) and after["objective.name"] == ["adversarial", "trades", "—"]
    assert "objective.beta" not in after, "only one of them has it"


def test_options_of_a_model_are_listed_and_one_not_given_is_its_default(tmp_path):
    for name, options in (("a", "{}"), ("b", "{patch_size: 4}"), ("c", "{depth: 2}")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.yaml").write_text(f"name: same\nmodel: {{name: vit_digits, options: {options}}}\n")
    (make_run(tmp_path / "d") / "config.yaml").unlink()
    assert differing(tmp_path) == {
        "model.options.patch_size": ["default", "4", "default", "—"],
        "model.options.depth": ["default", "default", "2", "—"],
    }


def attacked(folder, hits, *, limits, threat="linf:1", **more):
    """A result of a patch attack, its settings those of its limits."""
    made = {"evaluation": f"pgd-{limits}", "suite": "pgd", "threat": threat, "attack": "patch_fool steps=5", **more}
    about = {"attack_settings": {"limits": limits}, "extra": {"limits": limits, "parameters": 2_860_000}}
    append_result(folder, result(folder, "robust_accuracy", hits, **made, **about))


def test_patch_attacks_are_headed_by_what_may_change(tmp_path):
    hits = np.arange(360) % 2 == 0
    one, two = make_runs(tmp_path, ("adversarial", "trades"))
    attacked(one, hits, limits="1 patch of 8×8, chosen by attention")
    attacked(two, hits, limits="1 patch of 4×4, chosen by saliency")
    text = write_page(tmp_path, tmp_path / "report.html").read_text()
    heads = re.findall(r"Robust accuracy <small>(.*?)</small>", text)
    assert sorted(heads) == [
        "1 patch of 4×4, chosen by saliency", "1 patch of 8×8, chosen by attention", "ℓ∞ ≤ 8/255",
    ]  # fmt: skip
    assert text.count("Robust accuracy: patch_fool on digits/test</h3>") == 2 and "ℓ∞ ≤ 1<" not in text
    attacked(two, hits, limits="2 patches of 4×4, chosen by saliency", threat="l2:2")
    text = write_page(tmp_path, tmp_path / "report.html").read_text()
    assert "<b>Robust accuracy</b> 2 patches of 4×4, chosen by saliency, ℓ₂ ≤ 2" in text, "a card of its run"


def test_rows_name_the_architecture_and_its_size(tmp_path):
    folder = make_run(tmp_path / "trades")
    attacked(folder, np.arange(360) % 2 == 0, limits="1 pixel")
    text = write_page(folder, tmp_path / "report.html").read_text()
    assert re.search(r'trades</span></h3>\s*<p class="protocol">vit_tiny_patch4_32, 2.9 M parameters</p>', text)
    attacked(other := make_run(tmp_path / "other"), np.arange(360) % 2 == 0, limits="1 pixel")
    text = write_page([folder, other], tmp_path / "report.html").read_text()
    assert re.search(r'trades</span><small class="architecture">vit_tiny_patch4_32, 2.9 M parameters</small>', text)
    assert [wording.count(n) for n in (999, 1000, 86_400, 5_717_416, 86_567_656, 1_100_000_000)] == [
        "999", "1.0 k", "86 k", "5.7 M", "87 M", "1.1 B"
    ]  # fmt: skip


def test_ties_are_said_and_broken_by_clean_accuracy(tmp_path):
    for name, clean in (("a", 300), ("b", 340), ("c", 320)):
        folder = tmp_path / name
        folder.mkdir()
        made = {"evaluation": "pgd-1", "suite": "pgd"}
        append_result(folder, result(folder, "clean_accuracy", np.arange(360) < clean, **made))
        append_result(folder, result(folder, "robust_accuracy", np.arange(360) < 90, threat="linf:1/255", **made))
    text = write_page(tmp_path, tmp_path / "report.html").read_text()
    card = text.split("Most robust")[1].split("</div>")[0]
    assert "<b>b</b>" in card and "tied with c and a" in card
    assert "b, c and a are tied at 25.0% on the same 360 images; b comes first by its clean accuracy." in text
    assert "tied" not in text.split("Most accurate on clean images")[1].split("</div>")[0]


def test_runs_that_were_never_evaluated_are_not_counted(tmp_path):
    make_runs(tmp_path, ("adversarial", "trades"))
    for name in ("early", "late"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.yaml").write_text(f"name: {name}\n")
    text = write_page(tmp_path, tmp_path / "report.html").read_text()
    assert "<h1>2 runs compared</h1>" in text and "not evaluated: early and late" in text


def test_examples_are_headed_by_their_attack(tmp_path):
    folder = make_run(tmp_path / "trades")
    attacked(folder, np.arange(360) % 2 == 0, limits="1 patch of 8×8", evaluation="second")
    write_arrays(folder / "examples" / "second.npz", dict(np.load(folder / "examples" / "pgd-8.npz")))
    text = write_page(folder, tmp_path / "report.html").read_text()
    examples = text.split('<section id="examples">')[1].split("</section>")[0]
    assert re.findall(r"<h3>(.*?)</h3>", examples) == ["pgd: ℓ∞ ≤ 8/255", "patch_fool: 1 patch of 8×8"]
    assert "pgd steps=20 restarts=1 loss=ce" in examples and "patch_fool steps=5" in examples


def test_flags_are_warnings_with_their_meaning(page):
    text, _ = page
    assert "the input gradient is exactly zero on 12 of 360 images" in text
    assert "Do not quote this number until the cause is understood." in text


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
    series = chart_data(text)["curve-0"]["series"]
    assert len(series) == 20
    at_8 = [next(point[1] for point in one["points"] if point[0] == 8) for one in series]
    assert at_8 == sorted(at_8, reverse=True), "the best first: they have the colours"
    assert "The best 12 of 20 runs have a colour" in text and "--run:var(--run-faded)" in text
    assert not re.search(r"var\(--run-1[2-9]\)", text)


@pytest.mark.parametrize(
    "evaluated, said",
    [
        (0, "The first 12 of 14 runs have a colour; the others are grey. No table ranks them."),
        (1, "12 of 14 runs have a colour, the one that a table ranks and the first of the others; the rest is grey."),
        (3, "12 of 14 runs have a colour, the 3 that tables rank and the first of the others; the rest is grey."),
    ],
)
def test_runs_that_nothing_ranks_are_not_called_the_best(tmp_path, evaluated, said):
    for number in range(14):
        folder = tmp_path / f"run-{number:02d}"
        if number < 14 - evaluated:
            folder.mkdir()
            write_config(folder, {"name": "standard"}, number)
            write_metrics(folder, 0.9, 8.0, number)
        else:
            make_run(folder, seed=number, sweep=False, examples=False)
    text = write_page(tmp_path, tmp_path / "report.html").read_text()
    assert said in text and "best of" not in text


def test_twelve_colours_can_be_told_apart_by_day_and_night():
    """By their distance in CIELAB: two colours that a reader might take for each other are less than 20 apart."""
    css = (Path(page_module.__file__).parent / "templates" / "page.css").read_text()
    found = re.findall(r"--run-(\w+): (#\w{6})", css)
    day, night = dict(found[:13]), dict(found[13:])
    assert tuple(day[str(number)] for number in range(12)) == palette.COLOURS and day["faded"] == palette.FADED
    for colours in (day, night):
        assert len(colours) == 13
        for one, other in itertools.combinations(colours.values(), 2):
            assert np.linalg.norm(lab(one) - lab(other)) > 20, (one, other)


def lab(colour):
    value = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    linear = np.where(value <= 0.04045, value / 12.92, ((value + 0.055) / 1.055) ** 2.4)
    to_xyz = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    x, y, z = np.cbrt(np.array(to_xyz) @ linear / [0.95047, 1, 1.08883])
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def test_figures_that_cannot_be_drawn_say_why(tmp_path, capsys):
    (tmp_path / "bare").mkdir()
    (tmp_path / "bare" / "config.yaml").write_text("name: bare\n")
    assert main(["report", str(tmp_path), "--figures", str(tmp_path / "figures")]) == 0
    assert "nothing to draw: no run here has been trained or evaluated" in capsys.readouterr().out
    make_run(tmp_path / "trades")
    assert main(["report", str(tmp_path), "--figures", str(tmp_path / "figures")]) == 0
    assert "figures: 16 in " in capsys.readouterr().out


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


def test_a_page_does_not_say_where_the_folders_of_its_maker_lie(tmp_path, monkeypatch):
    """A relative path from outside of the home folder would have every folder above the run in it."""
    monkeypatch.setenv("HOME", str(tmp_path / "homes" / "jane"))
    run = make_run(tmp_path / "homes" / "jane" / "secret" / "trades")
    inside, outside = tmp_path / "homes" / "jane" / "pages" / "page.html", tmp_path / "www" / "page.html"
    assert "<code>../secret/trades</code>" in write_page(run, inside).read_text()
    text = write_page(run, outside).read_text()
    assert "<code>trades</code>" in text and "jane" not in text and "secret" not in text


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
    assert "not attacked" in text and "also without attack" in text and "size nan" not in text


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
    make_run(tmp_path / "run")
    code = (
        "import sys; from hardtack.report import write_report, write_figures;"
        f"write_report({str(tmp_path)!r});"
        f"write_figures({str(tmp_path)!r}, {str(tmp_path / 'figures')!r}, formats=['svg']);"
        "sys.exit('torch was imported' if 'torch' in sys.modules else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
