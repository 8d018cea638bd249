# The orchestrator: no GDAL, no compiler, not root. Built from the repository's root:
#   az acr build --platform linux/amd64 --build-arg BUILD_ID=<tag> -f Dockerfile .
# RUN_MODE=migrate of the same image migrates the database and ends.
ARG PYTHON_IMAGE=docker.io/library/python:3.12-slim-bookworm
FROM ${PYTHON_IMAGE}

WORKDIR /app
COPY infra/requirements/orchestrator.txt requirements.txt
# Only wheels: a package that would have to be compiled stops the build. version-parser (pypgstac needs it) is Python
# alone and has none.
RUN python3 -m pip install --no-cache-dir --no-deps --require-hashes --only-binary=:all: \
      --no-binary=version-parser \
      --target /opt/packages -r requirements.txt \
 && useradd --system --uid 10001 --no-create-home --shell /usr/sbin/nologin geodag \
 && install -d -o geodag -g geodag /var/lib/geodag

COPY infra/images/entrypoint.sh infra/images/healthcheck.py ./
COPY core core
COPY edge edge
COPY messaging messaging
COPY orchestrator orchestrator
COPY repositories repositories
COPY services services
COPY ui ui
COPY workflows workflows

# Found by a .pth file and not by PYTHONPATH: subprocesses of tasks inherit no environment.
# With bytecode: without it a start takes seconds more.
RUN python3 -c "import pathlib, site; p = pathlib.Path(site.getsitepackages()[0]); p.mkdir(parents=True, exist_ok=True); \
(p / 'geodag.pth').write_text('/app\n/opt/packages\n')" \
 && python3 -m compileall -q /app

ARG BUILD_ID
RUN test -n "${BUILD_ID}"
ENV BUILD_ID=${BUILD_ID} \
    RUN_MODE=orchestrator \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    ORCHESTRATOR_HOST=0.0.0.0 \
    ORCHESTRATOR_PORT=8080 \
    WORKFLOWS_DIR=/app/workflows
USER 10001
EXPOSE 8080
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s --retries=3 CMD ["python3", "/app/healthcheck.py"]
ENTRYPOINT ["/app/entrypoint.sh"]
