"""What PyPI would take: a wheel, built from the source distribution without git, that is complete and works alone."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "hardtack"
NEEDED = ("pyproject.toml", "README.md", "LICENSE", "NOTICE", "CHANGELOG.md", "CITATION.cff", "MANIFEST.in")
GENERATED = shutil.ignore_patterns("__pycache__", "*.egg-info")
COMPILED = (".pyc", ".so")


def source_files() -> set[str]:
    """Every file of the package, as its path in a wheel; the folders of recipes and studies are links here."""
    found = set()
    for folder, folders, names in os.walk(SOURCE, followlinks=True):
        folders[:] = [name for name in folders if name != "__pycache__"]
        paths = [Path(folder, name).relative_to(SOURCE.parent) for name in names]
        if "docs_files" in folder:  # the pages alone: no pictures, and nothing that builds the site
            folders[:], paths = [], [path for path in paths if path.suffix == ".md"]
        found |= {path.as_posix() for path in paths if path.suffix not in COMPILED}
    return found


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The folder with the two files of a release, built where there is no repository and no git."""
    pytest.importorskip("build", reason="build is not installed: pip install build")
    tree = tmp_path_factory.mktemp("tree")
    for name in NEEDED:
        shutil.copy(ROOT / name, tree)
    for name in ("src", "recipes", "studies", "docs"):
        shutil.copytree(ROOT / name, tree / name, symlinks=True, ignore=GENERATED)
    build = [sys.executable, "-m", "build", "--no-isolation", str(tree), "--outdir"]
    environment = {**os.environ, "PATH": str(Path(sys.executable).parent), "HOME": str(tree)}
    assert shutil.which("git", path=environment["PATH"]) is None
    for words in ([*build, str(tree / "dist")], [*build, str(tree / "direct"), "--wheel"]):
        done = subprocess.run(words, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return tree / "dist"


@pytest.fixture(scope="module")
def wheel(built):
    (file,) = built.glob("*.whl")
    return file


@pytest.mark.parametrize("place", ["dist", "direct"])
def test_the_wheel_holds_every_file_of_the_package_and_nothing_else(built, place):
    """The wheel that is built from the source distribution, and the one that `pip install .` builds."""
    (file,) = (built.parent / place).glob("*.whl")
    with zipfile.ZipFile(file) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert names == source_files(), "a file that is no module has to be named under package-data in pyproject.toml"
    for path in (
        "recipe_files/digits/trades.yaml",
        "study_files/_scales/smoke.yaml",
        "docs_files/trust.md",
        "data/digits.npz",
    ):
        assert f"hardtack/{path}" in names


def test_its_metadata_are_one_version_the_licences_and_the_readme(wheel, built):
    import hardtack

    with zipfile.ZipFile(wheel) as archive:
        info = f"hardtack-{hardtack.__version__}.dist-info"
        metadata = Parser().parsestr(archive.read(f"{info}/METADATA").decode())
        assert archive.read(f"{info}/licenses/LICENSE") == (ROOT / "LICENSE").read_bytes()
        assert archive.read(f"{info}/licenses/NOTICE") == (ROOT / "NOTICE").read_bytes()
        assert "hardtack = hardtack.__main__:main" in archive.read(f"{info}/entry_points.txt").decode()
    assert metadata["Version"] == hardtack.__version__ and metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert metadata.get_payload().strip() == (ROOT / "README.md").read_text().strip()
    (version,) = re.findall(r"^version: (.+)$", (ROOT / "CITATION.cff").read_text(), re.M)
    assert version == hardtack.__version__
    with tarfile.open(next(built.glob("*.tar.gz"))) as archive:
        folder = f"hardtack-{hardtack.__version__}"
        names = set(archive.getnames())
        assert all(member.isfile() or member.isdir() for member in archive.getmembers()), "a link leads nowhere"
    assert {f"{folder}/{name}" for name in NEEDED} | {f"{folder}/src/{name}" for name in source_files()} <= names


def test_twine_accepts_both_files(built):
    pytest.importorskip("twine", reason="twine is not installed: pip install twine")
    files = sorted(map(str, built.iterdir()))
    done = subprocess.run([sys.executable, "-m", "twine", "check", "--strict", *files], capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.count("PASSED") == 2, done.stdout


ALONE = """
import pathlib, sys
import hardtack as ht
from hardtack.commands.docs_files import docs_folder
from hardtack.commands.recipe_files import list_recipes, recipe_folder
from hardtack.studies.study_files import list_studies, study_folder
site, run = (pathlib.Path(word).resolve() for word in sys.argv[1:])
folders = recipe_folder(), study_folder(), docs_folder()
assert all(path.is_relative_to(site) for path in (pathlib.Path(ht.__file__), *folders))
assert (docs_folder() / "trust.md").is_file()
assert "digits/trades" in list_recipes() and "cauchy/table1" in list_studies()
page = ht.write_report([run], "page.html").read_text()
assert f"hardtack {ht.__version__}" in page and "<script" in page and "</html>" in page
"""


def test_the_wheel_alone_finds_its_recipes_studies_and_templates(wheel, tmp_path):
    """Unpacked where the folder above has recipes and studies of somebody else's."""
    site = tmp_path / "packages" / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    for name in ("recipes", "studies", "docs"):
        (tmp_path / "packages" / name).mkdir()
    run = shutil.copytree(ROOT / "tests" / "data" / "v010_finished" / "run", tmp_path / "run")
    words = [sys.executable, "-c", ALONE, str(site), str(run)]
    environment = {**os.environ, "PYTHONPATH": str(site), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]


def test_the_demo_installs_what_it_needs_and_the_tests_the_rest(tmp_path):
    """What make would do in a fresh checkout, and that it does nothing twice."""
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)

    def would_run(target: str) -> str:
        return subprocess.run(
            ["make", "--no-print-directory", "-n", target], cwd=tmp_path, capture_output=True, text=True, check=True
        ).stdout

    assert "--editable ." in would_run("demo") and "dev" not in would_run("demo")
    for target in ("test", "lint", "docs"):
        assert "--editable ." in would_run(target) and "--editable '.[dev]'" in would_run(target)
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / "ready").touch()
    assert "install" not in would_run("demo") and "--editable '.[dev]'" in would_run("test")
    (tmp_path / ".venv" / "dev-ready").touch()
    assert "pip" not in would_run("test")
