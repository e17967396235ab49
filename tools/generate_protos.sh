#!/usr/bin/env bash
# Writes libs/kbmesh-protos/src anew from protos/ and third_party/protos/. `make protos` calls it.
set -euo pipefail
cd "$(dirname "$0")/.."
bin=$PWD/.venv/bin
out=${1:-libs/kbmesh-protos/src}
mkdir -p "$out"
find "$out" -name '*_pb2*' -delete
PATH="$bin:$PATH" "$bin/python" -m grpc_tools.protoc \
  -I protos -I third_party/protos -I "$("$bin/python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')" \
  --python_out="$out" --grpc_python_out="$out" --mypy_out="quiet:$out" --mypy_grpc_out="quiet:$out" \
  $(find protos third_party/protos -name '*.proto' | LC_ALL=C sort)
find "$out" -type d -name '[a-z]*' -exec sh -c 'for d; do ls "$d"/*_pb2.py >/dev/null 2>&1 && touch "$d/py.typed"; done; true' _ {} +
