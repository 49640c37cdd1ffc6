# `make` alone lists the targets. Nothing is assumed but a Python with venv and pip.

BIN := .venv/bin
# Name one to insist on it: make PYTHON=/path/to/python3.12
PYTHON ?=
# Two workers more than processors: tests of live clusters wait for the clock, those of pages for
# the browser.
WORKERS := $(shell echo $$(($$(getconf _NPROCESSORS_ONLN) + 2)))
# Groups of tests start in the order that tests/conftest.py gives them, the longest first.
PYTEST := $(BIN)/python -m pytest -q -n $(WORKERS) --maxprocesses 8 --dist loadgroup --no-loadscope-reorder

# Workers of the tests, and the programs that they start, read what another has compiled: some
# environments forbid to keep it, and then each takes ten seconds to begin.
export PYTHONDONTWRITEBYTECODE :=

INSTALL := $(BIN)/python -m pip install -qq --disable-pip-version-check
COMPILE = $(BIN)/uv pip compile --no-config --quiet --universal --generate-hashes \
  --python-version 3.11 --custom-compile-command 'make lock' $(if $(UPGRADE),--upgrade)

.DELETE_ON_ERROR:
.PHONY: help check test ready soak fault-runs bench bench-live bench-plots demo dist docs docs-images golden lock clean prepared rewritten lint format types layers quick whole

help:
	@echo 'Targets:'
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' Makefile | while IFS='|' read -r name what; do \
	  printf '%-17s %s\n' "$$name" "$$what"; done

check: ready quick ## format, types, layers, tidy and quick tests: under a minute

test: prepared whole ## everything but the long loops

soak: .venv/.kernels ## the long loops in full (STOWPLAN_SOAK=N: N times the examples, 20 by default)
	STOWPLAN_SOAK="$${STOWPLAN_SOAK:-20}" $(PYTEST) -m 'soak or hypothesis'

fault-runs: .venv/.kernels ## seeded runs with injected faults (FAMILY='workloads gangs' RUNS=1000 FIRST=0)
	$(BIN)/python -m tests.fault_runs $(FAMILY) --runs $(or $(RUNS),100) --first $(or $(FIRST),0) \
	  --workers $(WORKERS)

golden: .venv/.stamp ## write scenarios, parity-api.md, tutorials and images again: the diff is the review
	STOWPLAN_GOLDEN=1 $(PYTEST) tests/scenarios tests/plugins/test_yoda_scenarios.py tests/contract/apiserver/test_parity.py \
	  tests/cli/test_tutorials.py tests/tidy/test_site.py

bench: .venv/.run ## pods/s by shape; no figure is asserted (SHAPES='basic anti')
	$(BIN)/stowplan bench --stages $(SHAPES) $(BENCH)

bench-live: .venv/.stamp ## rates and memory of API server and scheduler (PARTS='writes memory', STEADY=600 seconds, REAL='10000 5000'; KUBE_APISERVER, ETCD, KUBE_SCHEDULER)
	$(BIN)/python bench/live.py $(PARTS)
	$(BIN)/python bench/live_rate.py 3000 500
	$(BIN)/python bench/live_steady.py $(STEADY)
	$(BIN)/python bench/live_real.py $(REAL)
	$(BIN)/python bench/live_real_steady.py $(STEADY)

bench-plots: .venv/.stamp ## measure growth and stages, and draw them into docs/plots
	$(BIN)/python bench/plots.py

demo: .venv/.run ## half a minute of a small cluster: gangs, queues, preemption, a node that dies; then demo.html
	$(BIN)/stowplan demo --report demo.html

docs: .venv/.docs  ## build the documentation into site/; nothing is fetched (read it: python -m http.server -d site)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet

docs-images: .venv/.run ## draw the diagrams and the README's picture again
	$(BIN)/python docs/scripts/draw.py

dist: .venv/.stamp ## build wheel and sdist into dist/
	$(BIN)/python -m build --no-isolation

lock: .venv/.stamp ## pin what pyproject.toml asks for (UPGRADE=1: the newest of it)
	$(COMPILE) --group install --output-file requirements.lock pyproject.toml
	$(COMPILE) --extra testing --extra top --group dev --group plots --constraint requirements.lock \
	  --output-file requirements-dev.lock pyproject.toml
	$(COMPILE) --group docs --constraint requirements-dev.lock \
	  --output-file requirements-docs.lock pyproject.toml

clean:             ## remove the environment, caches and builds
	rm -rf demo.html .venv .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache build dist site
	find src tests bench -type d -name __pycache__ -prune -exec rm -rf {} + 2>/dev/null || true

# What is checked by reading and what is compiled have a processor each.
ready: .venv/.stamp
	@$(MAKE) --no-print-directory -j2 lint .venv/.kernels

# Each worker of the tests would read and rewrite all of them; what the first has written the others load.
prepared: .venv/.stamp
	@$(MAKE) --no-print-directory -j2 lint .venv/.kernels rewritten

rewritten: .venv/.stamp
	@found=$$($(BIN)/python -m pytest -q --collect-only -m 'not soak' 2>&1) || { echo "$$found" | tail -n 60; exit 1; }

lint: format types layers

format: .venv/.stamp
	$(BIN)/ruff format --check --quiet
	$(BIN)/ruff check --quiet

types: .venv/.stamp
	$(BIN)/python -m mypy

layers: .venv/.stamp
	$(BIN)/lint-imports --no-logo

quick: .venv/.kernels
	$(PYTEST) -m 'not slow and not soak'

whole: .venv/.kernels
	$(PYTEST) -m 'not soak'

# Kernels are compiled once here, not by each worker of the tests at the same time.
KERNELS := $(addprefix src/stowplan/columns/engine/,kernels.py card_kernels.py preemption_kernels.py)
WARM = import stowplan.driver.kernel_warming as w; w.warm_kernels(); w.warm_card_kernels(); \
  from stowplan.simulation.kernel_cache import export_kernels; export_kernels()

.venv/.kernels: .venv/.stamp $(KERNELS)
	@$(BIN)/python -c '$(WARM)'
	@touch $@

# The environment: made once, brought up to date when a lock or the package's metadata changes. What
# only runs Stowplan needs .venv/.run, half the size of .venv/.stamp with all for tests and checks.
# The first Python that is new enough and can make an environment serves; if there is none, one
# line says what is missing.
.venv/.run: requirements.lock pyproject.toml
	@if ! $(BIN)/python -m pip --version >/dev/null 2>&1; then \
	  recent=; able=; \
	  for python in $(if $(PYTHON),"$(PYTHON)",python3 python3.13 python3.12 python3.11); do \
	    "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || continue; \
	    recent="$${recent:-$$python}"; \
	    "$$python" -c 'import venv, ensurepip' 2>/dev/null || continue; \
	    able="$$python"; break; \
	  done; \
	  if [ -z "$$recent" ]; then \
	    echo "No Python 3.11 or newer found (looked for $(if $(PYTHON),$(PYTHON),python3 and python3.11 to 3.13)). Name one: make PYTHON=/path/to/python3.12" >&2; exit 1; \
	  elif [ -z "$$able" ]; then \
	    echo "$$recent has no venv module. Install it (Debian, Ubuntu: apt install python3-venv) or name another Python: make PYTHON=/path/to/python3.12" >&2; exit 1; \
	  fi; \
	  echo "Making .venv with $$able"; \
	  "$$able" -m venv --clear .venv; \
	fi
	@echo 'Installing what requirements.lock pins'
	@$(INSTALL) --require-hashes -r requirements.lock
	@$(INSTALL) --no-deps --no-build-isolation -e .
	@touch $@

.venv/.stamp: .venv/.run requirements-dev.lock
	@echo 'Installing what requirements-dev.lock pins'
	@$(INSTALL) --require-hashes -r requirements-dev.lock
	@touch $@

.venv/.docs: .venv/.run requirements-docs.lock
	@echo 'Installing what requirements-docs.lock pins'
	@$(INSTALL) --require-hashes -r requirements-docs.lock
	@touch $@
