#!/usr/bin/env bash
# Runs a command with the local cluster's environment; deletes the cluster afterwards if it was not there
# before, unless KEEP=1. The command's exit code is this script's.
set -euo pipefail
cd "$(dirname "$0")/../.."
venv=$(tests/support/setup.sh)
cluster() { PYTHONPATH=tests/support "$venv/bin/python" -m localcluster "$@"; }

name="${TREADLE_CLUSTER_NAME:-treadle}"
mine=1
if cluster status --quiet; then mine=0; fi
down() {
  if [ "$mine" = 1 ] && [ "${KEEP:-}" != 1 ]; then cluster down --name "$name"; fi
}
trap down EXIT
cluster up
eval "$(cluster env)"
"$@"
