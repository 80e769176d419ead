# Everything here starts from a fresh clone: `bootstrap` makes .venv, finds Java and fetches the jars when needed.
SHELL := /bin/sh
PYTHON ?= $(shell for python in python3 python3.13 python3.12 python3.11 python; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 8))' 2>/dev/null && { echo $$python; break; }; done)
RUN := .venv/bin/python
OTHERS = tests benchmarks docs/generate.py client/generate.py bootstrap.py
LOCK = CUSTOM_COMPILE_COMMAND="make lock" $(RUN) -m piptools compile --quiet --generate-hashes --allow-unsafe \
	--strip-extras --no-emit-options --no-emit-index-url --no-emit-find-links --no-emit-trusted-host

# Tests and the demo start hundreds of processes, and each would compile everything again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo test test-all check format bench mutants torture docs bootstrap lock clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: bootstrap ## Run all of it on this machine for two minutes and compare it with the truth (ARGS="--seconds 30", ARGS=--trino, ARGS=--lake)
	@.venv/bin/thermocline demo $(ARGS)

# Three processes on two cores: each of them often waits for a broker, a server or Spark to start or to answer.
test: bootstrap ## Run the tests of a change, also on real Kafka, Spark, Iceberg and Trino; about ten minutes (ARGS="-k tombstone")
	@$(RUN) -m pytest -n 3 $(ARGS)

# In parts, since some of them take both cores and much of the memory. One that fails stops no other.
test-all: bootstrap ## Run every test, with all histories, kills and failpoints; about two hours
	@trap 'exit 130' INT; failed=0; \
	for part in "not jvm" "jvm and not trino and not demo" trino demo; do \
		$(RUN) -m pytest -n 2 --full -m "$$part" || failed=1; \
	done; \
	$(RUN) -m pytest -n 2 --lake tests/behaviour || failed=1; \
	exit $$failed

check: bootstrap ## Check format, lint, types and layers
	@$(RUN) -m ruff format --check
	@$(RUN) -m ruff check
	@$(RUN) -m mypy -p thermocline
	@$(RUN) -m mypy $(OTHERS)
	@.venv/bin/lint-imports

format: bootstrap ## Format the code, fix what can be fixed, and write the blocking client from the async one
	@$(RUN) -m ruff check --fix-only
	@$(RUN) -m ruff format
	@$(RUN) client/generate.py

bench: bootstrap ## Run the benchmarks; each prints one line of JSON
	@for benchmark in benchmarks/[a-z]*.py; do $(RUN) -m benchmarks.$$(basename $$benchmark .py) $(ARGS) || exit 1; done

mutants: bootstrap ## Remove each safety line in turn and see that a test notices; up to an hour (ARGS=epoch)
	@$(RUN) -m tests.mutants $(ARGS)

torture: bootstrap ## Break and kill everything for a while, compare every answer (SECONDS=1800 SEED=1 ARGS="--report PATH")
	@$(RUN) -m tests.torture --seconds $(or $(SECONDS),600) $(if $(SEED),--seed $(SEED)) $(ARGS)

docs: bootstrap ## Write the generated reference pages
	@$(RUN) docs/generate.py

bootstrap: ## Make .venv, find Java, fetch the jars (the other targets do it by themselves)
	@test -n "$(PYTHON)" || { echo "Error   no Python found; install Python 3.11, 3.12 or 3.13"; exit 1; }
	@$(PYTHON) bootstrap.py

lock: bootstrap ## Lock the requirements again (ARGS="--upgrade", or ARGS="--upgrade-package duckdb")
	@$(LOCK) $(ARGS) -o requirements/build.txt requirements/build.in
	@$(LOCK) $(ARGS) -o requirements/jdk.txt requirements/jdk.in
	@$(LOCK) $(ARGS) -o thermocline/jvm/trino_java.txt requirements/trino-java.in
	@$(LOCK) $(ARGS) -o requirements/openapi-client.txt requirements/openapi-client.in
	@$(LOCK) $(ARGS) -o requirements/duckdb-client.txt requirements/duckdb-client.in
	@$(LOCK) $(ARGS) -o requirements/axe.txt requirements/axe.in
	@$(LOCK) $(ARGS) -o requirements/openlineage.txt requirements/openlineage.in
	@$(LOCK) $(ARGS) -c requirements/build.txt --extra ingest --extra serving --extra postgres --extra views --extra dev \
		-o requirements/dev.txt pyproject.toml
	@$(LOCK) -c requirements/dev.txt --extra ingest --extra serving --extra postgres --extra views \
		-o requirements/ingest.txt pyproject.toml
	@$(LOCK) -c requirements/dev.txt --extra serving --extra postgres -o requirements/serving.txt pyproject.toml

clean: ## Remove .venv and all caches of this clone (the fetched jars stay in the cache folder of the user)
	@rm -rf .venv build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
