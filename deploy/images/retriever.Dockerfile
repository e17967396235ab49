# The retrieval orchestrator, and the ingestion behind it.
# docs/images.md tells how it is built.
ARG BASE=python:3.11-slim-bookworm

FROM ${BASE} AS build
WORKDIR /src
COPY requirements requirements
COPY deploy/images/install.sh deploy/images/install.sh
RUN --mount=type=secret,id=pip,target=/etc/pip.conf deploy/images/install.sh dependencies retriever
COPY libs/kbmesh-protos libs/kbmesh-protos
COPY libs/kbmesh-rpc libs/kbmesh-rpc
COPY services/retriever services/retriever
RUN deploy/images/install.sh packages ./libs/kbmesh-protos ./libs/kbmesh-rpc ./services/retriever

FROM ${BASE}
RUN useradd --uid 10001 --user-group --no-create-home --home-dir /var/lib/kbmesh --shell /usr/sbin/nologin kbmesh
COPY --from=build /opt/kbmesh /opt/kbmesh
ENV PATH=/opt/kbmesh/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 KBMESH_HOME=/var/lib/kbmesh
USER 10001:10001
EXPOSE 7400 9400
ENTRYPOINT ["python", "-P", "-m", "kbmesh_retriever"]
