#!/usr/bin/env bash
# Sets up all that HyRoads needs on Debian or Ubuntu: system packages, the virtual environment .venv, the Rust programs,
# and the package itself. Each step is skipped when its inputs have not changed, so a second run takes seconds.
#
#   scripts/bootstrap.sh          everything needed to run
#   scripts/bootstrap.sh --dev    and the tools of 'make test'
#
# Of Python packages only files are installed whose hashes are in requirements*.txt. HYROADS_WITHOUT_HASHES=yes installs
# the same versions without comparing them, for a Python or a processor that has no hashes there.
# HYROADS_PYTHON=python3.13 makes a new .venv with this Python instead of the first of 3.11, 3.12 and 3.13 that is found.
set -Eeuo pipefail
cd "$(dirname "$0")/.."

RUN_PACKAGES=(openvswitch-switch mininet iperf3 ethtool iproute2 nftables dnsmasq-base udhcpc iputils-ping procps util-linux python3-venv gcc libc6-dev)
DEV_PACKAGES=(aria2 curl g++ openssl tcpdump snmpd snmp smitools hostapd wpasupplicant iw shellcheck groff-base mmdebstrap systemd-container chromium)
STAMPS=.venv/.hyroads
# Packs the .deb and .ipk of scripts/packages.py; it is built by Go where there is one, else their tests are skipped.
NFPM=v2.41.3
dev=false
[ "${1:-}" = "--dev" ] && dev=true

say() { printf '\033[1m==>\033[0m %s\n' "$*"; }
trap 'printf "hyroads bootstrap: line %s failed: %s\n" "$LINENO" "$BASH_COMMAND" >&2' ERR
fail() { printf 'hyroads bootstrap: %s\n' "$*" >&2; exit 2; }

# True (0) when the stamp NAME was made from the same inputs as these FILES and words.
fresh() { [ -f "$STAMPS/$1" ] && [ "$(cat "$STAMPS/$1")" = "$2" ]; }
stamp() { mkdir -p "$STAMPS"; printf '%s' "$2" > "$STAMPS/$1"; }
digest() { cat "$@" 2>/dev/null | sha256sum | cut -d' ' -f1; }

missing_packages() {
    local name
    for name in "$@"; do
        dpkg-query -W -f='${Status}' "$name" 2>/dev/null | grep -q 'install ok installed' || printf '%s ' "$name"
    done
}

version_at_least() { [ "$(printf '%s\n%s\n' "$2" "$1" | sort -V | head -n1)" = "$2" ]; }

system_packages() {
    command -v dpkg-query >/dev/null || fail "this is not Debian or Ubuntu (no dpkg); install by hand: ${RUN_PACKAGES[*]} rustc cargo"
    local wanted=("${RUN_PACKAGES[@]}") rust
    $dev && wanted+=("${DEV_PACKAGES[@]}")
    rust=$(rustc --version 2>/dev/null | cut -d' ' -f2 || true)
    if ! command -v cargo >/dev/null || ! version_at_least "${rust:-0}" 1.63; then
        wanted+=(rustc cargo)
        rust=debian
    fi
    # A toolchain of the user's own brings these two; Debian packs them apart.
    if $dev && { [ "$rust" = debian ] || ! cargo clippy --version >/dev/null 2>&1 || ! cargo fmt --version >/dev/null 2>&1; }; then
        wanted+=(rust-clippy rustfmt)
    fi
    local missing
    missing=$(missing_packages "${wanted[@]}")
    [ -z "$missing" ] && return
    [ "$(id -u)" = 0 ] || fail "missing system packages: $missing; run as root once, or: sudo apt-get install $missing"
    say "system packages: $missing"
    export DEBIAN_FRONTEND=noninteractive
    # The package lists of a fresh machine are empty.
    apt-get update -qq || fail "apt-get update failed; these packages are missing: $missing"
    # shellcheck disable=SC2086  # a list of names
    apt-get install -y -qq --no-install-recommends $missing >/dev/null || fail "apt-get could not install: $missing"
}

find_python() {
    local candidate candidates=(python3.11 python3.12 python3.13 python3)
    [ -z "${HYROADS_PYTHON:-}" ] || candidates=("$HYROADS_PYTHON")
    for candidate in "${candidates[@]}"; do
        if "$candidate" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            command -v "$candidate"; return
        fi
    done
    [ -z "${HYROADS_PYTHON:-}" ] || fail "HYROADS_PYTHON=$HYROADS_PYTHON: not a Python 3.11 or newer with venv"
    fail "no Python 3.11 or newer with venv found (python3 is $(python3 --version 2>&1))"
}

# The pinned packages of FILES..., as scripts/pins.py takes them, into .venv: no file whose hash is not written down.
pip_install() {
    local options=()
    while [[ ${1:-} == --* && $1 != --only && $1 != --without ]]; do options+=("$1"); shift; done
    if [ -n "${HYROADS_WITHOUT_HASHES:-}" ]; then set -- "$@" --no-hashes; else options+=(--require-hashes); fi
    .venv/bin/python scripts/pins.py "$@" > .venv/requirements.txt
    .venv/bin/pip --disable-pip-version-check install -q --no-deps "${options[@]}" -r .venv/requirements.txt ||
        fail "pip could not install what is pinned. Where a file has another hash, or there is none for this Python ($(.venv/bin/python --version), $(uname -m)), nothing else is taken in its place."
}

# Packages without wheels. They are built with the pinned setuptools, and pip gets nothing more for that.
SOURCES=ryu,ovs
DEV_SOURCES=argparse-manpage

# What only fuzzing needs, in a folder of its own. There is no Atheris for other processors.
fuzzers() {
    local without=()
    [ "$(uname -m)" = x86_64 ] || { without=(--without atheris); say "no Atheris for $(uname -m): Python's decoders can't be fuzzed"; }
    rm -rf .venv/fuzz
    pip_install --only-binary=:all: --target=.venv/fuzz requirements-fuzz.txt "${without[@]}"
}

virtual_environment() {
    local key
    key=$(digest requirements*.txt scripts/bootstrap.sh scripts/pins.py)-$dev
    fresh venv "$key" || fresh venv "${key%-false}-true" && [ -x .venv/bin/pip ] && return
    local python
    python=$(find_python)
    [ -x .venv/bin/pip ] || { say "virtual environment .venv ($python)"; "$python" -m venv .venv; }
    if [ -n "${HYROADS_WITHOUT_HASHES:-}" ]; then say "Python packages (pinned, NOT compared with their hashes)"; else say "Python packages (pinned, with hashes)"; fi
    # Ryu's build uses names that newer setuptools dropped, so it is built against this one, whatever pip's version does
    # with build constraints; 67 still works on Python 3.12.
    pip_install --only-binary=:all: requirements.txt requirements-dev.txt --only setuptools,wheel,pbr
    # All that is needed is pinned, and nothing has to be resolved.
    local files=(requirements.txt) sources=$SOURCES apart
    if $dev; then files+=(requirements-dev.txt) sources+=,$DEV_SOURCES; fi
    apart=$sources
    if $dev && [ "$(uname -m)" != x86_64 ]; then
        apart+=,pymetis
        say "pymetis has no wheel for $(uname -m): its source is pinned, what pip gets to build it is not"
        pip_install "${files[@]}" --only pymetis
    fi
    pip_install --only-binary=:all: "${files[@]}" --without "$apart"
    pip_install --no-build-isolation "${files[@]}" --only "$sources"
    if $dev; then fuzzers; fi
    .venv/bin/pip check || fail "a package needs one that is not pinned (above): add it to requirements.txt or requirements-dev.txt, then make hashes"
    stamp venv "$key"
    rm -f "$STAMPS/package"
}

# Debian installs Mininet for the system's Python; one link makes just that package visible here.
mininet_link() {
    local system=/usr/lib/python3/dist-packages/mininet site
    [ -d "$system" ] || fail "Mininet is not where Debian puts it ($system)"
    site=$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    ln -sfn "$system" "$site/mininet"
}

rust_programs() {
    local key program=hyroads-edge
    # Tests and benchmarks have scripted devices.
    ! $dev || program=examples/scripted_campus
    key=$dev-$(find dataplane/src dataplane/examples dataplane/Cargo.toml dataplane/Cargo.lock -type f -print0 | sort -z | xargs -0 sha256sum | digest /dev/stdin)
    fresh rust "$key" && [ -x "dataplane/target/release/$program" ] && [ -x dataplane/target/release/hyroads-edge ] && [ -x dataplane/target/release/hyroads-medium ] &&
        [ -x dataplane/target/release/hyroads-client ] && [ -x dataplane/target/release/hyroads-modem ] && return
    say "Rust programs (dataplane/)"
    (cd dataplane && cargo build --release --locked --quiet)
    ! $dev || (cd dataplane && cargo build --release --locked --quiet --example scripted_campus)
    stamp rust "$key"
}

package() {
    local key
    # A new folder is a new package, and an editable install must be told.
    key=$(digest setup.py pyproject.toml)-$({ find controller rest mininet plugins slices dashboard -name '*.py' 2>/dev/null || true; } | sort | digest /dev/stdin)
    fresh package "$key" && [ -x .venv/bin/hyroads ] && return
    say "hyroads itself"
    .venv/bin/pip --disable-pip-version-check install -q --no-deps --no-build-isolation -e .
    stamp package "$key"
}

# Debian's packages NAME... into FOLDER/files: unpacked and not installed, so that no service begins.
unpack() {
    local folder=$1 file
    shift
    (cd "$folder" && apt-get download -qq "$@" >/dev/null 2>&1) || return 1
    for file in "$folder"/*.deb; do dpkg -x "$file" "$folder/files" || return 1; done
}

# etcd for tests of several controllers.
etcd() {
    $dev || return 0
    [ -x .venv/bin/etcd ] || [ -n "$(type -P etcd)" ] && return
    say "etcd"
    local work
    work=$(mktemp -d)
    if unpack "$work" etcd-server; then
        mkdir -p .venv/bin
        install -m 755 "$work/files/usr/bin/etcd" .venv/bin/etcd
    else
        say "no etcd: its tests will be skipped"
    fi
    rm -rf "$work"
}

# FreeRADIUS for tests of 802.1X, with the libraries that are not here.
freeradius() {
    $dev || return 0
    [ -x .venv/freeradius/usr/sbin/freeradius ] || [ -n "$(PATH=$PATH:/usr/sbin type -P freeradius)" ] && return
    say "FreeRADIUS"
    local work names
    work=$(mktemp -d)
    # What apt would install now; it says so without doing it.
    names=$(apt-get install -s -qq --no-install-recommends freeradius 2>/dev/null | awk '/^Inst / {print $2}' || true)
    # shellcheck disable=SC2086  # a list of names
    if [ -n "$names" ] && unpack "$work" $names; then
        rm -rf .venv/freeradius
        mv "$work/files" .venv/freeradius
    else
        say "no FreeRADIUS: its tests will be skipped"
    fi
    rm -rf "$work"
}

# Debian's programs for power-line adapters: tests compare with what they read of hyroads-modem.
power_line() {
    $dev || return 0
    [ -x .venv/plc-utils/usr/bin/plcstat ] || [ -n "$(type -P plcstat)" ] && return
    say "plc-utils"
    local work
    work=$(mktemp -d)
    if unpack "$work" plc-utils plc-utils-extra; then
        rm -rf .venv/plc-utils
        mv "$work/files" .venv/plc-utils
    else
        say "no plc-utils: tests that compare with them will be skipped"
    fi
    rm -rf "$work"
}

# Prometheus' programs for tests; without them these tests are skipped.
prometheus() {
    $dev || return 0
    scripts/prometheus.sh >/dev/null || say "no Prometheus: its tests will be skipped"
}

packer() {
    $dev || return 0
    fresh nfpm "$NFPM" && [ -x .venv/bin/nfpm ] && return
    local go
    go=$(go env GOVERSION 2>/dev/null || true)
    version_at_least "${go#go}" 1.23 || { say "no Go 1.23 or later: packages can't be built, and are not tested"; return 0; }
    say "nfpm $NFPM"
    GOBIN=$PWD/.venv/bin go install "github.com/goreleaser/nfpm/v2/cmd/nfpm@$NFPM" ||
        { say "nfpm can't be had: packages can't be built, and are not tested"; return 0; }
    stamp nfpm "$NFPM"
}

python_side() {
    virtual_environment
    mininet_link
    package
}

# Steps that wait for different things, side by side: one for the network, the other for the processor.
side_by_side() {
    local step group groups=() failed=false
    # A process group each, so that Ctrl-C ends what a step has started too.
    trap 'for group in "${groups[@]}"; do kill -- "-$group" 2>/dev/null || true; done; exit 130' INT TERM
    set -m
    for step in "$@"; do
        "$step" &
        groups+=($!)
    done
    set +m
    for group in "${groups[@]}"; do wait "$group" || failed=true; done
    trap - INT TERM
    ! $failed || exit 2
}

mkdir -p "$STAMPS"
system_packages
side_by_side python_side rust_programs packer prometheus etcd freeradius power_line
