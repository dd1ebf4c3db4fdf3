# make demo | test | bench | lint | sanitize | arm64: each sets up what it needs. VENV chooses the environment.
VENV ?= .venv
PYTHON ?= python3
BIN = $(VENV)/bin
NATIVE = CMakeLists.txt pyproject.toml constraints.txt $(wildcard csrc/*)

.PHONY: setup demo test bench lint sanitize arm64 clean

setup: $(VENV)/.ready

# An editable install: Python changes count at once, changes of the kernels build them again.
$(VENV)/.ready: $(NATIVE)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

demo: setup
	$(BIN)/python -m kru.demo

test: setup lint
	$(BIN)/python -m pytest

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: setup
	$(BIN)/python benchmarks/run.py

clean:
	rm -rf build $(VENV) .pytest_cache .mypy_cache .ruff_cache
