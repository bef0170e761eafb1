#!/usr/bin/env bash
# Runs a command as root in a throw-away kernel with 802.11 radios (mac80211_hwsim) and kernel Open vSwitch, on a copy of
# this machine's file system: what the command writes is gone afterwards, except in --share DIR. Its output, and its exit
# status, are passed on; its input is empty. Ctrl-C ends the guest.
#
#   scripts/guest.sh [options] COMMAND [ARGUMENT...]
#   scripts/guest.sh --build      makes the kernel for User-Mode Linux, once
#   scripts/guest.sh --which      says which kernel would be used
#
#   --time-travel    User-Mode Linux whose clock stands still while a processor works: repeatable on a busy machine
#   --radios N       radios that are there from the beginning (wlan0, wlan1, ...); default 0
#   --memory SIZE    of User-Mode Linux or QEMU; default 2G
#   --share DIR      what the command writes into DIR stays
#   --see DIR        a folder below /tmp that the guest sees too, as a copy; else only the working directory is seen there
#   --kernel KIND    own, qemu or uml; default: the first of them that works here
#
# HYROADS_GUEST_KERNEL names a kernel to use instead of the one that --build made.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/hyroads/guest
memory=2G radios=0 share='' kind='' kvm='' travel=false
seen=()

usage() { sed -n '/^#   scripts/,/^# HYROADS/{s/^# \{0,3\}//p}' "${BASH_SOURCE[0]}"; }
fail() { printf 'hyroads guest: %s\n' "$*" >&2; exit 125; }
wrong() { printf 'hyroads guest: %s (scripts/guest.sh --help)\n' "$*" >&2; exit 2; }

# The kernel's folder depends on all that it is made of.
# shellcheck source=scripts/guest/build.sh
. "$here/guest/build.sh"

own_works() {
    [ "$EUID" = 0 ] && modprobe -q openvswitch && modprobe -q mac80211_hwsim radios=0 &&
        unshare --mount --net --pid --fork --kill-child true
} 2>/dev/null

# The newest kernel of this machine that has radios.
stock_kernel() {
    printf '%s\n' /lib/modules/[0-9]*/kernel/drivers/net/wireless/{,virtual/}mac80211_hwsim.ko* |
        sed -n 's|^/lib/modules/\([^/[]*\)/.*\.ko[.a-z]*$|\1|p' | sort -V | tail -n1
}
has_qemu() { command -v vng qemu-system-x86_64 >/dev/null && [ -n "$(stock_kernel)" ]; }
# Whether it starts that kernel within seconds, as with KVM. Without, it emulates the processor: minutes.
kvm_works() {
    [ -n "$kvm" ] || { [ -w /dev/kvm ] && timeout -k 2 20 vng --run "/boot/vmlinuz-$(stock_kernel)" --exec true </dev/null && kvm=works; }
} >/dev/null 2>&1

uml_kernel() {
    local kernel=${HYROADS_GUEST_KERNEL:-}
    if [ -z "$kernel" ]; then
        if [ -e "$cache/lock" ] && ! flock -ns "$cache/lock" true; then
            echo "hyroads guest: waiting for the kernel that is being made" >&2
            flock -s "$cache/lock" true
        fi
        kernel=$(kernel_folder)/linux
    fi
    [ -x "$kernel" ] && echo "$kernel"
}

choose() {
    $travel && { [ "${kind:-uml}" = uml ] || wrong "--time-travel is of User-Mode Linux only"; kind=uml; }
    if [ -z "$kind" ]; then
        if [ -n "${HYROADS_GUEST_KERNEL:-}" ]; then kind=uml; elif own_works; then kind=own; elif has_qemu && kvm_works; then kind=qemu; else kind=uml; fi
        return
    fi
    case $kind in
        own) own_works || fail "this kernel has no mac80211_hwsim and openvswitch that can be used (root is needed too)" ;;
        qemu) has_qemu || fail "no vng (virtme-ng), no qemu-system-x86_64, or no kernel with mac80211_hwsim in /boot and /lib/modules" ;;
        uml) ;;
    esac
}

# What scripts/guest/init reads.
write_control() {
    local each
    {
        printf 'kind=%q uptime_s=%q share=%q radios=%q modules=%q scripts=%q python=%q\n' \
            "${kind/qemu/own}" "$1" "$share" "$radios" "$2" "$here" "$(command -v "$here/../.venv/bin/python" || command -v python3 || echo python3)"
        printf 'seen=('; for each in "${seen[@]}"; do printf '%q ' "$each"; done; printf ')\n'
    } >"$control/settings"
    shift 2
    # The command may start guests itself, with the kernel that it runs on.
    { export -p; echo 'unset HYROADS_GUEST_KERNEL'; printf 'cd %q\n' "$PWD"; printf 'exec'; printf ' %q' "$@"; echo; } >"$control/job"
    cp "$here/guest/init" "$control/init"
    chmod +x "$control/init"
}

# shellcheck disable=SC2317  # run_* and end are called by name
# Runs what starts the guest to its end, in a process group that ends with this script. Its output goes through cat:
# User-Mode Linux makes its own descriptors non-blocking, also for those who share them, and QEMU opens them anew.
guarded() {
    mkfifo "$control/out" "$control/err"
    cat <"$control/out" &
    local out=$!
    cat <"$control/err" >&2 &
    local err=$!
    setpriv --pdeathsig KILL setsid "$@" </dev/null >"$control/out" 2>"$control/err" 9>"$control/log" &
    guest=$!
    { wait "$guest" || true; } 2>/dev/null
    guest=
    wait "$out" "$err" || true
}

run_uml() {
    local options=()
    $travel && options=(time-travel=inf-cpu)
    guarded "$1" mem="$memory" rootfstype=hostfs rootflags=/ ro init="$control/init" quiet \
        con=null ssl=null con0=null,fd:1 con1=null,fd:2 con2=null,fd:9 console=tty2 uml_dir="$control/" umid=guest \
        mac80211_hwsim.radios="$radios" CONTROL="$control" "${options[@]}"
}

NAMESPACES=(unshare --mount --net --pid --fork --kill-child)
run_own() { CONTROL=$control guarded "${NAMESPACES[@]}" bash "$control/init"; }

run_qemu() {
    local options=(--rwdir "$control") folder
    [ -z "$share" ] || options+=(--rwdir "$share")
    for folder in "${seen[@]}"; do options+=(--rodir "$folder"); done
    # Emulated clocks are too late for the kernel's test of its timer.
    kvm_works || { echo "hyroads guest: no KVM that works; QEMU emulates the processor, which takes minutes" >&2; options+=(--disable-kvm --append no_timer_check); }
    guarded vng --run "/boot/vmlinuz-$(stock_kernel)" --user root --memory "$memory" "${options[@]}" --exec \
        "modprobe openvswitch; modprobe mac80211_hwsim radios=0; CONTROL=$control ${NAMESPACES[*]} bash $control/init"
}

end() {
    local status=$?
    trap '' INT TERM HUP
    [ -z "$guest" ] || { kill -KILL -- "-$guest" 2>/dev/null || true; wait "$guest" 2>/dev/null || true; }
    rm -rf "$control"
    exit "$status"
}

# Folders of runs that were killed.
sweep() {
    local folder pid
    for folder in /tmp/hyroads-guest-*; do
        pid=${folder#/tmp/hyroads-guest-}
        [ ! -O "$folder" ] || kill -0 "${pid%%-*}" 2>/dev/null || rm -rf "$folder"
    done
}

run() {
    local kernel='' uptime_s=0
    choose
    if [ "$kind" = uml ]; then
        kernel=$(uml_kernel) || no_kernel
        uptime_s=11
    fi
    sweep
    guest=
    control=$(mktemp -d "/tmp/hyroads-guest-$$-XXXXXX")
    trap end EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM HUP
    case $PWD in /tmp/*) seen+=("$PWD") ;; esac
    write_control "$uptime_s" "${kernel:+$(dirname "$kernel")/modules}" "$@"
    "run_$kind" "$kernel"
    [ -s "$control/status" ] || { tail -n 15 "$control/log" >&2 2>/dev/null || true; fail "the guest ended before the command did"; }
    exit "$(cat "$control/status")"
}

no_kernel() {
    [ -z "${HYROADS_GUEST_KERNEL:-}" ] || fail "HYROADS_GUEST_KERNEL: $HYROADS_GUEST_KERNEL is no program"
    fail "this machine has no kernel with radios and Open vSwitch; make one: scripts/guest.sh --build"
}

while [ $# -gt 0 ]; do
    case $1 in
        --time-travel) travel=true ;;
        --radios | --memory | --share | --see | --kernel)
            [ $# -ge 2 ] || wrong "$1 needs a value"
            case $1 in
                --radios) [[ $2 =~ ^[0-9]{1,2}$ ]] || wrong "--radios is a number from 0 to 99, not '$2'"; radios=$2 ;;
                --memory) [[ $2 =~ ^[0-9]+[MG]$ ]] || wrong "--memory is a size such as 2G or 512M, not '$2'"; memory=$2 ;;
                --share) { [ -d "$2" ] && [ -w "$2" ]; } || wrong "--share: '$2' is no folder that can be written to"; share=$(realpath "$2") ;;
                --see) [ -d "$2" ] || wrong "--see: '$2' is no folder"; seen+=("$(realpath "$2")") ;;
                --kernel) [[ $2 =~ ^(own|qemu|uml)$ ]] || wrong "--kernel is own, qemu or uml, not '$2'"; kind=$2 ;;
            esac
            shift ;;
        --build) [ $# = 1 ] || wrong "--build stands alone"; build; exit ;;
        --which) choose; if [ "$kind" = uml ]; then kernel=$(uml_kernel) || no_kernel; echo "uml $kernel"; else echo "$kind"; fi; exit ;;
        -h | --help) usage; exit ;;
        --) shift; break ;;
        -*) wrong "no option '$1'" ;;
        *) break ;;
    esac
    shift
done
[ $# -gt 0 ] || wrong "no command"
run "$@"
