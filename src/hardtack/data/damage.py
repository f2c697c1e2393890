"""Images that cannot be read: an error that names them, or left out and counted (`data.skip_damaged=true`).

Readers that find an image by its position say which one is damaged when it is decoded. timm's reader of web shards only
logs what it cannot read and goes on with the next sample; here it hands over what it left out.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from torch import Tensor

from hardtack.base.cores import share_of_cores
from hardtack.base.errors import UserError
from hardtack.data.decode import CHUNK
from hardtack.data.source import Images

_NAMED = 3  # damaged images that a message names
_PATCHING = threading.Lock()


def settle_damage(damaged: list[str], name: str, *, skip: bool) -> str:
    """A note for the description of the data where damaged images are left out; without `skip` they are refused."""
    if not damaged:
        return ""
    many = f"{len(damaged)} image{'s' if len(damaged) > 1 else ''} of {name}"
    more = f" and {len(damaged) - _NAMED} more" if len(damaged) > _NAMED else ""
    which = "; ".join(damaged[:_NAMED]) + more
    if not skip:
        raise UserError(
            f"{many} cannot be read ({which}); repair the files, or leave these images out with data.skip_damaged=true"
        )
    print(f"note: {many} cannot be read and are left out ({which})", file=sys.stderr)
    return f"without {len(damaged)} damaged image{'s' if len(damaged) > 1 else ''}"


def readable_rows(images: Images, rows: Tensor) -> tuple[Tensor, list[str]]:
    """The rows whose images can be decoded, and what is wrong with the others; every image is decoded once."""

    def check(start: int) -> list[str | None]:
        return [_fault(images, row) for row in rows[start : start + CHUNK].tolist()]

    with ThreadPoolExecutor(max_workers=min(16, share_of_cores())) as pool:
        faults = [fault for part in pool.map(check, range(0, len(rows), CHUNK)) for fault in part]
    kept = [place for place, fault in enumerate(faults) if fault is None]
    return rows[kept], [fault for fault in faults if fault is not None]


def _fault(images: Images, row: int) -> str | None:
    try:
        images.read(row)
    except UserError as error:
        return str(error)
    return None


@contextlib.contextmanager
def reported_by_timm(damaged: list[str]) -> Iterator[None]:
    """Inside the block timm builds pipelines of web shards that report what they cannot read into `damaged`."""
    from timm.data.readers import reader_wds

    reader: Any = reader_wds
    decode: Callable[..., Any] = reader._decode

    def named(sample: dict[str, Any], **settings: Any) -> Any:
        try:
            return decode(sample, **settings)
        except Exception as error:
            shard = Path(str(sample.get("__url__", "?"))).name
            reason = " ".join(str(error).split())[:100] or type(error).__name__
            raise _Damaged(f"{sample.get('__key__', '?')} in {shard}: {reason}") from error

    def report(error: Exception) -> bool:
        damaged.append(" ".join(str(error).split())[:200])
        return True

    with _PATCHING:
        before = reader._decode, reader.log_and_continue
        reader._decode, reader.log_and_continue = named, report
        try:
            yield
        finally:
            reader._decode, reader.log_and_continue = before


class _Damaged(Exception):
    """A sample that cannot be decoded."""
