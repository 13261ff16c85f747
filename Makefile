# What a developer runs; each target first makes .venv, from nothing, when it is missing or out of date.
PYTHON ?= python3
TORCH ?= 2.13.0
WORKERS ?= 2

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

# Torch's own threads would fight the test workers for the cores.
test lint: export OMP_NUM_THREADS = 1

# What touches torch's insides: `make test-torch TORCH=2.14.1` tests it there, in its own venv.
INTEGRATION := $(patsubst %,tests/test_%.py,aten cache capture check cli compile decode encode \
	features inductor inductor_rules inductor_table layers optimize partition regions replacement)

.PHONY: demo test test-torch lint format clean
.DELETE_ON_ERROR:

demo: $(READY)
	$(BIN)/python benchmarks/demo.py

test: $(READY)
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal $(TESTS) $(ARGS)

test-torch:
	$(MAKE) --no-print-directory test VENV=.venv-torch-$(TORCH) TESTS='$(INTEGRATION)'

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) .venv-torch-* .pytest_cache .ruff_cache .hypothesis build dist

# Torch comes first and by itself: any later step then finds its requirement met.
$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "eqsat needs Python 3.11 or newer; name one: make PYTHON=python3.12" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet torch==$(TORCH)
	$(BIN)/python -m pip install --quiet -e '.[dev]'
	touch $@
