#!/bin/sh
# All tests, in the order in which a failure is cheapest. `check` stops after lint and types.
set -eu
cd "$(dirname "$0")/.."
bin=.venv/bin

step() { printf '\n== %s\n' "$1"; }

step "lint"
$bin/ruff check .
$bin/ruff format --check .

step "types"
$bin/mypy

step "guest agent: the binary fits its sources"
sh guest-agent/build.sh --check

[ "${1:-}" = check ] && exit 0

# command:package. The end-to-end tests type into tmux; cpio reads what we write; disks are filled
# by root only, since nobody else can mount them.
tools="tmux:tmux cpio:cpio"
[ "$(id -u)" != 0 ] || tools="$tools mkfs.ext4:e2fsprogs"
for tool in $tools; do
    command -v "${tool%:*}" >/dev/null || {
        [ "$(id -u)" = 0 ] && apt-get install -y -q --no-install-recommends "${tool#*:}" ||
            { echo "${tool%:*} is needed for the tests: install ${tool#*:}" >&2; exit 1; }
    }
done

# Two files at a time, those that take longest first: a test on a VM needs one processor.
step "tests: on VMs, in tmux, and unit tests"
exec $bin/python -m pytest -n "${JOBS:-2}" --dist loadfile --no-loadscope-reorder \
    tests/integration tests/e2e tests/unit
