#!/usr/bin/env bash
# Known weaknesses of what is pinned: pip-audit and cargo-audit, where they are installed and their data can be had.
# Where they can't, the pinned versions with the date, for whoever compares them by hand: that is no proof of anything.
#
#   exit status: 0 nothing known, 1 something is known, 3 not looked at (the list is printed)
set -uo pipefail
cd "$(dirname "$0")/.." || exit 2
export PATH="$PWD/.venv/bin:$PATH"
status=0
listed=false

list() {
    $listed || { printf '# %s: pinned versions, not compared with anything\n' "$(date -u +%F)"; python3 scripts/sbom.py --list; }
    listed=true
    [ "$status" = 1 ] || status=3
}

if command -v pip-audit >/dev/null; then
    pip-audit --disable-pip --no-deps --progress-spinner off -r requirements.txt -r requirements-dev.txt -r requirements-fuzz.txt
    case $? in 0) ;; *) status=1 ;; esac
else
    echo "audit: no pip-audit (pipx install pip-audit)" >&2
    list
fi
if cargo audit --version >/dev/null 2>&1; then
    (cd dataplane && cargo audit && cd fuzz && cargo audit) || status=1
else
    echo "audit: no cargo-audit (cargo install cargo-audit)" >&2
    list
fi
exit $status
