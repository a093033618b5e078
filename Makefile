PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
# Another file tests other versions, such as the oldest torch.
CONSTRAINTS ?= constraints.txt
# Python compiles what is imported, a small part of all files, when it is imported.
PIP    := $(BIN)/python -m pip install --quiet --no-compile --constraint $(CONSTRAINTS)
# Examples per property: quick, thorough, or fresh (new ones each time).
PROFILE ?= thorough

# Each process that a test starts would compile all that it imports: half of its time to start.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help install demo test test-all coverage lint types docs dist lock wire clean

help:
	@echo "make demo     install into $(VENV) and run the demonstration"
	@echo "make test     install what is missing, lint, type-check, run the quick tests"
	@echo "make test-all run the rest: real processes and data, papers, long property tests"
	@echo "make coverage run the quick tests and show what they reach"
	@echo "make docs     build the documentation into site/"
	@echo "make dist     build wheel, source distribution and SBOM into dist/"
	@echo "make install  install into $(VENV) only"

$(VENV)/.installed: pyproject.toml papers/pyproject.toml benches/pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing Tacit into $(VENV) (the first time takes a few minutes) ..."
	@$(PIP) --editable . --editable papers --editable benches
	@touch $@

# Not after .installed: Tacit would be built twice.
$(VENV)/.installed-dev: pyproject.toml papers/pyproject.toml benches/pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing Tacit and the development tools into $(VENV) (takes a few minutes) ..."
	@$(PIP) --editable '.[dev]' --editable papers --editable benches
	@touch $(VENV)/.installed $@

install: $(VENV)/.installed

demo: install
	@$(BIN)/tacit demo

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.installed-dev
	$(BIN)/mypy

# One thread per process: threads that share a core slow each other down.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest --dist loadfile --no-loadscope-reorder

# Types are checked beside the tests, because mypy uses one core only.
test: lint
	@$(BIN)/mypy & types=$$!; \
	HYPOTHESIS_PROFILE=quick $(PYTEST) --numprocesses auto -m "not slow"; tests=$$?; \
	wait $$types && exit $$tests

test-all: $(VENV)/.installed-dev
	HYPOTHESIS_PROFILE=$(PROFILE) $(PYTEST) --numprocesses auto -m "slow or thorough"

# What the quick tests reach. Slower than `make test`.
coverage: $(VENV)/.installed-dev
	HYPOTHESIS_PROFILE=quick $(PYTEST) --numprocesses auto -m "not slow" \
	  --cov --cov-report=term:skip-covered

$(VENV)/.installed-docs: $(VENV)/.installed
	@echo "Installing the documentation tools ..."
	@$(PIP) --editable '.[docs]' --editable papers --editable benches
	@touch $@

# Fails on a broken link or reference.
docs: $(VENV)/.installed-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

$(VENV)/.installed-release: $(VENV)/.installed
	@echo "Installing the release tools ..."
	@$(PIP) --editable '.[release]' --editable papers --editable benches
	@touch $@

# The wheel is built from the source distribution, so that both are complete.
dist: $(VENV)/.installed-release
	rm -rf dist
	$(BIN)/python -m build --no-isolation
	$(BIN)/twine check --strict dist/*
	$(BIN)/cyclonedx-py requirements --pyproject pyproject.toml --output-reproducible \
	  --output-file dist/sbom.cdx.json deploy/requirements.txt

# After a change of dependencies or constraints; needs an index with PyTorch's CPU builds.
lock: $(VENV)/.installed
	$(BIN)/python tools/lock.py

# After a change of wire.proto.
wire: $(VENV)/.installed-dev
	cd src && ../$(BIN)/python -m grpc_tools.protoc --proto_path=. --python_out=. --pyi_out=. tacit/peer/wire/wire.proto

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache build dist site
