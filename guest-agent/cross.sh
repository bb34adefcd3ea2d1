# Read by build.sh: gets a compiler for another architecture, without root and without installing
# anything. It needs apt and Debian's keys (Debian, or debian-archive-keyring elsewhere).
#
# rustup has the standard library for other targets, but Debian has it as well, for a compiler of
# exactly the same version: a package that is built for every architecture. So packages of Debian
# are unpacked into one directory: its rustc for this machine, its standard library for this machine
# (build scripts and macros) and for the other one, gcc as the linker, and a C library to link in.
# Nothing of the other architecture is run.

CROSS="$PWD/target/cross"
CROSS_SUITE=bookworm
# rustc-web is the compiler that Debian builds its browsers with: a current one in an old release,
# which thus runs on hosts that are older than the newest.
CROSS_RUST="rustc-web libstd-rust-web-dev"
# The libraries that Debian's rustc and its LLVM need, besides those that every host has.
CROSS_LIBRARIES="libxml2 libicu72 libz3-4 libedit2 libbsd0 libmd0 libtinfo6 libffi8"

# Fill $CROSS with what compiles for the architecture $1 (as uname -m says it).
get_cross() {
    case $1 in
    aarch64) other=arm64 ;;
    x86_64) other=amd64 ;;
    esac
    case $(uname -m) in
    aarch64) ours=arm64 ;;
    *) ours=amd64 ;;
    esac
    [ ! -f "$CROSS/for-$1" ] || return 0
    command -v apt-get >/dev/null || {
        echo "guest-agent: building for $1 on $(uname -m) needs apt (Debian or Ubuntu)" >&2
        exit 1
    }
    rm -rf "$CROSS.new"
    mkdir -p "$CROSS.new/apt/lists/partial" "$CROSS.new/apt/archives/partial" "$CROSS.new/debs"
    : >"$CROSS.new/apt/status"
    keys=/usr/share/keyrings/debian-archive-keyring.gpg
    cat >"$CROSS.new/apt/sources.list" <<EOF
deb [signed-by=$keys] http://deb.debian.org/debian $CROSS_SUITE main
deb [signed-by=$keys] http://deb.debian.org/debian-security $CROSS_SUITE-security main
EOF
    cat >"$CROSS.new/apt/apt.conf" <<EOF
Dir::Etc::sourcelist "$CROSS.new/apt/sources.list";
Dir::Etc::sourceparts "/nonexistent";
Dir::State "$CROSS.new/apt";
Dir::State::lists "$CROSS.new/apt/lists";
Dir::State::status "$CROSS.new/apt/status";
Dir::Cache "$CROSS.new/apt";
APT::Architecture "$ours";
APT::Architectures { "$ours"; "$other"; };
APT::Sandbox::User "root";
Acquire::Languages "none";
Debug::NoLocking "true";
EOF
    # libstd-rust-web-1.96, libllvm22: their names change with each version.
    (
        export APT_CONFIG="$CROSS.new/apt/apt.conf"
        apt-get -q --error-on=any update
        depends() { apt-cache depends --important "$1" | sed -n "s/^ *Depends: \($2[^ :]*\).*/\1/p"; }
        std=$(depends libstd-rust-web-dev libstd-rust-web-)
        dash=$(echo "$1" | tr _ -)
        gcc=$(depends "gcc-$dash-linux-gnu" 'gcc-[0-9]*-')
        version=$(echo "$gcc" | cut -d- -f2)
        cd "$CROSS.new/debs"
        apt-get -q download $CROSS_RUST "libstd-rust-web-dev:$other" "$std" "$(depends "$std" libllvm)" \
            $CROSS_LIBRARIES "gcc-$dash-linux-gnu" "$gcc" "cpp-$version-$dash-linux-gnu" \
            "binutils-$dash-linux-gnu" "libgcc-$version-dev-$other-cross" \
            "libc6-dev-$other-cross" "libc6-$other-cross" "libgcc-s1-$other-cross"
    )
    for package in "$CROSS.new/debs"/*.deb; do
        dpkg-deb -x "$package" "$CROSS.new"
    done
    rm -rf "$CROSS.new/debs" "$CROSS.new/apt" "$CROSS"
    : >"$CROSS.new/for-$1"
    mv "$CROSS.new" "$CROSS"
}
