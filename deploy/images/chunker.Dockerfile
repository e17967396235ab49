# The chunking service: documents in, chunks with exact spans out.
# docs/images.md tells how it is built.
ARG BASE=python:3.11-slim-bookworm

FROM ${BASE} AS build
WORKDIR /src
COPY requirements requirements
COPY deploy/images/install.sh deploy/images/install.sh
RUN --mount=type=secret,id=pip,target=/etc/pip.conf deploy/images/install.sh dependencies chunker
COPY libs/kbmesh-protos libs/kbmesh-protos
COPY libs/kbmesh-rpc libs/kbmesh-rpc
COPY services/chunker services/chunker
RUN deploy/images/install.sh packages ./libs/kbmesh-protos ./libs/kbmesh-rpc ./services/chunker

FROM ${BASE}
RUN useradd --uid 10001 --user-group --no-create-home --home-dir /var/lib/kbmesh --shell /usr/sbin/nologin kbmesh
COPY --from=build /opt/kbmesh /opt/kbmesh
ENV PATH=/opt/kbmesh/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 KBMESH_HOME=/var/lib/kbmesh
USER 10001:10001
EXPOSE 7401 9401
ENTRYPOINT ["python", "-P", "-m", "kbmesh_chunker"]
