#!/usr/bin/env bash
# Builds images with docker, podman or buildah: deploy/images/build.sh [NAME...]; all but the CUDA ones without a name.
#   BASE, CUDA_BASE   images to build on            REGISTRY, TAG   REGISTRY/kbmesh-NAME:TAG is the name of what is built
#   TOOL              "docker build" by default      PIP_CONF        a pip.conf for the time of the build: a mirror, say
set -euo pipefail
cd "$(dirname "$0")/../.."
: "${BASE:=python:3.11-slim-bookworm}" "${CUDA_BASE:=}" "${REGISTRY:=localhost}" "${TOOL:=docker build}"
: "${TAG:=$(sed -n 's/^appVersion: "\{0,1\}\([^"]*\)"\{0,1\}/\1/p' deploy/helm/kbmesh/Chart.yaml)}"
names=("$@")
[ ${#names[@]} -gt 0 ] || names=(chunker retriever embedder-cpu reranker-cpu edge cli)
for name in "${names[@]}"; do
  base=$BASE variant=()
  case $name in
  *-cpu) variant=(--build-arg VARIANT=cpu) ;;
  *-cuda)
    base=${CUDA_BASE:?is the image with CUDA, cuDNN and Python that $name is built on}
    variant=(--build-arg VARIANT=cuda)
    ;;
  esac
  file=deploy/images/${name%-cpu}
  file=${file%-cuda}.Dockerfile
  [ -f "$file" ] || { echo "there is no image $name" >&2; exit 2; }
  # shellcheck disable=SC2086 - TOOL is a command with its options
  $TOOL --file "$file" --tag "$REGISTRY/kbmesh-$name:$TAG" --build-arg "BASE=$base" "${variant[@]}" \
    ${PIP_CONF:+--secret id=pip,src="$PIP_CONF"} .
done
