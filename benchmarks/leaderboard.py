"""The site of 300 runs: how long a build takes, and how soon a browser shows it from the disk.

    python benchmarks/leaderboard.py --output benchmarks/results/leaderboard.json

The runs are those of the tests (tests/units/report/many_runs.py): small, with verdicts and evidence that are checked.
`build`: of an empty folder, repeated, and with three changed runs, without the start of Python. `view`, for each width
of the screen: milliseconds from the navigation to the first paint, and to the end of the page's script, when filters,
chart and table are there; the median of nine visits in a fresh Chromium context each.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "units" / "report"))
WIDTHS = (1280, 390)
VISITS = 9


def build(runs: Path, site: Path) -> dict[str, Any]:
    from hardtack.report.site import write_site

    began, used = time.perf_counter(), time.process_time()
    report = write_site([runs], site, quiet=True)
    seconds = {"s": round(time.perf_counter() - began, 2), "cpu_s": round(time.process_time() - used, 2)}
    return {**seconds, "files_written": report.written, "pages_unchanged": report.unchanged}


def view(index: Path, chromium: str) -> dict[str, Any]:
    from playwright.sync_api import sync_playwright

    times: dict[str, Any] = {}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        for width in WIDTHS:
            visits = []
            for _ in range(VISITS):
                context = browser.new_context(viewport={"width": width, "height": 900})
                page = context.new_page()
                page.goto(index.resolve().as_uri())
                page.wait_for_selector("#table tbody tr")
                visits.append(
                    page.evaluate(
                        """[performance.getEntriesByName("first-contentful-paint")[0].startTime,
                        performance.getEntriesByType("navigation")[0].domContentLoadedEventEnd]"""
                    )
                )
                context.close()
            names = ("first_paint_ms", "complete_ms")
            times[f"{width}px"] = {
                name: round(statistics.median(values))
                for name, values in zip(names, zip(*visits, strict=True), strict=True)
            }
        browser.close()
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=300, help="runs")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    from many_runs import make_many, make_small

    with tempfile.TemporaryDirectory() as place:
        runs, site = Path(place) / "runs", Path(place) / "site"
        folders = make_many(runs, options.count)
        time.sleep(0.2)  # until the time of the last change is certain
        builds = {"empty": build(runs, site), "repeated": build(runs, site)}
        for folder in folders[:3]:
            shutil.rmtree(folder)
            make_small(folder, 1000)
        builds["three_changed"] = build(runs, site)
        chromium = shutil.which("chromium") or shutil.which("google-chrome")
        record = {
            "command": f"python {' '.join(sys.argv[:1])} --count {options.count}",
            "date": datetime.date.today().isoformat(),
            "python": platform.python_version(),
            "cores": os.cpu_count(),
            "load": round(os.getloadavg()[0], 1),
            "runs": options.count,
            "build": builds,
            "kilobytes": {
                "index": round((site / "index.html").stat().st_size / 1000),
                "page": round(statistics.median(path.stat().st_size for path in (site / "runs").iterdir()) / 1000),
                "shared": round(sum(path.stat().st_size for path in (site / "assets").iterdir()) / 1000),
                "whole": round(sum(path.stat().st_size for path in site.rglob("*") if path.is_file()) / 1000),
            },
            "view": view(site / "index.html", chromium) if chromium else "no chromium here",
        }
    text = json.dumps(record, indent=1) + "\n"
    print(text)
    if options.output:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
