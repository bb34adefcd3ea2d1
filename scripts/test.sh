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

# Unit tests need one processor, tests on VMs seldom both: so they run beside each other.
step "tests: on VMs and in tmux; unit tests beside them"
said=$(mktemp)
$bin/python -m pytest tests/unit >"$said" 2>&1 &
unit=$!
trap 'kill "$unit" 2>/dev/null || :; rm -f "$said"' EXIT
failed=0
$bin/python -m pytest tests/integration tests/e2e || failed=1
step "unit tests"
wait "$unit" || failed=1
cat "$said"
exit "$failed"
