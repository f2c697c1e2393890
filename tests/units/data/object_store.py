"""A pretended S3 on this machine (moto's server) and a plain web server, for tests of remote data."""

from __future__ import annotations

import contextlib
import functools
import http.server
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

BUCKET = "images"


class Bucket:
    """Objects of one bucket, and the requests that were made for them."""

    def __init__(self, endpoint: str) -> None:
        import boto3

        self.endpoint = endpoint
        self.client = boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1")
        self.client.create_bucket(Bucket=BUCKET)

    def put(self, key: str, data: bytes) -> None:
        self.client.put_object(Bucket=BUCKET, Key=key, Body=data)

    def put_folder(self, folder: Path, prefix: str) -> str:
        """All files of a folder below `prefix`; returns the URL."""
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                self.put(f"{prefix}/{path.relative_to(folder).as_posix()}", path.read_bytes())
        return f"s3://{BUCKET}/{prefix}"


@contextlib.contextmanager
def s3_server() -> Iterator[Bucket]:
    pytest.importorskip("s3fs", reason="reading s3:// needs s3fs")
    server = pytest.importorskip("moto.server", reason="the pretended S3 is moto's")
    pytest.importorskip("boto3", reason="the pretended S3 is filled by boto3")
    started = server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    names = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": "us-east-1"}
    before = {name: os.environ.get(name) for name in (*names, "AWS_ENDPOINT_URL")}
    started.start()
    host, port = started.get_host_and_port()
    os.environ |= {**names, "AWS_ENDPOINT_URL": f"http://{host}:{port}"}
    try:
        yield Bucket(f"http://{host}:{port}")
    finally:
        started.stop()
        for name, value in before.items():
            os.environ.pop(name, None) if value is None else os.environ.update({name: value})


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


class _Server(http.server.ThreadingHTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        """A client that hangs up is no news."""


@contextlib.contextmanager
def web_server(folder: Path) -> Iterator[str]:
    """The address of a web server for the files of a folder; it sends whole files only."""
    pytest.importorskip("aiohttp", reason="reading http:// needs aiohttp")
    with _Server(("127.0.0.1", 0), functools.partial(_Quiet, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()
