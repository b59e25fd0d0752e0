# Every chore; CI calls `make test` and nothing else. Works from any folder: make -C path/to/clone demo
CLONE := $(patsubst %/,%,$(dir $(abspath $(lastword $(MAKEFILE_LIST)))))
# PostgreSQL refuses to run as root and its own user cannot read root's home, so root's environment lies outside it.
VENV ?= $(shell if [ "$$(id -u)" = 0 ]; then echo /var/lib/easeml/venv-$$(printf %s '$(CLONE)' | cksum | cut -d' ' -f1); else echo '$(CLONE)/.venv'; fi)
BIN := $(VENV)/bin
DATASET ?= digits
SECONDS_EACH ?= 60
# Tests wait for servers more than they compute: two workers a core, each with a server of its own. More of them take more processor time than they win.
WORKERS ?= $(shell echo $$((2 * $$(nproc))))
# Whoever runs the tests again has the same order, examples and hashes; SEED=2 has others.
SEED ?= 1
SOURCES := $(shell find '$(CLONE)/easeml_db' '$(CLONE)/plpy' '$(CLONE)/loaders' '$(CLONE)/reader' '$(CLONE)/experiments' '$(CLONE)/sql' -type f -not -name '*.pyc' -not -name 'easeml--*.sql' 2>/dev/null | sed 's/ /\\ /g')
INSTALLED := $(VENV)/easeml-installed

.PHONY: help setup demo test test-versions suite unit lint docs benchmarks clean
help:
	@echo 'make demo [DATASET=digits|fashion-mnist|tenants|cluster]   set everything up and run the main job, or share it'
	@echo 'make test [SEED=2]                         set everything up and pass all tests, in another order'
	@echo 'make test-versions [VERSIONS="15 18"] [TESTS=...]   pass tests on PostgreSQL 15 to 18'
	@echo 'make attack [SECONDS_EACH=60]                attack it for an hour, and measure what other tenants notice'
	@echo 'make unit | lint | docs | clean'
	@echo 'make benchmarks [BEFORE=clone] [QUICK=1]   measure this clone, or compare it with another by turns'

setup: $(INSTALLED)

$(INSTALLED): $(SOURCES) $(CLONE)/pyproject.toml $(CLONE)/experiments/pyproject.toml $(CLONE)/docker/bootstrap.sh
	@'$(CLONE)/docker/bootstrap.sh' '$(VENV)' all
	@cd '$(CLONE)' && '$(BIN)/pip' install --quiet --no-build-isolation --no-deps --force-reinstall . ./experiments
	@chmod -R a+rX '$(VENV)'
	@'$(BIN)/easeml' install --files-only >/dev/null || sudo '$(BIN)/easeml' install --files-only
	@touch '$@'

demo: setup
	@'$(CLONE)/docker/bootstrap.sh' '$(VENV)' '$(DATASET)'
	@'$(BIN)/easeml' demo '$(DATASET)'

# Side by side: tests also wait, for servers, while mypy computes.
test: setup
	@$(MAKE) --no-print-directory -f '$(CLONE)/Makefile' -j 2 lint suite

# Every worker reads all tests: compiled ones, but for the first time.
suite: setup
	@cd '$(CLONE)' && PYTHONDONTWRITEBYTECODE= '$(BIN)/pytest' -n $(WORKERS) --dist loadfile --no-loadscope-reorder --durations=10 --randomly-seed=$(SEED) --hypothesis-seed=$(SEED) --hash-seed=$(SEED) tests

test-versions: setup
	@cd '$(CLONE)' && '$(BIN)/python' tests/versions.py $(if $(VERSIONS),--versions '$(VERSIONS)') $(TESTS)

attack: setup
	@cd '$(CLONE)' && '$(BIN)/pytest' tests/attack -s -p no:randomly --attack-seconds $(SECONDS_EACH) --attack-rows 20000

unit: setup
	@cd '$(CLONE)' && '$(BIN)/pytest' tests/unit tests/contract

lint: setup
	@cd '$(CLONE)' && '$(BIN)/ruff' check . && '$(BIN)/ruff' format --check . && '$(BIN)/mypy'

docs: setup
	@cd '$(CLONE)' && '$(BIN)/python' docs/generate.py

benchmarks: setup
	@'$(CLONE)/docker/bootstrap.sh' '$(VENV)' fashion-mnist
	@cd '$(CLONE)' && '$(BIN)/python' benchmarks/run.py $(if $(BEFORE),--before '$(BEFORE)') $(if $(QUICK),--quick)

clean:
	rm -rf '$(VENV)' '$(CLONE)/build' '$(CLONE)/dist'
