"""All trackers of a run: which run of theirs is continued, and what happens when one of them fails."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from hardtack.base.digests import json_digest
from hardtack.base.errors import UserError
from hardtack.base.files import write_text
from hardtack.base.limits import read_json
from hardtack.base.registry import trackers
from hardtack.training.trackers.tracker import Outcome, TrackedRun, Tracker, shown

FILE = "tracking.json"  # in the run folder: what each tracker calls this run
RETRY_S = 30.0
_LONGEST_ID = 200
Line = tuple[dict[str, float], int]


class Tracking:
    """Opens the trackers of a run and hands on its metrics.

    `earlier` are the lines of the log up to the step from which the run is resumed. Those of a process that was killed
    are sent again to a tracker which may have lost some.
    """

    def __init__(
        self, names: Sequence[str], run: TrackedRun, note: Callable[[str], None], *,
        earlier: Sequence[Mapping[str, Any]] = (),
    ) -> None:  # fmt: skip
        self._channels: list[_Channel] = []
        self._path = run.folder / FILE
        stored = _stored(self._path, run) if names else {}
        ids, killed_at = stored.get("ids", {}), stored.get("open_since")
        for name in dict.fromkeys(names):
            channel = _Channel(name, self._open(name, replace(run, id=ids.get(name))), note)
            self._channels.append(channel)
            continued = bool(channel.tracker.id) and channel.tracker.id == ids.get(name)
            if channel.tracker.place:
                note(f"{name} {'continues' if continued else 'writes'} {channel.tracker.place}")
            if not continued or (killed_at is not None and channel.tracker.sends_later):
                for line in earlier:
                    if not continued or line["step"] > killed_at:
                        channel.send(_numbers(**line), line["step"])
        ids |= {channel.name: channel.tracker.id for channel in self._channels if channel.tracker.id}
        since = run.step if killed_at is None else min(run.step, killed_at)
        self._record = {"settings": json_digest(_decisive(run)), "ids": ids, "open_since": since}
        self._save()

    def _open(self, name: str, run: TrackedRun) -> Tracker:
        """The tracker; where it cannot be used no training begins, and those opened before do not wait for it."""
        try:
            tracker: Tracker = trackers.get(name).make(run)
            return tracker
        except BaseException:
            for channel in self._channels:
                channel.close("failed")
            raise

    def write(self, kind: str, *, step: int, epoch: float, **values: Any) -> None:
        for channel in self._channels:
            channel.send(_numbers(kind, step=step, epoch=epoch, **values), step)

    def close(self, outcome: Outcome) -> None:
        for channel in self._channels:
            channel.close(outcome)
        self._record["open_since"] = None
        self._save()

    def _save(self) -> None:
        if self._channels:
            write_text(self._path, json.dumps(self._record, indent=1) + "\n")


def _numbers(kind: str, *, step: int, epoch: float, **values: Any) -> dict[str, float]:
    """The numbers of one line of the log, as `train/loss`; texts are left out."""
    numbers = {f"{kind}/{name}": float(value) for name, value in values.items() if isinstance(value, int | float)}
    return {**numbers, "epoch": epoch}


class _Channel:
    """A tracker, and the lines that it has not taken yet."""

    def __init__(self, name: str, tracker: Tracker, note: Callable[[str], None]) -> None:
        self.name, self.tracker, self.note = name, tracker, note
        self._waiting: list[Line] = []
        self._failed_at: float | None = None

    def send(self, values: dict[str, float], step: int) -> None:
        self._waiting.append((values, step))
        if self._failed_at is None or time.monotonic() - self._failed_at > RETRY_S:
            self._flush()

    def close(self, outcome: Outcome) -> None:
        self._flush()
        if self._waiting:
            self.note(f"{self.name} did not take the last {len(self._waiting)} lines; metrics.jsonl has all of them")
        try:
            self.tracker.close(outcome)
        except Exception as error:
            self.note(f"{self.name} could not be closed ({_reason(error)})")

    def _flush(self) -> None:
        try:
            while self._waiting:
                self.tracker.write(*self._waiting[0])
                self._waiting.pop(0)
        except Exception as error:  # a service that is down must not end a training
            if self._failed_at is None:
                self.note(f"{self.name} failed ({_reason(error)}); training goes on, and it is tried again later")
            self._failed_at = time.monotonic()
        else:
            self._failed_at = None


def _stored(path: Path, run: TrackedRun) -> dict[str, Any]:
    """What the trackers called this run before, and the first step of a process that did not close them.

    A run that starts again with other settings is another one.
    """
    if not path.is_file():
        return {}
    try:
        stored = read_json(path)
        ids = {str(name): str(id)[:_LONGEST_ID] for name, id in stored["ids"].items()}
        since = None if stored.get("open_since") is None else int(stored["open_since"])
        same = run.step > 0 or stored["settings"] == json_digest(_decisive(run))
    except (UserError, ValueError, KeyError, TypeError, AttributeError):
        raise UserError(f"{path} is damaged; delete it, and the trackers begin new runs") from None
    return {"ids": ids, "open_since": since} if same else {}


def _decisive(run: TrackedRun) -> Mapping[str, Any]:
    return {key: value for key, value in run.settings.items() if key != "train.track"}


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {shown(error)}"
