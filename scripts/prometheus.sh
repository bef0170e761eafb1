#!/usr/bin/env bash
# Prints the folder with the programs prometheus and promtool of Debian's package, for tests. The package is unpacked into
# a cache and not installed: no service begins.
#
#   scripts/prometheus.sh
set -euo pipefail

cache=${XDG_CACHE_HOME:-$HOME/.cache}/hyroads/prometheus
fail() { printf 'hyroads prometheus: %s\n' "$*" >&2; exit 1; }

if command -v prometheus >/dev/null && command -v promtool >/dev/null; then
    dirname "$(command -v prometheus)"
    exit
fi
command -v apt-get >/dev/null && command -v dpkg >/dev/null || fail "expected apt-get and dpkg, or an installed Prometheus"
mkdir -p "$cache"
exec 9>"$cache/lock"
flock 9
if [ ! -x "$cache/usr/bin/promtool" ]; then
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    # The package lists of a fresh machine are empty.
    { [ -n "$(apt-cache madison prometheus 2>/dev/null)" ] || apt-get update -qq; } >&2
    (cd "$work" && apt-get download -qq prometheus >/dev/null 2>&1) || fail "apt-get can't download the package prometheus"
    dpkg -x "$work"/prometheus_*.deb "$work/files"
    rm -rf "$cache/usr"
    mv "$work/files/usr" "$cache/usr"
fi
echo "$cache/usr/bin"
