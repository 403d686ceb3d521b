# make demo   installs the project into .venv and explains an image that came with it
# make test   installs the test tools as well, then lints, type-checks and runs every test
# make ready  installs them and does no more
# make quick  lints and runs the tests that answer soonest; make quick TESTS=tests/test_x.py that file alone
# make test-elsewhere  runs the tests as other machines would: other instructions, memory, place, user, order, load
# make lint   lints and type-checks
# make docs   builds the documentation site into build/site, and follows every link of it; minutes the first time
# make bench  measures speed, prints the tables and writes docs/performance.md; about an hour
# make study  computes what is missing of the study's second edition and writes docs/results.md; hours
# make kill   kills benchmark runs at random moments, twenty times, and compares the tables
# make fuzz   feeds a hundred thousand damaged files to everything that reads files
# make soak   half an hour of mixed work: memory, handles, threads and files must stay flat
# make load   many visitors, some of them hostile, at the page of fei serve
# make mutate changes the rules, the projection and the metrics here and there: do the tests notice?
# make coverage  which lines and branches the tests run
# make release  builds the packages and tries them in empty environments of every Python at hand; into dist
# make clean  removes .venv, caches and build products

VENV := .venv
BIN := $(VENV)/bin
# Quiet twice: no progress and no warnings; errors still show. Nothing is compiled
# to bytecode in advance: that takes longer than the installation itself, and little of it is ever imported. What is
# imported is compiled then, and kept, whatever the caller's environment says.
unexport PYTHONDONTWRITEBYTECODE
PIP_INSTALL := $(BIN)/python -m pip install --quiet --quiet --disable-pip-version-check --no-compile --constraint constraints.txt

# The stamps carry a checksum of what decides an installation, not its date: a fresh checkout with an old .venv
# installs nothing, an edited requirement installs again.
REQUIREMENTS := $(shell cat pyproject.toml constraints.txt | cksum | cut -d ' ' -f 1)
INSTALLED := $(VENV)/.installed-$(REQUIREMENTS)
INSTALLED_TEST := $(VENV)/.installed-test-$(REQUIREMENTS)
INSTALLED_DOCS := $(VENV)/.installed-docs-$(REQUIREMENTS)

# Version managers leave commands on the PATH that only fail, so each candidate is run before it is believed.
CANDIDATES := $(or $(PYTHON),python3.11 python3.12 python3.13 python3)
USABLE := import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))

# Tests share nothing, so three of them run side by side: on two processors that takes less time than two of them do, since
# some wait for a browser or for other processes. Where there are more processors: make test JOBS=8. A file stays in one
# process, which makes what its tests share once; the longest begin first (tests/isolation.py).
JOBS := 3
PYTEST = $(BIN)/python -m pytest --numprocesses $(JOBS) --dist loadfile --no-loadscope-reorder --durations 15

.PHONY: demo ready test every-test quick test-elsewhere lint docs bench study kill fuzz soak load mutate coverage release clean
.DELETE_ON_ERROR:

demo: $(INSTALLED)
	@$(BIN)/fei demo

ready: $(INSTALLED_TEST)
	@:

# side by side: while a test waits for a browser, there is time to check types
test: $(INSTALLED_TEST)
	@$(MAKE) --no-print-directory --jobs 2 lint every-test

every-test: $(INSTALLED_TEST)
	$(PYTEST)

# The edit loop: what takes longest, and what needs a browser, a cluster or other processes, is left out. What is left
# waits for nothing, so one process per processor is best.
TESTS :=
quick: JOBS := 2
quick: $(INSTALLED_TEST)
	$(BIN)/ruff check .
	$(PYTEST) --quick $(TESTS)

test-elsewhere: $(INSTALLED_TEST)
	$(BIN)/python reliability/elsewhere.py
	$(BIN)/python reliability/page.py

lint: $(INSTALLED_TEST)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Material's advertisement of other programs is not for readers of a build's output.
docs: $(INSTALLED_DOCS)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict
	$(BIN)/python docs/site/check.py build/site

bench: $(INSTALLED_TEST)
	$(BIN)/python benchmarks/run.py
	$(BIN)/python benchmarks/pages.py

study: $(INSTALLED_TEST)
	$(BIN)/python -m studies.run
	$(BIN)/python -m studies.other_class --second
	$(BIN)/python -m studies.page

kill: $(INSTALLED_TEST)
	FEI_KILLS=20 $(BIN)/python -m pytest -k kill

fuzz soak load mutate: $(INSTALLED_TEST)
	$(BIN)/python reliability/$@.py
	$(BIN)/python reliability/page.py

coverage: $(INSTALLED_TEST)
	$(BIN)/python reliability/measure_coverage.py
	$(BIN)/python reliability/page.py

release: | $(VENV)/.created
	@$(PIP_INSTALL) build
	$(BIN)/python release/check.py

clean:
	rm -rf $(VENV) build dist .hypothesis .mypy_cache .pytest_cache .ruff_cache src/*.egg-info
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/.created:
	@for python in $(CANDIDATES); do \
		if "$$python" -c '$(USABLE)' >/dev/null 2>&1; then \
			"$$python" -m venv --clear $(VENV) && touch $@; exit; \
		fi; \
	done; \
	echo "No usable Python among '$(CANDIDATES)': Python 3.11, 3.12 or 3.13 with the venv module is needed; install one or name it with make PYTHON=/path/to/python." >&2; \
	exit 1

$(INSTALLED): | $(VENV)/.created
	@echo "Installing fei into $(VENV) ..."
	@$(PIP_INSTALL) --editable '.[cli]'
	@touch $@

$(INSTALLED_TEST): | $(VENV)/.created
	@echo "Installing fei and its test tools into $(VENV) ..."
	@$(PIP_INSTALL) --editable '.[test]'
	@touch $@ $(INSTALLED)

$(INSTALLED_DOCS): | $(VENV)/.created
	@echo "Installing fei and what builds its documentation into $(VENV) ..."
	@$(PIP_INSTALL) --editable '.[docs]'
	@touch $@ $(INSTALLED)
