#!/bin/sh
# All tests, in the order in which a failure is cheapest. `check` stops after lint and types.
set -eu
cd "$(dirname "$0")/.."
bin=.venv/bin

step() { printf '\n== %s\n' "$1"; }

step "lint"
$bin/ruff check .
$bin/ruff format --check .

step "imports and dependencies"
$bin/lint-imports
$bin/deptry .

step "types"
$bin/mypy

step "guest agent: the binary fits its sources"
sh guest-agent/build.sh --check

[ "${1:-}" = check ] && exit 0

step "tools"
$bin/python scripts/tools.py
# Thousands of the tests' programs import them; where Python is told to write no bytecode, each
# would compile anew what has changed since `make setup`.
$bin/python -m compileall -q engine smb3 quicksand_tui images

# Two files at a time, those that take longest first: a test on a VM needs one processor.
step "tests: on VMs, in tmux, and unit tests"
exec $bin/python -m pytest -n "${JOBS:-2}" --dist loadfile --no-loadscope-reorder \
    tests/integration tests/e2e tests/unit
