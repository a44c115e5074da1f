# make venv | demo | figures | test | test-fast | check | faults | fuzz | dependencies | sbom | build | wheel-check | release-check | lowest | versions | bench DATA=DIR | bench-scale | clean. Needs Python 3.11 or later, pip and make.

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
  "$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo "$$p"; break; }; done)

# An exact version, because pip then prefers a CPU build of it (2.13.0+cpu) where the index has one;
# asked for the newest, it takes whichever build is newest, on Linux one with gigabytes of CUDA.
# TORCH_INDEX names an index that has the CPU build, where pip does not know one.
TORCH := torch==2.13.0
TORCH_INDEX ?=

# The versions that the tests ran with; empty takes the newest that fit together.
CONSTRAINTS ?= constraints.txt

# Three processes however many cores there are, each on one thread: figures of a machine and of CI stay comparable.
# Two cores have time for a third: tests wait for servers, disks and processes that they start.
TEST_PROCESSES ?= 3

.DEFAULT_GOAL := help
.PHONY: help venv demo test check bench clean

help:
	@sed -n 1p Makefile

venv: $(STAMP)

# Some systems ship Python without ensurepip: there virtualenv, unpacked beside, makes the same.
$(STAMP): pyproject.toml $(CONSTRAINTS) setup.py src/vecveil/privacy/randomness/_kernel.c
	@test -n "$(PYTHON)" || { echo "make: Python 3.11 or later is needed" >&2; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || { rm -rf $(VENV) && \
	  $(PYTHON) -m pip install --quiet --target build/virtualenv virtualenv && \
	  PYTHONPATH=build/virtualenv $(PYTHON) -m virtualenv --quiet $(VENV); }
	$(BIN)/python -m pip install --quiet --no-compile uv || $(BIN)/python -m pip install --quiet --upgrade pip
	.ci/install $(BIN)/python $(TORCH) $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX))
	.ci/install $(BIN)/python $(addprefix -c ,$(CONSTRAINTS)) -e ".[dev]"
	touch $@

demo: venv
	$(BIN)/vecveil demo --out vecveil-demo

# The README's picture, from the record; DEMO=vecveil-demo takes the figures of a finished demo into the record first.
.PHONY: figures
figures: venv
	$(BIN)/python benchmarks/figures.py $(if $(DEMO),--demo $(DEMO))

# In the order that tests/conftest.py gives: long files come first, so that no process is left alone with one.
# uv compiles nothing: the first import of a module writes its bytecode, whatever the shell says, for all later processes.
test: venv
	@$(MAKE) --no-print-directory browser javascript softhsm
	PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(TEST_PROCESSES) --dist loadfile --no-loadscope-reorder

# For the working day: units, one real database and one index, without tests marked slow (a second or more) and without
# the folders that train networks. A test here that takes half a minute fails; the slowest are named.
TRAINING := tests/unit/research tests/unit/auditing/attacks tests/unit/privacy/textcrafter
.PHONY: test-fast
test-fast: venv
	PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile --timeout 30 \
	  -m "not slow" -k "not test_vector_stores or sqlite" --durations 5 --durations-min 2 \
	  $(addprefix --ignore=,$(TRAINING)) tests/unit tests/contract/test_sealed_index.py tests/contract/test_vector_stores.py

# The report page is looked at in headless Chromium; without it those tests are skipped.
.PHONY: browser
browser:
	@if command -v chromedriver >/dev/null 2>&1; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then \
	  { apt-get update -qq && DEBIAN_FRONTEND=noninteractive \
	    apt-get install -y -qq --no-install-recommends chromium chromium-driver >/dev/null; } \
	    || echo "make: no Chromium could be installed; the tests that need it are skipped" >&2; \
	else echo "make: no Chromium; the tests that need it are skipped" >&2; fi

# Keys of PKCS#11 are tested with SoftHSM.
.PHONY: softhsm
softhsm:
	@if command -v softhsm2-util >/dev/null 2>&1; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then \
	  { apt-get update -qq && DEBIAN_FRONTEND=noninteractive \
	    apt-get install -y -qq --no-install-recommends softhsm2 >/dev/null; } \
	    || echo "make: no SoftHSM could be installed; the tests that need it are skipped" >&2; \
	else echo "make: no SoftHSM; the tests that need it are skipped" >&2; fi

# OpenAI's JavaScript client searches the server; without node and npm that test is skipped.
.PHONY: javascript
javascript:
	@if [ -d build/node/node_modules/openai ]; then :; \
	elif command -v node >/dev/null 2>&1 && command -v npm >/dev/null 2>&1; then \
	  npm install --silent --no-save --no-audit --no-fund --prefix build/node openai@6 >/dev/null \
	    || echo "make: npm has not got openai; the test that needs it is skipped" >&2; \
	else echo "make: no node and npm; the test that needs them is skipped" >&2; fi

# Every fault a hundred times at random moments; the suite itself makes a few. FAULT_SEED repeats a run.
FAULT_MOMENTS ?= 100
FAULT_SEED ?=
.PHONY: faults
faults: venv
	OMP_NUM_THREADS=1 VECVEIL_FAULT_MOMENTS=$(FAULT_MOMENTS) $(if $(FAULT_SEED),VECVEIL_FAULT_SEED=$(FAULT_SEED)) \
	  $(BIN)/python -m pytest tests/faults -q

check: venv
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	@if [ -f mkdocs.yml ]; then $(BIN)/mkdocs build --strict --quiet --site-dir site; fi

bench: venv
	$(BIN)/python benchmarks/run.py $(if $(DATA),--data $(DATA))

# sdist and wheel into dist/, of what is committed and not ignored.
.PHONY: build
build: venv
	rm -rf dist build
	$(BIN)/python -m build --no-isolation --outdir dist .

# What is built installs in empty environments, with and without extras, and protects there.
.PHONY: wheel-check
wheel-check: venv
	VECVEIL_TEST_DISTRIBUTION=long OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/release

# The same, and each extra in an empty environment in turn, which takes hours and 10 GB; EXTRAS="cli http" takes these alone.
.PHONY: release-check
release-check: venv
	VECVEIL_TEST_DISTRIBUTION=extras TORCH="$(TORCH)" EXTRAS="$(EXTRAS)" OMP_NUM_THREADS=1 \
	  $(BIN)/python -m pytest tests/release -rP

# The lowest versions that pyproject.toml allows for the core and the command line, and a quick choice of tests with them.
LOWEST ?= build/lowest
LOWEST_TESTS ?= tests/golden/test_saved_protectors.py tests/unit/cli tests/unit/test_io.py
.PHONY: lowest
lowest: venv
	rm -rf $(LOWEST) && $(PYTHON) -m venv $(LOWEST)
	$(BIN)/uv pip compile --quiet --python $(LOWEST)/bin/python --resolution lowest-direct --extra cli pyproject.toml \
	  -o $(LOWEST)/lowest.txt
	UV=$(BIN)/uv .ci/install $(LOWEST)/bin/python -r $(LOWEST)/lowest.txt pytest pytest-asyncio pytest-timeout hypothesis psutil
	UV=$(BIN)/uv .ci/install $(LOWEST)/bin/python --no-deps -e .
	OMP_NUM_THREADS=1 $(LOWEST)/bin/python -m pytest -p no:cacheprovider $(LOWEST_TESTS)

# The suite under other Pythons, those of VERSIONS that are there. Where no index has a CPU build of torch for them, pip
# takes one of several GB.
VERSIONS ?= python3.12 python3.13
.PHONY: versions
versions:
	@for p in $(VERSIONS); do \
	  if "$$p" -c "" 2>/dev/null; then $(MAKE) test PYTHON=$$p VENV=build/venv-$$(basename $$p) || exit 1; \
	  else echo "make: no $$p here: NOT TESTED" >&2; fi; \
	done

# Ten million vectors beside a copy of them; needs about 32 GB of disk in FOLDER (a temporary one unless given).
.PHONY: bench-scale
bench-scale: venv
	$(BIN)/python benchmarks/scale.py $(if $(FOLDER),--folder $(FOLDER))

.PHONY: constraints
constraints: venv
	{ sed -n '/^#/p' constraints.txt; $(BIN)/python -m pip freeze --exclude-editable \
	  | grep -viE '^(torch|pip|setuptools|wheel)=|@' ; } > build.tmp && mv build.tmp constraints.txt

# What the security pass needs beside the tests lies in a folder of its own, behind what is installed.
SECURITY_TOOLS := build/security-tools
$(SECURITY_TOOLS)/.installed:
	$(BIN)/python -m pip install --quiet --upgrade --target $(SECURITY_TOOLS) "schemathesis>=4" "pip-audit>=2.7" "cyclonedx-bom>=5"
	-$(BIN)/python -m pip install --quiet --upgrade --target $(SECURITY_TOOLS) "atheris>=2.3"
	touch $@

# At least 100,000 inputs to every reader, by coverage where atheris is to be had, and the HTTP API by its schema.
.PHONY: fuzz
fuzz: venv $(SECURITY_TOOLS)/.installed
	$(BIN)/python tests/fuzz/run.py --inputs $(or $(INPUTS),100000) --tools $(CURDIR)/$(SECURITY_TOOLS) --scratch build/fuzz

# Known vulnerabilities of what is installed; without a way to the database it says so and fails.
.PHONY: dependencies
dependencies: venv $(SECURITY_TOOLS)/.installed
	$(BIN)/python -m pip freeze --exclude-editable | grep -v ' @ ' | sed 's/+cpu$$//' > build/installed.txt
	@PYTHONPATH=$(SECURITY_TOOLS) $(BIN)/python -m pip_audit --requirement build/installed.txt --no-deps --disable-pip \
	  --progress-spinner off > build/dependencies.txt 2>&1; code=$$?; tail -n 40 build/dependencies.txt; \
	missed=$$(grep -c 'could not be audited' build/dependencies.txt); \
	if [ "$$missed" -gt 0 ] || grep -qiE 'ConnectionError|Max retries|ServiceError|timed out|HTTPError|Traceback' build/dependencies.txt; then \
	  echo "make: NOT CHECKED: the database of vulnerabilities could not be asked ($$missed packages without an answer)" >&2; exit 2; fi; exit $$code

# What is installed, as CycloneDX JSON.
.PHONY: sbom
sbom: venv $(SECURITY_TOOLS)/.installed
	PYTHONPATH=$(SECURITY_TOOLS) $(BIN)/python -m cyclonedx_py environment --of JSON --output-reproducible \
	  --pyproject pyproject.toml -o build/sbom.json $(BIN)/python
	@echo "build/sbom.json"

clean:
	rm -f src/vecveil/privacy/randomness/_kernel.*.so
	rm -rf $(VENV) build dist site vecveil-demo .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
