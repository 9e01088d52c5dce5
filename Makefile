# make train   the first command: install, train SAC on a pendulum, report
# make test    the second: install what tests need, run the fast suite
# make shell   a shell in which `thespis` and `python` are those of .venv
PYTHON  ?= python3
VENV    := .venv
BIN     := $(VENV)/bin
WORKERS ?= 2
PIP     := $(BIN)/python -m pip --disable-pip-version-check --quiet

.PHONY: train shell test test-long test-rules test-laws test-loops test-slow test-papers test-docs test-readme test-browser \
  first-day first-day-language test-parity test-flight test-site mutants coverage reproduce bench lint lint-format \
  lint-rules lint-types format docs docs-serve docs-check clean

train: $(VENV)/for-train
	$(BIN)/thespis train sac --env Pendulum-v1 --steps 20000 --seeds 3 --evaluate-every 5000 --episodes 50 \
	  --set hidden_sizes=64,64 batch_size=128 learning_rate=1e-3 $(TRAIN)

shell: SHELL := bash
shell: $(VENV)/for-train
	@bash --rcfile <(echo '[ -f ~/.bashrc ] && . ~/.bashrc; . $(BIN)/activate') -i

# Tiers of tests; what each protects and how long it takes stands in CONTRIBUTING.md. SHARD=2/4 runs the second quarter.
PYTEST  := $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

test: $(VENV)/for-tests
	$(PYTEST) $(TESTS)

# The longer tests of the same parts, under the same flags.
test-long: $(VENV)/for-tests
	$(PYTEST) -m "long and not slow and not laws and not papers and not docs and not browser" $(TESTS)

# The part of make test that is seconds away: formulas, data, statistics, rules of texts.
test-rules: $(VENV)/for-tests
	$(PYTEST) tests/objectives tests/data tests/core tests/runtime tests/evaluation $(wildcard tests/envs/test_text_*.py) $(TESTS)

# The laws of all cases, and the runs of earlier code; those of make test among them.
test-laws: $(VENV)/for-tests
	$(PYTEST) -m "not slow" tests/laws tests/compatibility $(TESTS)

# The loops of all cases, those of make test among them: equal bits, exact resume.
test-loops: $(VENV)/for-tests
	$(PYTEST) -m "not slow" tests/training $(TESTS)

# What must be learnt and what takes long, with a part of XLA's optimiser: compiling with all of it is half of the time.
# Then the laws and loops of make test once more with all of it, as users run them.
test-slow: $(VENV)/for-tests
	XLA_FLAGS="--xla_backend_optimization_level=1 --xla_cpu_use_fusion_emitters=false" \
	  $(PYTEST) -m "slow and not papers" --durations 20 $(TESTS)
	XLA_FLAGS= $(PYTEST) tests/laws tests/training

test-papers: $(VENV)/for-tests
	$(PYTEST) -m "papers and not flight" tests/papers $(TESTS)

# Every page of the docs and the README, block by block: as long as it takes to train what they train.
test-docs: $(VENV)/for-tests
	XLA_FLAGS= $(PYTEST) -m "docs or not docs" tests/test_docs.py $(TESTS)

test-readme: $(VENV)/for-tests
	XLA_FLAGS= $(BIN)/python -m pytest -m "docs or not docs" tests/test_docs.py -k "README or methods_page"

# A new user's first day, command by command, in an environment of its own. STEPS="report data" for some of it.
first-day:
	tests/first_day.sh $(STEPS)

# The first day with language models, games and teams, in an environment of its own. STEPS="server doctor" for some of it.
first-day-language:
	tests/first_day_language.sh $(STEPS)

# Reports in a real browser: Debian's chromium and chromium-driver, or others of those names.
test-browser: $(VENV)/for-browser
	$(BIN)/python -m pytest -m browser tests/browser $(TESTS)

# Side by side with a library that takes minutes to install: transformers, which needs torch.
test-parity: $(VENV)/for-parity
	$(BIN)/python -m pytest -m parity tests/language

# Side by side with a simulator of quadrotors, whose installation compiles it for ten minutes or more.
test-flight: $(VENV)/for-flight
	$(BIN)/python -m pytest -m flight tests/papers/test_quadrotor.py

# The documentation as a site: it builds without a warning, nothing is missing, no link is broken.
test-site: $(VENV)/for-tests $(VENV)/for-docs
	$(BIN)/python -m pytest -m site tests/test_site.py $(TESTS)

# Plausible bugs, planted one by one in a copy: which tier catches each. MUTANTS="name name" for some of them.
mutants: $(VENV)/for-tests
	$(BIN)/python tools/mutants.py $(MUTANTS)

# Lines of the package that make test runs through, processes that it starts included.
coverage: $(VENV)/for-tests
	$(PIP) install -c constraints.txt coverage
	rm -rf .coverage_data
	$(BIN)/coverage run -m pytest -n $(WORKERS) $(TESTS); status=$$?; $(BIN)/coverage combine --quiet; \
	  $(BIN)/coverage report --skip-covered --sort=cover | tail -n 40; exit $$status

# Every bench's controls and every paper's miniature; what is finished is kept, so it goes on where it was stopped.
reproduce: $(VENV)/for-tests
	$(BIN)/thespis bench check all
	$(BIN)/thespis reproduce all $(REPRODUCE)
	$(BIN)/thespis papers --write docs

# Side by side with other libraries, each in an environment of its own under .bench; an hour, or one CASE.
bench: $(VENV)/for-tests
	$(BIN)/python benchmarks/bench.py $(CASE)

lint: lint-format lint-rules lint-types

lint-format: $(VENV)/for-tests
	$(BIN)/ruff format --check .

lint-rules: $(VENV)/for-tests
	$(BIN)/ruff check .

lint-types: $(VENV)/for-tests
	$(BIN)/pyright

format: $(VENV)/for-tests
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# The documentation as a site, with the API from the docstrings; a warning is an error. Any file server shows site/.
docs: export NO_MKDOCS_2_WARNING = 1
docs: $(VENV)/for-docs
	$(BIN)/mkdocs build --strict $(DOCS)

docs-serve: export NO_MKDOCS_2_WARNING = 1
docs-serve: $(VENV)/for-docs
	$(BIN)/mkdocs serve $(DOCS)

docs-check: $(VENV)/for-tests
	$(PYTEST) tests/test_docs.py

clean:
	rm -rf $(VENV) .jax_cache .pytest_cache .ruff_cache build site *.egg-info
	find thespis tests tools -name __pycache__ -type d -prune -exec rm -rf {} +

# The stamps are older than pyproject.toml or constraints.txt exactly when something must be installed again.
$(VENV)/for-train: $(BIN)/python pyproject.toml constraints.txt
	$(PIP) install -c constraints.txt -e '.[control]'
	@touch $@

$(VENV)/for-tests: $(BIN)/python pyproject.toml constraints.txt
	$(PIP) install -c constraints.txt -e '.[control,atari,data,video,track,cluster,tune,games,teams,spiel,language,serve,json,export,dev]'
	@touch $@ $(VENV)/for-train

$(VENV)/for-parity: $(VENV)/for-tests
	$(PIP) install -c constraints.txt -e '.[language,parity]'
	@touch $@

$(VENV)/for-browser: $(VENV)/for-tests
	$(PIP) install -c constraints.txt -e '.[browser]'
	@touch $@

$(VENV)/for-docs: $(BIN)/python pyproject.toml constraints.txt
	$(PIP) install -c constraints.txt -e '.[docs]'
	@touch $@

$(VENV)/for-flight: $(VENV)/for-tests
	$(PIP) install -c constraints.txt -e '.[flight]'
	@touch $@

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo 'Thespis needs Python 3.11 or newer: make PYTHON=python3.12 ...' >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
