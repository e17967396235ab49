#!/usr/bin/env bash
# Installs each package alone, from its own lock, and imports it: the chunker's and the retriever's images hold no
# ONNX Runtime and no tokenizers, the SDK holds the stubs and grpcio only. `make check-isolation` calls it.
set -euo pipefail
cd "$(dirname "$0")/.."
uv=$PWD/.venv/bin/uv
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT

check() { # check NAME LOCK "PACKAGES" "MODULES" "FORBIDDEN"
  local name=$1 lock=$2 packages=$3 modules=$4 forbidden=$5
  "$uv" venv --quiet --python .venv/bin/python "$place/$name"
  "$uv" pip install --quiet --python "$place/$name/bin/python" --require-hashes -r "requirements/$lock.lock"
  # shellcheck disable=SC2086
  "$uv" pip install --quiet --python "$place/$name/bin/python" --no-deps $packages
  "$place/$name/bin/python" - "$name" "$modules" "$forbidden" <<'PY'
import importlib, importlib.util, sys

name, modules, forbidden = sys.argv[1], sys.argv[2].split(), sys.argv[3].split()
present = [module for module in forbidden if importlib.util.find_spec(module)]
if present:
    sys.exit(f"{name}: installs {', '.join(present)}, which it must not need")
for module in modules:
    importlib.import_module(module)
print(f"{name}: imports {', '.join(modules)}; has none of {', '.join(forbidden) or '-'}")
PY
}

models="onnxruntime onnx tokenizers safetensors transformers torch"
base="./libs/kbmesh-protos ./libs/kbmesh-rpc"
check chunker chunker "$base ./services/chunker" "kbmesh_chunker kbmesh_chunker.__main__ kbmesh_chunker.application" "$models numpy qdrant_client"
check retriever retriever "$base ./services/retriever" "kbmesh_retriever kbmesh_retriever.__main__ kbmesh_retriever.application" "$models"
check embedder embedder-cpu "$base ./libs/kbmesh-onnx ./services/embedder" "kbmesh_embedder kbmesh_embedder.__main__ kbmesh_embedder.application" "onnx torch transformers qdrant_client"
check reranker reranker-cpu "$base ./libs/kbmesh-onnx ./services/reranker" "kbmesh_reranker kbmesh_reranker.__main__ kbmesh_reranker.application" "onnx torch transformers qdrant_client"
check client client "./libs/kbmesh-protos ./clients/python" "kbmesh_client" "$models numpy pydantic structlog qdrant_client"
check cli cli "./libs/kbmesh-protos ./clients/python ./clients/cli" "kbmesh_cli kbmesh_cli.__main__" "$models numpy qdrant_client"
