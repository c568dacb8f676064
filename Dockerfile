# Two images from one file: `cpu`, the default, and `cuda`. Both run as a user without rights, and both are Ray nodes.
#
#   docker build --tag longdoc:cpu .
#   docker build --tag longdoc:cuda --target cuda .
#   docker run --rm --shm-size=2g --volume "$PWD:/work" longdoc:cpu run book.txt --output out
#   docker run --rm --shm-size=2g --volume "$PWD:/work" --gpus all longdoc:cuda run book.txt --output out
#   docker run --init --network host --entrypoint ray longdoc:cpu start --head --block
#
# Python, Ray, torch and transformers are pinned (here and in constraints.txt), because all nodes of a cluster must have
# the same. No engine has built these images yet: docs/cluster.md says what was checked, and how.

# Python 3.11 on Debian 12, whose git (2.39) is the one that longdoc's tests run with.
ARG PYTHON_IMAGE=python:3.11.14-slim-bookworm
# The compiler for flash-attn. Its major and minor version are those of the CUDA that torch 2.13.0 is built with.
ARG CUDA_IMAGE=nvidia/cuda:13.0.2-devel-ubuntu22.04


# ---- what both images are at run time, but for Python's packages
FROM ${PYTHON_IMAGE} AS runtime
# git and ssh fetch repositories, tzdata knows the zones of schedules, tini passes signals on and reaps what Ray leaves
# behind, wget and procps are what Ray's launchers on Kubernetes and other machines look for in a node. Debian keeps no
# old versions of a package: pins of these would break the build within weeks.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends ca-certificates git openssh-client procps tini tzdata wget \
    && rm -rf /var/lib/apt/lists/* \
    # A mounted repository belongs to somebody else. longdoc heeds no configuration, hook or filter of a repository.
    && git config --system safe.directory '*' \
    && useradd --uid 1000 --create-home longdoc \
    && install --directory --owner=longdoc --group=longdoc /work /home/longdoc/.cache /home/longdoc/.cache/longdoc
ENV PATH=/opt/longdoc/bin:$PATH LONGDOC_CACHE=/home/longdoc/.cache/longdoc PYTHONUNBUFFERED=1
USER 1000:1000
WORKDIR /work
ENTRYPOINT ["tini", "--", "longdoc"]
CMD ["--help"]


# ---- a virtual environment, and the pins
FROM ${PYTHON_IMAGE} AS environment
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PATH=/opt/longdoc/bin:$PATH
WORKDIR /src
RUN python -m venv /opt/longdoc
COPY constraints.txt ./


# ---- Python's packages for CPUs
FROM environment AS build-cpu
# torch on the usual index carries CUDA, several gigabytes of it. Here the builds without it are.
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
RUN pip install --constraint constraints.txt --extra-index-url "$TORCH_INDEX" torch
COPY pyproject.toml README.md LICENSE ./
COPY longdoc longdoc
COPY pipelines pipelines
COPY connectors connectors
RUN pip install --constraint constraints.txt --extra-index-url "$TORCH_INDEX" '.[cluster]'


# ---- torch with CUDA: what flash-attn is compiled against, and what it runs with
FROM environment AS torch-cuda
RUN pip install --constraint constraints.txt torch


# ---- flash-attn has no wheel for this torch: it is compiled, for the named generations of GPUs only
FROM ${CUDA_IMAGE} AS compiler
FROM torch-cuda AS flash-attn
# hadolint ignore=DL3008
RUN apt-get update && apt-get install --yes --no-install-recommends g++ && rm -rf /var/lib/apt/lists/*
COPY --from=compiler /usr/local/cuda-13.0 /usr/local/cuda
# 80: A100, A30 (and 3090, 4090, L4, L40, which run its code), 90: H100, H200; 100 and 120 are Blackwell. A compiler
# process takes about 4 GB of memory, MAX_JOBS of them run at once.
ARG FLASH_ATTN_CUDA_ARCHS="80;90"
ARG MAX_JOBS=4
# FORCE_BUILD: else flash-attn's setup looks for a wheel outside of any index, which no pin holds.
ENV CUDA_HOME=/usr/local/cuda FLASH_ATTENTION_FORCE_BUILD=TRUE
RUN pip install --constraint constraints.txt ninja packaging psutil setuptools wheel \
    && pip wheel --constraint constraints.txt --no-deps --no-build-isolation --wheel-dir /wheels flash-attn


# ---- Python's packages for GPUs
FROM torch-cuda AS build-cuda
COPY --from=flash-attn /wheels /wheels
COPY pyproject.toml README.md LICENSE ./
COPY longdoc longdoc
COPY pipelines pipelines
COPY connectors connectors
RUN pip install --constraint constraints.txt --find-links /wheels '.[cluster,gpu]'


# ---- the image for GPUs. CUDA's libraries come with torch; the driver is the host's.
FROM runtime AS cuda
ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
COPY --from=build-cuda /opt/longdoc /opt/longdoc


# ---- the image for CPUs: last, so it is what `docker build` makes when no target is named
FROM runtime AS cpu
COPY --from=build-cpu /opt/longdoc /opt/longdoc
