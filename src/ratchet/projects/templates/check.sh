#!/usr/bin/env bash
# The %(script)s checks of this repository. Every one of them runs; the exit code is 0 only if all of them passed.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.."
# What is checked must not be able to report for itself.
unset RATCHET_WEBHOOK_SECRET TASKSGODZILLA_WEBHOOK_TOKEN
# In CI, report.sh tells the end of what is printed here.
if [ -n "${CI:-}" ] && [ -d .git ]; then exec > >(tee -a "${RATCHET_CI_LOG:-.git/ratchet-ci.log}") 2>&1; fi
if [ -z "${VIRTUAL_ENV:-}" ] && [ -x .venv/bin/python3 ]; then
  export VIRTUAL_ENV="$PWD/.venv" PATH="$PWD/.venv/bin:$PATH"
fi

failed=()
check() {
  local name=$1
  shift
  printf '\n== %%s: %%s\n' "$name" "$*"
  "$@" || failed+=("$name")
}

%(commands)s

if [ "${#failed[@]}" -gt 0 ]; then
  printf '\nfailed: %%s\n' "${failed[*]}" >&2
  exit 1
fi
