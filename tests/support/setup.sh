#!/usr/bin/env bash
# Makes what the tests and the demo need on this host: Debian programs and the virtual environment.
# Prints the path of the environment as its last line on stdout; progress goes to stderr. The second time: nothing.
set -euo pipefail
cd "$(dirname "$0")/../.."
cache=${TREADLE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/treadle}
say() { printf 'setup: %s\n' "$*" >&2; }

python=""
for candidate in python3 python3.13 python3.12 python3.11; do
  if command -v "$candidate" >/dev/null && "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
    python=$candidate
    break
  fi
done

missing=()
[ -n "$python" ] || missing+=(python3)
{ [ -n "$python" ] && "$python" -c 'import ensurepip, venv' 2>/dev/null; } || missing+=(python3-venv)
ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || missing+=(postgresql)
command -v redis-server >/dev/null || missing+=(redis-server)
if [ "${#missing[@]}" -gt 0 ]; then
  if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    say "missing: ${missing[*]}. Install them first, on Debian: sudo apt-get install ${missing[*]}"
    exit 1
  fi
  say "installing Debian packages: ${missing[*]}"
  apt-get update -qq >&2
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >&2
  python=${python:-python3}
fi

digest=$( { cat requirements.lock; "$python" -V; } | sha256sum | cut -c1-12)
venv=$cache/venv-$digest
if [ ! -f "$venv/.complete" ]; then
  say "making the virtual environment $venv (about a minute)"
  mkdir -p "$cache"
  rm -rf "$venv"
  "$python" -m venv "$venv"
  "$venv/bin/pip" install --quiet --disable-pip-version-check --require-hashes -r requirements.lock >&2
  touch "$venv/.complete"
fi
printf '%s\n' "$venv"
