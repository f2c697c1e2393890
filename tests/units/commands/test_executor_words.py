"""The words that say where a command runs."""

import pytest

from hardtack.base.errors import UserError
from hardtack.commands.executor_words import read_place


def test_settings_are_taken_with_and_without_the_name():
    place, left = read_place("slurm", {"workers": 4, "slurm": {"hours": 2}, "suite": "pgd"})
    assert place.name == "slurm" and place.settings == {"workers": 4, "hours": 2} and left == {"suite": "pgd"}
    place, _ = read_place("ray:10.0.0.5:6379", {"ray": {"workers": 4}})
    assert place.settings == {"workers": 4, "address": "10.0.0.5:6379"}


@pytest.mark.parametrize(
    ("on", "values", "message"),
    [
        ("slurm", {"workers": 2, "slurm": {"workers": 1}}, r"'workers' and 'slurm\.workers' are the same setting"),
        ("slurm", {"slrum": {"gpus": 1}}, "did you mean 'slurm'"),
        (None, {"wokers": 2}, "did you mean 'workers'"),
        ("ray", {"slurm": {"gpus": 1}}, "this command runs on ray"),
        ("rya", {}, "did you mean 'ray'"),
        ("slurm:here", {}, "only ray takes an address"),
    ],
)
def test_mistakes_are_named(on, values, message):
    with pytest.raises(UserError, match=message):
        read_place(on, values)
