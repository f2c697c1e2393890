"""A Ray cluster of two nodes on this machine's loopback, for the tests of one module.

A test module asks for it with `pytest_plugins = ("ray_cluster",)` and a parameter `cluster` or `address`. Where Ray is
not installed the tests are skipped with the reason; with HARDTACK_REQUIRE_RAY=1 they fail.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from required import require_ray


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Two nodes of one CPU core each: two actors, each of which takes seconds to start, are enough for every test."""
    ray = require_ray()
    from ray.cluster_utils import Cluster

    os.environ["RAY_DISABLE_IMPORT_WARNING"] = "1"
    arguments = {"num_cpus": 1, "include_dashboard": False}
    system = {"health_check_initial_delay_ms": 1000, "health_check_period_ms": 300, "health_check_failure_threshold": 3}
    made = Cluster(initialize_head=True, head_node_args={**arguments, "_system_config": system})
    made.add_node(num_cpus=1)
    yield made
    ray.shutdown()
    made.shutdown()


@pytest.fixture
def address(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> str:
    """The cluster's address, also in RAY_ADDRESS."""
    monkeypatch.setenv("RAY_ADDRESS", cluster.address)
    found: str = cluster.address
    return found
