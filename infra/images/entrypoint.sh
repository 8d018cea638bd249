#!/bin/sh
# Starts what RUN_MODE names. `exec`: Python is process 1 and gets the platform's SIGTERM itself.
set -eu

# An App Service gives a container no files, so two that the settings name come in variables. Neither holds a secret:
# the keys are digests.
files=${GEODAG_FILES_DIR:-/var/lib/geodag}
[ -z "${GEODAG_FILE_KEYS:-}" ] || printf '%s\n' "$GEODAG_FILE_KEYS" >"$files/keys.json"
[ -z "${GEODAG_FILE_PLATFORMS:-}" ] || printf '%s\n' "$GEODAG_FILE_PLATFORMS" >"$files/platforms.json"
unset GEODAG_FILE_KEYS GEODAG_FILE_PLATFORMS

case "${RUN_MODE:-}" in
  orchestrator) exec python3 -m orchestrator.main ;;
  migrate) exec python3 -m orchestrator.migration ;;
  worker) exec python3 -m worker.main ;;
  serving) exec python3 -m serving.main ;;
  *)
    echo "RUN_MODE is '${RUN_MODE:-}'; it must be orchestrator, migrate, worker or serving" >&2
    exit 78
    ;;
esac
