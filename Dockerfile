# A small image for CPU runs. No engine has built it yet; what is checked is said in docs/architecture.md.
#
#   docker build -t longdoc .
#   docker run --rm --shm-size=2g -v "$PWD:/work" longdoc run book.txt -o out
#
# torch's default wheel on Linux carries CUDA. To keep the image small, name an index of CPU builds:
#   docker build --build-arg PIP_EXTRA_INDEX_URL=<index of CPU builds of torch> -t longdoc .

FROM python:3.11-slim AS build
ARG PIP_EXTRA_INDEX_URL=""
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /src
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY longdoc longdoc
COPY pipelines pipelines
COPY connectors connectors
RUN python -m venv /opt/longdoc && /opt/longdoc/bin/pip install --constraint constraints.txt .

FROM python:3.11-slim
# git reads repositories; everything else is in the virtual environment.
RUN apt-get update && apt-get install --yes --no-install-recommends git && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home longdoc
COPY --from=build /opt/longdoc /opt/longdoc
ENV PATH=/opt/longdoc/bin:$PATH LONGDOC_CACHE=/home/longdoc/.cache/longdoc
USER longdoc
WORKDIR /work
ENTRYPOINT ["longdoc"]
CMD ["--help"]
