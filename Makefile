# `make train` and `make test` do all of their own set-up; `make help` lists the rest.

VENV := .venv
PEERS := .venv-peers
PY := $(VENV)/bin/python
PIP := $(PY) -m pip --disable-pip-version-check --no-input -qq
# a module is compiled when it is first imported; all of them would take 45 seconds. Without its bytecode on the disk,
# every process would compile PyTorch again, which takes a second.
INSTALL := install --no-compile
# Python 3.11's own pip takes a minute longer to choose versions; it will do where a newer one cannot be had
NEWER := -m pip --disable-pip-version-check --no-input -qq install --upgrade pip
unexport PYTHONDONTWRITEBYTECODE
TORCH := $(shell sed -n 's/.*"\(torch>[^"]*\)".*/\1/p' pyproject.toml)
COMPARED := $(shell sed -n 's/^peers = \[\(.*\)\]$$/\1/p' pyproject.toml | sed 's|", *"|" "|g')
CLEANRL := cleanrl==1.2.0 gym==0.23.1 gym-notices pygame-ce tensorboard tensorboard-data-server absl-py grpcio \
	markdown protobuf setuptools werkzeug
SAMPLE_FACTORY := sample-factory==2.1.1 gymnasium==0.29.1 numpy==1.26.4 signal-slot-mp faster-fifo ale-py colorlog \
	opencv-python-headless threadpoolctl psutil wandb huggingface-hub tensorboard
VMAS := vmas==1.5.2 gym==0.26.2 gym-notices pyglet==1.5.27 six cloudpickle
# what make test runs; tests/mutants.py reads it here
FAST := not slow and not learn and not fault and not gpu
EXTRAS := dev,site,pandas,mujoco,box2d,atari,video,qd,openspiel,pettingzoo,pettingzoo-atari,football,ray-launcher,gpu,export,optuna
PYTHON ?=
MINUTES ?= 8

# make takes KEY=VALUE for a variable of its own: what no rule here reads was meant for evorl.
READ := ARGS SINCE MINUTES PYTHON VENV PEERS PY PIP TORCH COMPARED EXTRAS SHELL
GIVEN := $(foreach name,$(if $(MAKEOVERRIDES),$(.VARIABLES)),$(if $(filter command,$(origin $(name))),$(name)))
STRAY := $(foreach name,$(filter-out $(READ),$(GIVEN)),$(name)=$($(name)))
$(if $(STRAY),$(error evorl's own words go into ARGS: make $(or $(MAKECMDGOALS),train) ARGS="$(strip $(STRAY) $(ARGS))"))

.PHONY: help train test tests test-all affected mutants setup dist check learn faults compiler games football browser web peers speed site notebooks picture
.DEFAULT_GOAL := help

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 10

train: $(VENV)/.core ## train; ARGS="mdp=cartpole rl=ppo seed=2" chooses what (else mdp=pong rl=ppo)
	@$(PY) -m evorl.run $(or $(ARGS),mdp=pong rl=ppo)

# There is a process for each core, so that a second thread of BLAS would wait for the first.
tests test-all affected: export OMP_NUM_THREADS := 1

# mypy has one core's work to do, so the tests begin beside it. The tests of a file share runs, so they stay together.
test: $(VENV)/.all ## set up, then ruff, mypy, import-linter and the fast tests
	@$(MAKE) --no-print-directory --jobs 2 check tests

tests: $(VENV)/.all
	@$(PY) -m pytest -n 2 --dist loadfile -m "$(FAST)" $(ARGS)

test-all: $(VENV)/.all compiler games web check ## the checks of make test, with the slow tests
	@$(PY) -m pytest -n 2 --dist loadfile -m "not learn and not fault and not gpu" $(ARGS)

# a change is what the last day of work brought, where nothing else is named
SINCE ?= $(shell git rev-list -1 --before="$$(( $$(git log -1 --format=%ct) - 86400 ))" HEAD 2> /dev/null)
affected: $(VENV)/.all ## the slow tests that a change could affect, the nearest first, for at most MINUTES; SINCE=REV
	@$(PY) -m pytest -n 2 -m "slow and not learn and not fault and not gpu" --changed-since "$(SINCE)" --minutes $(MINUTES) $(ARGS) \
		|| test $$? = 5 # no test is affected

setup: $(VENV)/.all ## make .venv with every extra that the tests use

dist: $(VENV)/.all ## build the wheel and the source distribution into dist/
	@$(PY) -m hatchling build

check: $(VENV)/.all ## ruff, mypy and import-linter
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .
	@$(PY) -m mypy
	@$(VENV)/bin/lint-imports

learn: $(VENV)/.all ## the long learning tests
	@$(PY) -m pytest -n 2 -m learn $(ARGS)

faults: $(VENV)/.all compiler games browser web ## the long fault-injection tests
	@$(PY) -m pytest -m fault $(ARGS)

mutants: $(VENV)/.all ## plant defects, which make test must notice; ARGS="replay --jobs 2" chooses files
	@$(PY) tests/mutants.py $(ARGS)

gpu: $(VENV)/.all ## the tests of a machine with a GPU
	@$(PY) -m pytest -m gpu $(ARGS)

# What pip does not bring: root gets it, others are told what is skipped without it.
installed = command -v $(1) > /dev/null \
	|| { test "$$(id -u)" = 0 && { apt-get install -y $(2) || { apt-get update && apt-get install -y $(2); }; } > /dev/null 2>&1; } \
	|| echo "no $(1), so $(3) are skipped: install it (on Debian and Ubuntu: apt install $(2))" >&2

compiler:
	@$(call installed,g++,g++,the tests of rl.compile)

games:
	@$(call installed,node,nodejs,the tests of games in JavaScript)
	@$(call installed,mcs,mono-mcs mono-runtime,the tests of games in C#)
	@$(call installed,godot3-server,godot3-server,the tests of games in GDScript)

football: $(VENV)/.core ## build the engine of mdp=football mdp.engine=gfootball, with its packages of the system
	@scripts/football.sh $(PY)

browser:
	@command -v google-chrome > /dev/null || $(call installed,chromium,chromium,the tests of a report in a browser)

web: ## onnxruntime-web, in which exported policies are tested (needs npm)
	@$(call installed,npm,npm,the tests of exported policies in browsers)
	@! command -v npm > /dev/null || npm ci --prefix tests/inference/web --no-audit --no-fund --ignore-scripts --loglevel error

peers: $(PEERS)/.all ## make .venv-peers, the environment of what the benchmarks compare with

speed: $(VENV)/.all $(PEERS)/.all ## every benchmark of benchmarks/speed, more than half an hour of an idle machine
	@set -e; for name in arena atari atari_learning ppo off_policy learners replay memory elite_sampling shared_replay stacked_actors solve pong floor cluster model report soccer remote matrix act export; do \
		echo "== $$name"; $(PY) benchmarks/speed/$$name.py --out benchmarks/speed/results; done

site: $(VENV)/.all ## make the site of docs/ in build/site
	@$(PY) -m sphinx -q -W --keep-going -a -b html -d build/site_doctrees docs build/site # -a: search finds words of pages that it writes
	@echo build/site/index.html

notebooks: $(VENV)/.all ## execute docs/notebooks in place
	@$(PY) scripts/notebooks.py

picture: $(VENV)/.core ## draw docs/architecture.svg from docs/architecture.dot, and the states of a worker in docs/workers.md
	@$(PY) scripts/worker_states.py
	@command -v dot > /dev/null || { echo "dot is missing: install Graphviz (on Debian and Ubuntu: apt install graphviz)" >&2; exit 1; }
	@dot -Tsvg docs/architecture.dot -o docs/architecture.svg

# Stamps: a later call starts at once, until pyproject.toml asks for something else.
# What evorl needs, and what the first commands of the README need for films and frames.
$(VENV)/.core: pyproject.toml | $(VENV)/bin/pip
	@echo "installing PyTorch into $(VENV) (once; the largest part)"
	@$(PIP) $(INSTALL) '$(TORCH)'
	@echo "installing what evorl needs"
	@$(PIP) $(INSTALL) --editable '.[video,pandas]'
	@touch $@

# One call, which looks for versions and builds evorl once; it brings what .core does.
$(VENV)/.all: pyproject.toml | $(VENV)/bin/pip
	@echo "installing PyTorch and what the tests need into $(VENV) (once)"
	@$(PIP) $(INSTALL) '$(TORCH)' --editable '.[$(EXTRAS)]'
	@touch $(VENV)/.core $@

# evorl itself stays outside, and so does what would slow a peer's start; benchmarks/speed/common.py sets the path.
$(PEERS)/.all: pyproject.toml | $(PEERS)/bin/pip
	@echo "installing the peers into $(PEERS)"
	@$(PEERS)/bin/python -m pip --disable-pip-version-check --no-input -qq install '$(TORCH)' $(COMPARED)
	@$(PEERS)/bin/python -m pip --disable-pip-version-check --no-input -qq install --target $(PEERS)/cleanrl \
		--no-deps --ignore-requires-python $(CLEANRL)
	@$(PEERS)/bin/python -m pip --disable-pip-version-check --no-input -qq install --target $(PEERS)/sample-factory \
		--no-deps $(SAMPLE_FACTORY)
	@$(PEERS)/bin/python -m pip --disable-pip-version-check --no-input -qq install --target $(PEERS)/vmas \
		--no-deps $(VMAS)
	@touch $@

$(VENV)/bin/pip $(PEERS)/bin/pip: %/bin/pip:
	@for python in $(PYTHON) python3.11 python3.12 python3.13 python3; do \
		if $$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2> /dev/null; then \
			echo "making $* with $$($$python --version)"; \
			$$python -m venv $* && exit; \
			echo "$$python has no venv module: install it (on Debian and Ubuntu: apt install python3-venv)" >&2; \
			exit 1; \
		fi; \
	done; \
	echo "evorl needs Python 3.11 or newer, and found none; name one: make $(MAKECMDGOALS) PYTHON=/path/to/python" >&2; \
	exit 1
	-@$*/bin/python $(NEWER)
