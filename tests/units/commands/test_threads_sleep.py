"""How threads wait is settled before torch is loaded, unless the user has settled it."""

import os

import pytest

from hardtack.commands.cli import main


@pytest.mark.parametrize("given, after", [
    ({}, "2000"),
    ({"GOMP_SPINCOUNT": "7"}, "7"),
    ({"OMP_WAIT_POLICY": "ACTIVE"}, None),
])  # fmt: skip
def test_threads_sleep_while_they_wait_unless_told_otherwise(monkeypatch, capsys, given, after):
    for name in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY"):
        monkeypatch.setenv(name, "")  # so that it is put back afterwards
        monkeypatch.delenv(name)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    assert main(["--help"]) == 0
    assert os.environ.get("GOMP_SPINCOUNT") == after
