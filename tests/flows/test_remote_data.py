"""A model is evaluated on images in an object store by the command, and its verdicts are those of local images."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hardtack.results import read_results
from processes import hardtack

sys.path.insert(0, str(Path(__file__).parents[1] / "units" / "data"))
import object_store
import tiny

MODEL = """
import torch
from torch import nn

def build():
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 2))
"""
WORDS = ["suite=clean", "model=model.py:build", "runtime.device=cpu", "data.test=1", "data.workers=0"]


@pytest.fixture(scope="module")
def bucket() -> Iterator[object_store.Bucket]:
    with object_store.s3_server() as started:
        yield started


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HARDTACK_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "model.py").write_text(MODEL)
    return tmp_path


def accuracy(home: Path, data: str, output: str) -> dict[str, float]:
    done = hardtack("evaluate", f"data={data}", *WORDS, f"output={output}", cwd=home)
    assert done.returncode == 0, done.stderr
    return {result.metric: result.value for result in read_results(home / output)}


@pytest.mark.parametrize("kind", ["folder", "parquet", "shards"])
def test_remote_and_local_images_give_the_same_results(bucket, home: Path, kind: str) -> None:
    folder = home / "set"
    if kind == "folder":
        tiny.folder(folder)
    elif kind == "parquet":
        tiny.parquet(folder / "test.parquet", 12, rows=4)
    else:
        tiny.web_shards(folder, shards=3)
        for shard in folder.glob("*.tar"):
            shard.rename(folder / shard.name.replace("train", "test"))
    prefix = {"folder": "folder:", "parquet": "parquet:", "shards": "wds/"}[kind]
    remote = accuracy(home, f"{prefix}{bucket.put_folder(folder, f'flow/{kind}')}", "remote")
    assert remote and remote == accuracy(home, f"{prefix}{folder}", "local")


def test_a_missing_bucket_is_one_line(bucket, home: Path) -> None:
    done = hardtack("evaluate", "data=folder:s3://nowhere/set", *WORDS, cwd=home)
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert "s3://nowhere/set: there is no such bucket" in done.stderr
