#!/bin/sh
# Makes /opt/kbmesh, all that an image runs:
#   install.sh dependencies LOCK      from requirements/LOCK.lock, by hash
#   install.sh packages FOLDER...     from this repository, and the list of all parts
set -eu
# Byte code is made here: the root of a running pod is read-only, and compiling at each start takes seconds.
into="/build/bin/pip --python /opt/kbmesh/bin/python install --quiet --no-cache-dir --compile"
what=$1
shift
case $what in
dependencies)
  python3 -m venv /build
  /build/bin/pip install --quiet --no-cache-dir --require-hashes --requirement requirements/build.lock
  python3 -m venv --without-pip /opt/kbmesh
  $into --require-hashes --requirement "requirements/$1.lock"
  find /opt/kbmesh/lib -path '*/numpy/*' -type d -name tests -prune -exec rm -rf {} +
  ;;
packages)
  /build/bin/pip wheel --quiet --no-cache-dir --no-deps --no-build-isolation --wheel-dir /wheels "$@"
  $into --no-deps --no-index /wheels/*.whl
  /build/bin/cyclonedx-py environment --output-reproducible --output-format JSON \
    --output-file /opt/kbmesh/sbom.cdx.json /opt/kbmesh/bin/python
  ;;
*)
  echo "install.sh: there is no step $what" >&2
  exit 2
  ;;
esac
