"""Which texts are URLs of data, and which of them are read."""

from __future__ import annotations

from hardtack.base.errors import UserError, did_you_mean
from hardtack.base.limits import shorten
from hardtack.base.trust import URL

SINGLE = ("http", "https")  # these cannot be listed: a URL is one file
SCHEMES = ("s3", "gs", "az", "abfs", "hf", "sftp", "memory", "file", *SINGLE)
_LONGEST = 2000


def is_url(text: str) -> bool:
    """Whether a path is a URL (`s3://bucket/folder`) and not a local file."""
    return URL.match(text) is not None


def scheme_of(url: str) -> str:
    return url.partition("://")[0].lower()


def check_url(url: str) -> str:
    """The URL without a slash at its end; refused if it is of an unknown kind, chained, or holds a password."""
    scheme, _, rest = url.partition("://")
    if scheme.lower() not in SCHEMES:
        hint = did_you_mean(scheme, SCHEMES)
        raise UserError(f"{shorten(url)}: '{shorten(scheme)}://' is not read{hint}; known: {', '.join(SCHEMES)}")
    if "::" in url or "\0" in url or len(url) > _LONGEST or not rest.strip("/"):
        raise UserError(f"{shorten(url)} is no URL of one file or folder; write for example s3://BUCKET/FOLDER")
    if "@" in rest.partition("/")[0]:
        raise UserError(
            f"{scheme}://…: a URL with a user name or password would be kept in results; "
            "put credentials in the environment or the configuration of the store"
        )
    return url if scheme.lower() in SINGLE else url.rstrip("/")


def is_pattern(url: str) -> bool:
    """Whether a URL has wildcards; `?` begins the query of an http address."""
    return scheme_of(url) not in SINGLE and any(sign in url for sign in "*?[")


def check_relative(name: str, where: str) -> str:
    """A name from a listing or a record below `where`; refused if it leads out of it."""
    parts = name.split("/")
    if any(part in ("", ".", "..") for part in parts) or "\\" in name or "\0" in name:
        raise UserError(f"{where} names '{shorten(name)}', which is no file inside of it; it was not read")
    return name
