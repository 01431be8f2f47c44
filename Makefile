# Every target sets up what it needs: a virtual environment with pinned tools, the extension module, the command.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps
# Debug information is left out and incremental builds are on: see [profile.release].
CARGO ?= cargo

.PHONY: help demo test torture build lint fmt bench docs wheel clean

help:
	@echo 'make demo    simulate, ingest, query, materialize, serve: the main job on generated games'
	@echo 'make test    the whole suite, Rust and Python'
	@echo 'make torture the long tests of kills, failures and power loss'
	@echo 'make build   the command and the extension module'
	@echo 'make lint    formatting, clippy, ruff, mypy, stubs'
	@echo 'make fmt     format all sources'
	@echo 'make bench   benchmarks, beside NumPy and pyarrow'
	@echo 'make docs    the API documentation of the crate'
	@echo 'make wheel   an optimized wheel in dist/'

# Debian has the venv module without the pip to put into it; the system's own pip can do that.
$(BIN)/python:
	$(PYTHON) -m venv $(VENV) 2>/dev/null \
		|| { $(PYTHON) -m venv --clear --without-pip $(VENV) && $(PYTHON) -m pip --python $(BIN)/python install --quiet pip; }

$(VENV)/tools: requirements/tools.txt | $(BIN)/python
	$(PIP) -r requirements/tools.txt
	@touch $@

$(VENV)/test-tools: requirements/test.txt $(VENV)/tools
	@echo 'installing the test tools, PyTorch among them: a few minutes the first time'
	$(PIP) -r requirements/test.txt
	@touch $@

# Cargo knows what is out of date. The extension is built into the package's folder, from which it is imported.
.PHONY: extension
extension: $(VENV)/tools
	@echo 'building a2store: about a quarter of an hour the first time, seconds after that'
	@$(BIN)/maturin develop --quiet --locked --profile release 2>&1 \
		| { grep -vE '^(Ignoring|Looking|Requirement)|(Building a mixed|Found|Using build|Built|Setting) ' || true; }

demo: extension
	$(BIN)/python examples/demo.py

test: extension $(VENV)/test-tools
	$(CARGO) test --release --locked
	$(BIN)/python -m pytest

# The long forms of the tests of kills, failing calls, power failures and concurrency, about twenty minutes, and of SQL
# at random: 50,000 statements, about half an hour.
torture: extension $(VENV)/test-tools
	A2STORE_LONG_TESTS=1 $(BIN)/python -m pytest tests/python

build: extension
	$(CARGO) build --release --locked

lint: extension $(VENV)/test-tools
	$(CARGO) fmt --check
	$(CARGO) clippy --release --locked --all-targets --features python -- -D warnings
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m mypy.stubtest a2store --ignore-disjoint-bases

fmt: $(VENV)/test-tools
	$(CARGO) fmt
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: extension $(VENV)/test-tools
	$(CARGO) bench --profile release --locked
	$(BIN)/python benches/side_by_side

docs:
	RUSTDOCFLAGS='-D warnings' $(CARGO) doc --release --no-deps --locked

wheel: $(VENV)/tools
	$(BIN)/maturin build --locked --out dist

clean:
	rm -rf $(VENV) dist demo python/a2store/*.so
