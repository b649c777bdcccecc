# make demo     install, compare six methods on the bundled digits, write the report page
# make test     install and run all tests
# make oracles  the tests that pin numbers again, on programs compiled as users' are
# make matrix   every method in every setting by another way that must come to the same; writes docs/combinations.md
# make trials   kills, damages, full disks and two jobs at once for an hour (SECONDS=60: a minute), then 10,000
#               mutated experiment files (MUTATIONS=500: fewer); counts; then every method in one and two processes
# make deploy-check  a federation on Flower on this machine, with TLS and keys, must come to its simulation
# make deploy-test   the same, one started by hand, Ctrl-C, nine methods, and every part killed one after another
# make numbers  measure what README and docs quote, store it in docs/results/, write it into the pages
# make bench    time holdfast and its peers on the same tasks, write benchmarks/RESULTS.md (QUICK=1: headline ratios in ten minutes)
# make docs     install and build the documentation into site/, links checked, notebooks run
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/pip install --quiet --disable-pip-version-check
INSTALLED := .venv/installed
TOOLS := .venv/tools

.PHONY: demo test oracles matrix trials deploy-check deploy-test numbers bench lint format docs clean

demo: $(INSTALLED)
	$(BIN)/holdfast run src/holdfast/config/templates/digits.toml

test: $(TOOLS)
	$(BIN)/python -m pytest -n 2 --dist worksteal

oracles: $(TOOLS)
	XLA_FLAGS= $(BIN)/python -m pytest -n 2 tests/claims/test_oracles.py tests/claims/test_oracles_server.py \
		tests/claims/test_oracles_flix.py tests/claims/test_identities.py tests/claims/test_fixed_points.py tests/models/test_vgg_resnet.py

matrix: $(TOOLS)
	rm -rf build/matrix
	XLA_FLAGS="--xla_cpu_use_fusion_emitters=false --xla_backend_optimization_level=1" $(BIN)/python -m tests.claims.matrix

trials: $(TOOLS)
	$(BIN)/python -m tests.trials --seconds $(or $(SECONDS),3600)
	$(BIN)/python -m tests.trials.mutations --count $(or $(MUTATIONS),10000)
	$(BIN)/python -m tests.trials.two_processes

# In an environment of its own: Flower wants older versions of what the command is drawn with, which warn.
.venv-flower/installed: pyproject.toml
	$(PYTHON) -m venv .venv-flower
	.venv-flower/bin/pip install --quiet --disable-pip-version-check -e '.[flower]' pytest pytest-xdist
	touch $@

deploy-check: .venv-flower/installed
	.venv-flower/bin/python -m pytest -W ignore::DeprecationWarning tests/deploy/test_loopback.py

deploy-test: deploy-check
	.venv-flower/bin/python -m pytest -W ignore::DeprecationWarning tests/deploy/test_connection.py tests/deploy/test_site_process.py
	.venv-flower/bin/python -m tests.deploy.live
	.venv-flower/bin/python -m tests.deploy.interrupts
	.venv-flower/bin/python -m tests.deploy.methods
	.venv-flower/bin/python -m tests.deploy.frameworks
	.venv-flower/bin/python -m tests.deploy.kills

lint: $(TOOLS)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: $(TOOLS)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .
	$(BIN)/python -m holdfast.config.describe

numbers: $(INSTALLED)
	$(BIN)/python docs/quoted.py --measure

bench: $(TOOLS)
	$(BIN)/python benchmarks/run.py --python $(PYTHON) $(if $(QUICK),--quick) $(BENCH)

docs: $(TOOLS)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "documentation: site/index.html"

$(INSTALLED): requirements.txt pyproject.toml
	$(PYTHON) -m venv .venv
	$(PIP) -r requirements.txt
	$(PIP) --no-build-isolation --no-deps -e .
	touch $@

$(TOOLS): $(INSTALLED) requirements-dev.txt
	$(PIP) -r requirements-dev.txt
	touch $@

clean:
	rm -rf .venv .venv-bench build dist site .mypy_cache .ruff_cache .pytest_cache src/*.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
