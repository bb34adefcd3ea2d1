#!/bin/sh
# Builds the agent and puts it where the engine looks for it.
#   build.sh [ARCH…]    for x86_64 and aarch64, or only those that are named
#   build.sh --check    verifies, without building, that all binaries come from these sources
set -eu
export LC_ALL=C
cd "$(dirname "$0")"
. ./cross.sh

ARCHITECTURES="x86_64 aarch64"

# One hash over the sorted (path, sha256) of everything that goes into a binary.
sources_hash() {
    {
        printf '%s\n' Cargo.toml Cargo.lock .cargo/config.toml
        find src -type f
    } | sort | while read -r path; do
        printf '%s %s\n' "$path" "$(sha256sum <"$path" | cut -d' ' -f1)"
    done | sha256sum | cut -d' ' -f1
}

# What SOURCES.sha256 says: the hash of the sources, and that of the binary $1 that came of them.
origin() {
    printf '%s\n%s\n' "$(sources_hash)" "$(sha256sum <"$1" | cut -d' ' -f1)"
}

check() {
    for arch in $ARCHITECTURES; do
        out="prebuilt/$arch"
        if [ ! -f "$out/quicksand-agent" ] ||
            [ "$(origin "$out/quicksand-agent")" != "$(cat "$out/SOURCES.sha256" 2>/dev/null)" ]; then
            echo "guest-agent: $out is not built from these sources; run make agent" >&2
            exit 1
        fi
    done
}

build() (
    arch=$1
    target="$arch-unknown-linux-gnu"
    out="prebuilt/$arch"
    # Only here: tests unwind.
    flags="'-Clink-arg=-Wl,-T,$PWD/src/discard.ld'"
    set --
    if [ "$arch" != "$(uname -m)" ]; then
        get_cross "$arch"
        export RUSTC="$CROSS/usr/bin/rustc" LD_LIBRARY_PATH="$CROSS/usr/lib/$(uname -m)-linux-gnu"
        set -- --config "target.$target.linker='$CROSS/usr/bin/$arch-linux-gnu-gcc'"
    fi
    cargo fetch --locked --target "$target"
    # The binary names no directory of the machine that built it.
    for crates in "${CARGO_HOME:-$HOME/.cargo}"/registry/src/*; do
        flags="$flags, '--remap-path-prefix=$crates=crates'"
    done
    cargo build --release --locked --target "$target" "$@" \
        --config "target.$target.rustflags=[$flags]"
    mkdir -p "$out"
    # Renamed into place: whoever reads meanwhile has the old one or the new one.
    cp "target/$target/release/quicksand-agent" "$out/.new"
    mv "$out/.new" "$out/quicksand-agent"
    origin "$out/quicksand-agent" >"$out/SOURCES.sha256"
    ls -l "$out/quicksand-agent"
)

if [ "${1-}" = --check ]; then
    check
    exit 0
fi
for arch in "$@"; do
    case " $ARCHITECTURES " in
    *" $arch "*) ;;
    *)
        echo "usage: build.sh [--check | ${ARCHITECTURES%% *} | ${ARCHITECTURES##* }]" >&2
        exit 2
        ;;
    esac
done
[ $# -gt 0 ] || set -- $ARCHITECTURES
for arch in "$@"; do
    build "$arch"
done
