"""A bundle: the same bytes from the same run, verified with one command, and harmless whatever it holds."""

import json
import os
import shutil
import zipfile

import pytest

from genuine_run import make_genuine_run
from hardtack.commands.cli import main
from hardtack.results.bundle import BundleConfig, open_bundle, write_bundle
from tiny_runs import files_below

MODEL = [
    "model=vit_digits", "model.image_size=8",
    "model.options={patch_size: 4, depth: 2, width: 16, heads: 2, drop_path: 0.2}",
]  # fmt: skip


@pytest.fixture(scope="module")
def genuine(tmp_path_factory):
    return make_genuine_run(tmp_path_factory.mktemp("bundle"))


@pytest.fixture
def run(genuine, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return shutil.copytree(genuine[0], tmp_path / "run"), genuine[1]


def verify(*words, capsys):
    capsys.readouterr()
    code = main(["verify", *words])
    shown = capsys.readouterr()
    return code, shown.out + shown.err


def test_one_command_makes_it_and_one_verifies_it(run, capsys):
    assert main(["bundle", "run"]) == 0
    assert "run.zip" in (text := capsys.readouterr().out) and "digest: " in text and "with the weights" in text
    shutil.rmtree("run")
    code, text = verify("run.zip", "sample=3", capsys=capsys)
    assert code == 0 and "run.zip: consistent" in text and f"{run[1]}: verified" in text, text


def test_the_same_run_gives_the_same_bytes(run):
    first = write_bundle("run", BundleConfig(output="first.zip"))
    for path in run[0].rglob("*"):
        os.utime(path, (1, 1))
    second = write_bundle("run", BundleConfig(output="second.zip"))
    assert first.digest == second.digest and first.path.read_bytes() == second.path.read_bytes()


def test_it_holds_everything_but_files_that_are_not_of_the_run(run):
    (run[0] / "diary.txt").write_text("private")
    write_bundle("run")
    with open_bundle("run.zip") as bundle:
        names = files_below(bundle.folder)
        manifest_digest = bundle.digest
    assert {"results.jsonl", "config.yaml", f"verdicts/{run[1]}.parquet", f"evidence/{run[1]}.json"} <= names
    assert "checkpoints/best.safetensors" in names and any(name.startswith("adversarial/") for name in names)
    assert not any("diary" in name or name.endswith((".pt", ".lock")) for name in names)
    assert len(manifest_digest) == 64 and not bundle.folder.exists(), "the temporary folder is removed"


def test_without_weights_it_needs_the_model(run, capsys):
    assert main(["bundle", "run", "weights=false", "output=small.zip"]) == 0
    shutil.copy(run[0] / "checkpoints" / "best.safetensors", "best.safetensors")
    shutil.move("run", "elsewhere")
    code, text = verify("small.zip", capsys=capsys)
    assert code == 1 and "not verifiable without the model" in text, text
    code, text = verify("small.zip", *MODEL, "model.weights=best.safetensors", capsys=capsys)
    assert code == 0 and f"{run[1]}: verified" in text, text
    code, text = verify("small.zip", "run=best.safetensors", capsys=capsys)
    assert code == 0 and f"{run[1]}: verified" in text, text
    code, text = verify("small.zip", "run=elsewhere", capsys=capsys)
    assert code == 0, text
    code, text = verify("small.zip", *MODEL, capsys=capsys)
    assert code == 1 and "weights: stored" in text, "other weights"


def rewritten(source, target, change):
    """A copy of a bundle whose members went through `change(name, content)` (None: left out)."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        for name in old.namelist():
            content = change(name, old.read(name))
            if content is not None:
                new.writestr(zipfile.ZipInfo(name), content)


def test_a_changed_member_is_named(run, capsys):
    write_bundle("run")
    rewritten("run.zip", "other.zip", lambda name, old: old + b"\n" if name == "config.yaml" else old)
    code, text = verify("other.zip", capsys=capsys)
    assert code == 1 and "config.yaml: sha256: stored" in text
    rewritten("run.zip", "less.zip", lambda name, old: None if name == "config.yaml" else old)
    code, text = verify("less.zip", capsys=capsys)
    assert code != 0 and ("config.yaml: no such file" in text or "data" in text), text


def test_a_forged_result_in_a_bundle_is_named(run, capsys):
    """With a manifest of its own, as a forger would write it."""
    path = run[0] / "results.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    path.write_text("".join(json.dumps({**line, "value": 0.99}) + "\n" for line in lines))
    write_bundle("run")
    code, text = verify("run.zip", capsys=capsys)
    assert code == 1 and "run.zip: consistent" in text and "value: stored 0.99" in text


def link(name):
    info = zipfile.ZipInfo(name)
    info.external_attr = 0o120777 << 16
    return info


HOSTILE = {
    "outside": lambda file: file.writestr("../evil.txt", "x"),
    "deep outside": lambda file: file.writestr("verdicts/../../evil.parquet", "x"),
    "absolute": lambda file: file.writestr("/tmp/evil.txt", "x"),
    "drive": lambda file: file.writestr("C:\\evil.txt", "x"),
    "hidden": lambda file: file.writestr("verdicts/.evil.parquet", "x"),
    "code": lambda file: file.writestr("sitecustomize.py", "open('ran', 'w')"),
    "pickle": lambda file: file.writestr("checkpoints/best.pt", "x"),
    "link": lambda file: file.writestr(link("verdicts/evil.parquet"), "/etc/passwd"),
    "compressed": lambda file: file.writestr("verdicts/a.parquet", b"\0" * 10**7, zipfile.ZIP_DEFLATED),
    "twice": lambda file: [file.writestr("verdicts/a.parquet", text) for text in "ab"],
    "control characters": lambda file: file.writestr("verdicts/\x1b[31m.parquet", "x"),
}


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_member_is_refused(run, capsys, name):
    write_bundle("run", BundleConfig(weights=False))
    with zipfile.ZipFile("run.zip", "a") as file:
        HOSTILE[name](file)
    before = files_below(run[0].parent)
    code, text = verify("run.zip", capsys=capsys)
    assert code == 2 and text.count("\n") == 1 and "not unpacked" in text and "\x1b" not in text, text
    assert files_below(run[0].parent) == before


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 not a zip", b"text"])
def test_other_files_are_no_bundles(tmp_path, capsys, content):
    (tmp_path / "file.zip").write_bytes(content)
    code, text = verify(str(tmp_path / "file.zip"), capsys=capsys)
    assert code == 2 and "not a bundle" in text and text.count("\n") == 1


@pytest.mark.parametrize(
    "manifest", [b"[]", b"{", b"[" * 10**5, b'{"format": 1, "run": "..", "files": {}}', b'{"format": 9, "files": {}}']
)
def test_a_manifest_of_anything_else_is_refused(tmp_path, capsys, manifest):
    with zipfile.ZipFile(tmp_path / "file.zip", "w") as file:
        file.writestr("manifest.json", manifest)
    code, text = verify(str(tmp_path / "file.zip"), capsys=capsys)
    assert code == 2 and "manifest.json" in text and text.count("\n") == 1


def test_a_folder_without_results_is_refused(tmp_path, capsys):
    assert main(["bundle", str(tmp_path)]) == 2 and "no results to bundle" in capsys.readouterr().err
    assert main(["bundle"]) == 2 and main(["bundle", str(tmp_path / "none")]) == 2
