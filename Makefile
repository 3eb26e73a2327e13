# Everything runs in an environment of its own, .venv, made on first use from pinned versions.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt

.PHONY: demo test lint bench reproduction clean
.DELETE_ON_ERROR:

demo: .venv/.core
	$(BIN)/continual-crust demo

# Tests run one per core, so each may use one thread only: two busy thread pools slow each other down tenfold.
test: .venv/.test lint
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses=2 --durations=8

lint: .venv/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Selection and training beside their peers, on all cores, in under five minutes; best on a machine that has nothing
# else to do.
bench: .venv/.test
	$(BIN)/python benchmarks/selection_cpu.py --out results/selection_cpu.json
	$(BIN)/python benchmarks/selection_figure.py
	$(BIN)/python benchmarks/training_cpu.py --out results/training_cpu.json
	$(BIN)/python benchmarks/performance_tables.py

# The tables and figures of docs/reproduction.md from the runs that were collected.
reproduction: .venv/.core
	$(BIN)/continual-crust study tables docs/reproduction.md --from results/reproduction --figures docs

.venv/.core: pyproject.toml constraints.txt
	@test -x $(BIN)/python || { echo "Making .venv (once; a few minutes)"; "$(PYTHON)" -m venv .venv; }
	$(PIP) --upgrade pip
	$(PIP) torch
	$(PIP) --editable .
	@touch $@

.venv/.test: .venv/.core
	@echo "Adding what the tests need to .venv (once; a few minutes)"
	$(PIP) --editable '.[test]'
	@touch $@

clean:
	rm -rf .venv build dist src/*.egg-info
