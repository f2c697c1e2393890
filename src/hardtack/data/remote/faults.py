"""What goes wrong at a remote store, in one line: no such object, no credentials, no connection."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from hardtack.base.errors import UserError
from hardtack.base.limits import shorten
from hardtack.data.remote.address import scheme_of

_CREDENTIALS = {
    "s3": "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY or AWS_PROFILE; for a public bucket FSSPEC_S3_ANON=true",
    "gs": "run 'gcloud auth application-default login'; for a public bucket FSSPEC_GS_TOKEN=anon",
}
_NO_CREDENTIALS = ("NoCredentialsError", "PartialCredentialsError", "NoAuthTokenError", "DefaultCredentialsError")


class RemoteError(UserError):
    """A remote object or folder that cannot be read."""


@contextlib.contextmanager
def explained(url: str) -> Iterator[None]:
    """Errors of the store, its driver and the network inside the block as one-line errors that name `url`."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # drivers raise their own classes: botocore's, aiohttp's, google's
        raise RemoteError(_message(error, url)) from None


def _message(error: BaseException, url: str) -> str:
    if isinstance(error, FileNotFoundError) and isinstance(error.__cause__, OSError):
        error = error.__cause__  # fsspec says "not found" for a web server that does not answer, too
    said = shorten(" ".join(str(error).split()) or type(error).__name__, 200)
    credentials = _CREDENTIALS.get(scheme_of(url), "check the credentials of the store")
    kind = type(error).__name__
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        what = "bucket" if "bucket" in said.lower() else "file or folder"
        return f"{url}: there is no such {what}"
    if kind in _NO_CREDENTIALS:
        return f"{url}: no credentials were found; {credentials}"
    if isinstance(error, PermissionError):
        return f"{url}: access is refused ({said}); {credentials}"
    if isinstance(error, ImportError):
        return f"{url} needs another package: {said}"
    if isinstance(error, OSError | TimeoutError) or "Connect" in kind or "Timeout" in kind:
        return f"{url}: the server cannot be reached or stopped answering ({kind}: {said})"
    return f"{url} cannot be read ({kind}: {said})"
