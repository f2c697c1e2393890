"""The garbage collector rests while packages are imported, and is as it was afterwards."""

import gc

import pytest

from hardtack.base.quick_imports import quick_imports


@pytest.mark.parametrize("enabled", [True, False])
def test_the_collector_is_as_it_was(enabled):
    before, frozen = gc.isenabled(), gc.get_freeze_count()
    (gc.enable if enabled else gc.disable)()
    try:
        with pytest.raises(ImportError), quick_imports():
            assert not gc.isenabled()
            raise ImportError
        assert gc.isenabled() is enabled
        assert gc.get_freeze_count() == frozen, "frozen objects would be reported as leaks when the process ends"
    finally:
        (gc.enable if before else gc.disable)()
