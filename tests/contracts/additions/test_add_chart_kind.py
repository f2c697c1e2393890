"""A kind of chart of the user's own is one file: drawn by its script on the page, and by matplotlib as a figure."""

import base64
import hashlib
import json
import re

import pytest

from hardtack.base.errors import UserError
from hardtack.base.registry import charts, kinds
from hardtack.commands.cli import main
from hardtack.report import kinds as kinds_of_chart
from hardtack.results import read_runs

SOURCE = '''"""Runs as rings: a kind of chart, and a chart of this kind."""

from hardtack.base.registry import charts, kinds
from hardtack.report.charts import Section

SCRIPT = """
const RADIUS = 20;
kinds.rings = (chart, { plot, width, hidden }) => {
  const shown = chart.series.filter((one) => !hidden.has(one.run));
  if (!shown.length) return null;
  const svg = element("svg", { viewBox: `0 0 ${width} 60` }, plot);
  shown.forEach((one, i) => element("circle", { cx: 40 + 50 * i, cy: 30, r: RADIUS * one.value }, svg));
  const read = (i) => ({ x: 40 + 50 * i, title: shown[i].name, lines: [], mark: () => {} });
  return { svg, width, height: 60, count: shown.length, columns: 1, near: () => 0, read };
};
"""


@kinds.register("rings", words="rings by run", script=SCRIPT)
def rings_figure(chart):
    from matplotlib.figure import Figure

    figure = Figure(figsize=(3, 1))
    axes = figure.add_subplot()
    axes.scatter([one["run"] for one in chart["series"]], [one["value"] for one in chart["series"]])
    return figure


@charts.register("my_rings", section=Section(id="rings", short="Rings", title="Accuracy as rings"))
def ring_charts(runs):
    series = [{"run": i, "name": run.label, "value": run.results[0].value} for i, run in enumerate(runs)]
    return [{"id": "rings-0", "kind": "rings", "title": "Rings", "caption": "", "choose": None, "numbers": [],
             "series": series}]
'''


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp("kind")
    file = folder / "my_kind.py"
    file.write_text(SOURCE)
    run, page, figures = folder / "run", folder / "page.html", folder / "figures"
    assert main(["evaluate", "model=vit_digits", "data=digits", "suite=clean", "n=16", f"output={run}"]) == 0
    assert main(["--import", str(file), "report", str(run), "-o", str(page), "--figures", str(figures)]) == 0
    yield page.read_text(), {path.name for path in figures.iterdir()}, read_runs(run)
    kinds._entries.pop("rings")
    charts._entries.pop("my_rings")


def test_its_script_and_data_are_on_the_page(written):
    page, _, (run,) = written
    data = json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)[1])
    assert data["charts"]["rings-0"]["series"] == [{"run": 0, "name": run.label, "value": run.results[0].value}]
    script = re.findall(r"<script>(.*?)</script>", page, re.S)[0]
    assert "kinds.rings = (chart" in script and "kinds.violin" not in script, "the kinds on the page, and no others"
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in page, "and no other script may run"
    assert 'aria-label="Rings: rings by run; arrow keys read the values"' in page


def test_its_figure_is_written(written):
    assert {"rings.pdf", "rings.svg", "rings.png"} <= written[1]


def test_what_is_missing_is_named(tmp_path):
    with pytest.raises(UserError, match=r"there is no kind of chart 'line' .did you mean 'lines'"):
        kinds_of_chart.figure({"kind": "line"})
    file = tmp_path / "silent.py"
    file.write_text("def silent_figure(chart): ...")
    scope: dict = {"__name__": "silent"}
    exec(compile(file.read_text(), str(file), "exec"), scope)
    kinds.register("silent")(scope["silent_figure"])
    try:
        with pytest.raises(UserError, match=r"'silent' has no script: register it with script=…, or write .*silent.js"):
            kinds_of_chart.script("silent")
        file.with_name("silent.js").write_text("kinds.silent = () => null;")
        assert "kinds.silent" in kinds_of_chart.script("silent")
        file.with_name("silent.js").write_text("kinds.silent = '</script>';")
        with pytest.raises(UserError, match="contains '</script'"):
            kinds_of_chart.script("silent")
    finally:
        kinds._entries.pop("silent")
