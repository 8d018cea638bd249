#!/usr/bin/env bash
# Makes .venv-functions: the real Python worker library of Azure Functions with what the gateway imports, and nothing
# else. The library declares Python 3.13; where that is missing it runs on an older one (azure-local.md §3).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec 9<scripts/functions_venv.sh
flock 9

lock=scripts/functions-requirements.lock
find_python() {
  local candidate
  for candidate in python3.13 "$HOME"/.pyenv/versions/3.13.*/bin/python .venv/bin/python python3; do
    "$candidate" -c 'import ensurepip, sys, venv; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' \
      >/dev/null 2>&1 || continue
    printf '%s\n' "$candidate"
    return 0
  done
  return 1
}

stamp=.venv-functions/geodag-installed
wanted=$(sha256sum <"$lock")
[ "$(cat "$stamp" 2>/dev/null || true)" != "$wanted" ] || exit 0
python=$(find_python) || { printf 'functions_venv: need Python 3.11 to 3.13 with venv\n' >&2; exit 1; }
printf 'functions_venv: creating .venv-functions with %s\n' "$("$python" --version)"
"$python" -m venv --clear .venv-functions
.venv-functions/bin/python -m pip install -qq --no-deps --require-hashes --ignore-requires-python -r "$lock"
printf '%s\n' "$wanted" >"$stamp"
