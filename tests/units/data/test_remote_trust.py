"""A run folder of a stranger does not make this machine contact a URL that its user did not type."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hardtack.base.errors import UserError
from hardtack.base.trust import remember_paths, stored_settings
from hardtack.data.paths import find_path, find_place
from hardtack.data.remote import connection

STORED = [
    {"name": "folder:s3://stranger/set"},
    {"name": "wds/s3://stranger/set"},
    {"name": "timm:wds/s3://stranger/set"},
    {"name": "parquet:https://stranger/test.parquet"},
    {"name": "folder:set", "root": "s3://stranger"},
    {"name": "digits", "extra": [{"name": "npz:gs://stranger/a.npz"}]},
    {"name": "digits", "synthetic": {"name": "npz:gs://stranger/a.npz"}},
    {"name": "folder:.", "test_list": "http://stranger/list.txt"},
]


@pytest.mark.parametrize("data", STORED)
def test_a_stored_url_is_refused_even_inside_the_run_folder(
    data: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`s3://stranger` would be a path inside the working folder, which here is the run itself."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="if you trust it, type it yourself"):
        stored_settings({"data": data}, {}, folder=tmp_path)


def test_a_typed_root_does_not_open_urls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    stored = {"data": {"name": "folder:s3://stranger/set"}}
    with pytest.raises(UserError, match="type it yourself"):
        stored_settings(stored, {"data": {"root": str(tmp_path)}}, folder=tmp_path / "run")


@pytest.mark.parametrize("data", STORED[:7])
def test_a_typed_url_is_remembered_from_every_folder(
    data: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    remember_paths({"data": data})
    monkeypatch.chdir(tmp_path)
    assert stored_settings({"data": data}, {}, folder=tmp_path / "run")["data"] == data
    for other in ("stranger.example", "strange"):  # no part of a URL stands for another
        text = json.dumps(data).replace("stranger", other)
        with pytest.raises(UserError, match="type it yourself"):
            stored_settings({"data": json.loads(text)}, {}, folder=tmp_path / "run")


def test_nobody_is_asked_when_a_url_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands compare the data that is typed with that of a run before they decide whether to trust it."""
    monkeypatch.setattr(connection, "filesystem", lambda url: pytest.fail(f"{url} was contacted"))
    assert str(find_place("s3://stranger/set/", None, kind="folder")) == "s3://stranger/set"
    with pytest.raises(UserError, match="local folder"):
        find_path("s3://stranger/set", None, kind="folder")
