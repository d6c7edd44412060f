# The operator's image: the wheel and its pinned dependencies, nothing of the build, no root.
# To build behind a mirror: --build-arg PYTHON_IMAGE=..., and pip's own variables for an index.
ARG PYTHON_IMAGE=python:3.13-slim

FROM ${PYTHON_IMAGE} AS build
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /src
COPY constraints.txt ./
# Everything that is fetched is checked against its hash. The build's own tools are among it; they stay here.
RUN pip download --require-hashes --only-binary=:all: --dest /wheels -r constraints.txt
COPY pyproject.toml README.md LICENSE ./
COPY planner planner
COPY operator operator
RUN pip install --no-index --find-links /wheels hatchling \
 && pip wheel --no-deps --no-build-isolation --no-index --wheel-dir /dist . \
 && python -m venv --without-pip /opt/shardwright \
 && pip --python /opt/shardwright/bin/python install --no-index --find-links /wheels --find-links /dist \
      --no-compile 'shardwright[operator]' \
 && /opt/shardwright/bin/python -m compileall -q /opt/shardwright/lib

FROM ${PYTHON_IMAGE}
LABEL org.opencontainers.image.title="shardwright" \
      org.opencontainers.image.description="Plans and runs multi-node vLLM on Kubernetes" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /opt/shardwright /opt/shardwright
ENV PATH=/opt/shardwright/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER 65532:65532
WORKDIR /tmp
EXPOSE 8080 9090
ENTRYPOINT ["shardwright"]
CMD ["operator"]
