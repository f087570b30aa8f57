# `make demo` and `make test` each do everything on a fresh machine with Python 3.11+.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
# What is installed, step by step: unskew alone, then what the quick tests need, then what all tests
# need. What builds the site is apart.
INSTALLED := $(VENV)/.installed
READY  := $(VENV)/.ready
READY_ALL := $(VENV)/.ready-all
READY_DOCS := $(VENV)/.ready-docs
LOWEST := .venv-lowest
NEWEST := .venv-newest
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

# The tests in three parts (see CONTRIBUTING.md): `make test` runs the quick ones, `make test-all`
# those and the rest, with all examples of property tests; what needs real data is run by hand.
# Compiled files are kept even if PYTHONDONTWRITEBYTECODE is set: otherwise every process would
# compile the tests and what they import again.
PYTEST := PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n 2 --dist loadscope
QUICK  := not (long or extras or real_data)
REST   := (long or extras or hypothesis) and not real_data

# The size of the demo.
METHODS ?= fedavg,mean,fedprox:mu=0.1,scaffold,feddyn:alpha=0.1,fednova,fedntd,ida+fedavg,feddisco,fedsa,fedavgm,ditto
ROUNDS  ?= 60
SEEDS   ?= 5
# Differences that do not matter, in points: five seeds of this federation cannot resolve one point.
MARGIN  ?= 2

.PHONY: help demo docs test test-all test-rest test-lowest test-newest fuzz coverage notebook chromium slurm lint format clean
.NOTPARALLEL:
help:            ## show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 12

$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "unskew needs Python 3.11 or newer: make PYTHON=python3.12")'
	@echo "[1/3] creating $(VENV) with $$($(PYTHON) --version) (a few seconds)"
	@$(PYTHON) -m venv $(VENV)
	@echo "[2/3] installing PyTorch (200 MB or more; one to three minutes)"
	@$(PIP) torch
	@echo "[3/3] installing unskew and the packages it needs (about a minute)"
	@$(PIP) -e .
	@touch $@

$(READY): $(INSTALLED)
	@echo "[tests] installing test tools, Opacus, Optuna and Flower (about a minute)"
	@$(PIP) -e '.[dev,dp,flower,tune]'
	@touch $@

$(READY_ALL): $(READY)
	@echo "[tests] installing all optional packages (one to three minutes)"
	@$(PIP) -e '.[dev,dp,flower,tune,flower-ray,ray,dask,slurm,parquet,huggingface,trackers,notebook-tests,browser]'
	@touch $@

$(READY_DOCS): $(READY)
	@echo "[docs] installing what builds the site"
	@$(PIP) -e '.[docs]'
	@touch $@

# The lowest versions that pyproject.toml allows, of which uv (it comes with Flower) finds those that
# can be installed together. Only torch is the tested one: of earlier versions, PyPI has no builds
# for the CPU alone. It is installed without what it needs, of which uv then chooses the lowest too.
# Old packages warn that newer ones, on which they depend, deprecate what they use.
$(LOWEST)/.ready: pyproject.toml $(READY)
	@echo "[lowest] installing the lowest versions that pyproject.toml allows (about a minute)"
	@$(PYTHON) -m venv --clear $(LOWEST)
	@$(LOWEST)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt --no-deps torch
	@$(BIN)/uv pip install --quiet --python $(LOWEST)/bin/python --resolution lowest-direct \
	  -e '.[dev,dp,flower,tune,notebook]' "$$(grep ^torch== constraints.txt)"
	@touch $@

# Playwright drives the system's browser; it downloads none.
chromium:
	@command -v chromium || command -v chromium-browser || command -v google-chrome || { \
	  command -v apt-get || { echo "install Chromium first: the tests of reports need it" >&2; exit 1; }; \
	  as_root=$$(test "$$(id -u)" = 0 || echo sudo); \
	  $$as_root apt-get update && $$as_root apt-get install -y --no-install-recommends chromium; }

# A controller and one node, which tests start on this machine, in a folder of their own.
slurm:
	@command -v slurmctld || { \
	  command -v apt-get || { echo "install Slurm and munge first: the tests of clusters need them" >&2; exit 1; }; \
	  as_root=$$(test "$$(id -u)" = 0 || echo sudo); \
	  $$as_root apt-get update && $$as_root apt-get install -y --no-install-recommends slurm-wlm munge; }

demo: $(INSTALLED) ## compare methods on the embedded digits; writes demo/report.html
	@rm -rf demo
	$(BIN)/unskew compare --data digits --skew dirichlet:alpha=0.1 --clients 20 \
	  --methods $(METHODS) --rounds $(ROUNDS) --seeds $(SEEDS) --epochs 2 --lr 0.1 \
	  --margin $(MARGIN) --level global --out demo

docs: $(READY_DOCS) ## build the documentation site; a warning is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet --clean --site-dir site
	@echo "the site: site/index.html (with search: $(PYTHON) -m http.server --directory site)"

test: $(READY)   ## set up .venv and run the quick tests, in a few minutes
	$(PYTEST) -m "$(QUICK)" $(ARGS)

test-all: test test-rest ## run all tests, those of the optional packages too; none may be skipped

test-all test-rest coverage: PYTEST += --no-skips
# Three workers on two cores: real federations and clusters, which are tested first, often wait.
test-rest: PYTEST += -n 3 --no-loadscope-reorder
test-rest: $(READY_ALL) chromium slurm
	$(PYTEST) -m "$(REST)" --hypothesis-profile thorough $(ARGS)

test-lowest: $(LOWEST)/.ready ## run the quick tests with the lowest versions (ARGS="tests/runs …": a part of them)
	$(LOWEST)/bin/python -m pytest -n 2 --dist loadscope -W ignore::DeprecationWarning -m "$(QUICK)" $(ARGS)

# What `pip install` gives a user today: the wheel with the newest versions, of which only torch is
# pinned. Flower holds typer and rich back; without extras (`EXTRAS=`), they are the newest too.
test-newest: EXTRAS ?= dev,dp,flower,tune
test-newest:     ## run the quick tests on the wheel with the newest versions (ARGS= a part; EXTRAS=)
	@echo "[newest] installing the wheel with the newest versions into a new $(NEWEST) (1-2 minutes)"
	@rm -rf $(NEWEST)
	@$(PYTHON) -m venv $(NEWEST)
	@$(NEWEST)/bin/python -m pip wheel --quiet --disable-pip-version-check --no-deps -w $(NEWEST) .
	@$(NEWEST)/bin/python -m pip install --quiet --disable-pip-version-check \
	  "$$(grep ^torch== constraints.txt)" "$$(echo $(NEWEST)/unskew-*.whl)$(EXTRAS:%=[%])" \
	  pytest pytest-xdist hypothesis
	$(NEWEST)/bin/python -m pytest -n 2 --dist loadscope -m "$(QUICK)" $(ARGS)

fuzz: $(READY_ALL) ## feed 10,000 damaged and unusual inputs to unskew (CASES=, SEED=)
	$(BIN)/python tests/fuzz/campaign.py --cases $(or $(CASES),10000) --seed $(or $(SEED),0)

coverage: $(READY_ALL) chromium slurm ## run all tests and print how much of the code they execute
	$(PYTEST) -m "not real_data" --cov --cov-report=term:skip-covered $(ARGS)

notebook: $(READY_ALL) ## execute the notebook of the documentation in place
	$(BIN)/python tests/notebooks.py docs/first-comparison.ipynb

lint: $(READY)   ## ruff, mypy --strict, the import contracts and the declared dependencies
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/deptry src

format: $(READY) ## let ruff rewrite what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:           ## remove what make and the tools made
	rm -rf $(VENV) $(LOWEST) $(NEWEST) demo site .coverage .coverage.* .pytest_cache .mypy_cache .ruff_cache .hypothesis
