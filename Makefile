# Every gate and every way to run the project, one target each. CI calls `make test`.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
CLUSTER := PYTHONPATH=tests/cluster $(BIN)/python -m control_plane
NODES := PYTHONPATH=tests/cluster:tests/nodes $(BIN)/python -m real_nodes
# Most of the tests' time is waiting for a cluster, so two processes share the cores; each has its own cluster.
IN_TWO := -n 2 --dist loadfile --no-loadscope-reorder
export PIP_DISABLE_PIP_VERSION_CHECK = 1

# An exported KUBECONFIG may point at a cluster that matters, so only one that is given to make itself counts.
ifeq ($(origin KUBECONFIG),command line)
export SHARDWRIGHT_TEST_KUBECONFIG := $(abspath $(KUBECONFIG))
endif

.DEFAULT_GOAL := help
.PHONY: chaos explore test-gitops help setup demo test test-engine test-engine-all live nodes nodes-check parser engine-facts engine-requirements unit lint verify accuracy bench cluster-up cluster-down generate golden constraints clean

help:  ## show the targets
	@echo 'Shardwright: plans and runs multi-node vLLM on Kubernetes. Targets:'
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-19s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo 'make demo KUBECONFIG=FILE (and test) uses that cluster instead of a local one.'

setup: $(STAMP)  ## install the project and its tools into .venv

$(STAMP): constraints.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: set PYTHON=")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --require-hashes -r constraints.txt
	$(BIN)/pip install --quiet --no-deps --no-build-isolation -e .
	touch $@

demo: setup  ## plan and run Llama 3.1 405B on a real API server with simulated GPU nodes
	PYTHONPATH=tests/cluster $(BIN)/python tests/cluster/demo.py

test: setup lint verify  ## all gates and tests, without test-gitops and test-engine, on a local control plane that is built once
	$(BIN)/pytest -m 'not engine and not extended' --ignore tests/gitops $(IN_TWO)

test-gitops: setup  ## what GitOps tools, Helm, autoscalers, upgrades and removals do: seven minutes
	$(BIN)/pytest tests/gitops

SEED ?= 1
MINUTES ?= 5
chaos: setup  ## a seeded storm on a real control plane, judged by its history: SEED=n or n..m, MINUTES=m each
	PYTHONPATH=tests/cluster:tests/gitops:tests/storm $(BIN)/python tests/storm/chaos.py $(SEED) $(MINUTES)

explore: setup  ## the larger of the small worlds, explored whole: minutes
	$(BIN)/pytest -m extended tests/operator/decide

test-engine: parser nodes live  ## what is rendered against a real vLLM: its parser, then a group on real nodes (root)

test-engine-all: parser nodes  ## the same with every shape of group and every fault
	$(BIN)/pytest -m engine tests/nodes

parser: setup
	PYTHONPATH=tests/cluster:tests/engine $(BIN)/python -m engine_environment setup
	$(BIN)/pytest -m engine tests/engine

live: setup
	$(BIN)/pytest -m 'engine and not extended' tests/nodes

nodes-check: setup  ## whether this machine can hold real nodes, and if not, why
	$(NODES) check

nodes: setup
	$(NODES) setup

unit: setup  ## the tests that need no cluster
	$(BIN)/pytest -m 'not cluster and not engine and not extended' $(IN_TWO)

lint: setup  ## style, types and layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy tests/cluster/control_plane
	$(BIN)/mypy tests/nodes/real_nodes
	$(BIN)/lint-imports

verify: setup  ## generated files are up to date
	$(BIN)/shardwright crd | diff - crds/shardwright.dev_modeldeployments.yaml
	$(BIN)/python charts/generate.py --check

accuracy: setup  ## the planner against published measurements; CAPACITY=FILE LATENCY=FILE for others
	$(BIN)/python tests/planner/accuracy.py $(if $(CAPACITY),--capacity $(CAPACITY)) $(if $(LATENCY),--latency $(LATENCY))

bench: setup  ## figures as ratios measured in one run; RESOURCES=1000 for the operator beside many, ten minutes
	PYTHONPATH=tests/cluster $(BIN)/python tests/cluster/bench.py $(if $(RESOURCES),--resources $(RESOURCES))

cluster-up: setup  ## bring up a local control plane with simulated GPU nodes and keep it
	@$(CLUSTER) up --path

cluster-down: setup  ## stop it
	$(CLUSTER) down

generate: setup  ## write the generated files anew
	$(BIN)/shardwright crd > crds/shardwright.dev_modeldeployments.yaml
	$(BIN)/python charts/generate.py

golden: setup  ## write the golden manifests anew; review the diff
	SHARDWRIGHT_UPDATE_GOLDEN=1 $(BIN)/pytest -q tests/operator tests/chart

constraints:  ## pin all dependencies anew, with hashes and without addresses (needs uv)
	uv pip compile pyproject.toml --extra operator --extra hub --group dev --universal --generate-hashes \
	  --no-emit-index-url --python-version 3.11 --custom-compile-command 'make constraints' -q -o constraints.txt

engine-facts: setup  ## derive the planner's facts about the engine from the pinned vLLM anew
	PYTHONPATH=tests/cluster:tests/engine $(BIN)/python -m engine_facts write

engine-requirements:  ## pin the engine of the tests anew, with hashes and without addresses (needs uv)
	cd tests/engine/engine_environment && uv pip compile requirements.in --override overrides.txt \
	  --generate-hashes --no-emit-index-url --no-annotate --python-version 3.11 \
	  --python-platform x86_64-manylinux_2_28 --custom-compile-command 'make engine-requirements' -q -o requirements.txt
	cd tests/nodes/live_ray && uv pip compile requirements.in --generate-hashes --no-emit-index-url --no-annotate \
	  --python-version 3.11 --python-platform x86_64-manylinux_2_28 \
	  --custom-compile-command 'make engine-requirements' -q -o requirements.txt

clean:  ## remove what set-up made in this folder; the cache stays
	rm -rf $(VENV) .local .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
