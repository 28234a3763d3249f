# One command for each thing. On Windows, see "Without make" in the README.
PYTHON ?= python3
# what .venv holds; requirements-oldest.txt and requirements-newest.txt are the two ends of what is supported
REQUIREMENTS ?= requirements.txt
BIN := .venv/bin
NBVAL := -n auto --maxprocesses 4 --dist loadscope --nbval --nbval-current-env --nbval-cell-timeout 600 --nbval-sanitize-with tests/sanitize.cfg
LAB_OPTIONS ?=

# for a class: its folder, one assignment or all, and what a learning-management system hands out
CLASS ?= class
ASSIGNMENT ?=
FROM ?=
GRADING := PYTHONPATH=notebooks/assignments $(BIN)/python -m grader

.DEFAULT_GOAL := help
.PHONY: help lab test test-peers test-browser test-all lint figures notebooks runs benchmarks solutions site verified publish release collect grade formgrader feedback grades

help:  ## list these commands
	@grep -E '^[a-z-]+: .*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 20

lab: .venv/installed  ## open the course in JupyterLab
	@# served from here, not from notebooks/, or the pictures in img/ could not be shown
	$(BIN)/jupyter lab --ServerApp.root_dir=. $(LAB_OPTIONS) notebooks/00_start_here.ipynb

test: .venv/installed  ## run the unit tests and every notebook, output by output
	$(BIN)/python -m pytest $(NBVAL) tests notebooks

test-peers: .venv/peers-installed  ## checkpoints of torchvision, timm and Hugging Face: equal logits, both ways
	PYTHONPATH=.venv/peers $(BIN)/python -m pytest tests/peers

test-browser: .venv/site-installed  ## explorers in JupyterLab, lessons and every page of the website, in a real browser
	$(BIN)/python -m pytest -n auto --maxprocesses 4 --dist worksteal tests/browser

test-all: test test-peers test-browser .venv/class-installed  ## all of these, and the slower proofs: pictures, worked solutions, grading a class
	$(BIN)/python -m pytest -n auto --maxprocesses 4 tests/slow
	$(BIN)/python -m pytest -n auto --maxprocesses 4 --dist loadscope tests/grader

lint: .venv/installed  ## check style and formatting of modules and notebooks
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python notebooks/execute.py --check

figures: .venv/installed  ## draw the test images and every figure of img/ anew
	$(BIN)/python resources/make_test_images.py
	$(BIN)/python img/make_figures.py

notebooks: .venv/installed  ## run every notebook anew and store its outputs
	$(BIN)/python notebooks/execute.py

runs: .venv/installed  ## train every recorded run anew: more than an hour, and data are downloaded
	$(BIN)/python resources/runs/make_runs.py

benchmarks: .venv/peers-installed  ## measure speed and time to accuracy against published models: some 40 minutes
	PYTHONPATH=.venv/peers $(BIN)/python benchmarks/throughput.py
	PYTHONPATH=.venv/peers $(BIN)/python benchmarks/profile_step.py
	$(BIN)/python benchmarks/time_to_accuracy.py
	$(BIN)/python benchmarks/report.py

solutions: .venv/installed  ## write the worked solutions of the assignments and the lessons, for reading
	$(GRADING) solutions
	$(BIN)/python notebooks/solved.py

site: .venv/site-installed  ## build the website into docs/_build/html
	$(BIN)/python docs/build.py

verified: .venv/installed  ## note for the website with which versions the tests have just passed: only after make test-all
	$(BIN)/python docs/verified.py

publish: .venv/site-installed  ## put the built website on branch gh-pages of origin
	$(BIN)/ghp-import --no-jekyll --push --force --message "The website" docs/_build/html

release: .venv/class-installed  ## teachers: make the student editions of the assignments, and the folder of a class
	$(GRADING) release --class "$(CLASS)" --assignment "$(ASSIGNMENT)"

collect: .venv/class-installed  ## teachers: sort what was handed in, a zip file or a folder: make collect FROM=...
	$(GRADING) collect --class "$(CLASS)" --from "$(FROM)"

grade: .venv/class-installed  ## teachers: mark what was handed in, in CLASS=folder: make grade CLASS=class
	$(GRADING) grade --class "$(CLASS)" --assignment "$(ASSIGNMENT)"

formgrader: .venv/class-installed  ## teachers: mark written answers by hand
	$(GRADING) formgrader --class "$(CLASS)"

feedback: .venv/class-installed  ## teachers: write a page for every student
	$(GRADING) feedback --class "$(CLASS)" --assignment "$(ASSIGNMENT)"

grades: .venv/class-installed  ## teachers: write the marks as CSV for a learning-management system
	$(GRADING) grades --class "$(CLASS)" --assignment "$(ASSIGNMENT)"

.venv/class-installed: .venv/installed requirements-class.txt
	$(BIN)/python -m pip install -r $(REQUIREMENTS) -r requirements-class.txt
	touch $@

.venv/site-installed: .venv/installed requirements-site.txt
	$(BIN)/python -m pip install -r $(REQUIREMENTS) -r requirements-site.txt
	touch $@

# the published libraries lie apart: transformers would use a torchvision that it finds, and it fails beside a CPU's torch
.venv/peers-installed: .venv/installed requirements-peers.txt
	$(BIN)/python -m pip install --no-deps --upgrade --target .venv/peers -r requirements-peers.txt
	touch $@

.venv/installed: $(REQUIREMENTS) pyproject.toml
	@$(PYTHON) -c 'import sys; v = sys.version.split()[0]; sys.exit(None if sys.version_info >= (3, 11) else \
	  f"Python 3.11 or newer is needed; {sys.executable} is {v}. Name another one: make lab PYTHON=python3.12")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install -r $(REQUIREMENTS)
	touch $@
