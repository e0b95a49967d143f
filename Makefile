# make demo        installs what it needs, runs the whole loop on an embedded model, prints verdicts and a report
# make test        installs what it needs, runs every check
# make test-vllm   the same on vLLM for CPU (installs about 3.5 GB; opt-in)
SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --no-input
CARD ?= examples/support-chat.yaml
# Most tests wait: three workers share two cores, by tests/lanes.py. WORKERS=0 runs the tests one after the other.
WORKERS ?= 3

.PHONY: demo test test-vllm check format lint types layers tests lock clean python

demo: $(VENV)/.local
	@echo "── 2/3  the embedded model"
	@$(BIN)/setpoint models pull smollm2-135m-instruct
	@echo "── 3/3  setpoint assess $(CARD)"
	@$(BIN)/setpoint assess $(CARD)

test: $(VENV)/.dev
	@scripts/system-packages
	@$(MAKE) --no-print-directory check

check: format lint types layers tests

format:
	$(BIN)/ruff format --check .

lint:
	$(BIN)/ruff check .

types:
	$(BIN)/mypy

layers:
	PYTHONPATH=src $(BIN)/lint-imports --no-cache

# Many tests measure real time on a machine that the others keep busy: what fails there is run again alone, and counts.
tests:
	@rm -rf .pytest_cache
	$(BIN)/python -m pytest -q -n $(WORKERS) \
	  || { echo "── what failed beside other tests, once more and alone"; \
	       $(BIN)/python -m pytest -q -n 0 --last-failed --last-failed-no-failures none; }

test-vllm: $(VENV)/.dev
	$(BIN)/setpoint engines install vllm
	SETPOINT_TEST_VLLM=1 $(BIN)/python -m pytest -q -m vllm

python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "Setpoint needs Python 3.11 or later; $(PYTHON) is $$($(PYTHON) --version 2>&1 || echo missing)." \
	       "Set PYTHON, for example: make demo PYTHON=python3.12" >&2; exit 2; }

$(VENV)/.local: requirements/local.lock pyproject.toml | python
	@echo "── 1/3  installing into $(VENV)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(PIP) install --require-hashes -r requirements/local.lock 2>&1 \
	  | { grep --line-buffered -Ei '^ *(downloading|using cached|installing|error)' || true; }
	@$(PIP) install -q --no-deps -e .
	@touch $@

$(VENV)/.dev: requirements/dev.lock pyproject.toml | python
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) install -q --require-hashes -r requirements/dev.lock
	$(PIP) install -q --no-deps -e .
	@touch $@ $(VENV)/.local

lock:
	uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header -q \
	  --extra local --extra hub --extra gateway --extra telemetry --group dev pyproject.toml -o requirements/dev.lock
	uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header -q \
	  --extra local -c requirements/dev.lock pyproject.toml -o requirements/local.lock

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
