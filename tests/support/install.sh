#!/usr/bin/env bash
# Installs Debian packages, aloud: install.sh WHY PACKAGE...
# As root or by sudo; otherwise it ends with the command that somebody else has to run. Words go to stderr.
set -euo pipefail
why=$1
shift
say() { printf 'install: %s\n' "$*" >&2; }

options=(-q -y --no-install-recommends -o DPkg::Lock::Timeout=600)
if ! command -v apt-get >/dev/null; then
  say "needed: $* ($why). This is no Debian: install them with the package manager of this system, then repeat"
  exit 1
fi
as_root=()
if [ "$(id -u)" != 0 ]; then
  # Without a terminal sudo could not ask for a password.
  if command -v sudo >/dev/null && { sudo -n true 2>/dev/null || [ -t 0 ]; }; then
    as_root=(sudo)
  else
    sudo=$(command -v sudo >/dev/null && echo "sudo " || true)
    say "needed: $* ($why). Only root may install them. Run this as root, then repeat:"
    say "  ${sudo}apt-get update && ${sudo}apt-get install -y --no-install-recommends $*"
    exit 1
  fi
fi

# Some packages start a server of theirs when they are installed; ours are started when they are needed, privately.
# invoke-rc.d and deb-systemd-invoke ask this program first (the unit tests have another place for it).
policy=${POLICY_RC_D:-/usr/sbin/policy-rc.d}
if [ ! -e "$policy" ]; then
  printf '#!/bin/sh\nexit 101\n' | "${as_root[@]}" tee "$policy" >/dev/null
  "${as_root[@]}" chmod 755 "$policy"
  trap '"${as_root[@]}" rm -f "$policy"' EXIT
fi

# The sizes, and every ten seconds what is at hand; the rest is for the log.
tell() {
  local line last=$SECONDS
  while IFS= read -r line; do
    case $line in
      'Need to get'* | 'After this operation'*) say "  $line" ;;
      Get:* | Unpacking* | 'Setting up'*)
        if [ $((SECONDS - last)) -ge 10 ]; then
          last=$SECONDS
          say "  ... $line"
        fi
        ;;
    esac
  done
}

log=$(mktemp)
begun=$SECONDS
say "apt-get install $* ($why)"
# Sources that do not answer are no reason to stop: what is wanted may come from the others.
"${as_root[@]}" apt-get -q update >"$log" 2>&1 || say "apt-get update had errors: $(tail -n 1 "$log")"
if ! "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install "${options[@]}" "$@" </dev/null 2>&1 |
  tee "$log" | tell; then
  tail -n 15 "$log" >&2
  say "apt-get failed; the whole of its words: $log"
  exit 1
fi
rm -f "$log"
say "installed in $((SECONDS - begun)) s"
