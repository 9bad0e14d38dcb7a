SHELL := /bin/bash
# make demo: from a fresh checkout to a report on how well uncertainties find errors under shift.
# make test: the linters and every test except those marked `thorough`. Both make .venv themselves.
# make test-all: the linters and every test, which must hold before a change lands.
# make evidence: every table and figure that the pages quote, and the page of results/paper/mnist, from results/ alone.
# make coverage: every test, with the lines and branches that they reach; fails below the floor in pyproject.toml.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
INSTALL := $(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable

.PHONY: demo test test-all pytest pytest-all coverage evidence fuzz lint docs clean

demo: .venv/.demo
	@$(BIN)/qipf demo

# A test that hangs ends after ten minutes, with the line at which it hangs.
HANGS := -o faulthandler_timeout=600 -o faulthandler_exit_on_timeout=true
# Bytecode is kept even if the environment forbids it: tests start many processes.
TESTS := PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(BIN)/pytest --quiet --numprocesses 2 --dist worksteal $(HANGS)

test: .venv/.dev  # the linters use one core while the tests start on the other
	@$(MAKE) --no-print-directory --jobs 2 lint pytest

test-all: .venv/.dev
	@$(MAKE) --no-print-directory --jobs 2 lint pytest-all

pytest: .venv/.dev
	@$(TESTS) -m "not thorough" $(ARGS)

pytest-all: .venv/.dev
	@$(TESTS) $(ARGS)

coverage: lint
	@$(TESTS) --cov --cov-report=term:skip-covered $(ARGS)

# make fuzz: 100,000 damaged files of every format; CASES=... changes how many, SEED=... which.
fuzz: .venv/.dev
	@QIPF_FUZZ_CASES=$${CASES:-100000} QIPF_FUZZ_SEED=$${SEED:-0} OMP_NUM_THREADS=1 \
		$(BIN)/pytest --quiet --numprocesses 2 -rP tests/hostile/test_mutations.py

lint: .venv/.dev
	@$(BIN)/ruff check --quiet
	@$(BIN)/ruff format --quiet --check
	@$(BIN)/python tests/prose.py
	@$(BIN)/basedpyright --level error | grep -v '^0 errors' || test $${PIPESTATUS[0]} -eq 0

evidence: .venv/.dev
	@$(BIN)/python benchmarks/reproduction.py --write
	@$(BIN)/qipf report results/paper/mnist -o results/paper/report.html

docs: .venv/.dev
	@$(BIN)/sphinx-build --quiet --fail-on-warning --keep-going -b html docs site
	@echo "site/index.html"

clean:
	@rm -rf .venv site .pytest_cache .ruff_cache .hypothesis .coverage

.venv/.demo: pyproject.toml constraints.txt | .venv/bin/pip
	@echo "installing into .venv (a few minutes, once)"
	@$(INSTALL) '.[report]'
	@touch $@

.venv/.dev: pyproject.toml constraints.txt | .venv/bin/pip
	@echo "installing into .venv (a few minutes, once)"
	@$(INSTALL) '.[dev]'
	@touch $@ .venv/.demo

.venv/bin/pip:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "qipf needs Python 3.11 or newer; set PYTHON=")'
	@$(PYTHON) -m venv .venv
