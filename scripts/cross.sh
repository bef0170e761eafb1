#!/usr/bin/env bash
# The Rust programs for another processor, as static programs that run on any Linux (OpenWrt too):
#
#   scripts/cross.sh arm64|armhf|mipsel|amd64 [PROGRAM...]  builds all or these; prints each program's file
#   scripts/cross.sh --check arm64|armhf|mipsel|amd64       only checks that hyroads-edge compiles
#   scripts/cross.sh --fetch                                gets a toolchain for all four; prints its folder
#
# Three toolchains will do, the first that is there is taken:
#   source  the standard library's source in rustc's sysroot (rustup component add rust-src), and zig, which brings musl
#           and a linker (pip install ziglang); or what --fetch has brought
#   musl    a standard library for musl in rustc's sysroot (rustup target add aarch64-unknown-linux-musl, ...)
#   glibc   that of Debian's rustc (dpkg --add-architecture arm64; apt-get install rustc cargo libstd-rust-dev:arm64
#           gcc-aarch64-linux-gnu). Name the controller by its address then: static glibc looks no names up.
# RUSTC, CARGO and ZIG name others than those on the path; ZIG may have several words.
#
# A static program can't load the system's OpenSSL: source and glibc compile one and link it in, once --fetch has brought
# its source. It needs perl and make, and is kept in the cache. Without it, and with musl, the programs have no TLS.
#
# --fetch takes Debian 12's rustc-web, cargo-web and rust-web-src, ziglang of PyPI, OpenSSL's source of crates.io, and
# QEMU's emulators of the three foreign processors: 320 MB, which become 1 GB in ~/.cache/hyroads/cross. Nothing is
# installed.
set -euo pipefail
cd "$(dirname "$0")/../dataplane"

cache=${XDG_CACHE_HOME:-$HOME/.cache}/hyroads/cross
# The version that was tried, and the wheels for x86_64 and aarch64.
ZIGLANG="ziglang==0.17.1
    --hash=sha256:ea6cc5d87b033cf0aedfbc8f9549a908cae6c50ac31f1698188fa48a74524b54
    --hash=sha256:b7c5f02fccd40f89b999ee16a1f5ddced56e6182370f8affe494bcf8a28cf07e"
# The branch 3.5 is maintained until April 2030.
OPENSSL="openssl-src-300.5.5+3.5.5"
OPENSSL_SHA256=3f1787d533e03597a7934fd0a765f0d28e94ecc5fb7789f8053b1e699a56f709
# Of OpenSSL, a TLS client needs little. The file openssl.cnf of a system is for the OpenSSL of that system.
OPENSSL_OPTIONS="no-shared no-module no-dso no-engine no-legacy no-autoload-config no-apps no-docs no-tests no-async
    no-comp no-dtls no-quic no-http no-srp no-psk no-cms no-ts no-ct no-ocsp no-cmp no-ml-dsa no-slh-dsa no-gost no-ec2m
    no-aria no-bf no-blake2 no-camellia no-cast no-des no-idea no-md4 no-mdc2 no-rc2 no-rc4 no-rmd160 no-scrypt no-seed
    no-siphash no-sm2 no-sm3 no-sm4 no-whirlpool --openssldir=/etc/ssl"

fail() { printf 'hyroads cross: %s\n' "$*" >&2; exit 3; }

# Only one at a time makes a part of the cache, and an attempt that ends early leaves nothing there.
work=""
trap '[ -z "$work" ] || rm -rf "$work"' EXIT
lock_part() {
    mkdir -p "$cache"
    exec 9>"$cache/$1.lock"
    flock 9
    work=$(mktemp -d -p "$cache")
}

# Debian's packages and zig.
fetch_toolchain() {
    { command -v apt-get && command -v dpkg; } >/dev/null || fail "--fetch expects apt-get and dpkg"
    local names file
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

# OpenSSL's source, by cargo, which knows this machine's mirror of crates.io.
fetch_openssl() {
    local version=${OPENSSL#openssl-src-} crate
    mkdir -p "$work/crate/src"
    : >"$work/crate/src/lib.rs"
    printf '[package]\nname = "fetch"\nversion = "0.0.0"\nedition = "2021"\n[dependencies]\nopenssl-src = "=%s"\n' \
        "${version%+*}" >"$work/crate/Cargo.toml"
    (use_fetched && "$cargo" fetch -q --manifest-path "$work/crate/Cargo.toml")
    crate=$(compgen -G "${CARGO_HOME:-$HOME/.cargo}/registry/cache/*/$OPENSSL.crate" | head -n 1)
    echo "$OPENSSL_SHA256  $crate" | sha256sum -c --quiet
    tar -xzf "$crate" -C "$work"
    mv "$work/$OPENSSL" "$cache/$OPENSSL"
}

# OpenSSL for the target into the folder $openssl. Parameter: the C compiler, with its words; its ar, and its ranlib.
build_openssl() {
    [ ! -e "$openssl" ] || return 0
    lock_part "openssl-$target"
    [ -e "$openssl" ] || compile_openssl "$@"
    flock -u 9
}
compile_openssl() {
    (
        cd "$work"
        # shellcheck disable=SC2086  # lists of options
        CC=$1 AR=$2 RANLIB=$3 perl "$cache/$OPENSSL/openssl/Configure" $machine $OPENSSL_OPTIONS
        make -s build_generated
        make -s -j "$(nproc)" libssl.a libcrypto.a
        mkdir lib
        mv libssl.a libcrypto.a lib
    ) >"$work/said" 2>&1 || { tail -n 20 "$work/said" >&2; fail "OpenSSL for $target can't be built"; }
    mv "$work/lib" "$openssl"
}

use_fetched() {
    [ -e "$cache/files/complete" ] || return 1
    # Its libraries are where the system does not look for them.
    LD_LIBRARY_PATH=$(echo "$cache"/files/usr/lib/*-linux-gnu)
    export LD_LIBRARY_PATH
    export RUSTC=$cache/files/usr/bin/rustc
    rustc=$RUSTC cargo=$cache/files/usr/bin/cargo sysroot=$cache/files/usr
}

if [ "${1:-}" = --fetch ]; then
    lock_part fetch
    [ -e "$cache/files/complete" ] || fetch_toolchain >&2
    [ -e "$cache/$OPENSSL" ] || fetch_openssl >&2
    echo "$cache/files"
    exit
fi
check=false
[ "${1:-}" != --check ] || { check=true; shift; }
arch=${1:-}
programs=("${@:2}")
[ "${#programs[@]}" -gt 0 ] || programs=(hyroads-edge hyroads-client hyroads-medium hyroads-modem)
# No library has the calls for atomic numbers of 64 bits that clang makes for these processors.
short=-DBROKEN_CLANG_ATOMICS
case "$arch" in
    amd64) triple=x86_64-unknown-linux abi="" gcc=x86_64-linux-gnu zig=x86_64-linux-musl machine=linux-x86_64 ;;
    arm64) triple=aarch64-unknown-linux abi="" gcc=aarch64-linux-gnu zig=aarch64-linux-musl machine=linux-aarch64 ;;
    armhf) triple=armv7-unknown-linux abi=eabihf gcc=arm-linux-gnueabihf zig=arm-linux-musleabihf machine="linux-armv4 $short" ;;
    # rustc's musl target makes no code for a floating-point unit, which most MIPS routers lack. The linker finds no
    # partner of some relocations in OpenSSL's assembly.
    mipsel) triple=mipsel-unknown-linux abi="" gcc=mipsel-linux-gnu zig=mipsel-linux-musleabi machine="linux-mips32 $short no-asm" ;;
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

! command -v "$rustc" >/dev/null || sysroot=$("$rustc" --print sysroot)
found=$(find_zig) || found=""
if [ -z "${RUSTC:-}" ] && { [ -z "$found" ] || ! has_source; }; then use_fetched || true; fi

flags="-C target-feature=+crt-static -C strip=symbols"
more=() compiler=()
if [ -n "$found" ] && has_source; then
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
    compiler=("$found cc -target $zig" "$found ar" "$found ranlib")
elif has_std "$target"; then
    # Rust brings musl and a linker, but no C compiler.
    linker=rust-lld
    flags+=" -C link-self-contained=yes"
elif has_std "$triple-gnu$abi"; then
    target=$triple-gnu$abi
    linker=$gcc-gcc
    $check || command -v "$linker" >/dev/null || fail "$linker is missing: apt-get install gcc-$gcc"
    compiler=("$linker" "$gcc-ar" "$gcc-ranlib")
else
    fail "$rustc has no standard library for $triple-musl$abi or $triple-gnu$abi, nor its source and zig: scripts/cross.sh --fetch"
fi
if $check; then
    :
elif [ "${#compiler[@]}" -gt 0 ] && [ -e "$cache/$OPENSSL" ]; then
    # Other options or another compiler make another one.
    openssl=$cache/openssl-$target-$(echo "$OPENSSL $machine $OPENSSL_OPTIONS ${compiler[*]}" | sha256sum | cut -c 1-12)
    build_openssl "${compiler[@]}"
    flags+=" -L native=$openssl"
    more+=(--features static-openssl)
else
    echo "hyroads cross: built without TLS: no source of OpenSSL (scripts/cross.sh --fetch), or no C compiler for $arch" >&2
fi
variable=$(printf '%s' "$target" | tr 'a-z-' 'A-Z_')
export "CARGO_TARGET_${variable}_LINKER=$linker" "CARGO_TARGET_${variable}_RUSTFLAGS=$flags"
if $check; then
    "$cargo" check --release --locked --bin hyroads-edge --target "$target" "${more[@]}"
    exit
fi
"$cargo" build --release --locked "${programs[@]/#/--bin=}" --target "$target" "${more[@]}" >&2
printf '%s\n' "${programs[@]/#/${CARGO_TARGET_DIR:-$PWD/target}/$target/release/}"
