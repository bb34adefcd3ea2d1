#!/bin/sh
# Makes .venv with everything that pyproject.toml names, on a bare machine too. Quick when there is
# nothing to do. Needs no root; as root on Debian and Ubuntu it installs the Python that is missing.
#
#   PYTHON=/path/to/python3   use this interpreter
set -eu
cd "$(dirname "$0")/.."

venv=.venv
stamp=$venv/.bootstrap-stamp
oldest="3, 11"
scratch=

say() { printf 'setup: %s\n' "$*" >&2; }

die() { # message, hint
    printf 'setup: error: %s\n' "$1" >&2
    [ -z "${2:-}" ] || printf 'hint: %s\n' "$2" >&2
    exit 1
}

# Everything that decides what must be in .venv. The path, since scripts in it name it.
fingerprint() {
    cksum < pyproject.toml
    cat "$venv/pyvenv.cfg" 2>/dev/null || true
    pwd -P
}

is_done() {
    [ -x "$venv/bin/python" ] && [ -x "$venv/bin/quicksand-tui" ] && [ -f "$stamp" ] &&
        [ "$(fingerprint)" = "$(cat "$stamp")" ]
}

cleanup() { [ -z "$scratch" ] || rm -rf "$scratch"; }

scratch_dir() {
    [ -n "$scratch" ] || scratch=$(mktemp -d "${TMPDIR:-/tmp}/quicksand-setup.XXXXXX")
}

is_good_python() { "$1" -c "import sys; sys.exit(sys.version_info < ($oldest))" >/dev/null 2>&1; }

find_python() {
    if [ -n "${PYTHON:-}" ]; then
        is_good_python "$PYTHON" || die "PYTHON=$PYTHON is not a Python 3.11 or newer"
        echo "$PYTHON"
        return
    fi
    for name in python3 python3.13 python3.12 python3.11 python3.14; do
        if is_good_python "$name"; then
            # The interpreter itself, not a version manager's shim.
            "$name" -c 'import sys; print(sys.executable)'
            return
        fi
    done
}

can_apt_install() { [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; }

# Output goes to a file, shown only if the command fails.
quietly() { # command...
    scratch_dir
    "$@" >"$scratch/log" 2>&1 || {
        status=$?
        tail -n 15 "$scratch/log" >&2
        return "$status"
    }
}

apt_install() { # packages...
    DEBIAN_FRONTEND=noninteractive
    export DEBIAN_FRONTEND
    # Without lists of packages nothing can be found; with old ones, files are gone from mirrors.
    if [ -z "$(find /var/lib/apt/lists -name '*Packages*' -mtime -7 2>/dev/null | head -n 1)" ]; then
        say "fetching the lists of packages (apt-get update)"
        quietly apt-get update -q || say "apt-get update failed, going on with the lists there are"
    fi
    say "installing $* (apt-get install)"
    quietly apt-get install -y -q --no-install-recommends "$@"
}

# apt's own directories are not writable for a plain user: use private ones.
apt_as_user() {
    mkdir -p "$scratch/apt/lists/partial" "$scratch/apt/archives/partial"
    apt-get -q -o "Dir::State::lists=$scratch/apt/lists" -o "Dir::Cache=$scratch/apt" \
        -o "Dir::Cache::archives=$scratch/apt/archives" "$@"
}

python_from_apt() {
    can_apt_install || return 1
    # Newest first; Ubuntu 22.04 has 3.11 beside its own 3.10, in "universe".
    for package in python3 python3.13 python3.12 python3.11; do
        case $package in
            python3) packages="python3 python3-venv" ;;
            *) packages="$package $package-venv" ;;
        esac
        # shellcheck disable=SC2086 # two words
        apt_install $packages || continue
        python=$(find_python)
        [ -z "$python" ] || return 0
    done
    return 1
}

has_ensurepip() { "$1" -c 'import ensurepip, venv' >/dev/null 2>&1; }

has_venv() { "$1" -c 'import venv' >/dev/null 2>&1; }

minor_version() { "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])'; }

# Debian splits pip off; its wheel is in a package that needs no installation.
find_pip_wheel() {
    scratch_dir
    for wheel in /usr/share/python-wheels/pip-*.whl; do
        if [ -f "$wheel" ]; then
            echo "$wheel"
            return
        fi
    done
    command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || return 0
    (
        cd "$scratch"
        apt-get -q download python3-pip-whl || { apt_as_user update && apt_as_user download python3-pip-whl; }
        dpkg-deb -x python3-pip-whl_*.deb pip
    ) >"$scratch/log" 2>&1 || { tail -n 5 "$scratch/log" >&2; return 0; }
    ls "$scratch"/pip/usr/share/python-wheels/pip-*.whl
}

make_venv() { # python
    rm -rf "$venv"
    say "making $venv with $("$1" --version 2>&1) ($1)"
    if ! has_ensurepip "$1" && can_apt_install; then
        case $1 in
            /usr/bin/*) apt_install "python$(minor_version "$1")-venv" || apt_install python3-venv || true ;;
        esac
    fi
    if has_ensurepip "$1"; then
        quietly "$1" -m venv "$venv" && return
        rm -rf "$venv"
    fi
    has_venv "$1" || die "$1 has no module venv" \
        "install python3-venv, or name another interpreter: PYTHON=/path/to/python3 make setup"
    say "this Python has no pip: fetching one"
    wheel=$(find_pip_wheel)
    [ -n "$wheel" ] || die "no pip for $1 could be found" \
        "install python3-venv (as root: apt-get install python3-venv), or check the network"
    quietly "$1" -m venv --without-pip "$venv"
    quietly "$venv/bin/python" "$wheel/pip" install --no-index --quiet "$wheel" ||
        die "pip cannot be installed into $venv" "install python3-venv"
}

install_packages() {
    say "installing the Python packages that pyproject.toml names (pip)"
    quietly "$venv/bin/python" -m pip install --disable-pip-version-check --no-input --progress-bar off \
        -e '.[dev]' ||
        die "pip could not install the packages" \
            "if this machine is offline, connect it or name a mirror with PIP_INDEX_URL, then try again"
}

if is_done; then
    exit 0
fi
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

python=$(find_python)
if [ -z "$python" ]; then
    say "no Python 3.11 or newer here"
    python_from_apt || die "there is no Python 3.11 or newer" \
        "install one (Debian, Ubuntu: sudo apt-get install python3.11 python3.11-venv), or name one: PYTHON=/path/to/python3 make setup"
fi
rm -f "$stamp"
# What is there is kept if it works: only its packages may have changed.
if ! [ -x "$venv/bin/python" ] || ! is_good_python "$venv/bin/python" ||
    ! "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
    make_venv "$python"
fi
install_packages
# Where Python is told to write no bytecode, every command would compile the package anew.
"$venv/bin/python" -m compileall -q engine smb3 terminal quicksand_tui images extras
fingerprint >"$stamp"
say "Python is ready"
