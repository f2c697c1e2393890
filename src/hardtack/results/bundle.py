"""A bundle: one file with everything that another person needs to verify a run (`hardtack bundle`, `hardtack verify`).

It is a zip file of the run folder's results, verdicts, evidence records, adversarial and example images, analyses,
configuration, training metrics and, unless they are left out, the weights that were measured, with a `manifest.json`:
the SHA-256 and the size of every file, the software it was bundled with, and the digests of the evidence records.

The bytes of a bundle depend on its contents alone: names are sorted, times are fixed, nothing is compressed. A reader
trusts nothing in it: only files of a run are unpacked, into a folder of their own, none larger than the bundle itself.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import platform
import re
import tempfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import IO, Any

from hardtack.base.digests import file_digest, json_digest
from hardtack.base.errors import UserError
from hardtack.base.files import atomic, local_path
from hardtack.base.limits import parse_json, shorten
from hardtack.base.trust import check_links
from hardtack.results.evidence import read_evidence
from hardtack.results.record import Result
from hardtack.results.store import read_results

FORMAT = 1
MANIFEST = "manifest.json"
MOST_FILES = 200_000
_MOST_MANIFEST = 2**27
_BLOCK = 2**20
_EARLIEST = (1980, 1, 1, 0, 0, 0)  # the first time that a zip file can state
_PATTERNS = (
    "results.jsonl", "config.yaml", "metrics.jsonl", "verdicts/*.parquet", "evidence/*.json", "adversarial/*/*.npz",
    "examples/*.npz", "analysis/*.json", "analysis/*.npz",
)  # fmt: skip
_NAME = r"[A-Za-z0-9][A-Za-z0-9._@+=-]{0,199}"
_MEMBER = re.compile(
    rf"results\.jsonl|config\.yaml|metrics\.jsonl|verdicts/{_NAME}\.parquet|evidence/{_NAME}\.json|"
    rf"adversarial/{_NAME}/{_NAME}\.npz|examples/{_NAME}\.npz|analysis/{_NAME}\.(?:json|npz)|"
    rf"checkpoints/{_NAME}\.safetensors(?:\.sha256)?"
)
_SOFTWARE = ("hardtack", "torch", "torchvision", "timm", "numpy", "safetensors", "pyarrow", "pydantic")


@dataclass(frozen=True, kw_only=True)
class BundleConfig:
    """The settings of `bundle`.

    output    the file to write; null: RUN.zip
    weights   include the weights that were measured (those of the run folder)
    """

    output: str | None = None
    weights: bool = True


@dataclass(frozen=True)
class Bundle:
    """What was written. `digest` is that of the manifest, which covers every file: publish it with the numbers."""

    path: Path
    files: int
    size: int
    weights: bool
    digest: str

    def __str__(self) -> str:
        weights = "with the weights (weights=false leaves them out)" if self.weights else "without weights"
        return (
            f"bundle: {self.path}: {self.files} files, {self.size / 2**20:.1f} MB, {weights}\n"
            f"digest: {self.digest}\nverify it: hardtack verify {self.path}"
            + ("" if self.weights else " run=WEIGHTS.safetensors")
        )


def write_bundle(run_dir: str | Path, config: BundleConfig | None = None) -> Bundle:
    """Write the bundle of a run folder, by default to NAME.zip in the current folder."""
    config = config or BundleConfig()
    folder = local_path(run_dir)
    if not folder.is_dir():
        raise UserError(f"there is no run folder {folder}")
    check_links(folder)
    results = read_results(folder)
    if not results:
        raise UserError(f"{folder} holds no results to bundle; evaluate it first: hardtack evaluate {folder}")
    path = local_path(config.output) if config.output else Path(f"{folder.resolve().name}.zip")
    names = _files_of(folder, results, weights=config.weights)
    manifest = _manifest(folder, names, results)
    with atomic(path) as file, zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        _add(archive, MANIFEST, json.dumps(manifest, indent=1, sort_keys=True).encode())
        for name in names:
            _add(archive, name, folder / name)
    weights = any(name.startswith("checkpoints/") for name in names)
    return Bundle(path, len(names), path.stat().st_size, weights, json_digest(manifest))


def _files_of(folder: Path, results: Sequence[Result], *, weights: bool) -> list[str]:
    files = [path for pattern in _PATTERNS for path in folder.glob(pattern) if path.is_file()]
    if weights:
        measured = {result.checkpoint for result in results if result.checkpoint}
        wanted = {f"{name}.safetensors{end}" for name in measured for end in ("", ".sha256")}
        files += [path for path in folder.glob("checkpoints/*") if path.name in wanted]
    names = sorted(path.relative_to(folder).as_posix() for path in files)
    odd = [name for name in names if not _MEMBER.fullmatch(name)]
    if odd:
        raise UserError(f"{folder / odd[0]} has a name that hardtack does not give; rename or remove it")
    return names


def _manifest(folder: Path, names: Sequence[str], results: Sequence[Result]) -> dict[str, Any]:
    records = [read_evidence(folder, id) for id in sorted({result.evaluation for result in results})]
    return {
        "format": FORMAT,
        "run": re.sub(r"[^A-Za-z0-9._-]", "_", folder.resolve().name)[:100],
        "environment": _environment(),
        "evidence": {record.evaluation: record.digest for record in records if record is not None},
        "files": {
            name: {"sha256": file_digest(folder / name), "bytes": (folder / name).stat().st_size} for name in names
        },
    }


def _environment() -> dict[str, str]:
    versions = {"python": platform.python_version(), "platform": platform.platform()}
    for name in _SOFTWARE:
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return versions


def _add(archive: zipfile.ZipFile, name: str, content: bytes | Path) -> None:
    info = zipfile.ZipInfo(name, date_time=_EARLIEST)
    info.create_system, info.external_attr, info.compress_type = 3, 0o644 << 16, zipfile.ZIP_STORED
    if isinstance(content, bytes):
        archive.writestr(info, content)
        return
    info.file_size = content.stat().st_size
    with archive.open(info, "w") as target, open(content, "rb") as source:
        while block := source.read(_BLOCK):
            target.write(block)


# ---------------------------------------------------------------- reading


@dataclass(frozen=True)
class OpenedBundle:
    """A bundle unpacked into `folder`; `wrong` has a line for every file that is not what the manifest says."""

    folder: Path
    files: int
    digest: str
    wrong: tuple[str, ...]


@contextlib.contextmanager
def open_bundle(path: str | Path) -> Iterator[OpenedBundle]:
    """Unpack a bundle into a temporary folder, which is removed when the block ends."""
    path = Path(path)
    with tempfile.TemporaryDirectory(prefix="hardtack-") as temporary:
        try:
            with zipfile.ZipFile(path) as archive:
                members = _members(path, archive)
                manifest = _read_manifest(path, archive)
                folder = Path(temporary) / manifest["run"]
                folder.mkdir()
                wrong = _unpack(archive, members, manifest["files"], folder)
        except (zipfile.BadZipFile, NotImplementedError, EOFError) as error:
            raise UserError(f"{path} is not a bundle of hardtack: {shorten(error)}") from None
        yield OpenedBundle(folder, len(members), json_digest(manifest), tuple(wrong))


def _members(path: Path, archive: zipfile.ZipFile) -> list[zipfile.ZipInfo]:
    """The files of a bundle, if all of them are plain files of a run and no larger together than the bundle."""
    members = archive.infolist()
    if len(members) > MOST_FILES:
        raise UserError(f"{path} has {len(members)} files, and the limit is {MOST_FILES}")
    names = [member.filename for member in members]
    if MANIFEST not in names:
        raise UserError(f"{path} is not a bundle of hardtack: it has no {MANIFEST}")
    if len(set(names)) < len(names):
        raise UserError(f"{path} has two files of one name; it was not unpacked")
    for member in members:
        kind = member.external_attr >> 16 & 0o170000
        if member.filename != MANIFEST and not _MEMBER.fullmatch(member.filename):
            raise UserError(f"{path} has a file {shorten(member.filename)!r}, which no run has; it was not unpacked")
        if kind not in (0, 0o100000) or member.flag_bits & 1:
            raise UserError(f"{path}: {member.filename} is a link or encrypted; it was not unpacked")
        if member.compress_type != zipfile.ZIP_STORED or member.compress_size != member.file_size:
            raise UserError(f"{path}: {member.filename} is compressed, as no bundle is; it was not unpacked")
    if sum(member.file_size for member in members) > path.stat().st_size:
        raise UserError(f"{path} says that it holds more than its own size; it was not unpacked")
    return [member for member in members if member.filename != MANIFEST]


def _read_manifest(path: Path, archive: zipfile.ZipFile) -> dict[str, Any]:
    if archive.getinfo(MANIFEST).file_size > _MOST_MANIFEST:
        raise UserError(f"{path}: {MANIFEST} is larger than {_MOST_MANIFEST // 2**20} MB")
    try:
        manifest = parse_json(archive.read(MANIFEST).decode("utf-8"), MANIFEST)
        sound = manifest["format"] == FORMAT and re.fullmatch(r"[A-Za-z0-9._-]{1,100}", manifest["run"])
        sound = sound and manifest["run"] not in (".", "..")
        sound = sound and all(isinstance(entry["sha256"], str) for entry in manifest["files"].values())
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        sound = False
    if not sound:
        raise UserError(f"{path}: {MANIFEST} is not one of this version (format {FORMAT})")
    return dict(manifest)


def _unpack(
    archive: zipfile.ZipFile, members: Sequence[zipfile.ZipInfo], files: Mapping[str, Any], folder: Path
) -> list[str]:
    wrong = []
    for member in members:
        target = folder / member.filename
        target.parent.mkdir(parents=True, exist_ok=True)
        with archive.open(member) as source, open(target, "wb") as file:
            digest = _copy(source, file, member.file_size)
        expected = files.get(member.filename, {}).get("sha256")
        if digest != expected:
            wrong.append(f"{member.filename}: sha256: stored {digest}, expected {shorten(expected)} ({MANIFEST})")
    present = {member.filename for member in members}
    return wrong + [
        f"{shorten(name)}: no such file, expected one ({MANIFEST})" for name in files if name not in present
    ]


def _copy(source: IO[bytes], target: IO[bytes], size: int) -> str:
    digest = hashlib.sha256()
    while size > 0 and (block := source.read(min(_BLOCK, size))):
        target.write(block)
        digest.update(block)
        size -= len(block)
    return digest.hexdigest()
