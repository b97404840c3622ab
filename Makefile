# `make help` lists the targets. PYTHON is the interpreter that everything is built on; WHEELS, a folder of wheels that
# takes the place of the network; AMBIENT, an interpreter that already holds torch, to measure with as it is. ALL=1
# measures also what environment/targets.toml leaves out of this machine's page. CELL names the cells of `make rerun`.
PYTHON ?= python3
NOTEBOOK ?= notebooks/flux.md
WHEELS ?=
AMBIENT ?=
ALL ?=
CELL ?=

LOCKS := environment/locks
BIN := .venv/bin
PYTAG := $(shell $(PYTHON) -c 'import sys; print("cp%d%d" % sys.version_info[:2])')
# uv does not look where pip is told to; carry it over, so that an offered CPU build of torch is taken.
export UV_FIND_LINKS ?= $(or $(WHEELS),$(subst $() ,$(shell printf ,),$(strip $(PIP_FIND_LINKS))))
export FLUXBENCH_PYTHON ?= $(if $(AMBIENT),$(shell command -v $(AMBIENT)))
export FLUXBENCH_ALL ?= $(ALL)
export FLUXBENCH_WHEELS ?= $(abspath $(WHEELS))
CPU_TORCH := $(wildcard $(addsuffix /torch-2.13.0+cpu-$(PYTAG)-*.whl,$(PIP_FIND_LINKS)))
TORCH_LOCK := $(LOCKS)/torch-2.13.0$(if $(CPU_TORCH),+cpu).txt
ifneq ($(WHEELS),)
export UV_NO_INDEX := 1
export UV_OFFLINE := 1
OFFLINE := --no-index --find-links $(WHEELS)
endif

.DEFAULT_GOAL := help
.PHONY: help report publish status rerun doctor test check bench setup format lock wheelhouse clean

help:  ## list the targets
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "make %-12s %s\n", $$1, $$2}'

report: .venv/ready  ## build the Flux page for this machine and say where it is
	@$(BIN)/fluxbench build $(NOTEBOOK)

publish: .venv/ready  ## build it, and take it into reports/<target>/
	@$(BIN)/fluxbench publish $(NOTEBOOK)

status: .venv/ready  ## say which results hold on this machine as it is now, and what differs for the others
	@$(BIN)/fluxbench status $(NOTEBOOK)

rerun: .venv/ready  ## run CELL=... again with what depends on it, and say what changed
	@$(BIN)/fluxbench rerun $(NOTEBOOK) $(or $(CELL),$(error name a cell: make rerun CELL=sdpa))

doctor: .venv/ready  ## say what this machine has and lacks, and which variants will run
	@$(BIN)/fluxbench doctor

test: .venv/dev  ## run the tests that need no GPU
	cd shared && ../$(BIN)/python -m pytest -m "not gpu"

check: .venv/dev  ## format, lint, types, import table and notebook lists; changes nothing
	$(BIN)/ruff format --check shared && $(BIN)/ruff check shared
	cd shared && ../$(BIN)/mypy && ../$(BIN)/python -m pytest -q tests/test_imports.py tests/test_lists.py

bench: .venv/ready  ## print how long the command line takes with nothing to do (after `make report`)
	@$(BIN)/python shared/benchmarks/command_times.py $(NOTEBOOK)

setup: .venv/ready  ## install the pinned uv, uvnote and fluxbench into .venv

.venv/ready: $(LOCKS)/uv.txt $(LOCKS)/tools.txt shared/pyproject.toml
	$(PYTHON) -m venv --clear --without-pip .venv
	$(PYTHON) -m pip -q --python $(BIN)/python install $(OFFLINE) --require-hashes -r $(LOCKS)/uv.txt
	$(BIN)/uv pip install -q --compile-bytecode --python $(BIN)/python --require-hashes -r $(LOCKS)/tools.txt
	$(BIN)/uv pip install -q --python $(BIN)/python --no-deps --editable shared && touch $@

.venv/dev: .venv/ready $(LOCKS)/dev.txt $(TORCH_LOCK)
	$(BIN)/uv pip install -q --python $(BIN)/python --require-hashes -r $(LOCKS)/dev.txt
	$(BIN)/uv pip install -q --python $(BIN)/python --require-hashes -r $(TORCH_LOCK) && touch $@

format:  ## rewrite the sources in the house format
	$(BIN)/ruff format shared && $(BIN)/ruff check --fix shared

lock: .venv/ready  ## lock the package sets of environment/locks anew
	cd $(LOCKS) && for set in uv tools dev torch-2.13.0; do ../../$(BIN)/uv pip compile -q --universal $(COMPILE) $$set.in -o $$set.txt; done
	cd $(LOCKS) && ../../$(BIN)/uv pip compile -q $(COMPILE) torch-2.13.0+cpu.in -o torch-2.13.0+cpu.txt
COMPILE := --generate-hashes --python-version 3.11 --no-header --no-annotate

wheelhouse:  ## gather in wheels/ what an air-gapped host with Python 3.12 needs besides torch
	$(PYTHON) -m pip download -q -d wheels --only-binary=:all: --require-hashes --no-deps --python-version 3.12 \
	  $(addprefix --platform manylinux,_2_28_x86_64 _2_27_x86_64 _2_24_x86_64 _2_17_x86_64 2014_x86_64) --platform any \
	  -r $(LOCKS)/uv.txt -r $(LOCKS)/tools.txt

clean:  ## remove what was built; published reports and wheels/ stay
	rm -rf .venv .cache site notebooks/.uvnote
