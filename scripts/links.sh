#!/usr/bin/env bash
# mypy and import-linter do not know setup.py's mapping of folders: build/links/hyroads shows them the package.
set -euo pipefail
cd "$(dirname "$0")/.."
mkdir -p build/links/hyroads
for part in controller slices plugins rest mininet; do
    if [ -d "$part" ]; then ln -sfn "../../../$part" "build/links/hyroads/$part"; else rm -f "build/links/hyroads/$part"; fi
done
