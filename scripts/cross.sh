#!/usr/bin/env bash
# hyroads-edge for another processor, as one static program that runs on any Linux (OpenWrt too):
#
#   scripts/cross.sh arm64|armhf|mipsel|amd64          builds it; the last line on stdout is where it is
#   scripts/cross.sh --check arm64|armhf|mipsel|amd64  only checks that it compiles
#
# Two toolchains will do, the first that is there is taken:
#   musl   a standard library for musl in rustc's sysroot (rustup target add aarch64-unknown-linux-musl, ...)
#   glibc  that of Debian's rustc (dpkg --add-architecture arm64; apt-get install rustc cargo libstd-rust-dev:arm64
#          gcc-aarch64-linux-gnu). Name the controller by its address then: static glibc looks no names up.
# RUSTC and CARGO name others than those on the path.
set -euo pipefail
cd "$(dirname "$0")/../dataplane"

check=false
[ "${1:-}" != --check ] || { check=true; shift; }
arch=${1:-}
case "$arch" in
    amd64) triple=x86_64-unknown-linux libc=gnu abi="" gcc=x86_64-linux-gnu ;;
    arm64) triple=aarch64-unknown-linux libc=gnu abi="" gcc=aarch64-linux-gnu ;;
    armhf) triple=armv7-unknown-linux libc=gnu abi=eabihf gcc=arm-linux-gnueabihf ;;
    mipsel) triple=mipsel-unknown-linux libc=gnu abi="" gcc=mipsel-linux-gnu ;;
    *) echo "usage: scripts/cross.sh [--check] arm64|armhf|mipsel|amd64" >&2; exit 2 ;;
esac

rustc=${RUSTC:-rustc}
has_std() { compgen -G "$("$rustc" --print sysroot)/lib/rustlib/$1/lib/libstd-*.rlib" >/dev/null; }
flags="-C target-feature=+crt-static"
if has_std "$triple-musl$abi"; then
    target=$triple-musl$abi
    # Rust brings musl and a linker.
    linker=rust-lld
    flags+=" -C link-self-contained=yes"
elif has_std "$triple-$libc$abi"; then
    target=$triple-$libc$abi
    linker=$gcc-gcc
    $check || command -v "$linker" >/dev/null || { echo "hyroads cross: $linker is missing: apt-get install gcc-$gcc" >&2; exit 3; }
else
    echo "hyroads cross: $rustc has no standard library for $triple-musl$abi or $triple-$libc$abi" >&2
    exit 3
fi
variable=$(printf '%s' "$target" | tr 'a-z-' 'A-Z_')
export "CARGO_TARGET_${variable}_LINKER=$linker" "CARGO_TARGET_${variable}_RUSTFLAGS=$flags"
if $check; then
    "${CARGO:-cargo}" check --release --locked --bin hyroads-edge --target "$target"
    exit
fi
"${CARGO:-cargo}" build --release --locked --bin hyroads-edge --target "$target" >&2
echo "${CARGO_TARGET_DIR:-$PWD/target}/$target/release/hyroads-edge"
