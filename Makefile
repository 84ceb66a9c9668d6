# Every target sets up what it needs. `make` alone lists them.

PYTHON ?= # the interpreter for .venv; found if not given
ROUNDS ?= 300
KILLS ?= 20
SEEDS ?= 200
BENCH ?= engine
WORKERS ?= auto
ARGS ?=

BIN := .venv/bin
# Asked of the interpreter that builds: another one may not be able to read the sources.
COMPILED := $(shell $(firstword $(wildcard .venv/bin/python) $(PYTHON) $(shell command -v python3.11) python3) tools/compiled.py)
ifneq ($(filter-out clean help,$(or $(MAKECMDGOALS),help)),)
ifneq ($(wildcard .venv/bin/python),)
$(if $(COMPILED),,$(error tools/compiled.py does not say what is compiled: is .venv sound? make clean removes it))
endif
endif
# What it is compiled with, if anything: with another compiler, or none, it is built anew.
COMPILER := $(if $(filter 1,$(ONCELOG_PURE)),none,$(or $(shell command -v $(firstword $(CC))),none))
BUILT_WITH := .venv/.with$(subst /,-,$(COMPILER))
# Folders that hold no Python yet are left out: the tools refuse an empty folder.
CODE := setup.py src tests tools $(if $(wildcard bench/*.py),bench) $(if $(wildcard examples/*.py),examples)

# Faults and pipelines one by one, with a Spark driver to start for most of them. `make test` has reads and writes of the
# connector, and the demo whole: it joins, aggregates, lands and audits under kills.
SPARK_LONG := tests/pipelines $(addprefix tests/spark/test_,declarative.py drivers.py expiry.py faults.py \
    pipeline_kills.py sink.py) tests/spark/cluster/test_apart.py tests/spark/cluster/test_kills.py

.DEFAULT_GOAL := help
.PHONY: help setup run test spark check format crash kills sim simfull flips bench docs site pin clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' Makefile

setup: .venv/.packages .venv/.project ## make .venv, install pinned packages, compile the hot path; instant when nothing changed

# The interpreter must be 3.11 or newer and be able to make a venv (Debian ships some that cannot).
.venv/bin/python:
	@for python in $(or $(PYTHON),python3.11 python3); do \
	    if $$python -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	        echo "making .venv with $$($$python --version)"; \
	        $$python -m venv .venv && exit 0; \
	        rm -rf .venv; exit 1; \
	    fi; \
	done; \
	echo "make setup needs Python 3.11 or newer with venv: install it, or say make setup PYTHON=/path/to/python" >&2; \
	exit 1

.venv/.packages: constraints.txt | .venv/bin/python
	@echo "installing pinned packages into .venv, about a minute"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r constraints.txt
	@touch $@

# A compiled module shadows its source, so it is removed before it is built: if the build falls back to pure Python,
# no old one may stay behind. setup.py decides whether they can be compiled.
$(BUILT_WITH): | .venv/bin/python
	@rm -f .venv/.with*
	@touch $@

.venv/.project: .venv/.packages pyproject.toml setup.py tools/compiled.py $(COMPILED) $(BUILT_WITH)
	@echo "building oncelog, about a minute (compiler: $(COMPILER))"
	@find src -name '*.so' -delete
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps --editable .
	@ls src/oncelog/native__mypyc*.so > /dev/null 2>&1 || \
	    echo "nothing was compiled (compiler: $(COMPILER)): oncelog runs from its source, and an append costs more CPU"
	@touch $@

run: setup .venv/.spark ## the demo: every face, a bad network, kills, Spark to a Delta table, an audit (ARGS="--seed 7 --scale 0.5")
	$(BIN)/oncelog demo $(ARGS)

test: setup .venv/.spark ## run the tests (ARGS="-k name" to choose); the long ones of Spark are `make spark`
	$(BIN)/python -m pytest -n $(WORKERS) $(addprefix --ignore=,$(SPARK_LONG)) $(ARGS)

.venv/.spark: constraints-spark.txt .venv/.project
	@echo "installing PySpark into .venv, about a minute"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r constraints-spark.txt
	@touch $@

spark: setup .venv/.spark ## run every test that needs Spark: connector, faults, pipelines, demo (half an hour)
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile tests/spark tests/pipelines tests/demo/spark $(ARGS)

check: setup ## format, lint, types, layers, links of the pages
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/ruff check $(CODE)
	$(BIN)/mypy $(CODE)
	$(BIN)/lint-imports --no-logo
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

format: setup ## rewrite the code as `make check` wants it, where a tool can
	$(BIN)/ruff format $(CODE)
	$(BIN)/ruff check --fix $(CODE)

crash: setup ## kill a real engine, then a real server without and with a bad network before it, ROUNDS=300 times each
	$(BIN)/python -m tests.crash.kill_loop --rounds $(ROUNDS)
	$(BIN)/python -m tests.crash.http_kill_loop --rounds $(ROUNDS)
	$(BIN)/python -m tests.crash.http_kill_loop --rounds $(ROUNDS) --proxy

kills: setup .venv/.spark ## kill Spark driver and server under a pipeline, KILLS=20 times, and compare with the batch result
	$(BIN)/python -m tests.spark.pipeline_kills --kills $(KILLS)

sim: setup ## run the engine on a simulated disk that fails, SEEDS=200 seeds
	$(BIN)/python -m tests.crash.sim_loop --seeds $(SEEDS)

flips: setup ## flip every byte of a small log, journal and index, and let verify find it
	ONCELOG_EXHAUSTIVE=1 $(BIN)/python -m pytest -q --timeout 900 tests/storage/test_verify.py

simfull: setup ## crash at every disk call of all workloads of up to three operations (a quarter of an hour)
	$(BIN)/python -m tests.crash.sim_loop --full

bench: setup ## measure, BENCH=engine or another one
	$(BIN)/python -m bench $(BENCH) $(ARGS)

docs: setup ## rewrite the generated pages
	$(BIN)/python -m tools.limits_doc
	$(BIN)/python -m tools.config_doc
	$(BIN)/python -m tools.errors_doc

site: setup ## build the pages of docs/ into build/site; a broken link fails it
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

pin: setup ## rewrite constraints.txt (ARGS=--upgrade for the newest versions)
	$(BIN)/python -m tools.pin $(ARGS)

clean: ## remove everything that is not source, .venv included
	rm -rf .venv build dist src/*.egg-info
	find src -name '*.so' -delete
	rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find $(CODE) -name __pycache__ -type d -prune -exec rm -rf {} +
