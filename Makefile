# Everything runs inside .venv, which `make setup` makes. Paths are relative: a space in the checkout's path is fine.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

PYTHON := .venv/bin/python
# where ruff looks; folders that are not there yet are left out
CODE := $(wildcard src tests benchmarks gallery examples scripts)

.PHONY: help setup demo test slow cluster orchestrators screenshots drill lint format check bench peers bench-all lock lock-orchestrators lock-peers lock-jars clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

setup: ## Make .venv and .jars (minutes the first time, a blink after)
	@bash scripts/setup.sh

demo: setup ## Run the demo; SECONDS=60 for a longer or shorter one, KAFKA=1 through a broker
	@.venv/bin/tapeline demo $(if $(SECONDS),--seconds $(SECONDS)) $(if $(KAFKA),--kafka)

test: setup ## Run the tests in two processes; ARGS="-k quarantine" is passed to pytest
	@bash scripts/browser.sh
	@bash scripts/postgres.sh
	@bash scripts/mqtt.sh
	@bash scripts/network.sh
	@$(PYTHON) scripts/tests.py $(ARGS)

slow: setup ## Run the drills of a minute each
	@bash scripts/network.sh
	@$(PYTHON) scripts/tests.py -m slow --ignore=tests/orchestrators $(ARGS)

lint: setup ## Check style, types and the direction of imports
	$(PYTHON) -m ruff check $(CODE)
	$(PYTHON) -m ruff format --check $(CODE)
	$(PYTHON) -m mypy
	.venv/bin/lint-imports

format: setup ## Let ruff format and repair what it can
	$(PYTHON) -m ruff check --fix $(CODE)
	$(PYTHON) -m ruff format $(CODE)

check: lint test ## Lint and test

screenshots: setup ## Make new pictures for the documentation
	@$(PYTHON) -m pytest tests/browser -q -k "screenshots or other_pages"
	@mkdir -p docs/images && cp .screenshots/trade_summary-*.png .screenshots/balance.png docs/images/

drill: setup ## Kill the brokerage's pipeline 50 times over 100,000 trades; ARGS="--kills 3 --trades 5000"
	@.venv/bin/tapeline drill --folder .drill $(ARGS)

cluster: setup ## Run a trading day on a Spark cluster of this machine, kill parts of it, and compare the books
	@$(PYTHON) scripts/cluster.py

orchestrators: setup ## Run the examples for cron, Airflow and Dagster, which it installs into .venv-orchestrators
	@bash scripts/environments.sh examples/orchestrators .venv-orchestrators --only-binary :all:
	@REQUIRE_ORCHESTRATORS=1 $(PYTHON) -m pytest -m slow tests/orchestrators $(ARGS)

bench: setup ## Run the short benchmarks
	@$(PYTHON) -m benchmarks short

peers: setup ## Install PyFlink and Pathway into .venv-peers, for the benchmark of that name (3 GB)
	@bash scripts/environments.sh benchmarks/peers .venv-peers

bench-all: peers ## Run every benchmark
	@$(PYTHON) -m benchmarks all

# The lock holds names, versions and hashes, and neither addresses nor paths: where packages come from is the machine's
# business. Existing pins stay unless UPGRADE=1.
lock: setup ## Compile requirements.lock from pyproject.toml; UPGRADE=1 takes newer versions
	@CUSTOM_COMPILE_COMMAND="make lock" .venv/bin/pip-compile --quiet $(if $(UPGRADE),--upgrade) \
		--all-extras --all-build-deps --generate-hashes --allow-unsafe --strip-extras \
		--no-emit-index-url --no-emit-find-links --output-file requirements.lock pyproject.toml
	@! grep -nE '://|^-|^# *-|/(home|root|tmp|opt|work)/' requirements.lock || \
		{ echo "requirements.lock names an address or a path (lines above)" >&2; exit 1; }

# $(call compile,FOLDER,NAMES,TARGET): a lock for each FOLDER/NAME.in
define compile
	@for name in $(2); do \
		CUSTOM_COMPILE_COMMAND="make $(3)" .venv/bin/pip-compile --quiet $(if $(UPGRADE),--upgrade) \
			--generate-hashes --allow-unsafe --strip-extras --no-emit-index-url --no-emit-find-links \
			--output-file $(1)/$$name.lock $(1)/$$name.in; \
		! grep -nE '://|^-|^# *-|/(home|root|tmp|opt|work)/' $(1)/$$name.lock || \
			{ echo "$$name.lock names an address or a path (lines above)" >&2; exit 1; }; \
	done
endef

lock-orchestrators: setup ## Compile the locks of the examples' orchestrators; UPGRADE=1 takes newer versions
	$(call compile,examples/orchestrators,airflow dagster,lock-orchestrators)

lock-peers: setup ## Compile the locks of the benchmarks' peers
	$(call compile,benchmarks/peers,flink pathway,lock-peers)

lock-jars: setup ## Download the jars of ivy.xml again and write jars.sha256
	@bash scripts/setup.sh --pin-jars

clean: ## Remove all that was made, .venv and .jars included
	rm -rf .venv .venv-orchestrators .venv-peers .jars .jars.* build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis .screenshots .drill \
		spark-warehouse metastore_db derby.log src/*.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
