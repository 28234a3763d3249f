# One command for each thing. On Windows, see "Without make" in the README.
PYTHON ?= python3
BIN := .venv/bin
NBVAL := --nbval --nbval-current-env --nbval-cell-timeout 600 --nbval-sanitize-with tests/sanitize.cfg
LAB_OPTIONS ?=

.DEFAULT_GOAL := help
.PHONY: help lab test test-all lint figures notebooks

help:  ## list these commands
	@grep -E '^[a-z-]+: .*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 20

lab: .venv/installed  ## open the course in JupyterLab
	@# served from here, not from notebooks/, or the pictures in img/ could not be shown
	$(BIN)/jupyter lab --ServerApp.root_dir=. $(LAB_OPTIONS) notebooks/00_start_here.ipynb

test: .venv/installed  ## run the unit tests and every notebook, output by output
	$(BIN)/python -m pytest $(NBVAL) tests notebooks

test-all: test  ## the same, and the slower proofs: on one thread the notebooks store the same, pictures too
	OMP_NUM_THREADS=1 $(BIN)/python notebooks/execute.py --dry-run

lint: .venv/installed  ## check style and formatting of modules and notebooks
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python notebooks/execute.py --check

figures: .venv/installed  ## draw the test images and every figure of img/ anew
	$(BIN)/python resources/make_test_images.py
	$(BIN)/python img/make_figures.py

notebooks: .venv/installed  ## run every notebook anew and store its outputs
	$(BIN)/python notebooks/execute.py

.venv/installed: requirements.txt pyproject.toml
	@$(PYTHON) -c 'import sys; v = sys.version.split()[0]; sys.exit(None if sys.version_info >= (3, 11) else \
	  f"Python 3.11 or newer is needed; {sys.executable} is {v}. Name another one: make lab PYTHON=python3.12")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install -r requirements.txt
	touch $@
