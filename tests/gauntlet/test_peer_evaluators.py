"""Adapters of other packages, where these are installed; and how the official warnings are read."""

import pytest

from hardtack.evaluation.gauntlet import run_gauntlet
from hardtack.evaluation.gauntlet.evaluators.official_autoattack import read_warnings

PEERS = {"official": "autoattack", "torchattacks": "torchattacks", "foolbox": "foolbox", "art": "art"}


def test_official_warnings_become_flags():
    lines = [
        "using standard version including apgd-ce",
        'Warning: it seems to be a randomized defense! Please use version="rand".',
        "Warning: there are 3 points with zero gradient! This might lead to unreliable evaluation",
        "Warning: there are 2 points with zero gradient! This might lead to unreliable evaluation",
        "Warning: something new",
    ]
    flags = read_warnings(lines)
    assert [(flag["level"], flag["code"]) for flag in flags] == [
        ("red", "random_outputs"), ("red", "zero_gradient"), ("yellow", "warning"),
    ]  # fmt: skip


@pytest.mark.oracle
@pytest.mark.parametrize("name", PEERS)
def test_a_peer_breaks_the_undefended_core(core, name):
    pytest.importorskip(PEERS[name])
    (row,) = run_gauntlet(core, evaluators=[name], mechanisms=["undefended"], quiet=True).rows
    assert row.verdict == "right" and row.number == 0 and row.clean == 1, row
