#!/usr/bin/env bash
# The parts of 'make test'. Every part prints its name and time, and the others are made if one fails. 'make check' is for
# every day: it tries a fifth of the examples of each law (tests/support/examples.py), 'make test' tries half of them,
# 'make nightly' five times as many, and makes what takes long (marked nightly).
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PWD/.venv/bin:$PATH"
# Hundreds of processes would compile all modules, each for itself.
unset PYTHONDONTWRITEBYTECODE

need_root() { [ "$(id -u)" = 0 ] || { echo "hyroads test: '$1' needs root (network namespaces, Open vSwitch)" >&2; exit 2; }; }

lint() {
    ruff check .
    ruff format --check .
    PYTHONPATH=. lint-imports --cache-dir build/import-linter
    (
        cd dataplane
        cargo clippy --release --locked --all-targets --quiet -- -D warnings -D clippy::undocumented_unsafe_blocks -D clippy::missing_safety_doc
        cargo fmt --check
        cargo fmt --manifest-path fuzz/Cargo.toml --check
    )
}
types() {
    mypy -p hyroads.controller -p hyroads.rest -p hyroads.plugins -p hyroads.mininet -p hyroads.slices -p hyroads.dashboard
}
# Tests of real processes depend on the time that a shared machine gives them: what fails runs once again, alone, from its
# networks on. The ledger (scripts/ledger.py) names each test that passed only then, and more than 0.5 % of them fail the
# run. A demo whose plain reference falls short, too, runs three times (tests/scenario), then its tests are not made.
tested() {
    # What stands still says where, fails, and does not keep the others waiting; soaks at night take as long as they take.
    local each limits=() paths=()
    for each in "$@"; do [ ! -e "$each" ] || paths+=("$each"); done
    [ -n "${HYROADS_NIGHTLY:-}" ] || limits=(-o faulthandler_timeout=240 -o faulthandler_exit_on_timeout=true)
    pytest -q "${limits[@]}" "$@" && return
    echo "-- what failed, once again"
    HYROADS_NOT_MADE=fail HYROADS_TRY=2 pytest -q --last-failed --last-failed-no-failures none "${paths[@]}"
}
# The script that was called first shows the ledger at its end; those that it calls write to the same one.
shows_ledger=false
[ -n "${HYROADS_LEDGER:-}" ] || { export HYROADS_LEDGER=$PWD/build/ledger; rm -rf "$HYROADS_LEDGER"; mkdir -p "$HYROADS_LEDGER"; shows_ledger=true; }
ledger() { scripts/ledger.py "$@"; }
judge=()
part=
beside=
finish() {
    local status=$?
    [ -z "$beside" ] || kill -- "-$beside" 2>/dev/null || true
    [ "$status" = 0 ] || [ -z "$part" ] || printf '\033[1m== %s failed\033[0m\n' "$part"
    $shows_ledger || return
    printf '\033[1m== tests\033[0m\n'
    ledger show "${judge[@]}" || { [ "$status" != 0 ] || status=1; }
    exit "$status"
}
trap finish EXIT
passed() { echo "== all parts were made in $SECONDS s"; }
unit() { tested -n "$(nproc)" --durations 10 --durations-min 0.5 tests/unit; }
rust-test() {
    local said found failed=()
    said=$(mktemp)
    if cargo_test 2>&1 | tee "$said"; then
        ledger rust "$said" 1 >/dev/null
        rm "$said"
        return
    fi
    found=$(ledger rust "$said" 1)
    rm "$said"
    [ -n "$found" ] || return 1
    mapfile -t failed <<<"$found"
    echo "-- what failed, once again"
    said=$(mktemp)
    cargo_test --exact --test-threads 1 "${failed[@]}" 2>&1 | tee "$said" || found=failed
    ledger rust "$said" 2 >/dev/null
    rm "$said"
    [ "$found" != failed ]
}
cargo_test() { (cd dataplane && cargo test --profile tests --lib --example scripted_campus --locked --quiet -- "$@"); }
# A minute for all decoders that read strangers' bytes, hours at night (scripts/fuzz.py, docs/contributing/testing.md).
# The ledger lists as not made what cannot run here.
fuzz() {
    local status=0 part_status=0
    local seconds=${HYROADS_FUZZ_S:-$([ -n "${HYROADS_NIGHTLY:-}" ] && echo 7200 || echo 60)}
    .venv/bin/python scripts/fuzz.py run --seconds "$seconds" || status=$?
    [ -z "${HYROADS_NIGHTLY:-}" ] || ! rustc +nightly --version >/dev/null 2>&1 ||
        .venv/bin/python scripts/fuzz.py run --asan --seconds $((seconds / 4)) || status=$?
    .venv/bin/python scripts/fuzz.py compare || part_status=$?
    [ "$status" != 3 ] && [ "$part_status" != 3 ] || ledger add fuzz "not made" "some targets" "a fuzzer cannot run here, see above"
    { [ "$status" = 0 ] || [ "$status" = 3 ]; } && { [ "$part_status" = 0 ] || [ "$part_status" = 3 ]; }
}
# Files side by side: most of the time is waiting for switches and agents. Then, one by one, what must not be late.
integration() {
    need_root integration
    tested -n 5 --dist loadfile --no-loadscope-reorder --durations 12 --durations-min 8 -m "not alone and not radio" tests/integration
    tested -m "alone and not radio" tests/integration
}
# Two networks side by side, each with a processor on average; then, one by one, those that take all there is.
scenario() {
    need_root scenario
    tested -n 2 --dist loadfile --no-loadscope-reorder --durations 12 --durations-min 8 -m "not alone and not radio" tests/scenario
    tested -m "alone and not radio" tests/scenario
}
# In kernels with radios and with Open vSwitch of their own (scripts/guest.sh), side by side: a guest has one processor.
# Where User-Mode Linux is the guest its clock stands still while it works, so that nothing is late on a busy machine.
radio() {
    local found options=(--radios 2 --share "$HYROADS_LEDGER")
    build_guest || return 0
    found=$(scripts/guest.sh --which 2>&1 | tail -n 1) || {
        [ "$found" = "${found/scripts\/guest.sh --build/}" ] && { echo "$found" >&2; return 2; }
        ledger add radio skipped "the guest kernel" "radio: no guest kernel, so no 802.11 radios, no Open vSwitch of the kernel and no Mininet-WiFi: ${found#hyroads guest: }"
        return
    }
    case $found in uml*) options+=(--time-travel) ;; esac
    start_beside scripts/guest.sh "${options[@]}" scripts/test.sh in-guest-openflow
    scripts/guest.sh "${options[@]}" scripts/test.sh in-guest-air
    show_beside
}
# Where HYROADS_BUILD_GUEST is set, as in `make nightly`, a machine without such a kernel gets one.
build_guest() {
    [ -n "${HYROADS_BUILD_GUEST:-}" ] && ! scripts/guest.sh --which >/dev/null 2>&1 || return 0
    scripts/guest.sh --build && return
    ledger add radio "not made" "the guest kernel" "it could not be built"
    return 1
}
# Guests do not mind how long they wait. They take what the other parts leave of the processors, and delay nobody.
radio_in_idle_time() {
    chrt --idle --pid 0 "$BASHPID"
    run radio
}
in-guest-air() {
    local files
    mapfile -t files < <(grep -rl --include='test_*.py' 'mark\.radio' tests | sort)
    tested --durations 10 --durations-min 1 -m radio "${files[@]}"
}
# The tests of switches, with the kernel's Open vSwitch instead of that in user space.
in-guest-openflow() {
    local name files=()
    for name in $KERNEL_SWITCHES; do files+=("tests/integration/test_$name.py"); done
    HYROADS_TEST_DATAPATH=system tested --durations 10 --durations-min 1 -m "not radio" "${files[@]}"
}
KERNEL_SWITCHES="guest ofp_ovs controller_app flow_matches session_rules slicer_queues"
# One by one: they build wheels in the same folder.
packaging() { tested --durations 5 --durations-min 5 tests/packaging; }
# The site of docs/, into build/site; a link or page that is wrong ends it.
docs() { NO_MKDOCS_2_WARNING=1 mkdocs build --quiet --strict; }

run() {
    local start=$SECONDS
    part=$1
    export HYROADS_PART=$1
    printf '\033[1m== %s\033[0m\n' "$1"
    "$1"
    printf '   %s: %d s\n' "$1" $((SECONDS - start))
}

# A command that runs beside others; what it said is shown at its end, and its failure is the part's.
start_beside() {
    beside_said=$(mktemp)
    # A process group of its own, which can be ended as a whole. What is started inside of one stays in it.
    [ "$BASHPID" != $$ ] || set -m
    "$@" >"$beside_said" 2>&1 </dev/null &
    beside=$!
    set +m
}
show_beside() {
    local status=0
    [ -n "$beside" ] || { cat "$beside_said"; rm "$beside_said"; return; }
    wait "$beside" || status=$?
    beside=
    cat "$beside_said"
    rm "$beside_said"
    return "$status"
}

# On two processors: what reads the source, and beside it the tests.
check() {
    start_beside run unit
    run lint
    run types
    part=unit
    show_beside
}

everything() {
    local each failed=()
    judge=(--judge)
    start_beside radio_in_idle_time
    # Whoever ends one part by Ctrl-C means all of them.
    trap 'exit 130' INT TERM
    # Each in a shell of its own, which ends at its first error.
    for each in lint docs types unit rust-test packaging integration scenario fuzz; do scripts/test.sh "$each" || failed+=("$each"); done
    part=radio
    show_beside || failed+=(radio)
    part=
    [ -z "${failed[*]}" ] || { printf '\033[1m== failed: %s\033[0m\n' "${failed[*]}"; exit 1; }
}

# Models begin at another seed each time (tests/support/swarm.py); what is made once again begins at the same one.
begin_models_anywhere() {
    export HYROADS_SEED=${HYROADS_SEED:-$((RANDOM << 15 | RANDOM))}
    echo "== models: again with HYROADS_SEED=$HYROADS_SEED"
}

case "${1:-all}" in
    all) need_root all; export HYPOTHESIS_PROFILE=${HYPOTHESIS_PROFILE:-thorough}; begin_models_anywhere; everything; passed ;;
    # More examples of each law, others each time, and what takes minutes.
    nightly) need_root nightly; export HYROADS_NIGHTLY=yes HYROADS_BUILD_GUEST=yes HYPOTHESIS_PROFILE=${HYPOTHESIS_PROFILE:-search}; begin_models_anywhere; everything; passed ;;
    check) check; passed ;;
    lint | docs | types | unit | rust-test | integration | scenario | packaging | radio | fuzz) run "$1" ;;
    in-guest-air | in-guest-openflow) "$1" ;;
    *) echo "usage: scripts/test.sh [all|nightly|check|lint|docs|types|unit|rust-test|integration|scenario|packaging|radio|fuzz]" >&2; exit 2 ;;
esac
