# The kbmesh command: exports and pulls models, ingests as a worker, tests a release.
# docs/images.md tells how it is built.
ARG BASE=python:3.11-slim-bookworm

FROM ${BASE} AS build
WORKDIR /src
COPY requirements requirements
COPY deploy/images/install.sh deploy/images/install.sh
RUN --mount=type=secret,id=pip,target=/etc/pip.conf deploy/images/install.sh dependencies tools
COPY libs/kbmesh-protos libs/kbmesh-protos
COPY libs/kbmesh-onnx libs/kbmesh-onnx
COPY clients/python clients/python
COPY clients/cli clients/cli
RUN deploy/images/install.sh packages ./libs/kbmesh-protos ./libs/kbmesh-onnx ./clients/python ./clients/cli

FROM ${BASE}
RUN useradd --uid 10001 --user-group --no-create-home --home-dir /var/lib/kbmesh --shell /usr/sbin/nologin kbmesh
COPY --from=build /opt/kbmesh /opt/kbmesh
ENV PATH=/opt/kbmesh/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 KBMESH_HOME=/var/lib/kbmesh
USER 10001:10001
ENTRYPOINT ["kbmesh"]
