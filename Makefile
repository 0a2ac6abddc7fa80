# One way to do each chore. Every target sets up what it needs; the second time that takes a second.
SHELL := bash
UV = $(or $(shell command -v uv),.tools/uv/bin/uv)
RUN = $(UV) run --no-sync
.DEFAULT_GOAL := help
# Modules are compiled once, not by each process: half of what most of the tests' processes do.
unexport PYTHONDONTWRITEBYTECODE
.PHONY: help setup lint format types test test-fast coverage integration walk demo benchmark build docs lock clean

help:  ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup:  ## uv, the locked environment, Java 17, Ceph's gateway, Chromium (apt packages only as root), other Sparks
	@tools/setup.sh java gateway browser sparks iceberg s3a quick

lint:  ## ruff (rules and format), the import rings, the glossary
	@tools/setup.sh
	$(RUN) ruff check
	$(RUN) ruff format --check
	$(RUN) lint-imports --no-cache
	$(RUN) python tools/words.py

format:  ## let ruff repair what it can
	@tools/setup.sh
	$(RUN) ruff check --fix
	$(RUN) ruff format

types:  ## mypy, strict
	@tools/setup.sh
	$(RUN) mypy

TESTS = $(RUN) pytest -n 2 --dist loadfile --no-loadscope-reorder

test:  ## the main claims, two files at a time; make test ARGS="-k fencing" for some
	@tools/setup.sh java quick
	$(TESTS) -m "not integration" $(ARGS)

integration:  ## the rest of what CI runs: Airflow, browser, clusters, gateway, killed drivers, versions of Spark
	@tools/setup.sh java gateway browser sparks iceberg s3a quick
	$(TESTS) -m integration $(ARGS)

test-fast:  ## only the tests that start no Spark, no Airflow and no other processes
	@tools/setup.sh
	$(RUN) pytest -m "not spark and not process and not airflow" $(ARGS)

coverage:  ## the lines that make test runs in its own processes, with a floor
	@$(MAKE) --no-print-directory test ARGS="--cov --cov-report=term $(ARGS)"

walk:  ## hours: all that these two skip; every query of TPC-H (scale 1) and TPC-DS, killed at seeded moments
	@tools/setup.sh java gateway sparks iceberg s3a
	$(RUN) pytest --walk -m walk $(ARGS)

ablate:  ## take each mechanism of recovery away, and see its tests fail; make ablate ARGS="17 25" for some rows
	@tools/setup.sh java quick
	$(RUN) python -m tests.ablation $(ARGS)

demo:  ## kill a Spark driver under a real Airflow and see its retry reuse what survived; ARGS="--stay" to look around
	@tools/setup.sh java
	$(RUN) spark-recovery demo $(ARGS)

benchmark:  ## checkpoint against Spark's own, and a retry against a full rerun; see benchmarks/
	@tools/setup.sh java
	$(RUN) python -m benchmarks $(ARGS)

build:  ## wheel and sdist in dist/, each installed into an empty environment, where the operator then runs a job
	@tools/setup.sh java
	@UV=$(UV) tools/build.sh

docs:  ## README, docs/, the examples and the reference as pages: build/docs/index.html
	@tools/setup.sh
	NO_MKDOCS_2_WARNING=1 $(RUN) mkdocs build --quiet

lock:  ## check that uv.lock fits pyproject.toml
	@tools/setup.sh
	$(UV) lock --check

clean:  ## remove what builds and tests leave behind, and the environment
	rm -rf .venv .tools .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist build
	rm -rf spark-warehouse metastore_db derby.log
	find . -name __pycache__ -not -path './.git/*' -prune -exec rm -rf {} +
