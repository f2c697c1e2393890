"""Packages that some tests need: without them a test module is skipped with the reason, or fails where CI wants it."""

from __future__ import annotations

import importlib
import os
from typing import Any

import pytest


def require_ray() -> Any:
    """The module `ray`; with HARDTACK_REQUIRE_RAY=1 its absence is a failure."""
    if os.environ.get("HARDTACK_REQUIRE_RAY") == "1":
        return importlib.import_module("ray")
    return pytest.importorskip("ray", reason="ray is not installed: pip install 'hardtack[ray]'")
