"""Run folders of strangers: a genuine run in which texts are replaced by hostile ones, and a watch over what opens.

`write_hostile(folder, text)` replaces every text of every record; with `where` only those under one key. `Watch` notes
what Python imports, opens, runs and connects to, and whether files outside were read by compiled code.
"""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.torch
import yaml

GENUINE = Path(__file__).parent / "data" / "v010_finished" / "run"
EVIL = """import pathlib
pathlib.Path(__file__).with_name('ran').write_text('evil')
def build(**options): pass
"""


class _Executes:
    """Runs a command when it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("touch ran",)


# kind of text → the text; OUTSIDE and RUN are replaced by folders
TEXTS = {
    "module": "os:system",
    "file": "RUN/evil.py:build",
    "neighbour": "evil:build",
    "bare": "evil.py",
    "weights": "OUTSIDE/weights.safetensors",
    "data": "npz:OUTSIDE/data.npz",
    "images": "folder:OUTSIDE/images",
    "upwards": "../outside/data.npz",
    "home": "~/secret.yaml",
    "url": "https://example.org/x.py",
    "pipe": "pipe:touch OUTSIDE/ran",
    "html": "</script><script>alert(1)</script><img src=x onerror=alert(1)>\"'><a href=javascript:alert(1)>",
    "markup": "[red]x[/red][link=file:///etc/passwd]y[/link][/]\x1b[31m\x1b]0;title\x07\r\x08\u202e",
    "formula": "=cmd|' /C calc'!A0",
    "shell": "$(touch ran); `touch ran` | touch ran & rm -rf /",
    "python": "{0.__class__.__mro__} %s%n ${7*7} {{ 7 * 7 }} !!python/object/apply:os.system [touch ran]",
    "latex": "\\input{/etc/passwd}\\write18{touch ran}",
    "number": "1e308",
    "nothing": "",
    "null": "a\x00b",
    "long": "A" * 21_000,
}


def write_outside(folder: Path) -> None:
    """Files that a hostile run would like to have opened; all of them are valid, so that opening them would succeed."""
    (folder / "images" / "0").mkdir(parents=True)
    shutil.copy(GENUINE / "checkpoints" / "best.safetensors", folder / "weights.safetensors")
    pixels = np.zeros((10, 8, 8, 3), np.uint8)
    np.savez(folder / "data.npz", x=pixels, y=np.arange(10))
    from PIL import Image

    for name in ("0", "1"):
        (folder / "images" / name).mkdir(exist_ok=True)
        Image.fromarray(pixels[0]).save(folder / "images" / name / "a.png")


def texts_for(folder: Path, outside: Path) -> dict[str, str]:
    return {kind: text.replace("OUTSIDE", str(outside)).replace("RUN", str(folder)) for kind, text in TEXTS.items()}


# ---------------------------------------------------------------- writing


def write_genuine(folder: Path, *evaluations: str) -> Path:
    """The genuine run with these evaluations alone, which is quicker to read and to verify."""
    shutil.copytree(GENUINE, folder)
    path = folder / "results.jsonl"
    lines = [line for line in path.read_text().splitlines() if json.loads(line)["evaluation"] in evaluations]
    path.write_text("".join(f"{line}\n" for line in lines))
    for file in [*folder.glob("*/*")]:
        kept = file.parent.name == "checkpoints" or any(file.name.startswith(name) for name in evaluations)
        if not kept:
            shutil.rmtree(file) if file.is_dir() else file.unlink()
    config = folder / "config.yaml"
    config.write_text(f"base: null\n{config.read_text()}")
    return folder


def write_hostile(folder: Path, text: Any, *, where: str | None = None, source: Path = GENUINE) -> Path:
    """A copy of a genuine run with `text` for every text of every record, or for the values of one key alone."""
    shutil.copytree(source, folder)
    (folder / "evil.py").write_text(EVIL)
    (folder / "checkpoints" / "state.pt").write_bytes(pickle.dumps(_Executes(), protocol=2))
    for path in sorted(folder.rglob("*")):
        if path.suffix in RECORDS:
            RECORDS[path.suffix](path, lambda value, path=path: replaced(value, text, where, path.name))
    return folder


def replaced(value: Any, text: Any, where: str | None, path: str) -> Any:
    """A plain value with its texts replaced; `path` is the name of the file and the keys so far."""
    if isinstance(value, dict):
        return {key: replaced(item, text, where, f"{path}:{key}") for key, item in value.items()}
    if isinstance(value, list):
        return [replaced(item, text, where, path) for item in value]
    if where is not None:
        return text if path == where else value
    return text if isinstance(value, str) else value


def _change_yaml(path: Path, edit: Callable[[Any], Any]) -> None:
    path.write_text(yaml.safe_dump(edit(yaml.safe_load(path.read_text()))))


def _change_json(path: Path, edit: Callable[[Any], Any]) -> None:
    path.write_text(json.dumps(edit(json.loads(path.read_text()))))


def _change_lines(path: Path, edit: Callable[[Any], Any]) -> None:
    path.write_text("".join(json.dumps(edit(json.loads(line))) + "\n" for line in path.read_text().splitlines()))


def _change_weights(path: Path, edit: Callable[[Any], Any]) -> None:
    with safetensors.safe_open(path, framework="pt") as opened:
        metadata = json.loads(opened.metadata()["hardtack"])
        tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
    data = safetensors.torch.save(tensors, metadata={"hardtack": json.dumps(edit(metadata))})
    path.write_bytes(data)
    path.with_name(path.name + ".sha256").write_text(f"{hashlib.sha256(data).hexdigest()}  {path.name}\n")


def _change_arrays(path: Path, edit: Callable[[Any], Any]) -> None:
    arrays = dict(np.load(path, allow_pickle=False))
    changed = {
        name: np.array(edit(array.tolist())) if array.dtype.kind == "U" else array for name, array in arrays.items()
    }
    np.savez(path, **changed)


RECORDS: dict[str, Callable[[Path, Callable[[Any], Any]], None]] = {
    ".yaml": _change_yaml,
    ".json": _change_json,
    ".jsonl": _change_lines,
    ".safetensors": _change_weights,
    ".npz": _change_arrays,
}


def keys_of(source: Path = GENUINE) -> list[str]:
    """`results.jsonl:extra:words` …: every key of a record that has a text or a number, sorted."""
    keys: set[str] = set()

    def note(value: Any, path: str) -> None:
        if isinstance(value, dict):
            for key, item in value.items():
                note(item, f"{path}:{key}")
        elif isinstance(value, list):
            for item in value:
                note(item, path)
        else:
            keys.add(path)

    for path in sorted(source.rglob("*")):
        for record in _records(path):
            note(record, path.name)
    return sorted(keys)


def _records(path: Path) -> Iterator[Any]:
    if path.suffix == ".yaml":
        yield yaml.safe_load(path.read_text())
    elif path.suffix == ".json":
        yield json.loads(path.read_text())
    elif path.suffix == ".jsonl":
        yield from (json.loads(line) for line in path.read_text().splitlines())
    elif path.suffix == ".safetensors":
        with safetensors.safe_open(path, framework="pt") as opened:
            yield json.loads(opened.metadata()["hardtack"])


# ---------------------------------------------------------------- watching


class Watch:
    """Notes what the process does while it is on; an audit hook cannot be removed, so that there is one."""

    RUNS = ("os.system", "subprocess.Popen", "os.exec", "os.posix_spawn", "os.spawn", "pty.spawn", "os.startfile")
    NETWORK = ("socket.connect", "socket.getaddrinfo", "urllib.Request", "webbrowser.open")

    HARMLESS = (
        "fc-list",
        "nvidia-smi",
        "lscpu",
        "uname",
    )  # what matplotlib and the check of the machine run by themselves

    def __init__(self) -> None:
        self.on = False
        self.events: list[str] = []
        self.outside: Path | None = None
        self.run: Path | None = None
        sys.addaudithook(self._note)

    def _note(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.on:
            return
        if (event in self.RUNS or event in self.NETWORK) and arguments[0] not in self.HARMLESS:
            self.events.append(f"{event} {arguments!r:.200}")
        elif event == "import" and str(arguments[0]).split(".")[0] in ("evil", "antigravity"):
            self.events.append(f"import {arguments[0]}")
        elif event in ("open", "os.listdir", "os.scandir", "os.remove", "os.rename", "shutil.rmtree"):
            self._note_path(event, arguments[0])

    def _note_path(self, event: str, path: Any) -> None:
        if not isinstance(path, str | bytes | os.PathLike):
            return
        text = os.path.abspath(os.fsdecode(path))
        if self.outside is not None and text.startswith(str(self.outside)):
            self.events.append(f"{event} {text}")
        if self.run is not None and text.startswith(str(self.run)) and text.endswith((".py", ".pyc")):
            self.events.append(f"{event} {text}")

    def start(self, run: Path, outside: Path) -> None:
        self.events, self.run, self.outside = [], run, outside
        for file in outside.rglob("*"):
            if file.is_file():
                os.utime(file, (0, file.stat().st_mtime))
        self.on = True

    def stop(self) -> list[str]:
        """What was done that no run folder may cause."""
        self.on = False
        assert self.outside is not None and self.run is not None
        read = [f"read {file}" for file in self.outside.rglob("*") if file.is_file() and file.stat().st_atime > 1]
        ran = [f"ran {place}" for place in (self.run, self.outside, Path.cwd()) if (place / "ran").exists()]
        return [*self.events, *read, *ran]
