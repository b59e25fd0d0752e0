# Every chore; CI calls `make test` and nothing else. Works from any folder: make -C path/to/clone demo, make -f path/to/clone/Makefile demo
# make splits what it knows at spaces, so paths are for the shell alone: quoted, and no target or prerequisite.
quoted = '$(subst ','\'',$(1))'
LIST := $(call quoted,$(MAKEFILE_LIST))
CLONE := $(shell own=$$(printf %s $(LIST) | sed 's/^ //'); [ -e "$$own" ] || own=$$(printf %s $(LIST) | sed 's/.* //'); cd -P . && cd "$$(dirname "$$own")" && [ -e docker/bootstrap.sh ] && pwd)
ifndef CLONE
$(error cannot find the clone from the path of this Makefile:$(MAKEFILE_LIST); go there, and call make without -f)
endif
HERE := $(call quoted,$(CLONE))
# PostgreSQL refuses to run as root and its own user cannot read root's home, so root's environment lies outside it.
VENV ?= $(shell if [ "$$(id -u)" = 0 ]; then echo /var/lib/easeml/venv-$$(printf %s $(HERE) | cksum | cut -d' ' -f1); else echo $(HERE)/.venv; fi)
PLACE := $(call quoted,$(VENV))
BIN := $(PLACE)/bin
DATASET ?= digits
SECONDS_EACH ?= 60
# Tests wait for servers more than they compute: two workers a core, each with a server of its own. More of them take more processor time than they win.
WORKERS ?= $(shell echo $$((2 * $$(nproc))))
# Whoever runs the tests again has the same order and examples; SEED=2 has others.
SEED ?= 1
INSTALLED := $(PLACE)/easeml-installed

.PHONY: help setup demo test test-versions suite unit lint docs benchmarks clean
help:
	@echo 'make demo [DATASET=digits|fashion-mnist|tenants|cluster]   set everything up and run the main job, or share it'
	@echo 'make test [SEED=2]                         set everything up and pass all tests, in another order'
	@echo 'make test-versions [VERSIONS="15 18"] [TESTS=...]   pass tests on PostgreSQL 15 to 18'
	@echo 'make attack [SECONDS_EACH=60]                attack it for an hour, and measure what other tenants notice'
	@echo 'make unit | lint | docs | clean'
	@echo 'make benchmarks [BEFORE=clone] [QUICK=1]   measure this clone, or compare it with another by turns'

# Something to do: no installed copy, a Python that is not the one that it was installed for, or a source that is newer.
OUTDATED = [ ! -e $(INSTALLED) ] || ! $(BIN)/python -I -c 'import pip' 2>/dev/null || [ -n "$$(cd $(HERE) && find easeml_db plpy loaders reader experiments sql pyproject.toml docker/bootstrap.sh \
	-type f -not -name '*.pyc' -not -name 'easeml--*.sql' -newer $(INSTALLED) -print -quit)" ]

setup:
	@if $(OUTDATED); then set -e; \
		$(HERE)/docker/bootstrap.sh $(PLACE) all; \
		(cd $(HERE) && $(BIN)/pip install --quiet --no-build-isolation --no-deps --force-reinstall . ./experiments); \
		chmod -R a+rX $(PLACE); \
		$(BIN)/easeml install --files-only >/dev/null || sudo $(BIN)/easeml install --files-only; \
		touch $(INSTALLED); \
	fi

demo: setup
	@$(HERE)/docker/bootstrap.sh $(PLACE) $(call quoted,$(DATASET))
	@$(BIN)/easeml demo $(call quoted,$(DATASET))

# Side by side: tests also wait, for servers, while mypy computes.
test: setup
	@$(MAKE) --no-print-directory -f $(HERE)/Makefile -j 2 lint suite

# Every worker reads all tests: compiled ones, but for the first time.
suite: setup
	@cd $(HERE) && PYTHONDONTWRITEBYTECODE= $(BIN)/pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder --durations=10 --randomly-seed=$(SEED) --hypothesis-seed=$(SEED) tests

test-versions: setup
	@cd $(HERE) && $(BIN)/python tests/versions.py $(if $(VERSIONS),--versions $(call quoted,$(VERSIONS))) $(TESTS)

attack: setup
	@cd $(HERE) && $(BIN)/pytest tests/attack -s -p no:randomly --attack-seconds $(SECONDS_EACH) --attack-rows 20000

unit: setup
	@cd $(HERE) && $(BIN)/pytest tests/unit tests/contract

lint: setup
	@cd $(HERE) && $(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy
	@cd $(HERE) && $(BIN)/pytest -q -p no:randomly tests/contract/test_sql_layout.py

docs: setup
	@cd $(HERE) && $(BIN)/python docs/generate.py

benchmarks: setup
	@$(HERE)/docker/bootstrap.sh $(PLACE) fashion-mnist
	@cd $(HERE) && $(BIN)/python benchmarks/run.py $(if $(BEFORE),--before $(call quoted,$(BEFORE))) $(if $(QUICK),--quick)

clean:
	rm -rf $(PLACE) $(HERE)/build $(HERE)/dist
