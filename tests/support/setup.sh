#!/usr/bin/env bash
# Makes what the demo and the tests need on this host, and nothing the second time. Progress goes to stderr; the
# last line on stdout is the path that was asked for:
#   setup.sh python   a Python 3.11 or newer of this machine
#   setup.sh venv     the virtual environment
#   setup.sh          the virtual environment, and the programs that the tests start
# What it takes from a bare Debian: bash, coreutils, apt.
set -euo pipefail
cd "$(dirname "$0")/../.."
want=${1:-tests}
cache=${TREADLE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/treadle}
say() { printf 'setup: %s\n' "$*" >&2; }

python=""
find_python() {
  for candidate in python3 python3.14 python3.13 python3.12 python3.11; do
    if command -v "$candidate" >/dev/null && "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
      python=$(command -v "$candidate")
      return
    fi
  done
}

# Of pip's many words: how far it is, every fifteen seconds.
tell() {
  local line fetched=0 last=$SECONDS
  while IFS= read -r line; do
    case $line in
      Collecting*)
        fetched=$((fetched + 1))
        if [ $((SECONDS - last)) -ge 15 ]; then
          last=$SECONDS
          say "  ... $fetched fetched"
        fi
        ;;
      Installing*) say "  all $fetched fetched; unpacking them" ;;
    esac
  done
}

find_python
missing=()
[ -n "$python" ] || missing+=(python3)
{ [ -n "$python" ] && "$python" -c 'import ensurepip, venv' 2>/dev/null; } || missing+=(python3-venv)
# pip, Go and mmdebstrap's apt check certificates against this list.
[ -n "${SSL_CERT_FILE:-}" ] || [ -d /etc/pki ] || [ -s /etc/ssl/certs/ca-certificates.crt ] || missing+=(ca-certificates)
why="the local cluster and the demo need them"
if [ "$want" = tests ]; then
  why="the tests need them"
  command -v git >/dev/null || missing+=(git)
  ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || missing+=(postgresql)
  command -v redis-server >/dev/null || missing+=(redis-server)
fi
if [ "${#missing[@]}" -gt 0 ]; then
  tests/support/install.sh "they are not here, and $why" "${missing[@]}"
  find_python
  if [ -z "$python" ]; then
    say "Python 3.11 or newer is needed, and $(python3 -V 2>&1) is what this system offers: Debian 12 and later have it"
    exit 1
  fi
fi
if [ "$want" = python ]; then
  printf '%s\n' "$python"
  exit
fi

digest=$( { cat requirements.lock; "$python" -V; } | sha256sum | cut -c1-12)
venv=$cache/venv-$digest
if [ ! -f "$venv/.complete" ]; then
  say "installing $(grep -c '^[a-z].*==' requirements.lock) Python packages into $venv (90 MB to fetch)"
  begun=$SECONDS
  mkdir -p "$cache"
  rm -rf "$venv"
  "$python" -m venv "$venv"
  "$venv/bin/pip" install --disable-pip-version-check --progress-bar off --require-hashes -r requirements.lock | tell
  touch "$venv/.complete"
  say "installed in $((SECONDS - begun)) s"
fi
printf '%s\n' "$venv"
