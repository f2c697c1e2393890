"""Data sets at URLs give the same images as local ones, fetch what is read, and say in one line what is wrong."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import object_store
import pytest
import tiny
import torch

from hardtack.base.errors import UserError
from hardtack.data import Dataset, batches, load_data
from hardtack.data.content import content_digest
from hardtack.data.remote import cache, connection
from hardtack.data.remote.path import remote_path


@pytest.fixture(scope="module")
def bucket() -> Iterator[object_store.Bucket]:
    with object_store.s3_server() as started:
        connection._connections.clear()
        yield started
    connection._connections.clear()


def whole(name: str, **settings: object) -> Dataset:
    return load_data(name, "test", **{"test": 1.0, "workers": 0, **settings})


def fetched(folder: Path) -> int:
    """Objects in the cache."""
    return len(list(folder.glob("remote/*/*.json")))


def same(one: Dataset, two: Dataset) -> bool:
    pairs = zip(*(data.batch(torch.arange(len(data))) for data in (one, two)), strict=True)
    return one.classes == two.classes and all(torch.equal(a, b) for a, b in pairs)


# ---------------------------------------------------------------- what is read


def test_a_folder_is_listed_and_its_images_are_fetched_when_they_are_read(bucket, tmp_path, own_cache) -> None:
    folder = tiny.folder(tmp_path / "set")
    url = bucket.put_folder(folder, "listed")
    data = whole(f"folder:{url}")
    assert data.streamed and fetched(own_cache) == 1, "the first image, for its size"
    content_digest(data)
    assert fetched(own_cache) == 1, "the store knows the versions"
    data.batch([2, 3])
    assert fetched(own_cache) == 3
    assert same(data, whole(f"folder:{folder}")) and fetched(own_cache) == 8


def test_splits_and_a_root_at_a_url(bucket, tmp_path) -> None:
    for split in ("train", "val"):
        tiny.folder(tmp_path / "set" / split)
    url = bucket.put_folder(tmp_path / "set", "roots/set")
    data = load_data("folder:set", "test", root=url.removesuffix("/set"))
    assert len(data) == 8 and same(data, load_data(f"folder:{tmp_path / 'set'}", "test"))


def test_a_parquet_file_is_fetched_only_if_its_rows_are_read(bucket, tmp_path, own_cache) -> None:
    for number in range(3):
        tiny.parquet(tmp_path / "set" / f"test-{number}.parquet", 12, rows=4, seed=number)
    url = bucket.put_folder(tmp_path / "set", "parquet")
    data = whole(f"parquet:{url}")
    assert data.streamed and fetched(own_cache) == 1, "labels by ranges; the file of the first image"
    data.batch([30])
    assert fetched(own_cache) == 2
    assert same(data, whole(f"parquet:{tmp_path / 'set'}"))
    assert same(whole(f"parquet:{url}/test-[01].parquet"), whole(f"parquet:{tmp_path / 'set'}/test-[01].parquet"))


def test_a_shard_is_not_needed_once_its_index_is_kept(bucket, tmp_path, own_cache) -> None:
    shards = tiny.web_shards(tmp_path / "set", shards=3)
    name = f"wds/{bucket.put_folder(shards, 'shards')}"
    data = load_data(name, "train", validation=0, workers=0)
    assert same(data, load_data(f"wds/{shards}", "train", validation=0))
    for path in own_cache.glob("remote/*/*"):
        path.unlink()
    again = load_data(name, "train", validation=0, workers=0)
    assert fetched(own_cache) == 1 and same(again, data) and content_digest(again) == content_digest(data)


def test_processes_of_a_loader_connect_on_their_own(bucket, tmp_path) -> None:
    url = bucket.put_folder(tiny.folder(tmp_path / "set"), "loader")
    data = whole(f"folder:{url}")
    assert sum(len(batch.x) for batch in batches(data, 3, device="cpu", workers=2)) == 8


def test_all_images_are_held_only_if_that_is_asked_for(bucket, tmp_path) -> None:
    folder = tiny.folder(tmp_path / "set")
    data = whole(f"folder:{bucket.put_folder(folder, 'held')}", stream=False)
    assert not data.streamed and same(data, whole(f"folder:{folder}"))


def test_a_list_of_files_chooses_among_remote_images(bucket, tmp_path) -> None:
    folder = tiny.folder(tmp_path / "set")
    (tmp_path / "list.txt").write_text("dog/1.png\ncat/3.png\n")
    settings = {"test_list": str(tmp_path / "list.txt"), "workers": 0}
    remote, local = f"folder:{bucket.put_folder(folder, 'list')}", f"folder:{folder}"
    for split, count in (("test", 2), ("train", 6)):
        data = load_data(remote, split, validation=0, **settings)
        assert len(data) == count and same(data, load_data(local, split, validation=0, **settings))


@pytest.mark.parametrize("name", ["npz:{}/set.npz", "parquet:{}/test.parquet", "wds/{}/train-0000.tar"])
def test_single_files_over_http(tmp_path: Path, name: str) -> None:
    tiny.npz(tmp_path / "set.npz")
    tiny.parquet(tmp_path / "test.parquet")
    tiny.web_shards(tmp_path, shards=1)
    split = "train" if "tar" in name else "test"
    with object_store.web_server(tmp_path) as address:
        remote = load_data(name.format(address), split, validation=0, workers=0)
        assert same(remote, load_data(name.format(tmp_path), split, validation=0, workers=0))


# ---------------------------------------------------------------- the cache


def test_a_damaged_copy_is_fetched_again(bucket, tmp_path, own_cache) -> None:
    folder = tiny.folder(tmp_path / "set")
    name = f"folder:{bucket.put_folder(folder, 'damaged')}"
    assert same(whole(name), whole(f"folder:{folder}"))
    copies = [path for path in own_cache.glob("remote/*/*") if not path.suffix]
    for path in copies:
        path.write_bytes(b"\0" + path.read_bytes()[1:])
    assert same(whole(name), whole(f"folder:{folder}"))


def test_a_damaged_copy_of_a_file_is_fetched_again(bucket, tmp_path, own_cache) -> None:
    bucket.put("damaged.npz", tiny.npz(tmp_path / "set.npz").read_bytes())
    name = f"npz:s3://{object_store.BUCKET}/damaged.npz"
    first = whole(name)
    copy = next(path for path in own_cache.glob("remote/*/*") if not path.suffix)
    copy.write_bytes(copy.read_bytes()[:-10])
    assert same(whole(name), first)


def test_a_changed_object_is_fetched_again(bucket, tmp_path) -> None:
    name = f"folder:{bucket.put_folder(tiny.folder(tmp_path / 'set'), 'changed')}"
    before = whole(name)
    first, digest = before.batch([0]).x, content_digest(before)
    bucket.put("changed/cat/0.png", tiny.png(tiny.pixels(1, seed=99)[0]))
    after = whole(name)
    assert not torch.equal(after.batch([0]).x, first) and content_digest(after) != digest


def test_an_object_that_changes_after_the_listing_is_refused(bucket, tmp_path) -> None:
    data = whole(f"folder:{bucket.put_folder(tiny.folder(tmp_path / 'set'), 'late')}")
    bucket.put("late/dog/3.png", tiny.png(tiny.pixels(1, seed=99)[0]))
    with pytest.raises(UserError, match=r"late/dog/3\.png changed while it was used"):
        data.batch([7])


def test_many_fetch_the_same_object_at_once(bucket, own_cache) -> None:
    content = os.urandom(300_000)
    bucket.put("parallel", content)
    path = remote_path(f"s3://{object_store.BUCKET}/parallel").known()
    found: list[bytes] = []

    def work() -> None:
        found.append(cache.cached_file(path.url, path.version).read_bytes())

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [content] * 8 and fetched(own_cache) == 1
    assert not list(own_cache.rglob("*.part"))
    facts = json.loads(next(own_cache.glob("remote/*/*.json")).read_text())
    assert facts["size"] == 300_000 and facts["etag"] and facts["url"] == path.url


def test_an_object_larger_than_the_store_said_is_not_kept(bucket, own_cache) -> None:
    bucket.put("endless", b"0" * 5000)
    url = f"s3://{object_store.BUCKET}/endless"
    version = connection.version_of(url)._replace(size=100)
    with pytest.raises(UserError, match="sends more than 100 bytes"):
        cache.cached_file(url, version)
    assert fetched(own_cache) == 0 and not list(own_cache.rglob("*.part"))


# ---------------------------------------------------------------- what is wrong, in one line


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("folder:s3://nowhere/set", "there is no such bucket"),
        ("folder:s3://images/nothing", "there is no such file or folder"),
        ("parquet:s3://images/nothing.parquet", "there is no such file or folder"),
        ("wds/s3://images/nothing.tar", "there is no such file or folder"),
        ("npz:s3://images/nothing.npz", "there is no such file or folder"),
        ("npz:s3x://images/a.npz", r"'s3x://' is not read \(did you mean 's3'\?\)"),
        ("npz:simplecache::s3://images/a.npz", "there is no file or folder"),
        ("npz:s3://user:word@images/a.npz", "user name or password"),
        ("folder:http://127.0.0.1:9/set", "cannot be listed over http"),
        ("npz:http://127.0.0.1:9/a.npz", "cannot be reached"),
    ],
)
def test_what_is_wrong_is_said(bucket, name: str, message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        whole(name)
    assert "\n" not in str(caught.value) and "word@" not in str(caught.value)


def test_missing_credentials_are_named(bucket, monkeypatch, tmp_path) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setattr(connection, "_connections", {})
    with pytest.raises(UserError, match=r"no credentials were found; set AWS_ACCESS_KEY_ID"):
        whole("folder:s3://images/set")


def test_the_extra_is_named_where_fsspec_is_missing(monkeypatch) -> None:
    monkeypatch.setattr(connection, "_connections", {})
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(UserError, match=r"pip install 'hardtack\[remote\]'"):
        whole("npz:s3://images/a.npz")


def test_a_listing_that_leads_out_of_its_folder_is_refused(monkeypatch) -> None:
    class Hostile:
        def _strip_protocol(self, url: str) -> str:
            return url.partition("://")[2]

        def info(self, url: str) -> dict[str, object]:
            return {"type": "directory"}

        def ls(self, url: str, detail: bool) -> list[dict[str, object]]:
            return [{"name": f"images/{name}", "type": "directory", "size": 0} for name in ("set/cat", "set/../../etc")]

    monkeypatch.setattr(connection, "_connections", {(os.getpid(), "s3"): Hostile()})
    with pytest.raises(UserError, match=r"names '\.\./\.\./etc', which is no file inside"):
        whole("folder:s3://images/set")


def test_other_files_must_be_local(bucket) -> None:
    with pytest.raises(UserError, match="must lie in a local folder"):
        whole("cifar10c:s3://images/cifar/fog/3")
    with pytest.raises(UserError, match="must lie in a local folder"):
        whole("cifar10", root="s3://images")


@pytest.mark.parametrize(("url", "package"), [("gs://b/x", "gcsfs"), ("az://b/x", "adlfs"), ("sftp://h/x", "paramiko")])
def test_a_store_whose_package_is_missing_is_told_which_one(monkeypatch, url, package):
    import fsspec

    def missing(scheme, **named):
        raise ImportError(f"no package for {scheme}")

    monkeypatch.setattr(fsspec, "filesystem", missing)
    with pytest.raises(UserError, match=f"pip install {package}"):
        connection.filesystem(url)
