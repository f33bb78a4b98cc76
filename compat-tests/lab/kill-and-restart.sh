#!/usr/bin/env bash
# kill-and-restart.sh PIDFILE COMMAND...: kill -9 of the server whose pid is in PIDFILE, then COMMAND in
# the background with its pid put there; returns when the new server says that it is ready.
set -eu
pidfile=$1; shift
kill -9 "$(cat "$pidfile")" 2>/dev/null || true
while kill -0 "$(cat "$pidfile")" 2>/dev/null; do
  # A child of a test that has not waited for it yet stays as a zombie: it holds nothing any more.
  grep -q '^State:[[:space:]]*Z' "/proc/$(cat "$pidfile")/status" 2>/dev/null && break
  sleep 0.05
done
out=$pidfile.out
: > "$out"
nohup "$@" > "$out" 2>> "$pidfile.log" < /dev/null &
echo $! > "$pidfile"
for _ in $(seq 600); do
  grep -q '^ready' "$out" && exit 0
  kill -0 "$(cat "$pidfile")" 2>/dev/null || { echo "the server did not start: $(tail -3 "$pidfile.log")" >&2; exit 1; }
  sleep 0.1
done
echo "the server did not get ready" >&2
exit 1
