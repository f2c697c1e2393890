"""Data sets at URLs (`s3://`, `gs://`, `https://` …): listed, fetched one object at a time, kept in a local cache."""

from hardtack.data.remote.address import is_url
from hardtack.data.remote.path import Place, RemotePath, local_file, size_bytes

__all__ = ["Place", "RemotePath", "is_url", "local_file", "size_bytes"]
