# The small vector store for trying out: Qdrant's engine, embedded.
# docs/images.md tells how it is built.
ARG BASE=python:3.11-slim-bookworm

FROM ${BASE} AS build
WORKDIR /src
COPY requirements requirements
COPY deploy/images/install.sh deploy/images/install.sh
RUN --mount=type=secret,id=pip,target=/etc/pip.conf deploy/images/install.sh dependencies edge
COPY libs/kbmesh-protos libs/kbmesh-protos
COPY libs/kbmesh-rpc libs/kbmesh-rpc
COPY libs/kbmesh-edge libs/kbmesh-edge
RUN deploy/images/install.sh packages ./libs/kbmesh-protos ./libs/kbmesh-rpc ./libs/kbmesh-edge

FROM ${BASE}
RUN useradd --uid 10001 --user-group --no-create-home --home-dir /var/lib/kbmesh --shell /usr/sbin/nologin kbmesh
COPY --from=build /opt/kbmesh /opt/kbmesh
ENV PATH=/opt/kbmesh/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 KBMESH_HOME=/var/lib/kbmesh
USER 10001:10001
EXPOSE 7404 9404
ENTRYPOINT ["python", "-P", "-m", "kbmesh_edge"]
