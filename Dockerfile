# One image for servers and workers: `ratchet serve` unless another command is named. See docs/containers.md.
FROM python:3.11-slim AS build
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY src ./src
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM python:3.11-slim
# Which extras to install, such as --build-arg EXTRAS=postgres,codex,claude,memory
ARG EXTRAS=postgres
RUN apt-get update \
    && apt-get install --yes --no-install-recommends ca-certificates git \
    && rm -rf /var/lib/apt/lists/*
COPY --from=build /wheels /wheels
COPY requirements.lock /wheels/
RUN pip install --no-cache-dir --constraint /wheels/requirements.lock "$(ls /wheels/*.whl)[${EXTRAS}]"
RUN useradd --create-home --uid 1000 ratchet && install --directory --owner ratchet /data
USER 1000
WORKDIR /data
VOLUME /data
# Other machines reach the server, so it wants a token that somebody chose: RATCHET_SERVER__TOKEN.
ENV RATCHET_HOME=/data RATCHET_SERVER__HOST=0.0.0.0 RATCHET_SERVER__PORT=8484 RATCHET_LOG__FORMAT=json
EXPOSE 8484
ENTRYPOINT ["ratchet"]
CMD ["serve"]
