# make train   the first command: install, train SAC on a pendulum, report
# make test    the second: install what tests need, run the fast suite
# make shell   a shell in which `thespis` and `python` are those of .venv
PYTHON  ?= python3
VENV    := .venv
BIN     := $(VENV)/bin
WORKERS ?= 2
PIP     := $(BIN)/python -m pip --disable-pip-version-check --quiet

.PHONY: train shell test test-slow test-parity test-flight test-readme reproduce bench lint lint-format lint-rules lint-types format docs-check clean

train: $(VENV)/for-train
	$(BIN)/thespis train sac --env Pendulum-v1 --steps 20000 --seeds 3 --evaluate-every 5000 --episodes 50 \
	  --set hidden=64,64 batch=128 learning_rate=1e-3 $(TRAIN)

shell: SHELL := bash
shell: $(VENV)/for-train
	@bash --rcfile <(echo '[ -f ~/.bashrc ] && . ~/.bashrc; . $(BIN)/activate') -i

test: $(VENV)/for-tests
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal $(TESTS)

test-slow: $(VENV)/for-tests
	XLA_FLAGS= $(BIN)/python -m pytest -m slow --durations 20 $(TESTS)
	XLA_FLAGS= $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal tests/laws tests/loops

# What the README says, block by block: as long as it takes to train what it trains.
test-readme: $(VENV)/for-tests
	XLA_FLAGS= $(BIN)/python -m pytest -m "slow or not slow" tests/test_docs.py -k README

# Side by side with a library that takes minutes to install: transformers, which needs torch.
test-parity: $(VENV)/for-parity
	$(BIN)/python -m pytest -m parity tests/language

# Side by side with a simulator of quadrotors, whose installation compiles it for ten minutes or more.
test-flight: $(VENV)/for-flight
	$(BIN)/python -m pytest -m flight tests/envs/test_quadrotor.py

# Every paper's miniature; what is finished is kept, so it goes on where it was stopped.
reproduce: $(VENV)/for-tests
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

docs-check: $(VENV)/for-tests
	$(BIN)/python -m pytest tests/test_docs.py

clean:
	rm -rf $(VENV) .jax_cache .pytest_cache .ruff_cache build *.egg-info
	find thespis tests tools -name __pycache__ -type d -prune -exec rm -rf {} +

# The stamps are older than pyproject.toml or constraints.txt exactly when something must be installed again.
$(VENV)/for-train: $(BIN)/python pyproject.toml constraints.txt
	$(PIP) install -c constraints.txt -e '.[control]'
	@touch $@

$(VENV)/for-tests: $(BIN)/python pyproject.toml constraints.txt
	$(PIP) install -c constraints.txt -e '.[control,data,video,track,cluster,games,teams,spiel,language,serve,dev]'
	@touch $@ $(VENV)/for-train

$(VENV)/for-parity: $(VENV)/for-tests
	$(PIP) install -c constraints.txt -e '.[language,parity]'
	@touch $@

$(VENV)/for-flight: $(VENV)/for-tests
	$(PIP) install -c constraints.txt -e '.[flight]'
	@touch $@

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo 'Thespis needs Python 3.11 or newer: make PYTHON=python3.12 ...' >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
