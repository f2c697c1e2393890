"""Every study file is valid at every scale: models, recipes, protocols, analyses, the paper's cells and the claims."""

import re

import pytest

from hardtack.base.digests import json_text
from hardtack.models import catalog
from hardtack.studies.check import check_study
from hardtack.studies.claim_expression import RankCorrelation
from hardtack.studies.scaled import at_scale
from hardtack.studies.study import SCALES, load_study
from hardtack.studies.study_files import list_studies
from hardtack.studies.unit import units_of

NAMES = list_studies()
# the tables and figures of the four papers
PAPERS = {
    "rspc": [
        "figure1", "figure2_left", "figure2_right", "figure4", "figure5", "figure6", "figure7", "table1", "table2",
        "table3", "text_deit_swin",
    ],
    "xcit": [*(f"table{number}" for number in range(1, 10)), "figures_11_13", "figures_12_14", "text_l_against_m"],
    "architectures": [*(f"table{number}" for number in range(1, 5)), *(f"figure{number}" for number in range(1, 5))],
    "cauchy": ["figure3", "table1", "table2"],
}  # fmt: skip


def test_all_34_tables_and_figures_are_there():
    wanted = {f"{paper}/{study}" for paper, studies in PAPERS.items() for study in studies}
    assert len(wanted) == 34
    assert {name for name in NAMES if not load_study(name).supplement} == wanted
    supplements = {name for name in NAMES if load_study(name).supplement}
    assert {"rspc/lambda", "rspc/rho", "rspc/drop_against_occlude", "rspc/per_corruption"} <= supplements
    assert {"architectures/trades", "architectures/activations", "architectures/imagenette"} <= supplements


@pytest.mark.parametrize("name", NAMES)
def test_a_study_says_what_it_is(name):
    study = load_study(name)
    assert study.title and study.asks.endswith("?") and re.search(r"\b(19|20)\d\d\b", study.paper), name
    assert study.claims or study.supplement, "every table and figure of a paper has a claim to test"
    numbers = [value for cells in study.paper_says.values() for value in cells.values() if value is not None]
    assert numbers or study.kind != "table" or study.supplement, "a table has numbers"
    assert {scale.note for key, scale in study.scales.items() if key != "paper"} != {()}, "what differs is said"


@pytest.fixture(scope="module")
def networks():
    """Builds each network once for all studies and scales: its settings alone decide whether it can be built."""
    make_body, built = catalog.make_body, set()

    def once(name, **settings):
        key = json_text([name, settings])
        if key not in built:
            make_body(name, **settings)
            built.add(key)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(catalog, "make_body", once)
        yield


@pytest.mark.usefixtures("networks")
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", NAMES)
def test_what_a_study_names_exists(name, scale):
    scaled = at_scale(load_study(name), scale)
    assert scaled.rows and scaled.columns
    check_study(scaled, units_of(scaled))


@pytest.mark.parametrize("name", NAMES)
def test_claims_are_about_what_is_measured_at_paper_scale(name):
    study = load_study(name)
    scaled = at_scale(study, "paper")
    for claim, parsed in zip(study.claims, study.parsed_claims(), strict=True):
        for row, column in parsed.cells():
            assert row in scaled.rows and column in scaled.columns, claim.test
            every_row = isinstance(parsed.test, RankCorrelation) and parsed.test.all_rows
            assert every_row or scaled.columns[column].training not in scaled.rows[row].skip, claim.test
