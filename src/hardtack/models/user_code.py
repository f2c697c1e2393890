"""Code of the user's own, run because the user named it: a file with what lies beside it, or an importable module.

Nothing else may run code: a weights file can ask for a network of the user's, but not name its file.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import importlib
import shutil
import sys
import tempfile
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from hardtack.base import user_files
from hardtack.base.annotations import WrittenAsText
from hardtack.base.errors import UserError, did_you_mean
from hardtack.models.files import sha256


@dataclass
class Code:
    """A file or module that was run, and the modules beside it that it imported."""

    module: ModuleType
    file: Path | None
    folder: Path
    neighbours: dict[str, ModuleType] = field(default_factory=dict)
    sources: dict[Path, str] = field(default_factory=dict)  # their digests when they were run

    @contextlib.contextmanager
    def beside(self) -> Iterator[None]:
        """Its folder first on the path; modules of the same names beside another file are out of the way."""
        for other in _codes.values():
            other.forget()
        sys.modules.update(self.neighbours)
        before, folder = set(sys.modules), str(self.folder)
        sys.path.insert(0, folder)
        importlib.invalidate_caches()
        try:
            yield
        finally:
            sys.path.remove(folder)
            new = {name: module for name, module in sys.modules.items() if name not in before}
            self.neighbours |= {name: module for name, module in new.items() if self._has(name, module)}
            files = [self.file, *(Path(str(module.__file__)) for module in self.neighbours.values())]
            digests = {file: sha256(file) for file in files if file is not None and file not in self.sources}
            self.sources.update(digests)

    def _has(self, name: str, module: ModuleType) -> bool:
        place = self.folder.joinpath(*name.split("."))
        file = getattr(module, "__file__", None)
        return file is not None and Path(file) in (place.with_suffix(".py"), place / "__init__.py")

    @property
    def current(self) -> bool:
        return all(file.is_file() and sha256(file) == digest for file, digest in self.sources.items())

    @property
    def digest(self) -> str:
        """Of its source and that of its neighbours."""
        return hashlib.sha256(" ".join(sorted(self.sources.values())).encode()).hexdigest()

    def forget(self) -> None:
        """Take its neighbours out of the way of others of the same names."""
        for name, module in self.neighbours.items():
            if sys.modules.get(name) is module:
                del sys.modules[name]


_codes: dict[Path, Code] = {}
_imported: set[str] = set()


def was_named(source: str) -> str | None:
    """A file of that name, or the module, if this process was told to run it: consent to run it again."""
    files = [code.file for code in reversed(_codes.values()) if code.file is not None]
    match = next((str(file) for file in files if file.name == source), None)
    return match or (source if source in _imported else None)


def is_own(source: str, attribute: str) -> bool:
    """Whether a file or module that was run defines this name itself: a run folder may not pick what it imported."""
    codes = {str(code.file): code.module for code in _codes.values()}
    module = codes.get(source) or sys.modules.get(source)
    value = vars(module).get(attribute) if module is not None else None
    return getattr(value, "__module__", None) == getattr(module, "__name__", "") or _is_instance(value)


def _is_instance(value: object) -> bool:
    """Whether a value is a network itself, whose class may come from anywhere."""
    import torch

    return isinstance(value, torch.nn.Module)


def run_file(path: str | Path) -> Code:
    """Run a file of the user's, once for as long as it stays the same."""
    file = Path(path).expanduser().resolve()
    user_files.note(file)
    if file in _codes and _codes[file].current:
        return _codes[file]
    if not file.is_file():
        near = did_you_mean(
            file.name, [other.name for other in file.parent.glob("*.py")] if file.parent.is_dir() else []
        )
        raise UserError(f"there is no file {path}{near}")
    return _run(file, file)


def _run(file: Path, named: Path) -> Code:
    """Run `file`, which is known by the path `named`: a copy on another machine has the name of the original."""
    module = ModuleType(f"{named.stem}_{hashlib.sha256(str(named).encode()).hexdigest()[:8]}")
    module.__file__ = str(file)
    code = Code(module, file, file.parent)
    sys.modules[module.__name__] = module  # dataclasses and torch.compile look it up there
    try:
        with code.beside(), telling(f"{named} cannot be run", file):
            exec(compile(file.read_bytes(), file, "exec"), vars(module))
    except UserError:
        code.forget()
        raise
    _codes[named] = code
    return code


def import_module(name: str) -> Code:
    """An importable module; the working folder is on the path, as under `python -m`."""
    sys.path.insert(0, str(Path.cwd()))
    try:
        with telling(f"{name} cannot be imported", None):
            module = importlib.import_module(name)
    except UserError as error:
        absent = error.__cause__
        if isinstance(absent, ModuleNotFoundError) and f"{name}.".startswith(f"{absent.name}."):
            hint = did_you_mean(name, ["timm"]) or "; a file is named with its ending: path/to/mine.py:build"
            raise UserError(f"there is no module '{absent.name}'{hint}") from None
        raise
    finally:
        sys.path.remove(str(Path.cwd()))
    _imported.add(name)
    file = getattr(module, "__file__", None)
    return Code(module, Path(file) if file else None, Path.cwd())


@contextlib.contextmanager
def telling(what: str, file: Path | None) -> Iterator[None]:
    """Whatever a user's code throws, as one line that says where."""
    try:
        yield
    except (Exception, SystemExit) as error:
        frames = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(file)]
        at = f" (line {frames[-1]})" if frames else ""
        reason = " ".join(str(error).split())[:300]
        hint = ""
        if "relative import" in reason:
            hint = "; import modules of its folder by their bare names, or give the package: model=package.module:NAME"
        raise UserError(f"{what}{at}: {type(error).__name__}: {reason}{hint}; --debug shows all of it") from error


# ---------------------------------------------------------------- to other processes and machines


@dataclass(frozen=True)
class TravellingCode:
    """A file that was run, with its neighbours, as text: calling it runs it on a machine that may not have the file."""

    named: Path
    sources: dict[str, bytes]  # by path below the file's folder

    def __call__(self) -> None:
        if self.named in _codes and _codes[self.named].current:
            return
        there = {name: self.named.parent / name for name in self.sources}
        if all(path.is_file() and path.read_bytes() == self.sources[name] for name, path in there.items()):
            run_file(self.named)
            return
        folder = Path(tempfile.mkdtemp(prefix="hardtack-code-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        for name, source in self.sources.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(source)
        _run(folder / self.named.name, self.named)


def travelling_code() -> list[TravellingCode]:
    """The user's files that this command has run, ready for another process."""
    codes = [(named, _codes[named]) for named in user_files.of_this_command() if named in _codes]
    return [
        TravellingCode(named, {str(file.relative_to(code.folder)): file.read_bytes() for file in code.sources})
        for named, code in codes
    ]


# ---------------------------------------------------------------- one name of a file


@dataclass(frozen=True)
class UserFunction(WrittenAsText):
    """A function, class or module of a user's file that a setting names: `FILE.py:NAME`. Loading it runs the file."""

    file: Path
    name: str

    @classmethod
    def parse(cls, text: str, setting: str = "") -> UserFunction:
        """From `FILE.py:NAME`; `setting` is named in messages. The file must exist; it is not run yet."""
        path, colon, name = text.rpartition(":")
        if not colon or not path.endswith(".py") or not name.isidentifier():
            raise UserError(f"'{setting}' takes FILE.py:NAME, a name in a Python file of yours, found '{text}'")
        file = Path(path).expanduser().resolve()
        if not file.is_file():
            beside = [other.name for other in file.parent.glob("*.py")] if file.parent.is_dir() else []
            raise UserError(f"'{setting}': there is no file {path}{did_you_mean(file.name, beside)}")
        return cls(file, name)

    def __str__(self) -> str:
        """Without the folder, as results mention it."""
        return f"{self.file.name}:{self.name}"

    def load(self) -> Any:
        """What the name stands for in the file."""
        module = run_file(self.file).module
        target = vars(module).get(self.name)
        if not callable(target):
            own = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
            if target is not None:
                raise UserError(f"{self} is of type {type(target).__name__}, not a function, class or module")
            hint = did_you_mean(self.name, own) or f"; it has: {', '.join(own) or 'none'}"
            raise UserError(f"{self.file} has no function '{self.name}'{hint}")
        return target

    def call(self, *arguments: Any) -> Any:
        """Call it; whatever it raises becomes one line that says where."""
        code, target = run_file(self.file), self.load()
        with code.beside(), telling(f"{self} failed", self.file):
            return target(*arguments)

    @property
    def digest(self) -> str:
        """Of the file and of the modules beside it that it imports."""
        return run_file(self.file).digest
