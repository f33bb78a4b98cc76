#!/usr/bin/env bash
# kill-and-restart.sh PIDFILE COMMAND...: kill -9 of the server whose pid is in PIDFILE, then COMMAND in
# the background with its pid put there; returns when the new server says that it is ready.
set -eu
pidfile=$1; shift
pid=$(cat "$pidfile")
kill -9 "$pid" 2>/dev/null || true
# A child of a test that has not waited for it yet stays as a zombie. It holds nothing any more once all its threads
# are gone: the first may be a zombie while another still waits for the disk, with the lock and the port in its hands.
gone() {
  kill -0 "$pid" 2>/dev/null || return 0
  grep -q '^State:[[:space:]]*Z' "/proc/$pid/status" 2>/dev/null && [ "$(ls "/proc/$pid/task" 2>/dev/null | wc -l)" -le 1 ]
}
until gone; do sleep 0.05; done
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
