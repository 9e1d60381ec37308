#!/usr/bin/env bash
# Makes a fresh clone ready for its checks.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.."
# What is installed must not be able to report.
unset RATCHET_WEBHOOK_SECRET TASKSGODZILLA_WEBHOOK_TOKEN
# In CI, report.sh tells the end of what is printed here.
if [ -n "${CI:-}" ] && [ -d .git ]; then exec > >(tee "${RATCHET_CI_LOG:-.git/ratchet-ci.log}") 2>&1; fi

run() {
  printf '\n== %%s\n' "$*"
  "$@"
}
%(commands)s
