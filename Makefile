# Everything runs in .venv, made on first use; a second call is quick.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check

# what is compiled is kept: tests start many processes that import the same files
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test mutants lint docs package bench clean

# what running hardtack needs
.venv/ready: pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@echo "installing hardtack into .venv (about two minutes the first time)"
	@$(PIP) install --quiet --quiet --editable .
	@$(BIN)/python -c 'import hardtack, torch, torchvision, timm'
	@touch .venv/ready

# and what its tests, lint, site and packages need
.venv/dev-ready: .venv/ready
	@echo "installing what the tests need into .venv (about two minutes the first time)"
	@$(PIP) install --quiet --quiet --editable '.[dev]'
	@$(BIN)/python -c 'import pytest, xdist, mypy, build'
	@touch .venv/dev-ready

demo: .venv/ready
	@$(BIN)/hardtack demo

# two processes of one thread each: most tests are too small to share a thread's work
test: .venv/dev-ready
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal

# plants small faults in a copy of the source, one at a time; every one must fail the tests named for it
mutants: .venv/dev-ready
	@OMP_NUM_THREADS=1 $(BIN)/python tests/mutants/run.py

lint: .venv/dev-ready
	@$(BIN)/ruff check src tests benchmarks examples docs/_site
	@$(BIN)/ruff format --check src tests benchmarks examples docs/_site
	@$(BIN)/mypy

# the documentation as a site that opens from disk; a dead link or a page outside of its menu is an error
docs: .venv/dev-ready
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo "build/site/index.html"

# what PyPI takes, in dist/; then installed into an empty environment, where the demo runs (five minutes)
package: .venv/dev-ready
	@rm -rf dist
	@$(BIN)/python -m build --outdir dist . >/dev/null
	@$(BIN)/twine check --strict dist/*
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 0 -m slow tests/flows/test_clean_install.py
	@ls -lh dist

# every benchmark that this machine can run; results lie in build/benchmarks
bench: .venv/dev-ready
	@$(BIN)/python benchmarks/run.py

clean:
	rm -rf .venv build dist src/*.egg-info .pytest_cache .mypy_cache .ruff_cache
