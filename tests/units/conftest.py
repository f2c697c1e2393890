"""Audits of unit tests are short: most tests are about something else. Tests of audits ask for `full_audits`."""

import pytest

_SHORT = {"AUDIT_QUERIES": 20, "AUDIT_STEPS": 10, "AUDIT_SMOOTH_STEPS": 5}


@pytest.fixture(scope="session", autouse=True)
def short_audits():
    from hardtack.attacks import autoattack

    full = {name: getattr(autoattack, name) for name in _SHORT}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in _SHORT.items():
            patch.setattr(autoattack, name, value)
        yield full


@pytest.fixture
def full_audits(short_audits, monkeypatch):
    from hardtack.attacks import autoattack

    for name, value in short_audits.items():
        monkeypatch.setattr(autoattack, name, value)
