#!/usr/bin/env bash
# Fails where libs/kbmesh-protos is not what `make protos` would write. `make check-drift` calls it.
set -euo pipefail
cd "$(dirname "$0")/.."
fresh=$(mktemp -d)
trap 'rm -rf "$fresh"' EXIT
tools/generate_protos.sh "$fresh"
if ! diff -r --brief --exclude __pycache__ "$fresh" libs/kbmesh-protos/src; then
  echo "libs/kbmesh-protos is stale: run 'make protos' and commit what it writes" >&2
  exit 1
fi
.venv/bin/python tools/write_error_docs.py "$fresh/errors.md"
if ! diff --brief "$fresh/errors.md" docs/errors.md; then
  echo "docs/errors.md is stale: run 'make protos' and commit what it writes" >&2
  exit 1
fi
echo "generated code and docs are current"
