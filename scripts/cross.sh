#!/usr/bin/env bash
# The Rust programs for another processor, as static programs that run on any Linux (OpenWrt too):
#
#   scripts/cross.sh arm64|armhf|mipsel|amd64 [PROGRAM...]  builds all or these; prints each program's file
#   scripts/cross.sh --check arm64|armhf|mipsel|amd64       only checks that hyroads-edge compiles
#
# Three toolchains will do, the first that is there is taken:
#   musl    a standard library for musl in rustc's sysroot (rustup target add aarch64-unknown-linux-musl, ...)
#   source  the standard library's source in rustc's sysroot (rustup component add rust-src; Debian: rustc-web, cargo-web
#           and rust-web-src), and zig, which brings musl and a linker (pip install ziglang)
#   glibc   that of Debian's rustc (dpkg --add-architecture arm64; apt-get install rustc cargo libstd-rust-dev:arm64
#           gcc-aarch64-linux-gnu). Name the controller by its address then: static glibc looks no names up.
# RUSTC, CARGO and ZIG name others than those on the path; ZIG may have several words.
set -euo pipefail
cd "$(dirname "$0")/../dataplane"

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
    *) echo "usage: scripts/cross.sh [--check] arm64|armhf|mipsel|amd64 [PROGRAM...]" >&2; exit 2 ;;
esac

rustc=${RUSTC:-rustc}
sysroot=$("$rustc" --print sysroot)
has_std() { compgen -G "$sysroot/lib/rustlib/$1/lib/libstd-*.rlib" >/dev/null; }
find_zig() {
    [ -z "${ZIG:-}" ] || { echo "$ZIG"; return; }
    command -v zig && return
    local python
    for python in ../.venv/bin/python python3; do
        "$python" -c 'import ziglang' 2>/dev/null && { echo "$(command -v "$python") -m ziglang"; return; }
    done
    return 1
}

flags="-C target-feature=+crt-static -C strip=symbols"
more=()
if has_std "$triple-musl$abi"; then
    target=$triple-musl$abi
    # Rust brings musl and a linker.
    linker=rust-lld
    flags+=" -C link-self-contained=yes"
elif [ -e "$sysroot/lib/rustlib/src/rust/library/Cargo.toml" ] && found=$(find_zig); then
    target=$triple-musl$abi
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
    $check || command -v "$linker" >/dev/null || { echo "hyroads cross: $linker is missing: apt-get install gcc-$gcc" >&2; exit 3; }
else
    echo "hyroads cross: $rustc has no standard library for $triple-musl$abi or $triple-gnu$abi, nor its source and zig" >&2
    exit 3
fi
variable=$(printf '%s' "$target" | tr 'a-z-' 'A-Z_')
export "CARGO_TARGET_${variable}_LINKER=$linker" "CARGO_TARGET_${variable}_RUSTFLAGS=$flags"
if $check; then
    "${CARGO:-cargo}" check --release --locked --bin hyroads-edge --target "$target" "${more[@]}"
    exit
fi
"${CARGO:-cargo}" build --release --locked "${programs[@]/#/--bin=}" --target "$target" "${more[@]}" >&2
printf '%s\n' "${programs[@]/#/${CARGO_TARGET_DIR:-$PWD/target}/$target/release/}"
