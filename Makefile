# `make demo` and `make test` each do everything on a fresh machine with Python 3.11+.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready

# The size of the demo.
METHODS ?= fedavg,mean,fedprox:mu=0.1,scaffold,feddyn:alpha=0.1,fednova,fedntd,ida+fedavg,feddisco,fedsa,fedavgm,ditto
ROUNDS  ?= 60
SEEDS   ?= 3

.PHONY: help demo test lint format clean
help:            ## show this list
	@grep -hE '^[a-z]+: .*##|^[a-z]+:  +##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/'

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "unskew needs Python 3.11 or newer: make PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,dp,flower]'
	@touch $@

demo: $(READY)   ## compare methods on the embedded digits; writes demo/report.html
	rm -rf demo
	$(BIN)/unskew compare --data digits --skew dirichlet:alpha=0.1 --clients 20 \
	  --methods $(METHODS) --rounds $(ROUNDS) --seeds $(SEEDS) --epochs 2 --lr 0.1 --out demo

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
