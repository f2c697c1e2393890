# Everything runs in .venv, made on first use; a second call is quick.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test mutants lint bench clean

.venv/ready: pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@echo "installing hardtack into .venv (about two minutes the first time)"
	@$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[dev]' 2>&1 | grep -v '^WARNING' || true
	@$(BIN)/python -c 'import hardtack, torch, torchvision, timm, pytest'
	@touch .venv/ready

demo: .venv/ready
	@$(BIN)/hardtack demo

# two processes of one thread each: most tests are too small to share a thread's work
test: .venv/ready
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal

# plants small faults in a copy of the source, one at a time; every one must fail the tests named for it
mutants: .venv/ready
	@OMP_NUM_THREADS=1 $(BIN)/python tests/mutants/run.py

lint: .venv/ready
	@$(BIN)/ruff check src tests benchmarks examples
	@$(BIN)/ruff format --check src tests benchmarks examples
	@$(BIN)/mypy

# every benchmark that this machine can run; results lie in build/benchmarks
bench: .venv/ready
	@$(BIN)/python benchmarks/run.py

clean:
	rm -rf .venv build src/*.egg-info .pytest_cache .mypy_cache .ruff_cache
