"""Plants every fault of the table in a copy of the source, one at a time, and runs the tests that must notice it.

    python tests/mutants/run.py [WORD…]      only the mutants whose file contains a word

Prints one line per mutant and exits with 1 if one survives. Each is tested in a fork of this process, which has
imported torch and nothing of the package: about two seconds instead of eight.
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


def run_tests(mutant: Mutant, source: Path, tests: Path) -> int:
    """The exit code of pytest on the mutant's tests, in a process of its own."""
    child = os.fork()
    if child == 0:
        silence = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silence, 1)
        os.dup2(silence, 2)
        os.chdir(tests.parent)
        sys.path[:0] = [str(source), str(tests)]
        os.environ["PYTHONPATH"] = str(source)
        torch.set_num_threads(1)
        named = [str(tests / name) for name in mutant.tests if (tests / name.split("::")[0]).exists()]
        os._exit(pytest.main(["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *named]))
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("words", nargs="*")
    parser.add_argument("--root", type=Path, default=TESTS.parent, help="the checkout to test")
    given = parser.parse_args()
    chosen = [m for m in MUTANTS if not given.words or any(word in m.file for word in given.words)]
    verdicts = {0: "SURVIVED", 1: "caught"}
    counts: dict[str, int] = {}
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        source = Path(folder) / "src"
        shutil.copytree(given.root / "src", source, ignore=shutil.ignore_patterns("__pycache__"))
        sys.dont_write_bytecode = True
        for mutant in chosen:
            before = plant(mutant, source)
            if before is None:
                verdict = "MISPLACED (its text is not in the file, or not once)"
            else:
                code = run_tests(mutant, source, given.root / "tests")
                verdict = verdicts.get(code, f"BROKEN (pytest ended with {code}: not a failed test)")
                (source / "hardtack" / mutant.file).write_text(before)
            counts[verdict.split()[0]] = counts.get(verdict.split()[0], 0) + 1
            print(f"{verdict:10} {mutant.file}: {' '.join(mutant.text.split())} -> {mutant.fault}", flush=True)
    print(", ".join(f"{count} {word}" for word, count in counts.items()))
    return int(set(counts) != {"caught"})


if __name__ == "__main__":
    sys.exit(main())
