"""benchmarks/scale.py runs, and what it writes hangs together."""

import json
from pathlib import Path

from processes import script

ROOT = Path(__file__).parents[2]


def test_the_quick_form(tmp_path):
    done = script(ROOT / "benchmarks" / "scale.py", "--quick", "--output", str(tmp_path / "out.json"), cwd=ROOT)
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "out.json").read_text()
    record = json.loads(text)
    assert str(tmp_path) not in text and record["command"] == "python benchmarks/scale.py --quick"
    assert record["measured"]["startup_s"] > 0 and record["measured"]["rows"][0]["wall_s"] > 0
    equal = record["simulated"]["evaluation"]["imagenet"]["by_fleet"]["all equal"]
    walls = [each["wall_s"] for each in equal if each["order"] == "longest first"]
    assert walls == sorted(walls, reverse=True) and len(walls) == 3, "more GPUs take less time"
    assert all(0 < each["efficiency"] <= 1 and each["lost_pieces"] == 0 for each in equal)
    assert record["simulated"]["study"]["trainings"] == 8
