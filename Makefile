# `make demo` and `make test` each do everything on a fresh machine with Python 3.11+.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready

.PHONY: help demo test lint format clean
help:            ## show this list
	@grep -hE '^[a-z]+: .*##|^[a-z]+:  +##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/'

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "unskew needs Python 3.11 or newer: make PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

demo: $(READY)   ## look at a skewed federation of the embedded digits
	$(BIN)/unskew data show digits --skew dirichlet:alpha=0.1 --clients 20 --out demo/skew.png

test: $(READY)   ## set up .venv and run the tests
	$(BIN)/python -m pytest -n 2 -m "not slow" $(ARGS)

lint: $(READY)   ## ruff and mypy --strict
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(READY) ## let ruff rewrite what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:           ## remove what make and the tools made
	rm -rf $(VENV) demo .pytest_cache .mypy_cache .ruff_cache .hypothesis
