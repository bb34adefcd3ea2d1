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

step "types, by two checkers at once"
$bin/basedpyright &
second=$!
$bin/mypy
wait "$second"

step "guest agent: the binary fits its sources"
sh guest-agent/build.sh --check

[ "${1:-}" = check ] && exit 0

step "tools"
$bin/python scripts/tools.py
# Thousands of the tests' programs import them; where Python is told to write no bytecode, each
# would compile anew what has changed since `make setup`.
$bin/python -m compileall -q engine smb3 terminal quicksand_tui images extras

# A test on a VM waits at times, so one worker more than there are processors keeps them busy: two
# for each took no less time, and made guests late. A worker and its test's guests take 2.5 GB.
workers() {
    most=$(($(nproc) + 1))
    room=$(awk '/^MemAvailable:/ { print int($2 / 2500000) }' /proc/meminfo)
    [ "$room" -lt "$most" ] && most=$room
    [ "$most" -lt 2 ] && most=2
    echo "$most"
}

# One file at a time each, in an order that keeps them busy (tests/conftest.py).
step "tests: on VMs, in tmux, and unit tests"
code=0
$bin/python -m pytest -n "${JOBS:-$(workers)}" --dist loadfile --no-loadscope-reorder \
    tests/integration tests/e2e tests/unit || code=$?
[ "$code" -ne 1 ] && exit "$code"

step "what failed, twice more"
exec $bin/python scripts/run_again.py
