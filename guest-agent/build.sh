#!/bin/sh
# Builds the agent and puts it where the engine looks for it.
# --check: verifies, without building, that the binary there comes from these sources.
set -eu
export LC_ALL=C
cd "$(dirname "$0")"

arch=$(uname -m)
target="$arch-unknown-linux-gnu"
out="prebuilt/$arch"

# One hash over the sorted (path, sha256) of everything that goes into the binary.
sources_hash() {
    {
        printf '%s\n' Cargo.toml Cargo.lock .cargo/config.toml
        find src -type f
    } | sort | while read -r path; do
        printf '%s %s\n' "$path" "$(sha256sum <"$path" | cut -d' ' -f1)"
    done | sha256sum | cut -d' ' -f1
}

case "${1-}" in
--check)
    if [ ! -f "$out/quicksand-agent" ] || [ "$(sources_hash)" != "$(cat "$out/SOURCES.sha256" 2>/dev/null)" ]; then
        echo "guest-agent: $out is not built from these sources; run guest-agent/build.sh" >&2
        exit 1
    fi
    exit 0
    ;;
"") ;;
*)
    echo "usage: build.sh [--check]" >&2
    exit 2
    ;;
esac

# Only here: tests unwind.
flags="'-Clink-arg=-Wl,-T,$PWD/src/discard.ld'"
cargo fetch --locked --target "$target"
# The binary names no directory of the machine that built it.
for crates in "${CARGO_HOME:-$HOME/.cargo}"/registry/src/*; do
    flags="$flags, '--remap-path-prefix=$crates=crates'"
done
cargo build --release --locked --target "$target" --config "target.$target.rustflags=[$flags]"
mkdir -p "$out"
# Renamed into place: whoever reads meanwhile has the old one or the new one.
cp "target/$target/release/quicksand-agent" "$out/.new"
mv "$out/.new" "$out/quicksand-agent"
sources_hash >"$out/SOURCES.sha256"
ls -l "$out/quicksand-agent"
