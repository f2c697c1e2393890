"""The study in docs/studies.md is one that runs."""

import re
from pathlib import Path

from hardtack.base.config import first_comment
from hardtack.studies.check import check_study
from hardtack.studies.scaled import at_scale
from hardtack.studies.study import load_study
from hardtack.studies.unit import units_of

PAGE = Path(__file__).parents[3] / "docs" / "studies.md"


def test_the_example_of_the_docs_is_valid(tmp_path):
    path = tmp_path / "my_study.yaml"
    path.write_text(re.search(r"```yaml\n(.*?)```", PAGE.read_text(), re.S).group(1))
    study = load_study(path)
    assert study.title == first_comment(path) == "Does depth help against attacks?"
    scaled = at_scale(study, "smoke")
    check_study(scaled, units_of(scaled))
