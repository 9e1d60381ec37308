# setup demo serve test soak lint bench: each makes what it needs first, inside .venv. Needs python3, pip, venv, git and make.
PYTHON ?= python3
# Each test worker starts a PostgreSQL of its own. Tests mostly wait for processes: one more than two cores keeps them busy.
TEST_WORKERS ?= 3

VENV := .venv
BIN := $(VENV)/bin
OWN_UV := $(VENV)/tools/bin/uv
# The uv on PATH if it runs (a pyenv shim may not), else one of our own. `make UV=false` installs with pip alone.
UV ?= $(shell uv --version >/dev/null 2>&1 && echo uv || echo $(OWN_UV))

# A machine that trusts its own certificate authority trusts it for uv too.
export UV_SYSTEM_CERTS := 1
# Tests start thousands of processes; where byte code may not be written, each would compile all that it imports.
unexport PYTHONDONTWRITEBYTECODE
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_ROOT_USER_ACTION := ignore

.DEFAULT_GOAL := help
.PHONY: help setup demo serve test soak lint format docs pictures bench lock clean

help:
	@echo "make setup | demo | serve | test | soak | lint | format | docs | pictures | bench | lock | clean"

setup: $(VENV)/.dev

demo: $(VENV)/.runtime
	@$(BIN)/ratchet demo

serve: $(VENV)/.runtime
	@$(BIN)/ratchet serve

# The gate: set-up, lint, types, layers, tests. `.ci/run` calls this and nothing else decides.
test:
	@MAKE="$(MAKE)" TEST_WORKERS=$(TEST_WORKERS) PYTEST_ARGS='$(PYTEST_ARGS)' $(PYTHON) .ci/gate.py

# Every test there is, or those of one area: make soak AREA=agents. Ends with the slowest and a table of all areas.
# Seeds of fault simulation, and nothing else: make soak AREA=faults SEED=5000 SEEDS=1000.
soak: $(VENV)/.dev
	$(BIN)/pytest -n $(TEST_WORKERS) --dist worksteal --durations=25 --areas $(if $(AREA),--area $(AREA)) \
		$(if $(SEED),--seed $(SEED)) $(if $(SEEDS),--seeds $(SEEDS)) $(SOAK_ARGS)

lint: $(VENV)/.dev
	@$(PYTHON) .ci/gate.py lint

format: $(VENV)/.dev
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

# The README's pictures: the demo, and the console in a real browser.
pictures: $(VENV)/.dev
	@$(BIN)/python -m tests.server.console.pictures docs/pictures

# The reference is made of the code; a test fails while it is out of date.
docs: $(VENV)/.dev
	@$(BIN)/ratchet dev reference

bench: $(VENV)/.bench
	@$(BIN)/python -m benchmarks $(BENCH_ARGS)

# Keeps the versions that are locked already; `make lock LOCK_ARGS=--upgrade` moves to the newest.
lock: $(BIN)/python
	@$(call ensure-uv)
	@$(call compile-lock,requirements.lock)
	@$(call compile-lock,requirements-dev.lock,--extra amqp --extra chat --extra codemachine --extra kafka --extra memory --extra otel --extra postgres --extra redis --extra s3 --group dev -c requirements.lock)
	@$(call compile-lock,requirements-bench.lock,--extra postgres --group bench -c requirements-dev.lock)
	@! grep -n '://' requirements*.lock

clean:
	rm -rf $(VENV) .venv-peers .pytest_cache .pytest_collected .mypy_cache .ruff_cache .import_linter_cache .hypothesis dist
	find src tests -name __pycache__ -prune -exec rm -rf {} +

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("Ratchet needs Python 3.11 or newer, and $(PYTHON) is " + sys.version.split()[0] + ": name another one with make PYTHON=...")'
	@$(PYTHON) -m venv --clear --without-pip $(VENV)

$(VENV)/.runtime: requirements.lock pyproject.toml | $(BIN)/python
	@$(call install,requirements.lock)
	@touch $@

# The development lock holds the runtime's versions too, so it makes both stamps.
$(VENV)/.dev: requirements-dev.lock pyproject.toml | $(BIN)/python
	@$(call install,requirements-dev.lock)
	@touch $(VENV)/.runtime $@

$(VENV)/.bench: requirements-bench.lock pyproject.toml | $(BIN)/python
	@$(call install,requirements-bench.lock)
	@touch $(VENV)/.runtime $@

define ensure-uv
if [ "$(UV)" = $(OWN_UV) ] && [ ! -x $(OWN_UV) ]; then $(PYTHON) -m pip install -q --target $(VENV)/tools uv; fi
endef

# The lock names every package, so nothing is resolved; bytecode is compiled now so that no first start pays for it.
define install
echo "Setting up $(VENV) from $(1)"; \
{ $(call ensure-uv); } && $(UV) pip install -q --python $(BIN)/python --compile-bytecode --no-deps -r $(1) -e . || { \
	echo "uv could not do it; installing the same versions with pip, which takes longer"; \
	$(PYTHON) -m pip --python $(BIN)/python install -q --no-deps -r $(1) -e .; \
} && $(BIN)/python -m compileall -q src
endef

define compile-lock
$(UV) pip compile -q --universal --no-header --no-annotate --python $(BIN)/python --output-file $(1) $(2) $(LOCK_ARGS) pyproject.toml
endef
