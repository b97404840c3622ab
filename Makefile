# `make help` lists the targets. Variables:
# PYTHON      the interpreter of .venv
# WHEELS      a folder of wheels to use instead of the network
# AMBIENT     an interpreter with torch, to measure with as it is
# TORCH       another locked torch to measure with; `make wheelhouse`: a torch to gather too
# ALL=1       measure also what environment/targets.toml excludes from this machine's page; `make wheelhouse`: the libraries too
# LIMIT       seconds that a build may take: it stops measuring in time to draw the page
# PROCESSES   fresh processes of each variant, if more than usual: smaller changes are found
# CELL        the cells of `make rerun`
# WHEELHOUSE  a folder with the wheels that no registry has
# PORT        the port of `make serve`
PYTHON ?= python3
NOTEBOOK ?= notebooks/flux.md
WHEELS ?=
AMBIENT ?=
TORCH ?=
ALL ?=
CELL ?=
LIMIT ?=
PROCESSES ?=
WHEELHOUSE ?=
PORT ?= 8000

define LINE_END


endef
ifneq ($(findstring $(LINE_END),$(CURDIR)),)
$(error The path of this clone must be one line, since scripts and .pth files name it; move it to another folder)
endif

LOCKS := environment/locks
BIN := .venv/bin
PYTAG := $(shell $(PYTHON) -c 'import sys; print("cp%d%d" % sys.version_info[:2])')
# uv ignores PIP_FIND_LINKS; pass it on, so that uv finds a CPU build of torch there.
export UV_FIND_LINKS ?= $(or $(WHEELS),$(subst $() ,$(shell printf ,),$(strip $(PIP_FIND_LINKS))))
ifneq ($(AMBIENT),)
export FLUXBENCH_PYTHON := $(or $(abspath $(shell command -v $(AMBIENT))),$(error \
  AMBIENT must be an interpreter, got '$(AMBIENT)', which is not there; name one on PATH, or its path))
endif
export FLUXBENCH_TORCH ?= $(TORCH)
export FLUXBENCH_ALL ?= $(ALL)
export FLUXBENCH_LIMIT_S ?= $(LIMIT)
export FLUXBENCH_PROCESSES ?= $(PROCESSES)
export FLUXBENCH_WHEELS ?= $(abspath $(WHEELS))
CPU_TORCH := $(wildcard $(addsuffix /torch-2.13.0+cpu-$(PYTAG)-*.whl,$(PIP_FIND_LINKS)))
TORCH_LOCK := $(LOCKS)/torch-2.13.0$(if $(CPU_TORCH),+cpu).txt
# Without bytecode every process compiles what it imports anew: several seconds for torch.
unexport PYTHONDONTWRITEBYTECODE
ifneq ($(WHEELS),)
export UV_NO_INDEX := 1
export UV_OFFLINE := 1
OFFLINE := --no-index --find-links $(WHEELS)
endif

.DEFAULT_GOAL := help
.PHONY: help report publish status rerun site serve doctor test seeds check bench simulate setup kernels format screenshots lock wheelhouse clean

help:  ## list the targets
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "make %-12s %s\n", $$1, $$2}'

report: .venv/ready  ## build the Flux page for this machine
	@$(BIN)/fluxbench build $(NOTEBOOK)

publish: .venv/ready  ## build the page, and copy it with its records into reports/<target>/
	@$(BIN)/fluxbench publish $(NOTEBOOK)

status: .venv/ready  ## list which results are fresh on this machine, and why the others are not
	@$(BIN)/fluxbench status $(NOTEBOOK); code=$$?; [ $$code = 1 ] || exit $$code  # 1: a cell is not fresh

rerun: .venv/ready  ## run CELL=... and the cells that depend on it, and print what changed
	@$(BIN)/fluxbench rerun $(NOTEBOOK) $(or $(CELL),$(error name a cell: make rerun CELL=sdpa))

site: .venv/ready  ## draw reports/index.html and reports/compare.html from the records there
	@$(BIN)/fluxbench site

serve: site  ## show reports/ at http://127.0.0.1:8000/ until interrupted (PORT=...)
	@$(BIN)/fluxbench serve --port $(PORT)

doctor: .venv/ready  ## list what this machine has and lacks, and which variants will run; all details with NOTEBOOK=...
	@$(BIN)/fluxbench doctor $(if $(filter file,$(origin NOTEBOOK)),,$(NOTEBOOK)); code=$$?; [ $$code = 1 ] || exit $$code  # 1: something is lacking

test: .venv/dev  ## run the tests that need no GPU
	cd shared && ../$(BIN)/python -m pytest -m "not gpu and not alone" -n 2 --dist loadfile --no-loadscope-reorder
	cd shared && ../$(BIN)/python -m pytest -m "alone and not gpu"

seeds: .venv/dev  ## judge right but odd kernels on 200 seeds; takes half an hour
	cd shared && SEEDS=200 ../$(BIN)/python -m pytest -q -n 2 tests/correctness/test_odd_kernels.py

check: .venv/dev  ## check format, lint, types, the import rule, wording and what must agree across files; changes nothing
	$(BIN)/ruff format --check shared && $(BIN)/ruff check shared
	cd shared && ../$(BIN)/mypy && ../$(BIN)/python -m pytest -q tests/test_rooms.py tests/test_contracts.py tests/test_words.py tests/environments/test_locks.py

bench: .venv/ready  ## print where the last page's time went (after `make report`)
	@$(BIN)/python shared/benchmarks/page_times.py $(NOTEBOOK)

simulate: .venv/ready  ## print how often the verdicts on a whole page are right, by simulation with the published spreads
	@$(BIN)/python shared/benchmarks/verdicts.py

setup:  ## install the pinned uv, uvnote and fluxbench into .venv, again where parts of it are missing
	@[ ! -e .venv/ready ] || { $(BIN)/python -I $(INSTALLED) $(LOCKS)/uv.txt $(LOCKS)/tools.txt && $(BIN)/fluxbench --help > /dev/null; } || mv .venv/ready .venv/broken
	@$(MAKE) --no-print-directory .venv/ready
INSTALLED := shared/src/fluxbench/environments/installed.py
# A file that is cut in place is cut in uv's cache too, whose files are linked.
ANEW = $(if $(wildcard .venv/broken),--no-cache)

.venv/ready: $(LOCKS)/uv.txt $(LOCKS)/tools.txt shared/pyproject.toml
	$(PYTHON) -m venv --clear --without-pip .venv
	$(PYTHON) -m pip -q --python $(BIN)/python install $(OFFLINE) --require-hashes -r $(LOCKS)/uv.txt
	$(BIN)/uv pip install -q $(ANEW) --python $(BIN)/python --require-hashes -r $(LOCKS)/tools.txt
	$(BIN)/uv pip install -q --python $(BIN)/python --no-deps --editable shared && touch $@

.venv/dev: .venv/ready $(LOCKS)/dev.txt $(TORCH_LOCK)
	$(BIN)/uv pip install -q --python $(BIN)/python --require-hashes -r $(LOCKS)/dev.txt
	$(BIN)/uv pip install -q --python $(BIN)/python --require-hashes -r $(TORCH_LOCK) && touch $@

kernels: .venv/ready  ## write our Triton attention as a repository of Hugging Face kernels into build/fluxbench-attention
	@$(BIN)/python -m fluxbench.kernels.package build/fluxbench-attention

format:  ## rewrite the sources in the house format
	$(BIN)/ruff format shared && $(BIN)/ruff check --fix shared

screenshots: .venv/dev  ## take pictures of the published pages into docs/screenshots; needs chromium and chromium-driver
	@cd shared && ../$(BIN)/python tests/screenshots.py ../reports ../docs/screenshots

lock: .venv/ready  ## update environment/locks; WHEELHOUSE must hold the wheels that no registry has
	cd $(LOCKS) && for set in uv tools dev $(TORCHES:%=torch-%); do $(COMPILE) --universal --python-version 3.11 $$set.in -o $$set.txt || exit; done
	cd $(LOCKS) && $(COMPILE) --python-version 3.11 torch-2.13.0+cpu.in -o torch-2.13.0+cpu.txt
	cd $(LOCKS) && for set in $(LIBRARIES); do torch=2.13.0; $(COMPILE) $(LIBRARY) $$set.in -o $$set.txt || exit; \
	  for torch in $(TORCHES); do $(COMPILE) $(LIBRARY) --constraints $$set.txt $$set.in | cmp - $$set.txt || exit; done; done
COMPILE := ../../$(BIN)/uv pip compile -q --generate-hashes --no-header --no-annotate
TORCHES := $(filter-out %+cpu,$(patsubst $(LOCKS)/torch-%.in,%,$(wildcard $(LOCKS)/torch-*.in)))
# Each of these libraries has a lock on top of torch's, without the packages of torch's; it must be the same on each torch. The
# CuTe DSL's parts for CUDA 12 are excluded: they have the same files as those for CUDA 13. So is cuda-python: since 13.0 it has
# no files of its own, no version allows the cuda-bindings of torch 2.13, and 12.6, which does, writes over them.
LIBRARIES := $(filter-out uv tools dev torch-%,$(patsubst $(LOCKS)/%.in,%,$(wildcard $(LOCKS)/*.in)))
LIBRARY = --python-version 3.12 --python-platform x86_64-manylinux_2_28 --only-binary :all: --constraints torch-$$torch.txt \
  $(addprefix --find-links ,$(abspath $(WHEELHOUSE))) --no-emit-package nvidia-cutlass-dsl-libs-cu12 --no-emit-package cuda-python \
  $$(sed -nE 's/^([a-z0-9.-]+)==.*/--no-emit-package \1/p' torch-$$torch.txt)

wheelhouse: .venv/ready  ## download into wheels/ what an air-gapped host with Python 3.12 needs; with TORCH=version this torch too, with ALL=1 the libraries
	for set in uv tools $(TORCH:%=torch-%) $(if $(ALL),$(LIBRARIES)); do $(BIN)/python $(WHEELHOUSE_PY) $(LOCKS)/$$set.txt > .venv/wheelhouse.txt && $(DOWNLOAD) || exit; done
WHEELHOUSE_PY := shared/src/fluxbench/environments/wheelhouse.py
# NVIDIA's wheels name many an old glibc.
DOWNLOAD = $(PYTHON) -m pip download -q -d wheels --only-binary=:all: --require-hashes --no-deps --python-version 3.12 \
  $(patsubst %,--platform manylinux_2_%_x86_64,$(shell seq 28 -1 5)) --platform manylinux2014_x86_64 --platform linux_x86_64 --platform any \
  $(addprefix --find-links ,$(WHEELHOUSE)) -r .venv/wheelhouse.txt

clean:  ## remove everything built; keep published reports and wheels/
	rm -rf .venv .cache site notebooks/.uvnote
