"""`make bench` knows every benchmark."""

import importlib.util
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "benchmarks"


def load(name):
    spec = importlib.util.spec_from_file_location(f"benchmark_{name}", FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_benchmark_is_in_the_table():
    run = load("run")
    assert sorted([*run.BENCHMARKS, *run.PARTS]) == sorted(path.stem for path in FOLDER.glob("*.py"))


def test_every_benchmark_takes_its_words():
    run = load("run")
    for name, benchmark in run.BENCHMARKS.items():
        source = (FOLDER / f"{name}.py").read_text(encoding="utf-8")
        for word in [*benchmark.words, "--output"]:
            assert not word.startswith("--") or f'add_argument("{word}"' in source, (name, word)
