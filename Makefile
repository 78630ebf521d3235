# make demo: the main job on this machine, no GPU, no key. make test: the tests. Both set up .venv/ first.
PYTHON ?= python3
TORCH ?= torch==2.13.0
VENV := .venv
BIN := $(VENV)/bin
WORKERS ?= 2

.PHONY: venv compilers demo serve test alone museum interleavings soak gpu-exam lint check clean

venv: $(VENV)/ready

# torch comes first and by version, or pip picks a build with gigabytes of CUDA libraries.
$(VENV)/ready: pyproject.toml constraints.txt Makefile
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "proctor needs Python 3.11 or newer; set PYTHON=python3.12, for instance"; exit 1; }
	@command -v git >/dev/null || { echo "proctor needs git: install the package git"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check '$(TORCH)'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@command -v bwrap >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
	  { apt-get install -y -qq bubblewrap >/dev/null 2>&1 || \
	    { apt-get update -qq && apt-get install -y -qq bubblewrap; } >/dev/null 2>&1; }; } || \
	  echo "bubblewrap is missing: install the package bubblewrap; without it nothing can be accepted"
	@touch $@

demo: venv
	$(BIN)/proctor demo

serve: venv
	$(BIN)/proctor demo --serve

# Triton and CuTe-DSL compile for sm_90a and sm_100a without a GPU; 300 MB that the demonstration does without.
compilers: $(VENV)/compilers

$(VENV)/compilers: $(VENV)/ready
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt \
	  triton nvidia-cutlass-dsl cuda-bindings nvidia-ml-py
	@touch $@

test: compilers
	$(BIN)/python -m pytest -n $(WORKERS) -q -m 'not alone and not museum'

# What rests on times: whole jobs and the demonstration, with nothing beside them; some ten minutes.
alone: venv
	$(BIN)/python -m pytest -q -m alone

# Whole exams of 156 kernel files: every cheat of the museum, and every honest kernel.
museum: venv
	$(BIN)/python -m pytest -n $(WORKERS) -q -m museum

# So many stories of people, repeated deliveries and failing requests, one request at a time, some four seconds each; from
# 500 on also every two runs that may meet, at each of their calls, some 2,200 points.
STORIES ?= 500
interleavings: venv
	PROCTOR_STORIES=$(STORIES) $(BIN)/python -m pytest -q -o timeout=0 --hypothesis-show-statistics \
	  tests/handlers/test_interleavings.py tests/handlers/test_deliveries.py tests/handlers/test_crossings.py

# Exams of the contracts' own kernels with N different salts, every hidden form of every control; keeps the counts.
N ?= 20
soak: venv
	$(BIN)/proctor contract soak --all --exams $(N) --write

# All that needs a GPU, in one run, kept in reports/: needs the extras [gpu] and [dev] in this environment; an hour.
# Parts: python -m tests.bench.gpu_exam --only tests museum
gpu-exam:
	$(PYTHON) -m tests.bench.gpu_exam

lint: compilers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

check: lint test alone

clean:
	rm -rf $(VENV) demo run .pytest_cache .mypy_cache .ruff_cache *.egg-info
