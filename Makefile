# `make` lists what there is to make. Everything runs in .venv, which the first call builds:
#   make test                          find a Python, install with pip, run the tests
#   make test PYTHON=python3.12        with this Python (asked for when .venv is made)
#   make test TORCH_INDEX=ADDRESS      torch from another package index, e.g. one of CPU builds

VENV := .venv
RUN := $(VENV)/bin
PIP_INSTALL := $(RUN)/python -m pip install --quiet --constraint constraints.txt
CANDIDATES := $(or $(PYTHON),python3.11 python3.12 python3.13 python3 python)
QUICK := not slow and not testbed and not gpu

# Ends well for a Python that can make a .venv of ours (Debian packages venv apart: ensurepip).
SUITS := import ensurepip, sys, venv; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))

.DEFAULT_GOAL := help
.PHONY: help install test test-slow test-all coverage mutants lint format clean

help: ## List the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1|/p' Makefile | awk -F '|' '{printf "make %-12s %s\n", $$1, $$2}'

install: $(VENV)/.installed ## Build .venv with everything in constraints.txt (the others do it, too)

$(VENV)/bin/python:
	@for candidate in $(CANDIDATES); do \
	  if "$$candidate" -c '$(SUITS)' 2>/dev/null; then \
	    echo "Making $(VENV) with $$("$$candidate" --version) ($$(command -v "$$candidate"))"; \
	    exec "$$candidate" -m venv --clear $(VENV); \
	  fi; \
	done; \
	echo "lookright needs Python 3.11, 3.12 or 3.13 with its venv module. Tried:" >&2; \
	for candidate in $(CANDIDATES); do \
	  echo "  $$candidate: $$("$$candidate" --version 2>/dev/null || echo none here)" >&2; \
	done; \
	echo "Install one of them, or name it: make test PYTHON=/path/to/python3.12" >&2; \
	exit 1

# The build backend is installed first and used as it is, so that it is pinned like the rest.
$(VENV)/.installed: $(VENV)/bin/python pyproject.toml constraints.txt
	@echo "Installing lookright and its dependencies into $(VENV) (once; some minutes)"
	@$(PIP_INSTALL) hatchling editables
	@$(if $(TORCH_INDEX),$(PIP_INSTALL) --no-deps --index-url "$(TORCH_INDEX)" torch)
	@$(PIP_INSTALL) --no-build-isolation --editable '.[dev]'
	@touch $@

test: install ## Run the tests, but those marked slow, testbed or gpu
	@OMP_NUM_THREADS=1 $(RUN)/python -m pytest -m "$(QUICK)"

test-slow: install ## Run the tests marked slow
	@OMP_NUM_THREADS=1 $(RUN)/python -m pytest -m slow

test-all: install ## Run all tests; what needs a model or a GPU that is not here is skipped
	@OMP_NUM_THREADS=1 $(RUN)/python -m pytest

coverage: install ## Run the tests, and fail where they reach less than 95% of the lines
	@OMP_NUM_THREADS=1 $(RUN)/python -m pytest -m "$(QUICK)" --cov --cov-report=term-missing --cov-fail-under=95

mutants: install ## Mutate calibration, methods and metrics; list what no test notices (long)
	@$(PIP_INSTALL) mutmut
	@$(RUN)/mutmut run
	@$(RUN)/mutmut results

lint: install ## Check style, format and types
	@$(RUN)/ruff check .
	@$(RUN)/ruff format --check .
	@$(RUN)/mypy

format: install ## Write the format `make lint` asks for
	@$(RUN)/ruff check --fix --quiet .
	@$(RUN)/ruff format .

clean: ## Remove .venv and every cache and build folder
	rm -rf $(VENV) mutants .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage build dist
	find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
