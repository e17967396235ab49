#!/usr/bin/env bash
# Fails where generated code, docs and dashboards are not what their generators would write. `make check-drift` calls it.
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
.venv/bin/python tools/write_metric_docs.py "$fresh/metrics.md"
if ! diff --brief "$fresh/metrics.md" docs/metrics.md; then
  echo "docs/metrics.md is stale: run 'make metrics-docs' and commit what it writes" >&2
  exit 1
fi
.venv/bin/python tools/write_dashboards.py "$fresh"
for folder in deploy/dashboards deploy/helm/kbmesh/files/dashboards; do
  if ! diff -r --brief "$fresh/$folder" "$folder"; then
    echo "$folder is stale: run 'make dashboards' and commit what it writes" >&2
    exit 1
  fi
done
echo "generated code and docs are current"
