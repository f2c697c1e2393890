"""benchmarks/forward_suites.py runs, and what it writes hangs together."""

import json
from pathlib import Path

from processes import script

ROOT = Path(__file__).parents[2]


def test_the_quick_form(tmp_path):
    words = ("--quick", "--output", str(tmp_path / "out.json"))
    done = script(ROOT / "benchmarks" / "forward_suites.py", *words, cwd=ROOT, timeout_s=300)
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "out.json").read_text()
    record = json.loads(text)
    assert str(tmp_path) not in text and record["command"] == "python benchmarks/forward_suites.py --quick"
    (measured,) = record["models"].values()
    assert measured["views"] == 75 and measured["passes"] == 75 * record["n"]
    assert measured["differing"] == 0 and measured["differing_probabilities"] == 0
    assert measured["copy"] and 0 < measured["share_in_fp32"] < 1
