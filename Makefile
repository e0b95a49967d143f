# make demo   installs what it needs, runs the whole loop on an embedded model, prints verdicts and a report
# make test   installs what it needs, runs every check
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --no-input

.PHONY: demo test check format lint types layers tests lock clean

test: $(VENV)/.dev
	@$(MAKE) --no-print-directory check BIN=$(BIN)

check: format lint types layers tests

format:
	$(BIN)/ruff format --check .

lint:
	$(BIN)/ruff check .

types:
	$(BIN)/mypy

layers:
	PYTHONPATH=src $(BIN)/lint-imports --no-cache

tests:
	$(BIN)/python -m pytest -q

$(VENV)/.dev: requirements/dev.lock pyproject.toml
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) install -q --require-hashes -r requirements/dev.lock
	$(PIP) install -q --no-deps -e .
	@touch $@

lock:
	uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header -q \
	  --extra local --extra hub --group dev pyproject.toml -o requirements/dev.lock
	uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header -q \
	  --extra local -c requirements/dev.lock pyproject.toml -o requirements/local.lock

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
