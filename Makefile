# Every target builds its own requirements: a virtual environment with pinned tools, the extension module, the command.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps
# Debug information is left out and incremental builds are on: see [profile.release].
CARGO ?= cargo
# Without files of byte code, each of the many processes of the tests would compile the modules that it imports.
unexport PYTHONDONTWRITEBYTECODE
# The number of processes that run Python tests in parallel: three for two cores, because many tests wait. 0 runs all tests
# in pytest's own process.
WORKERS ?= 3
# All tests of a module run in one process, so that shared fixtures are built once. Linear algebra has one thread per process:
# starting more threads takes almost half of the processor time of an import of NumPy.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder

.PHONY: help demo check test torture build lint fmt stubs bench page browser engines docs site wheel check-wheel sdist clean

help:
	@echo 'make demo    simulate, ingest, query, materialize and serve generated games'
	@echo 'make check   before each commit: formatting, ruff, the unit tests and the quick Python tests, in a minute'
	@echo 'make test    before each push: the whole suite, Rust and Python, in six to eight minutes; WORKERS=3 processes'
	@echo 'make torture before each release: the long tests of kills, failures and power loss'
	@echo 'make build   the command and the extension module'
	@echo 'make lint    formatting, clippy, links in the documentation, ruff, mypy, stubs'
	@echo 'make fmt     format all sources'
	@echo 'make stubs   write the docstrings into the stub'
	@echo 'make bench   benchmarks, beside NumPy and pyarrow'
	@echo 'make engines install Dask and Ray, for the tests of clusters'
	@echo 'make browser install Chromium for the tests of pages, on Debian as root'
	@echo 'make page    the pages of the report and of the explorer, from explore/web'
	@echo 'make site    the website of the documentation, in dist/site'
	@echo 'make docs    the documentation of the crate, and Markdown pages with the Python reference in dist/pages'
	@echo 'make wheel   an optimized wheel in dist/, on Linux for glibc 2.28 or newer'
	@echo 'make check-wheel  install the wheel of dist/ in fresh environments and use it; PYTHONS="python3.11 python3.13"'
	@echo 'make sdist   the source distribution in dist/ and the package of the crate, both checked by the compiler from their own files'

# Debian's venv module comes without pip, so the system's pip installs it.
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

# Output of maturin and pip to hide, because cargo reports progress already.
NOISE := ^(Ignoring|Looking in|Requirement)|^\W*(Building a mixed|Found|Using build|Built wheel|Setting|Installed|Finished) 

# Cargo decides what to rebuild. Maturin puts the extension into the package's folder, and Python imports it from
# there. On a terminal, cargo draws its progress in lines that end in carriage returns; each line overwrites the one
# before.
.PHONY: extension
extension: $(VENV)/tools
	@[ -e python/a2store/_a2store.abi3.so ] || echo 'building a2store: about a quarter of an hour the first time'
	@if [ -t 2 ]; then \
		export CARGO_TERM_COLOR=always CARGO_TERM_PROGRESS_WHEN=always CARGO_TERM_PROGRESS_WIDTH="$$(tput cols)"; \
	fi; \
	$(BIN)/maturin develop --locked --profile release 2>&1 \
		| $(BIN)/python -c "$$FILTER" '$(NOISE)' >&2

define FILTER
import os, re, sys
noise, rest, clear = re.compile(sys.argv[1].encode()), b"", b"\x1b[K" if os.isatty(1) else b""
while data := os.read(0, 1 << 16):
    *lines, rest = re.split(rb"(?<=[\r\n])", rest + data)
    for line in lines:
        if line.strip() and not noise.search(re.sub(rb"\x1b\[[0-9;]*[mK]", b"", line)):
            os.write(1, clear + line)
os.write(1, clear + rest)
endef
export FILTER

demo: extension
	$(BIN)/python examples/demo.py

# The modules with the quick tests. They cover what most changes break, and each takes seconds.
QUICK := archive arrow command command_options docs ingest loader materialize package play query query_results sampling \
	symmetries table user_tables views

check: extension $(VENV)/test-tools
	$(CARGO) fmt --check
	$(BIN)/ruff check --quiet .
	$(BIN)/ruff format --check --quiet .
	$(CARGO) test --release --locked --quiet --lib
	$(PYTEST) --quiet $(QUICK:%=tests/python/test_%.py)

test: extension $(VENV)/test-tools
	$(CARGO) test --release --locked
	$(PYTEST)

# The long test forms. 100,000 simulated histories of an archive take about half an hour. `A2STORE_SEED=7 A2STORE_SEEDS=1` repeats
# one. Kills, failing calls, power failures and concurrency take about twenty minutes. Random SQL
# (50,000 statements) takes about half an hour.
torture: extension $(VENV)/test-tools
	$(CARGO) test --release --locked --package a2store --no-default-features
	A2STORE_SEEDS=100000 $(CARGO) test --release --locked --lib simulation
	A2STORE_LONG_TESTS=1 $(PYTEST)

build: extension
	$(CARGO) build --release --locked

# What `page` builds.
PAGES := $(addprefix explore/assets/, index.html app.js app.css replay.html report.html)

lint: extension $(VENV)/test-tools
	$(CARGO) fmt --check
	$(CARGO) clippy --release --locked --workspace --all-targets -- -D warnings
	$(CARGO) check --quiet --release --locked --package a2store --no-default-features --tests
	RUSTDOCFLAGS='-D warnings' $(CARGO) doc --quiet --release --no-deps --locked
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m mypy.stubtest a2store --ignore-disjoint-bases --mypy-config-file pyproject.toml
	@if command -v npm > /dev/null; then \
		cat $(PAGES) > $(VENV)/committed && $(MAKE) page && cat $(PAGES) | cmp - $(VENV)/committed; \
	else \
		echo '$(PAGES): not compared with their sources, because npm is absent'; \
	fi

# The browser of the tests of pages. Without it, these tests are skipped.
browser:
	@if ! { command -v chromium && command -v chromedriver; } > /dev/null; then \
		apt-get update -qq && apt-get install --yes -qq --no-install-recommends chromium chromium-driver; \
	fi

# The engines of the tests of clusters. Without them, these tests are skipped.
engines: $(VENV)/test-tools
	$(PIP) -r requirements/engines.txt

fmt: $(VENV)/test-tools
	$(CARGO) fmt
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

stubs: extension $(VENV)/test-tools
	$(BIN)/python tests/python/reference.py

# The pages are committed, so only their changes need Node.js. The same sources give the same bytes. The explorer's page
# shares modules with the report's.
page:
	for page in report explorer; do \
		(cd explore/web/$$page && npm ci --no-audit --no-fund && npm run format:check && npm run check && npm run build); \
	done

bench: extension $(VENV)/test-tools
	$(CARGO) bench --profile release --locked
	$(BIN)/python benches/side_by_side

docs: extension $(VENV)/test-tools
	RUSTDOCFLAGS='-D warnings' $(CARGO) doc --release --no-deps --locked
	$(BIN)/python docs/site.py

$(VENV)/site-tools: requirements/site.txt $(VENV)/tools
	$(PIP) -r requirements/site.txt
	@touch $@

site: extension $(VENV)/site-tools $(VENV)/test-tools
	$(BIN)/python docs/site.py
	$(BIN)/zensical build --strict

$(VENV)/wheel-tools: requirements/wheel.txt $(VENV)/tools
	$(PIP) -r requirements/wheel.txt
	@touch $@

# On Linux, Zig links against glibc 2.28, so the wheel runs on RHEL 8, Debian 10, Ubuntu 20.04 and newer systems.
LINUX_WHEEL := $(if $(filter Linux,$(shell uname)),--zig --compatibility manylinux_2_28)

wheel: $(VENV)/wheel-tools
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/maturin build --locked $(LINUX_WHEEL) --out dist

check-wheel: $(VENV)/wheel-tools
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python tests/check_wheel.py $(PYTHONS)

sdist: $(VENV)/tools
	rm -rf dist/sdist dist/*.tar.gz
	$(BIN)/maturin sdist --out dist
	mkdir dist/sdist
	tar --extract --file dist/*.tar.gz --directory dist/sdist --strip-components 1
	cd dist/sdist && PYO3_PYTHON=$(abspath $(BIN))/python cargo check --locked --workspace
	rm -f $${CARGO_TARGET_DIR:-target}/package/a2store-*.crate
	cargo package --locked --no-verify --package a2store
	# Outside of the repository, so that cargo does not take it for a member of the workspace.
	folder=$$(mktemp --directory) \
		&& tar --extract --file $${CARGO_TARGET_DIR:-target}/package/a2store-*.crate --directory $$folder --strip-components 1 \
		&& (cd $$folder && cargo check --locked) && rm -r $$folder

clean:
	rm -rf $(VENV) dist demo python/a2store/*.so
