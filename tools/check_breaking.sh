#!/usr/bin/env bash
# Refuses a contract that breaks callers of the last release. `make check-breaking` calls it.
# check_breaking.sh [AGAINST]: AGAINST is anything `buf breaking --against` takes; the last release tag by default.
set -euo pipefail
cd "$(dirname "$0")/.."
against=${1:-}
if [ -z "$against" ]; then
  tag=$(git tag --list 'v[0-9]*' --sort=-version:refname | head -n 1)
  if [ -z "$tag" ]; then
    echo "no release tag yet: the contracts are free to change"
    exit 0
  fi
  against=".git#tag=$tag"
  echo "comparing with $tag"
fi
.venv/bin/buf breaking --against "$against"
