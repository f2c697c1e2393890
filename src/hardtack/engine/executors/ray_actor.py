"""What runs inside a Ray cluster: the actor that computes pieces, and the server of images on the driver's disk."""

from __future__ import annotations

import os
import socket
import tempfile
import threading
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from hardtack.base.cores import give_share_of_cores
from hardtack.base.errors import UserError
from hardtack.base.shared_gpu import mark_gpu_as_shared
from hardtack.engine.mirror import Files, Mirror, write_files
from hardtack.engine.packing import versions
from hardtack.engine.pieces import Span
from hardtack.engine.worker import JobSession, NoteMeter


class PieceActor:
    """Keeps one job loaded and computes its pieces. Answers are values: `("refused", message)` is a user's mistake."""

    def __init__(self, cores: int, *, shares_gpu: bool = False) -> None:
        give_share_of_cores(os.environ, cores)
        if shares_gpu:
            mark_gpu_as_shared(os.environ)
        self.session: JobSession | None = None
        self.mirror: Mirror | None = None
        self.mirror_lock = threading.Lock()
        self.note, self.share = "", 0.0

    def load(self, expected: Mapping[str, str], steps: bytes, job: bytes) -> tuple[Any, ...]:
        """Replace the job; answers with the versions of this machine. A job of other versions is not unpacked."""
        return self._answer(lambda: self._load(expected, steps, job))

    def _load(self, expected: Mapping[str, str], steps: bytes, job: bytes) -> tuple[Any, ...]:
        if expected == versions():
            if self.session is not None:
                self.session.close()
            self.session = JobSession((steps, job))
        return "loaded", versions(), socket.gethostname()

    def run(self, span: Span, files: Files | None) -> tuple[Any, ...]:
        """One piece; `files` are the folders that it works in, and what changed in them is part of the answer."""
        return self._answer(lambda: self._run(span, files))

    def _run(self, span: Span, files: Files | None) -> tuple[Any, ...]:
        assert self.session is not None
        meter = NoteMeter(self._note)
        if files is None:
            return "done", span, self.session.run(span, notebook=None, meter=meter), None
        with tempfile.TemporaryDirectory(prefix="hardtack-") as folder:
            root = Path(folder)
            write_files(root, files)
            self.mirror = Mirror(root)
            self.session.job.relocate(root)
            result = self.session.run(span, notebook=None, meter=meter)
            with self.mirror_lock:  # a call `changes` under way must not see the folder removed
                changes = self.mirror.changes()
                self.mirror = None
        return "done", span, result, changes

    def progress(self) -> tuple[Any, ...]:
        return "progress", self.note, self.share

    def changes(self) -> tuple[Any, ...]:
        """Files that the piece under way has written since the last call, checkpoints among them."""
        with self.mirror_lock:
            return "changes", self.mirror.changes() if self.mirror is not None else {}

    def _note(self, text: str, share: float) -> None:
        self.note, self.share = text, share

    @staticmethod
    def _answer(work: Any) -> tuple[Any, ...]:
        try:
            return work()
        except UserError as error:
            return "refused", str(error)
        except Exception:
            return "fault", traceback.format_exc()


class ImageServer:
    """Reads images from the disk of the machine that it runs on."""

    def __init__(self, images: Any) -> None:
        self.images = images

    def read(self, index: int) -> np.ndarray:
        pixels: np.ndarray = self.images.read(index)
        return pixels

    def where(self, index: int) -> str:
        place: str = self.images.where(index)
        return place


class ServedImages:
    """Undecoded images (`data/source.py`) that an `ImageServer` of this name reads."""

    def __init__(self, server: str, length: int) -> None:
        self.server, self.length = server, length

    def __len__(self) -> int:
        return self.length

    def read(self, index: int) -> np.ndarray:
        pixels: np.ndarray = self._ask("read", index)
        return pixels

    def where(self, index: int) -> str:
        place: str = self._ask("where", index)
        return place

    def _ask(self, what: str, index: int) -> Any:
        import ray

        return ray.get(getattr(ray.get_actor(self.server), what).remote(index))
