# The embedding service. Models come from a folder that is mounted: none is inside.
# docs/images.md tells how it is built.
ARG BASE=python:3.11-slim-bookworm

FROM ${BASE} AS build
# cpu or cuda. For cuda, BASE has CUDA's run-time libraries and cuDNN beside Python 3.11 or newer.
ARG VARIANT=cpu
WORKDIR /src
COPY requirements requirements
COPY deploy/images/install.sh deploy/images/install.sh
RUN --mount=type=secret,id=pip,target=/etc/pip.conf deploy/images/install.sh dependencies embedder-${VARIANT}
COPY libs/kbmesh-protos libs/kbmesh-protos
COPY libs/kbmesh-rpc libs/kbmesh-rpc
COPY libs/kbmesh-onnx libs/kbmesh-onnx
COPY services/embedder services/embedder
RUN deploy/images/install.sh packages ./libs/kbmesh-protos ./libs/kbmesh-rpc ./libs/kbmesh-onnx ./services/embedder

FROM ${BASE}
RUN useradd --uid 10001 --user-group --no-create-home --home-dir /var/lib/kbmesh --shell /usr/sbin/nologin kbmesh
COPY --from=build /opt/kbmesh /opt/kbmesh
ENV PATH=/opt/kbmesh/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 KBMESH_HOME=/var/lib/kbmesh
USER 10001:10001
EXPOSE 7402 9402
ENTRYPOINT ["python", "-P", "-m", "kbmesh_embedder"]
