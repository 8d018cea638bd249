#!/usr/bin/env bash
# Asks a deployed platform to do something on each thing it depends on; the end of scripts/deploy.sh, or by hand:
#   GEODAG_OPERATOR_KEY=<key or token> scripts/smoke.sh GATEWAY_URL ORCHESTRATOR_URL SERVING_URL
# What it does: every door ready (database, blobs); the gateway reads its views; one `echo` job end to end (database,
# queue, light worker, callbacks) comes back with this run's own word; one `large_values` job on the heavy queue whose
# values travel as blobs: written by the worker, read by orchestrator and worker, and gone with the job by the upkeep.
# A cancelled job shows that what is written can be taken back. Nothing of a partner is touched. Exit 0: all good.
set -euo pipefail

[ $# -eq 3 ] || { printf 'smoke: expected GATEWAY_URL ORCHESTRATOR_URL SERVING_URL\n' >&2; exit 64; }
[ -n "${GEODAG_OPERATOR_KEY:-}" ] || { printf 'smoke: GEODAG_OPERATOR_KEY is needed\n' >&2; exit 64; }
gateway=${1%/} orchestrator=${2%/} serving=${3%/}
jobs=$gateway/api/proxy/orchestrator/api/v1/jobs
wait_seconds=${SMOKE_WAIT_SECONDS:-180}

fail() { printf 'smoke: %s\n' "$*" >&2; exit 1; }
ask() { # ask METHOD URL [BODY]: prints the answer; the key travels on stdin, not on a command line
  local method=$1 url=$2 body=${3:-}
  printf 'header = "X-API-Key: %s"\n' "$GEODAG_OPERATOR_KEY" \
    | curl --silent --show-error --fail-with-body --max-time 40 --config - --request "$method" "$url" \
      ${body:+--header 'Content-Type: application/json' --data "$body"}
}
field() { python3 -c 'import json, sys
value = json.load(sys.stdin)
for name in sys.argv[1].split("."):
    value = (value or {}).get(name)
print(value if isinstance(value, str) else json.dumps(value))' "$1"; }

create() { # create BODY: prints the job's id
  local answer
  answer=$(ask POST "$jobs" "$1") || fail "no job was created: $answer"
  field job_id <<<"$answer"
}
finish() { # finish JOB: waits for its end and prints it
  local answer status deadline=$((SECONDS + wait_seconds))
  while :; do
    answer=$(ask GET "$jobs/$1?wait=20") || fail "job $1 cannot be read: $answer"
    status=$(field status <<<"$answer")
    case $status in
      COMPLETED) printf '%s' "$answer"; return 0 ;;
      FAILED | CANCELLED) fail "job $1 is $status: $(field error <<<"$answer")" ;;
    esac
    [ $SECONDS -lt $deadline ] || fail "job $1 is still $status after $wait_seconds s; geodag job show $1"
  done
}

for door in "$gateway/api/livez" "$gateway/api/readyz" "$orchestrator/readyz" "$serving/readyz" \
  "$gateway/api/status/stats"; do
  ask GET "$door" >/dev/null || fail "$door does not answer well"
done
printf 'smoke: every door is open\n'

word=canary-$$-$RANDOM
job=$(create "{\"workflow_id\": \"echo_test\", \"inputs\": {\"message\": \"$word\"}}")
ended=$(finish "$job") || exit 1
[ "$(field outputs.echoed.message <<<"$ended")" = "$word" ] || fail "echo job $job did not come back with $word"
printf 'smoke: echo came back\n'

job=$(create '{"workflow_id": "large_values", "inputs": {"count": 600, "bytes_each": 200}}')
ended=$(finish "$job") || exit 1
[ "$(field outputs.processed <<<"$ended")" = 600 ] || fail "large values of job $job were not all processed"
ask GET "$jobs/$job/nodes/make/output" | python3 -c 'import json, sys
assert json.load(sys.stdin)["count"] == 600' || fail "the blob of job $job cannot be read back"
printf 'smoke: large values were written, read and processed\n'

job=$(create '{"workflow_id": "sleep_test", "inputs": {"seconds": 600}}')
answer=$(ask POST "$gateway/api/proxy/orchestrator/api/v1/jobs/$job/cancel" '{"reason": "smoke"}') \
  || fail "job $job was not cancelled: $answer"
printf 'smoke: a job was cancelled; all good\n'
