#!/usr/bin/env bash
# The Rust programs for another processor, as static programs that run on any Linux (OpenWrt too):
#
#   scripts/cross.sh arm64|armhf|mipsel|amd64 [PROGRAM...]  builds all or these; prints each program's file
#   scripts/cross.sh --check arm64|armhf|mipsel|amd64       only checks that hyroads-edge compiles
#   scripts/cross.sh --fetch                                gets a toolchain for all four; prints its folder
#
# A static program has no TLS, which comes from the OpenSSL that a dynamic program loads.
#
# Three toolchains will do, the first that is there is taken:
#   musl    a standard library for musl in rustc's sysroot (rustup target add aarch64-unknown-linux-musl, ...)
#   source  the standard library's source in rustc's sysroot (rustup component add rust-src), and zig, which brings musl
#           and a linker (pip install ziglang); or what --fetch has brought
#   glibc   that of Debian's rustc (dpkg --add-architecture arm64; apt-get install rustc cargo libstd-rust-dev:arm64
#           gcc-aarch64-linux-gnu). Name the controller by its address then: static glibc looks no names up.
# RUSTC, CARGO and ZIG name others than those on the path; ZIG may have several words.
#
# --fetch takes Debian 12's rustc-web, cargo-web and rust-web-src, ziglang of PyPI, and QEMU's emulators of the three
# foreign processors: 310 MB, which become 960 MB in ~/.cache/hyroads/cross. Nothing is installed.
set -euo pipefail
cd "$(dirname "$0")/../dataplane"

cache=${XDG_CACHE_HOME:-$HOME/.cache}/hyroads/cross
# The version that was tried, and the wheels for x86_64 and aarch64.
ZIGLANG="ziglang==0.17.1
    --hash=sha256:ea6cc5d87b033cf0aedfbc8f9549a908cae6c50ac31f1698188fa48a74524b54
    --hash=sha256:b7c5f02fccd40f89b999ee16a1f5ddced56e6182370f8affe494bcf8a28cf07e"

fail() { printf 'hyroads cross: %s\n' "$*" >&2; exit 3; }

# Debian's packages and zig into the cache. An attempt that ends early leaves nothing there.
fetch() {
    { command -v apt-get && command -v dpkg; } >/dev/null || fail "--fetch expects apt-get and dpkg"
    mkdir -p "$cache"
    exec 9>"$cache/lock"
    flock 9
    [ ! -e "$cache/files/complete" ] || return 0
    local work names file
    work=$(mktemp -d -p "$cache")
    # shellcheck disable=SC2064  # the folder of now
    trap "rm -rf '$work'" EXIT
    # The package lists of a fresh machine are empty.
    [ -n "$(apt-cache madison rustc-web 2>/dev/null)" ] || apt-get update -qq
    # With the libraries that are not installed; apt says which without doing it.
    names=$(apt-get install -s -qq --no-install-recommends rustc-web cargo-web rust-web-src 2>/dev/null | awk '/^Inst/ {print $2}')
    [ -n "$names" ] || fail "apt has no rustc-web, cargo-web and rust-web-src (Debian 12 has): use rustup, see above"
    # shellcheck disable=SC2086  # a list of names
    (cd "$work" && apt-get download -qq $names qemu-user-static 2>"$work/said") || fail "apt-get download: $(tail -n 1 "$work/said")"
    mkdir "$work/files"
    for file in "$work"/*.deb; do
        case $file in
            # Large packages of which little is used.
            */rust-web-src_*) unpack_part "$file" './usr/lib/rustlib/src/*' './usr/src/rustc-*/library/*' ;;
            */qemu-user-static_*) unpack_part "$file" ./usr/bin/qemu-{aarch64,arm,mipsel}-static ;;
            *) dpkg -x "$file" "$work/files" ;;
        esac
    done
    # shellcheck disable=SC2086  # on one line
    echo $ZIGLANG >"$work/zig.txt"
    python3 -m pip --disable-pip-version-check install -q --root-user-action ignore --require-hashes --no-deps \
        --target "$work/files/zig" -r "$work/zig.txt"
    touch "$work/files/complete"
    rm -rf "$cache/files"
    mv "$work/files" "$cache/files"
}
unpack_part() { dpkg-deb --fsys-tarfile "$1" | tar -x -C "$work/files" --wildcards "${@:2}"; }

if [ "${1:-}" = --fetch ]; then
    fetch >&2
    echo "$cache/files"
    exit
fi
check=false
[ "${1:-}" != --check ] || { check=true; shift; }
arch=${1:-}
programs=("${@:2}")
[ "${#programs[@]}" -gt 0 ] || programs=(hyroads-edge hyroads-client hyroads-medium hyroads-modem)
case "$arch" in
    amd64) triple=x86_64-unknown-linux abi="" gcc=x86_64-linux-gnu zig=x86_64-linux-musl ;;
    arm64) triple=aarch64-unknown-linux abi="" gcc=aarch64-linux-gnu zig=aarch64-linux-musl ;;
    armhf) triple=armv7-unknown-linux abi=eabihf gcc=arm-linux-gnueabihf zig=arm-linux-musleabihf ;;
    # rustc's musl target makes no code for a floating-point unit, which most MIPS routers lack.
    mipsel) triple=mipsel-unknown-linux abi="" gcc=mipsel-linux-gnu zig=mipsel-linux-musleabi ;;
    *) echo "usage: scripts/cross.sh --fetch | [--check] arm64|armhf|mipsel|amd64 [PROGRAM...]" >&2; exit 2 ;;
esac
target=$triple-musl$abi

rustc=${RUSTC:-rustc} cargo=${CARGO:-cargo} sysroot=""
has_std() { compgen -G "$sysroot/lib/rustlib/$1/lib/libstd-*.rlib" >/dev/null; }
has_source() { [ -e "$sysroot/lib/rustlib/src/rust/library/Cargo.toml" ]; }
find_zig() {
    [ -z "${ZIG:-}" ] || { echo "$ZIG"; return; }
    command -v zig && return
    local python
    for python in ../.venv/bin/python python3; do
        "$python" -c 'import ziglang' 2>/dev/null && { echo "$(command -v "$python") -m ziglang"; return; }
    done
    [ -x "$cache/files/zig/ziglang/zig" ] && echo "$cache/files/zig/ziglang/zig"
}
use_fetched() {
    [ -e "$cache/files/complete" ] || return 1
    # Its libraries are where the system does not look for them.
    LD_LIBRARY_PATH=$(echo "$cache"/files/usr/lib/*-linux-gnu)
    export LD_LIBRARY_PATH
    export RUSTC=$cache/files/usr/bin/rustc
    rustc=$RUSTC cargo=$cache/files/usr/bin/cargo sysroot=$cache/files/usr
}

! command -v "$rustc" >/dev/null || sysroot=$("$rustc" --print sysroot)
found=$(find_zig) || found=""
if [ -z "${RUSTC:-}" ] && ! has_std "$target" && { [ -z "$found" ] || ! has_source; }; then use_fetched || true; fi

flags="-C target-feature=+crt-static -C strip=symbols"
more=()
if has_std "$target"; then
    # Rust brings musl and a linker.
    linker=rust-lld
    flags+=" -C link-self-contained=yes"
elif [ -n "$found" ] && has_source; then
    # rustc names libgcc's unwinder, in whose place zig has LLVM's; and gcc's names of processors are not zig's.
    linker=${CARGO_TARGET_DIR:-$PWD/target}/$target/zig-cc
    mkdir -p "$(dirname "$linker")"
    cat >"$linker" <<END
#!/usr/bin/env bash
words=()
for word; do
    case \$word in
        -lgcc_s | -lgcc_eh) words+=(-lunwind) ;;
        -lgcc | --target=* | -m32) ;;
        *) words+=("\$word") ;;
    esac
done
exec $found cc -target $zig "\${words[@]}"
END
    chmod +x "$linker"
    flags+=" -C link-self-contained=no -C relocation-model=static"
    # The switch -Z of a stable compiler.
    export RUSTC_BOOTSTRAP=1
    more=(-Z "build-std=std,panic_unwind")
elif has_std "$triple-gnu$abi"; then
    target=$triple-gnu$abi
    linker=$gcc-gcc
    $check || command -v "$linker" >/dev/null || fail "$linker is missing: apt-get install gcc-$gcc"
else
    fail "$rustc has no standard library for $triple-musl$abi or $triple-gnu$abi, nor its source and zig: scripts/cross.sh --fetch"
fi
variable=$(printf '%s' "$target" | tr 'a-z-' 'A-Z_')
export "CARGO_TARGET_${variable}_LINKER=$linker" "CARGO_TARGET_${variable}_RUSTFLAGS=$flags"
if $check; then
    "$cargo" check --release --locked --bin hyroads-edge --target "$target" "${more[@]}"
    exit
fi
"$cargo" build --release --locked "${programs[@]/#/--bin=}" --target "$target" "${more[@]}" >&2
printf '%s\n' "${programs[@]/#/${CARGO_TARGET_DIR:-$PWD/target}/$target/release/}"
