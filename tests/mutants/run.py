"""Plants every fault of the table in a copy of the source, one at a time, and runs the tests that must notice it.

    python tests/mutants/run.py [WORD…]      only the mutants whose file contains a word

Prints one line per mutant and exits with 1 if one survives. The tests must exist, and must pass on the copy without a
fault: a mutant counts as caught only if they fail because of it. Each run is a fork of this process, which has imported
torch and nothing of the package: about two seconds instead of eight.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from pathlib import Path

import pytest
import timm  # noqa: F401
import torch
import torchvision  # noqa: F401
from table import MUTANTS, Mutant

TESTS = Path(__file__).parents[1]


def plant(mutant: Mutant, source: Path) -> str | None:
    """Write the fault into the copy; returns the text of the file before, or None if the place is not there."""
    path = source / "hardtack" / mutant.file
    before = path.read_text() if path.exists() else ""
    if before.count(mutant.text) != 1:
        return None
    path.write_text(before.replace(mutant.text, mutant.fault))
    return before


def run_tests(names: tuple[str, ...], source: Path, tests: Path) -> int:
    """The exit code of pytest on these tests, in a process of its own."""
    child = os.fork()
    if child == 0:
        silence = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silence, 1)
        os.dup2(silence, 2)
        os.chdir(tests.parent)
        sys.path[:0] = [str(source), str(tests)]
        os.environ["PYTHONPATH"] = str(source)
        torch.set_num_threads(1)
        paths = [str(tests / name) for name in names]
        os._exit(pytest.main(["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *paths]))
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def verdict_of(mutant: Mutant, source: Path, tests: Path, sound: dict[tuple[str, ...], bool]) -> str:
    """One mutant's verdict; `sound` remembers which tests pass without a fault."""
    if mutant.tests not in sound:
        sound[mutant.tests] = run_tests(mutant.tests, source, tests) == 0
    if not sound[mutant.tests]:
        return "BROKEN (its tests are not there, or fail without a fault)"
    before = plant(mutant, source)
    if before is None:
        return "MISPLACED (its text is not in the file, or not once)"
    code = run_tests(mutant.tests, source, tests)
    (source / "hardtack" / mutant.file).write_text(before)
    return {0: "SURVIVED", 1: "caught"}.get(code, f"BROKEN (pytest ended with {code}: not a failed test)")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("words", nargs="*")
    parser.add_argument("--root", type=Path, default=TESTS.parent, help="the checkout to test")
    given = parser.parse_args()
    chosen = [m for m in MUTANTS if not given.words or any(word in m.file for word in given.words)]
    counts: dict[str, int] = {}
    sound: dict[tuple[str, ...], bool] = {}
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        source = Path(folder) / "src"
        shutil.copytree(given.root / "src", source, ignore=shutil.ignore_patterns("__pycache__"))
        sys.dont_write_bytecode = True
        for mutant in chosen:
            verdict = verdict_of(mutant, source, given.root / "tests", sound)
            counts[verdict.split()[0]] = counts.get(verdict.split()[0], 0) + 1
            print(f"{verdict:10} {mutant.file}: {' '.join(mutant.text.split())} -> {mutant.fault}", flush=True)
    print(", ".join(f"{count} {word}" for word, count in counts.items()))
    return int(set(counts) != {"caught"})


if __name__ == "__main__":
    sys.exit(main())
