# Everything a developer or a machine does with LUCIUS goes through here.
# `make run` and `make test` need Python 3.11, make and the package registries; nothing else.

SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DIST := dist
PYTHONS := 3.11 3.12 3.13 3.14
# More than cores: many tests wait for a clock, a process or a server most of their time.
TEST_WORKERS := 4
# The files with tests that have a long form, the attacks aside.
LONG_FORMS = $(shell grep -rlE 'tests\.long_form' tests --include='test_*.py' | grep -v '^tests/attack/')
export UV_PYTHON_DOWNLOADS := never
export UV_SYSTEM_CERTS := 1
# Without bytecode files every start of LUCIUS compiles it again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup wheel release run migrate check prepared test test-long test-matrix attack coverage bench bench-peers lock bicep chart dashboards diagrams clean

help: ## List the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

setup: $(STAMP) ## Install LUCIUS and its tools into .venv

$(STAMP): requirements/dev.txt pyproject.toml src/lucius/console/vendor.json
	@echo "Installing LUCIUS into $(VENV) (once, and when its requirements change): a minute or so …"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/uv.txt
	@$(BIN)/uv pip install --quiet --compile-bytecode --python $(BIN)/python --require-hashes -r requirements/dev.txt
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation -e .
	@$(BIN)/python src/lucius/console/vendor.py
	@touch $(STAMP)
	@echo "Installed $(BIN)/lucius."

wheel: setup ## Build LUCIUS as a wheel into dist/, with its locked requirements beside it
	@$(BIN)/python -m hatchling build -t wheel -d $(DIST)
	@cp requirements/runtime.txt $(DIST)/requirements.txt
	@cp requirements/base.txt $(DIST)/requirements-base.txt
	@ls $(DIST)/requirements.txt $(DIST)/requirements-base.txt

release: wheel ## Wheel, source distribution, list of contents (SBOM) and release notes, into dist/
	@$(BIN)/python -m hatchling build -t sdist -d $(DIST)
	@$(BIN)/cyclonedx-py requirements requirements/runtime.txt --pyproject pyproject.toml --output-reproducible \
	  --of JSON -o $(DIST)/lucius.cdx.json
	@$(BIN)/python deploy/release_notes.py > $(DIST)/release-notes.md

run: setup ## Start LUCIUS on the embedded default, run the sample job, leave the API up
	@$(BIN)/lucius up --sample

migrate: setup ## Run the mailbox-migration example
	@$(BIN)/lucius runbook sample --up

check: setup ## Lint, types, architecture
	@$(BIN)/ruff format --check --quiet src tests bench deploy || { echo "run '.venv/bin/ruff format src tests bench deploy'"; exit 1; }
	@$(BIN)/ruff check --quiet src tests bench deploy
	@$(BIN)/mypy
	@$(BIN)/lint-imports

# Collected once beforehand: on a fresh clone each of pytest's workers would compile every test by itself.
prepared: setup
	@$(BIN)/python -m tests.prepare
	@$(BIN)/python -m compileall -q src
	@$(BIN)/pytest --collect-only -qq > $(VENV)/collected.txt || { tail -n 50 $(VENV)/collected.txt; exit 1; }

test: setup ## Every check and every test, against real servers
	@$(MAKE) --no-print-directory -j 2 check prepared
	@$(BIN)/pytest -n $(TEST_WORKERS) --dist worksteal --durations 20

test-long: attack ## The long forms of tests that 'make test' runs briefly
	@LUCIUS_TEST_LONG=1 $(BIN)/pytest $(LONG_FORMS) --timeout 900 -v

attack: setup ## The long form of the attacks alone: loopback only, bounded
	@LUCIUS_TEST_LONG=1 $(BIN)/pytest tests/attack --timeout 900 -v

test-matrix: ## The tests on every Python from 3.11 to 3.14 that is installed, each in an environment of its own
	@for version in $(PYTHONS); do \
	  python$$version -c "" 2>/dev/null || { echo "Python $$version is not installed: left out"; continue; }; \
	  echo "Python $$version"; \
	  $(MAKE) --no-print-directory setup PYTHON=python$$version VENV=.venv-$$version \
	    && .venv-$$version/bin/pytest -n $(TEST_WORKERS) --dist worksteal || exit 1; \
	done

coverage: setup ## Line and branch coverage of the tests, as a table and in htmlcov/; child processes are not counted
	@$(BIN)/pytest -n $(TEST_WORKERS) --dist worksteal --cov --cov-report term:skip-covered --cov-report html

bench: setup ## Measure speed, beside limits and peers; writes docs/benchmarks.md and bench/results/latest.json
	@$(BIN)/python -m bench

bench-peers: setup ## Measure the same work on Restate, Temporal, DBOS, Procrastinate and Celery beside LUCIUS
	@$(BIN)/python -m bench --only peers

chart: setup ## Make the schema and the README of the Helm chart from its values
	@$(BIN)/python deploy/helm/generate.py

bicep: setup ## Make the Bicep of what LUCIUS uses on Azure
	@$(BIN)/python deploy/azure/generate.py

dashboards: setup ## Make the Grafana dashboards
	@$(BIN)/python deploy/monitoring/generate.py

diagrams: setup ## Draw the state diagrams of docs/reference/states.md from the tables
	@$(BIN)/python docs/draw_states.py

lock: setup ## Pin the dependencies again, with hashes and without addresses
	@$(BIN)/uv pip compile pyproject.toml --all-extras --generate-hashes --no-emit-index-url --quiet -o requirements/runtime.txt
	@$(BIN)/uv pip compile pyproject.toml -c requirements/runtime.txt --generate-hashes --no-emit-index-url --quiet -o requirements/base.txt
	@$(BIN)/uv pip compile pyproject.toml --all-extras --group dev -c requirements/runtime.txt --generate-hashes --no-emit-index-url --quiet -o requirements/dev.txt
	@echo uv | $(BIN)/uv pip compile - --generate-hashes --no-emit-index-url --no-header --quiet -o requirements/uv.txt

clean: ## Remove the environment and all caches
	rm -rf $(VENV) .pytest_cache .mypy_cache .venv-3.* .ruff_cache .hypothesis .import_linter_cache htmlcov .coverage*
