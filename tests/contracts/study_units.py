"""Every run that the studies train at a scale, by its label `STUDY:ROW/TRAINING`; equal runs are listed once."""

import functools

from hardtack.studies.rows import in_order
from hardtack.studies.scaled import at_scale
from hardtack.studies.study import load_study
from hardtack.studies.study_files import list_studies
from hardtack.studies.unit import units_of


@functools.cache
def units(scale):
    """The distinct runs of all studies."""
    distinct = {}
    for name in list_studies():
        for unit in in_order(units_of(at_scale(load_study(name), scale))):
            distinct.setdefault(unit.digest, unit)
    return {unit.label: unit for unit in distinct.values()}
