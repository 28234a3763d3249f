# One command for each thing; what each needs is installed first. Without make, see docs/pages/install.md.
PYTHON ?= python3

# Which versions: pinned are those of requirements.txt, in .venv; oldest and newest are the two ends of pyproject.toml's
# ranges. Each set lives in an environment of its own, and a stamp there carries its name.
VERSIONS ?= pinned
ifeq ($(filter pinned oldest newest,$(VERSIONS)),)
$(error VERSIONS must be pinned, oldest or newest; got '$(VERSIONS)')
endif
ENV := .venv$(addprefix -,$(filter-out pinned,$(VERSIONS)))
BIN := $(ENV)/bin
INSTALLED := $(ENV)/installed-$(VERSIONS)
CLASS_INSTALLED := $(ENV)/installed-class-$(VERSIONS)
SITE_INSTALLED := $(ENV)/installed-site-$(VERSIONS)
PEERS_INSTALLED := $(ENV)/installed-peers-$(VERSIONS)

PYTEST := $(BIN)/python -m pytest
PARALLEL := -n auto --maxprocesses 4 --dist loadscope
NBVAL := --nbval --nbval-current-env --nbval-cell-timeout 600 --nbval-sanitize-with tests/sanitize.cfg

# for make lab: more options of JupyterLab
LAB_OPTIONS ?=
# for make fresh
LESSON ?=
EXERCISE ?=
# for make rebuild
WHAT ?= figures notebooks
REBUILT := figures notebooks runs benchmarks solutions
# for teachers: a class's folder, one assignment or all, what a learning-management system hands out, BY=hand for the
# written answers, and more options
CLASS ?= class
ASSIGNMENT ?=
FROM ?=
BY ?=
OPTIONS ?=
GRADER := PYTHONPATH=notebooks/assignments $(BIN)/python -m grader

.DEFAULT_GOAL := help
.PHONY: help lab update fresh copies test test-all lint rebuild $(REBUILT:%=rebuild-%) site release collect grade feedback grades

help:
	@echo 'Call one of these:'
	@awk -F ':[^#]*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile
	@echo 'Options: PYTHON=python3.12 to create environments with, VERSIONS=oldest or newest for test and test-all.'

lab: copies  ## open the course in JupyterLab, in copies of your own
	@# served from here, not from my_course/, or the pictures in img/ could not be shown
	PYTHONPATH="$(CURDIR)/notebooks/assignments" $(BIN)/jupyter lab --ServerApp.root_dir=. $(LAB_OPTIONS) my_course/00_start_here.ipynb

update: $(INSTALLED)  ## get the newest version of the course; your work is kept
	@$(BIN)/python -m tools.my_course --pull
	@$(MAKE) --no-print-directory copies

fresh: $(INSTALLED)  ## start a lesson over, LESSON=03, or one of its exercises, EXERCISE=its name
	@$(BIN)/python -m tools.my_course --fresh "$(LESSON)" --exercise "$(EXERCISE)"

test: $(INSTALLED) $(if $(filter pinned,$(VERSIONS)),lint)  ## check the style, run the unit tests and all notebooks, and compare the outputs with the stored ones
	@# one thread each: those of two notebooks that train at the same time slow each other down many times over
	OMP_NUM_THREADS=1 $(PYTEST) $(PARALLEL) $(NBVAL) tests notebooks

test-all: test $(PEERS_INSTALLED) $(CLASS_INSTALLED) $(SITE_INSTALLED)  ## the same, and also the lessons with worked solutions, other libraries' models, the grading of a class, a browser
	PYTHONPATH=$(ENV)/peers $(PYTEST) tests/peers
	@# in this order, because the longest files have the fewest tests
	$(PYTEST) $(PARALLEL) --no-loadscope-reorder tests/grader tests/lessons tests/slow
	$(PYTEST) $(PARALLEL) tests/browser

rebuild: $(WHAT:%=rebuild-%)  ## regenerate files; WHAT=figures, notebooks, runs, benchmarks or solutions (the first two by default)

site: $(SITE_INSTALLED)  ## build the website into docs/_build/html
	$(BIN)/python -m tools.build_site

release: $(CLASS_INSTALLED)  ## teachers: write the student editions of the assignments and create the folder of a class
	$(GRADER) release --class "$(CLASS)" --assignment "$(ASSIGNMENT)" $(OPTIONS)

collect: $(CLASS_INSTALLED)  ## teachers: sort submissions into the folder of the class, FROM=a zip file or a folder
	$(GRADER) collect --class "$(CLASS)" --from "$(FROM)" $(OPTIONS)

grade: $(CLASS_INSTALLED)  ## teachers: grade the submissions, CLASS=the folder of the class; BY=hand opens the written answers
	$(GRADER) $(if $(filter hand,$(BY)),formgrader,grade) --class "$(CLASS)" --assignment "$(ASSIGNMENT)" $(OPTIONS)

feedback: $(CLASS_INSTALLED)  ## teachers: write a feedback page for each student
	$(GRADER) feedback --class "$(CLASS)" --assignment "$(ASSIGNMENT)" $(OPTIONS)

grades: $(CLASS_INSTALLED)  ## teachers: write the marks to a CSV file for a learning-management system
	$(GRADER) grades --class "$(CLASS)" --assignment "$(ASSIGNMENT)" $(OPTIONS)

# What make test calls, with the pinned versions.

lint: $(INSTALLED)
	$(BIN)/python -m ruff check .
	$(BIN)/python -m ruff format --check .
	$(BIN)/python -m tools.execute_notebooks --check

# What make lab and make update call.

copies: $(INSTALLED)
	@$(BIN)/python -m tools.my_course

# What make rebuild calls.

rebuild-figures: $(INSTALLED)
	$(BIN)/python -m tools.draw_test_images
	$(BIN)/python -m tools.draw_figures

rebuild-notebooks: $(SITE_INSTALLED)  # a browser draws the stills of interactive figures
	$(BIN)/python -m tools.execute_notebooks

rebuild-runs: $(INSTALLED)  # about a day, and data are downloaded
	$(BIN)/python -m tools.train_recorded_runs

rebuild-benchmarks: $(PEERS_INSTALLED)  # some 40 minutes, on a machine with nothing else to do
	PYTHONPATH=$(ENV)/peers $(BIN)/python -m tools.benchmarks.throughput
	PYTHONPATH=$(ENV)/peers $(BIN)/python -m tools.benchmarks.profile_step
	$(BIN)/python -m tools.benchmarks.mixed_precision
	$(BIN)/python -m tools.benchmarks.time_to_accuracy
	$(BIN)/python -m tools.benchmarks.checks
	$(BIN)/python -m tools.benchmarks.report

rebuild-solutions: $(INSTALLED)  # of the assignments and the lessons, for reading
	$(GRADER) solutions
	$(BIN)/python -m tools.solve_lessons

rebuild-%:
	$(error WHAT must be some of $(REBUILT); got '$*')

# Environments: Python, which an update keeps, the base of each set of versions, and what an extra of pyproject.toml
# adds, the base being kept.

$(BIN)/pip:
	@$(PYTHON) -c 'import sys; v = sys.version.split()[0]; sys.exit(None if sys.version_info >= (3, 11) else \
	  f"Python 3.11 or newer is needed; {sys.executable} is {v}. Name another one: make lab PYTHON=python3.12")'
	$(PYTHON) -m venv $(ENV) --upgrade-deps  # a recent pip is quicker

$(ENV)/installed-pinned: requirements.txt pyproject.toml
$(ENV)/installed-oldest: requirements.txt pyproject.toml tools/required_versions.py
$(ENV)/installed-newest: pyproject.toml
$(INSTALLED): | $(BIN)/pip
	$(BIN)/python -m tools.required_versions oldest > $(ENV)/oldest.txt
	$(BIN)/python -m pip install --no-compile $(BASE_$(VERSIONS))
	@# pip would compile on one core; a library's file for a newer Python cannot be compiled, and pip ignores that, too
	@$(BIN)/python -m compileall -qq -j 0 $(ENV)/lib || true
	touch $@

BASE_pinned := -r requirements.txt
BASE_oldest := -r $(ENV)/oldest.txt
BASE_newest := --upgrade -e ".[notebooks,dev]"
PINS_pinned := requirements.txt
PINS_oldest := $(ENV)/oldest.txt
PINS_newest := /dev/null

$(CLASS_INSTALLED) $(SITE_INSTALLED): $(ENV)/installed-%-$(VERSIONS): $(INSTALLED)
	sed '/^-e/d' $(PINS_$(VERSIONS)) > $(ENV)/pins.txt
	$(BIN)/python -m pip install -c $(ENV)/pins.txt $$($(BIN)/python -m tools.required_versions $*)
	touch $@

# The published libraries lie in a folder of their own, which is put on the path where it is wanted: transformers uses a
# torchvision that it finds, and torchvision fails next to a PyTorch that it was not compiled for, as the CPU build is.
$(PEERS_INSTALLED): $(INSTALLED)
	$(BIN)/python -m pip install --no-deps --upgrade --target $(ENV)/peers $$($(BIN)/python -m tools.required_versions peers)
	touch $@
