#!/usr/bin/env bash
# Deploys this commit to what infra/ made, or rolls back; docs/operations.md explains each step.
#   scripts/deploy.sh --group G --prefix P --gdal-image ghcr.io/osgeo/gdal@sha256:... [--dry-run]
#   scripts/deploy.sh --group G --prefix P --rollback TAG [--dry-run]
# Also: --python-image IMAGE, --platforms platforms.json (the gateway's), --no-smoke, and --heavy-on appService where the
# templates were deployed so (heavyWorkersOn).
# GEODAG_OPERATOR_KEY: an operator's key or token (the gateway of infra/ takes tokens alone). Needs az (logged in), curl, git
# and the project's .venv. Tags are commits: an image that exists is never built again, so a run that stopped goes on.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

group='' prefix='' gdal_image='' python_image='' platforms='' rollback='' dry='' smoke=yes heavy_on=jobs
while [ $# -gt 0 ]; do
  case $1 in
    --group) group=$2; shift ;;
    --prefix) prefix=$2; shift ;;
    --gdal-image) gdal_image=$2; shift ;;
    --python-image) python_image=$2; shift ;;
    --platforms) platforms=$2; shift ;;
    --rollback) rollback=$2; shift ;;
    --heavy-on) heavy_on=$2; shift ;;
    --dry-run) dry=yes ;;
    --no-smoke) smoke='' ;;
    *) printf 'deploy: unknown argument %s; see the head of scripts/deploy.sh\n' "$1" >&2; exit 64 ;;
  esac
  shift
done

say() { printf 'deploy: %s\n' "$*"; }
fail() { printf 'deploy: %s\n' "$*" >&2; exit "${2:-1}"; }
run() { # run COMMAND...: what changes something; a dry run only shows it
  if [ -n "$dry" ]; then printf '+ %s\n' "$(printf '%q ' "$@" | sed 's/ $//')"; else "$@"; fi
}

[ -n "$group" ] && [ -n "$prefix" ] || fail "--group and --prefix are needed" 64
[[ $heavy_on =~ ^(jobs|appService)$ ]] || fail "--heavy-on is jobs or appService" 64
registry="${prefix}acr"
wait_seconds=${DEPLOY_WAIT_SECONDS:-600} pause_seconds=${DEPLOY_PAUSE_SECONDS:-5}
changed=()  # parts that run the new build already, for the way back

image() { printf '%s.azurecr.io/%s-%s:%s' "$registry" "$prefix" "$1" "$2"; }
url() { printf 'https://%s-%s.azurewebsites.net' "$prefix" "$1"; }

exists() { az acr repository show --name "$registry" --image "$prefix-$1:$2" --output none 2>/dev/null; }

build() { # build IMAGE DOCKERFILE ARGUMENT...
  local name=$1 file=$2
  shift 2
  if [ -z "$dry" ] && exists "$name" "$tag"; then
    say "$name:$tag exists already and is not built again"
    return 0
  fi
  run az acr build --registry "$registry" --platform linux/amd64 --image "$prefix-$name:$tag" \
    --build-arg "BUILD_ID=$tag" "$@" -f "$file" .
}

migrate() { # expand: the build that still runs goes on with the new schema
  local execution status deadline=$((SECONDS + wait_seconds))
  run az containerapp job update --name "$prefix-migrate" --resource-group "$group" \
    --image "$(image orchestrator "$tag")" --output none || return 1
  if [ -n "$dry" ]; then
    run az containerapp job start --name "$prefix-migrate" --resource-group "$group" --query name --output tsv
    return 0
  fi
  execution=$(az containerapp job start --name "$prefix-migrate" --resource-group "$group" --query name --output tsv) \
    || return 1
  while :; do
    status=$(az containerapp job execution show --name "$prefix-migrate" --resource-group "$group" \
      --job-execution-name "$execution" --query properties.status --output tsv) || status=unknown
    case $status in
      Succeeded) say "schema migrated"; return 0 ;;
      Failed | Degraded | Stopped) say "migration $execution: $status" >&2; return 1 ;;
    esac
    [ $SECONDS -lt $deadline ] || { say "migration $execution still $status after $wait_seconds s" >&2; return 1; }
    sleep "$pause_seconds"
  done
}

running_tag() { # the build that a web app is set to
  az webapp config container show --name "$prefix-$1" --resource-group "$group" \
    --query "[?name=='DOCKER_CUSTOM_IMAGE_NAME'].value | [0]" --output tsv | sed 's/.*://'
}

answers() { # answers URL: 200, and prints the body; the key travels on stdin, not on a command line
  printf 'header = "X-API-Key: %s"\n' "${GEODAG_OPERATOR_KEY:-}" \
    | curl --silent --show-error --fail --max-time 10 --config - "$1" 2>/dev/null
}

await_build() { # await_build BASE READY_PATH BUILD_PATH TAG: ready, and it is this build that is
  local deadline=$((SECONDS + wait_seconds)) body=''
  [ -z "$dry" ] || { printf '+ wait for %s%s, then for build %s at %s\n' "$1" "$2" "$4" "$3"; return 0; }
  while :; do
    if answers "$1$2" >/dev/null; then
      body=$(answers "$1$3" || true)
      [[ $body != *"\"$4\""* ]] || { say "$1 is ready and runs build $4"; return 0; }
    fi
    if [ $SECONDS -ge $deadline ]; then
      say "$1 is not ready with build $4 after $wait_seconds s" >&2
      return 1
    fi
    sleep "$pause_seconds"
  done
}

set_site() { # set_site APP IMAGE TAG: restart alone would not pull another image
  local app="$prefix-$1"
  run az webapp config container set --name "$app" --resource-group "$group" \
    --container-image-name "$(image "$2" "$3")" --output none || return 1
  run az webapp restart --name "$app" --resource-group "$group" || return 1
  await_build "$(url "$1")" /readyz /health "$3"
}

set_workers() { # running executions of the heavy job end with the build they began with
  run az containerapp update --name "$prefix-worker-light" --resource-group "$group" \
    --image "$(image worker "$1")" --output none || return 1
  if [ "$heavy_on" = appService ]; then
    set_site worker worker "$1"
  else
    run az containerapp job update --name "$prefix-worker-heavy" --resource-group "$group" \
      --image "$(image worker "$1")" --output none
  fi
}

set_gateway() { # set_gateway TAG: the folder is made of this checkout, so a way back checks the old commit out
  local folder root=.
  folder=$scratch/$1
  if [ "$1" != "$tag" ] || [ -n "$rollback" ]; then
    root=$folder/checkout
    run git worktree add --detach --force "$root" "$1" || return 1
  fi
  run .venv/bin/python "$root/scripts/functions_package.py" "$folder/app" ${platforms:+"$platforms"} || return 1
  run az functionapp config appsettings set --name "$prefix-gateway" --resource-group "$group" \
    --settings "BUILD_ID=$1" --output none || return 1
  run az functionapp deployment source config-zip --name "$prefix-gateway" --resource-group "$group" \
    --src "$folder/app.zip" --output none || return 1
  [ "$root" = . ] || run git worktree remove --force "$root" || return 1
  await_build "$(url gateway)" /api/readyz /api/openapi.json "$1"
}

set_part() { # set_part PART TAG
  case $1 in
    orchestrator) set_site orchestrator orchestrator "$2" ;;
    serving) set_site serving worker "$2" ;;
    workers) set_workers "$2" ;;
    gateway) set_gateway "$2" ;;
  esac
}

set_all() { # orchestrators first: they understand workers and a gateway of the build before
  local part
  for part in orchestrator serving workers gateway; do
    changed+=("$part")
    set_part "$part" "$1" || return 1
  done
}

migrations_of() { git ls-tree --name-only "$1" repositories/migrations/ | sed 's|.*/||' | sort; }

speaks() { # speaks OLD NEW: may build OLD run on the schema of NEW? Only if nothing between them takes away
  local old new contracts
  old=$(migrations_of "$1") && [ -n "$old" ] || { say "$1 is no commit of this repository" >&2; return 1; }
  new=$(migrations_of "$2") && [ -n "$new" ] || { say "$2 is no commit of this repository" >&2; return 1; }
  contracts=$(comm -13 <(printf '%s\n' "$old") <(printf '%s\n' "$new") | grep '_contract' || true)
  [ -z "$contracts" ] || { say "$1 does not speak the present schema: $(printf '%s' "$contracts" | tr '\n' ' ')" >&2; return 1; }
}

go_back() { # to the build that ran before, for the parts that were changed
  local part
  [ -n "$previous" ] && [ "$previous" != "$tag" ] || fail "failed, and there is no build to go back to"
  speaks "$previous" "$tag" || fail "failed, and $previous cannot come back; mend forward"
  say "going back to $previous: ${changed[*]}" >&2
  for part in "${changed[@]}"; do
    set_part "$part" "$previous" || fail "going back failed at $part; docs/operations.md, \"Going back\""
  done
  fail "failed; $previous runs again"
}

previous='' scratch=$(mktemp -d)
trap 'rm -rf "$scratch"; git worktree prune' EXIT
if [ -n "$rollback" ]; then
  tag=$rollback
  if [ -z "$dry" ]; then
    previous=$(running_tag orchestrator)
    speaks "$rollback" "$previous" || fail "$rollback is refused"
    exists orchestrator "$rollback" && exists worker "$rollback" || fail "there are no images $rollback"
  fi
  set_all "$rollback" || fail "going back failed; docs/operations.md, \"Going back\""
  say "$rollback runs"
  exit 0
fi

[[ $gdal_image == *@sha256:* ]] || fail "--gdal-image must name the worker's base by digest (name@sha256:...)" 64
[ -n "$dry" ] || [ -z "$(git status --porcelain)" ] || fail "commit first: the tag names a commit"
tag=$(git rev-parse --short=12 HEAD)
say "build $tag to $group"
build orchestrator Dockerfile ${python_image:+--build-arg "PYTHON_IMAGE=$python_image"} || fail "the orchestrator's image was not built; nothing was changed"
build worker Dockerfile.worker --build-arg "GDAL_IMAGE=$gdal_image" || fail "the worker's image was not built; nothing was changed"
if [ -z "$dry" ]; then previous=$(running_tag orchestrator) || fail "the running build is not known; nothing was changed"; fi
migrate || fail "the migration failed; its transaction rolled back and ${previous:-the old build} runs on"
set_all "$tag" || go_back
[ -z "$smoke" ] || run scripts/smoke.sh "$(url gateway)" "$(url orchestrator)" "$(url serving)" || go_back
say "$tag runs"
