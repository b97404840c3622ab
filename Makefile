# `make help` lists the targets. PYTHON is the interpreter that everything is built on; WHEELS, a folder of wheels that
# takes the place of the network; AMBIENT, an interpreter that already holds torch, to measure with as it is. ALL=1
# measures also what environment/targets.toml excludes from this machine's page. CELL names the cells of `make rerun`.
# TARGET is a table of environment/targets.toml; WHEELHOUSE, a folder of wheels that no registry has. `make serve` listens
# at PORT of this machine.
PYTHON ?= python3
NOTEBOOK ?= notebooks/flux.md
WHEELS ?=
AMBIENT ?=
ALL ?=
CELL ?=
TARGET ?=
WHEELHOUSE ?=
PORT ?= 8000

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
.PHONY: help report publish status rerun site serve doctor test check bench setup format screenshots lock wheelhouse clean

help:  ## list the targets
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "make %-12s %s\n", $$1, $$2}'

report: .venv/ready  ## build the Flux page for this machine
	@$(BIN)/fluxbench build $(NOTEBOOK)

publish: .venv/ready  ## build it, and take it into reports/<target>/
	@$(BIN)/fluxbench publish $(NOTEBOOK)

status: .venv/ready  ## list which results hold on this machine as it is now, and what differs for the others
	@$(BIN)/fluxbench status $(NOTEBOOK)

rerun: .venv/ready  ## run CELL=... again with what depends on it, and print what changed
	@$(BIN)/fluxbench rerun $(NOTEBOOK) $(or $(CELL),$(error name a cell: make rerun CELL=sdpa))

site: .venv/ready  ## draw reports/index.html and reports/compare.html from all records there
	@$(BIN)/fluxbench site

serve: site  ## show reports/ at http://127.0.0.1:8000/ until interrupted (PORT=...)
	@$(BIN)/python -m http.server --bind 127.0.0.1 --directory reports $(PORT)

doctor: .venv/ready  ## list what this machine has and lacks, and which variants will run
	@$(BIN)/fluxbench doctor

test: .venv/dev  ## run the tests that need no GPU
	cd shared && ../$(BIN)/python -m pytest -m "not gpu"

check: .venv/dev  ## format, lint, types, import rule and what must agree across files; changes nothing
	$(BIN)/ruff format --check shared && $(BIN)/ruff check shared
	cd shared && ../$(BIN)/mypy && ../$(BIN)/python -m pytest -q tests/test_rooms.py tests/test_contracts.py tests/variants/test_lists.py

bench: .venv/ready  ## print how long `make site` takes, and the command line with nothing to do (after `make report`)
	@$(BIN)/python shared/benchmarks/site_times.py
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

screenshots: .venv/dev  ## take pictures of the published pages into docs/screenshots; needs chromium and chromium-driver
	@cd shared && ../$(BIN)/python tests/screenshots.py ../reports ../docs/screenshots

lock: .venv/ready  ## lock the package sets of environment/locks anew; WHEELHOUSE must hold the wheels that no registry has
	cd $(LOCKS) && for set in uv tools dev torch-2.13.0; do $(COMPILE) --universal --python-version 3.11 $$set.in -o $$set.txt || exit; done
	cd $(LOCKS) && $(COMPILE) --python-version 3.11 torch-2.13.0+cpu.in -o torch-2.13.0+cpu.txt
	cd $(LOCKS) && for set in $(LIBRARIES); do $(COMPILE) $(LIBRARY) $$set.in -o $$set.txt || exit; done
COMPILE := ../../$(BIN)/uv pip compile -q --generate-hashes --no-header --no-annotate
# The libraries whose environments hold a lock of their own on top of torch's, without what that one holds. Of the CuTe DSL
# the parts for CUDA 13 alone: those for 12 have the same files.
LIBRARIES := $(filter-out uv tools dev torch-%,$(patsubst $(LOCKS)/%.in,%,$(wildcard $(LOCKS)/*.in)))
LIBRARY = --python-version 3.12 --python-platform x86_64-manylinux_2_28 --only-binary :all: --constraints torch-2.13.0.txt \
  $(addprefix --find-links ,$(abspath $(WHEELHOUSE))) --no-emit-package nvidia-cutlass-dsl-libs-cu12 \
  $(shell sed -nE 's/^([a-z0-9.-]+)==.*/--no-emit-package \1/p' $(LOCKS)/torch-2.13.0.txt)

wheelhouse:  ## gather in wheels/ what an air-gapped host with Python 3.12 needs besides torch; with TARGET, its libraries too
	libraries=$$($(PYTHON) -c '$(OF_TARGET)' '$(TARGET)') && for set in uv tools $$libraries; do $(DOWNLOAD) -r $(LOCKS)/$$set.txt || exit; done
DOWNLOAD = $(PYTHON) -m pip download -q -d wheels --only-binary=:all: --require-hashes --no-deps --python-version 3.12 \
  $(addprefix --platform manylinux,_2_28_x86_64 _2_27_x86_64 _2_24_x86_64 _2_17_x86_64 2014_x86_64) --platform linux_x86_64 --platform any \
  $(addprefix --find-links ,$(WHEELHOUSE))
OF_TARGET = import sys, tomllib; name = sys.argv[1]; table = tomllib.load(open("environment/targets.toml", "rb")); \
  name in ("", *table) or sys.exit(f"TARGET must be a table of environment/targets.toml, got {name}"); \
  print(*table.get(name, {}).get("libraries", []))

clean:  ## remove what was built; published reports and wheels/ stay
	rm -rf .venv .cache site notebooks/.uvnote
