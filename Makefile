# Every target sets up what it needs: a virtual environment in .venv, filled once and again only when
# pyproject.toml or constraints.txt changes, so that later runs install nothing and work offline.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Python compiles what it imports; compiling every installed file doubles the time of the installation.
INSTALL := $(BIN)/python -m pip install --no-compile --disable-pip-version-check --quiet -c constraints.txt

# One thread a process: the sums are reproducible, and test processes do not fight for the cores.
export OMP_NUM_THREADS ?= 1
# Bytecode is kept, or every process of the tests would compile the library again.
unexport PYTHONDONTWRITEBYTECODE
PYTEST := $(BIN)/python -m pytest -n logical --maxprocesses 4 -q --dist worksteal

.DEFAULT_GOAL := help
.PHONY: help demo test check check-types check-style-demo-site check-slow bench records docs clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 13

demo: $(VENV)/.dev ## train, fit, tune and compare on real digits; leaves a run folder with report.html
	@$(BIN)/osculate demo

test: $(VENV)/.dev ## every module, in five to ten minutes on two cores
	@$(PYTEST) -m "not slow and not release"

check: $(VENV)/.docs ## what CI runs: the tests, format, lint, types, demo, site, then doctests and slow tests
	@$(PYTEST) -m "not slow and not release"
	@$(MAKE) --no-print-directory -j 2 check-types check-style-demo-site
	@OSCULATE_UNCHECKED=1 $(PYTEST) --doctest-modules osculate experiments tests -m "slow and not release"

# On one core each, these take as long as the longer one.
check-types: $(VENV)/.dev
	@$(BIN)/mypy

check-style-demo-site: $(VENV)/.docs
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/python -m tests.licences
	@folder=$$(mktemp -d) && trap 'rm -rf "$$folder"' EXIT INT TERM && $(BIN)/osculate demo --output "$$folder/run" --no-progress
	@$(BIN)/python -m pytest -q tests/test_site.py::test_the_site_is_in_order

check-slow: $(VENV)/.dev ## what takes longer still; run it before a release
	@$(PYTEST) -m release -p tests.recording --record tests/release.json
	@$(BIN)/python -m tests.faults --damaged 3000 --hostile 500 --kills 50
	@$(BIN)/python -m tests.wheel
	@$(BIN)/python -m tests.fuzz --cases 20000 --mutants

bench: $(VENV)/.bench ## ratios beside the public peers
	@$(BIN)/python -m benchmarks

records: $(VENV)/.dev ## measure stale records of experiments again, headlines first; HOURS=8 is a limit
	@$(BIN)/python -m experiments --records $(if $(HOURS),--hours $(HOURS))

docs: $(VENV)/.docs ## build the documentation into site/; runs every page of the gallery, a few minutes
	@NO_MKDOCS_2_WARNING=1 PYTHONWARNINGS=ignore:IProgress $(BIN)/mkdocs build --strict --quiet
	@$(BIN)/python -m tests.pages site
	@echo "site/index.html"

clean: ## remove the virtual environment, caches and built files
	rm -rf $(VENV) site dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@echo "Creating $(VENV) ..."
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.dev: pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing osculate and its development tools into $(VENV) (once; a few minutes) ..."
	@$(INSTALL) -e '.[dev]'
	@touch $@

# The peers declare a torchvision that they do not need and whose wheel may not fit this torch; see pyproject.toml.
$(VENV)/.bench: $(VENV)/.dev
	@echo "Installing the peers ..."
	@$(INSTALL) -e '.[dev,bench]'
	@$(INSTALL) --no-deps laplace-torch backpack-for-pytorch curvlinops-for-pytorch
	@touch $@

$(VENV)/.docs: $(VENV)/.dev
	@$(INSTALL) -e '.[dev,docs]'
	@mkdir -p $(VENV)/etc/ipython # figures on the last line of a cell are shown
	@echo '{"InteractiveShellApp": {"matplotlib": "inline"}}' > $(VENV)/etc/ipython/ipython_kernel_config.json
	@touch $@
