#!/usr/bin/env bash
# Tells Ratchet how a job of CI ended: report.sh STATUS [CHECK]. It never makes a job fail.
#
# Needs RATCHET_URL, where Ratchet listens, and RATCHET_WEBHOOK_SECRET, the webhook secret of the project. No other
# token is used. What CI does not say itself can be given in RATCHET_CI_PROVIDER (github or gitlab), RATCHET_CI_CHECK,
# RATCHET_CI_BRANCH, RATCHET_CI_COMMIT, RATCHET_CI_TARGET_URL, RATCHET_CI_REPOSITORY, RATCHET_CI_LOG and RATCHET_CI_RUN_ID.
set +x
set -uo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.." || exit 0

quit() {
  printf 'report: %s\n' "$1" >&2
  exit 0
}

# A JSON text. What is no UTF-8 is left out, and so are control characters but for the ends of lines.
json() {
  local text
  if command -v iconv >/dev/null 2>&1; then
    text=$(printf '%s' "$1" | iconv -c -f UTF-8 -t UTF-8 2>/dev/null)
  else
    text=$(printf '%s' "$1" | LC_ALL=C tr -cd '\012\040-\176')
  fi
  printf '%s' "$text" | LC_ALL=C tr '\011' ' ' | LC_ALL=C tr -d '\000-\010\013-\037\177' |
    LC_ALL=C sed 's/["\\]/\\&/g' | LC_ALL=C awk 'BEGIN { printf "\"" } NR > 1 { printf "\\n" } { printf "%s", $0 } END { printf "\"" }'
}

hex() {
  od -An -v -tx1 | tr -d ' \n'
}

# HMAC-SHA256 of standard input. The secret is in no command line, where others could read it.
sign() {
  if ! command -v openssl >/dev/null 2>&1; then
    RATCHET_SIGN_WITH="$secret" python3 -c 'import hashlib, hmac, os, sys
key = os.environb[b"RATCHET_SIGN_WITH"]
print(hmac.new(key, sys.stdin.buffer.read(), hashlib.sha256).hexdigest())'
    return
  fi
  local key inner='' outer='' byte piece i
  key=$(printf '%s' "$secret" | hex)
  if [ "${#key}" -gt 128 ]; then
    key=$(printf '%s' "$secret" | openssl dgst -sha256 -binary | hex)
  fi
  for ((i = 0; i < 128; i += 2)); do
    byte=${key:i:2}
    byte=$((16#${byte:-00}))
    printf -v piece '\\x%02x' $((byte ^ 0x36))
    inner+=$piece
    printf -v piece '\\x%02x' $((byte ^ 0x5c))
    outer+=$piece
  done
  { printf '%b' "$inner" && cat; } | openssl dgst -sha256 -binary |
    { printf '%b' "$outer" && cat; } | openssl dgst -sha256 -binary | hex
}

unique() {
  cat /proc/sys/kernel/random/uuid 2>/dev/null || openssl rand -hex 16 2>/dev/null ||
    python3 -c 'import uuid; print(uuid.uuid4())' 2>/dev/null || printf '%s-%s-%s' "$(date +%s)" "$$" "$RANDOM$RANDOM"
}

[ "$#" -ge 1 ] || quit 'usage: report.sh STATUS [CHECK]; nothing is reported'
url=${RATCHET_URL:-${TASKSGODZILLA_API_BASE:-}}
secret=${RATCHET_WEBHOOK_SECRET:-${TASKSGODZILLA_WEBHOOK_TOKEN:-}}
unset RATCHET_WEBHOOK_SECRET TASKSGODZILLA_WEBHOOK_TOKEN
[ -n "$url" ] || quit 'RATCHET_URL is not set; nothing is reported'
[ -n "$secret" ] || quit 'RATCHET_WEBHOOK_SECRET is not set; nothing is reported'
case $url in http://* | https://*) ;; *) quit 'RATCHET_URL must start with http:// or https://; nothing is reported' ;; esac
command -v curl >/dev/null 2>&1 || quit 'curl is missing; nothing is reported'

provider=${RATCHET_CI_PROVIDER:-${TASKSGODZILLA_CI_PROVIDER:-}}
if [ -z "$provider" ]; then
  if [ -n "${GITLAB_CI:-}" ]; then provider=gitlab; else provider=github; fi
fi
check=${2:-${RATCHET_CI_CHECK:-${GITHUB_JOB:-${CI_JOB_NAME:-ci}}}}
commit=${RATCHET_CI_COMMIT:-${CI_COMMIT_SHA:-${GITHUB_SHA:-$(git rev-parse HEAD 2>/dev/null)}}}
[ -n "$commit" ] || quit 'the commit is not known; nothing is reported'
branch=${RATCHET_CI_BRANCH:-${TASKSGODZILLA_BRANCH:-${CI_COMMIT_REF_NAME:-${GITHUB_HEAD_REF:-${GITHUB_REF_NAME:-}}}}}
[ -n "$branch" ] || branch=$(git symbolic-ref --quiet --short HEAD 2>/dev/null)
target=${RATCHET_CI_TARGET_URL:-${TASKSGODZILLA_TARGET_URL:-${CI_JOB_URL:-}}}
if [ -z "$target" ] && [ -n "${GITHUB_RUN_ID:-}" ]; then
  target="${GITHUB_SERVER_URL:-}/${GITHUB_REPOSITORY:-}/actions/runs/$GITHUB_RUN_ID"
fi
repository=${RATCHET_CI_REPOSITORY:-${CI_PROJECT_URL:-}}
if [ -z "$repository" ] && [ -n "${GITHUB_REPOSITORY:-}" ]; then
  repository="${GITHUB_SERVER_URL:-https://github.com}/$GITHUB_REPOSITORY.git"
fi
[ -n "$repository" ] || repository=$(git remote get-url origin 2>/dev/null)
# The address that CI clones from may hold a token.
repository=$(printf '%s' "$repository" | sed -E 's#^([a-z+]+://)[^/@]*@#\1#')
now=$(date -u +%Y-%m-%dT%H:%M:%SZ)
query=${RATCHET_CI_RUN_ID:-${TASKSGODZILLA_PROTOCOL_RUN_ID:-}}
case $query in '' | *[!0-9]*) query='' ;; *) query="?protocol_run_id=$query" ;; esac

case $1 in
  success | passed | ok) github=success gitlab=success ;;
  pending | running) github=pending gitlab=running ;;
  cancelled | canceled) github=error gitlab=canceled ;;
  *) github=failure gitlab=failed ;;
esac

# The end of what the scripts beside this one printed, without colours.
log=''
if [ "$github" = failure ] && [ -f "${RATCHET_CI_LOG:-.git/ratchet-ci.log}" ]; then
  log=$(tail -c 6000 -- "${RATCHET_CI_LOG:-.git/ratchet-ci.log}" | LC_ALL=C sed $'s/\033\\[[0-9;]*[A-Za-z]//g' | LC_ALL=C tr -d '\000')
fi
detail=$(printf '{"job":%s,"log_tail":%s}' "$(json "$check")" "$(json "$log")")

delivery=$(unique)
if [ "$provider" = gitlab ]; then
  body=$(printf '{"object_kind":"pipeline","object_attributes":{"name":%s,"status":"%s","ref":%s,"sha":%s,"url":%s,' \
    "$(json "$check")" "$gitlab" "$(json "$branch")" "$(json "$commit")" "$(json "$target")")
  body+=$(printf '"finished_at":"%s","detail":%s},"project":{"git_http_url":%s}}' \
    "$now" "$detail" "$(json "$repository")")
else
  provider=github
  body=$(printf '{"sha":%s,"context":%s,"state":"%s","target_url":%s,"branches":[{"name":%s,"commit":{"sha":%s}}],' \
    "$(json "$commit")" "$(json "$check")" "$github" "$(json "$target")" "$(json "$branch")" "$(json "$commit")")
  body+=$(printf '"updated_at":"%s","repository":{"clone_url":%s},"detail":%s}' \
    "$now" "$(json "$repository")" "$detail")
fi

signature=$(printf '%s' "$body" | sign 2>/dev/null)
[ "${#signature}" -eq 64 ] || quit 'neither openssl nor python3 could sign; nothing is reported'
headers() {
  printf 'Content-Type: application/json\n'
  if [ "$provider" = gitlab ]; then
    printf 'X-Gitlab-Event: Pipeline Hook\nX-Gitlab-Event-UUID: %s\nX-Gitlab-Token: %s\n' "$delivery" "$secret"
    printf 'X-Gitlab-Signature-256: sha256=%s\n' "$signature"
  else
    printf 'X-GitHub-Event: status\nX-GitHub-Delivery: %s\n' "$delivery"
    printf 'X-Hub-Signature-256: sha256=%s\n' "$signature"
  fi
}
printf '%s' "$body" | curl --silent --show-error --fail --output /dev/null --proto '=http,https' --max-time 30 \
  --retry 3 --header @<(headers) --data-binary @- -- "${url%/}/webhooks/$provider$query" ||
  quit "$provider check $check of $commit could not be reported"
printf 'report: %s is %s for %s\n' "$check" "$1" "$commit"
exit 0
