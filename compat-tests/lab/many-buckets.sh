#!/bin/bash
# many-buckets.sh [TABLES] [BUCKETS] : PK tables in one server: memory, time to be ready after kill -9, time to read every table, cost of a drop.
# env: SLUICE_BIN the release binary
set -euo pipefail
tables=${1:-300} buckets=${2:-10}
work=$(mktemp -d "${TMPDIR:-/tmp}/many.XXXXXX")
trap 'kill -9 "$pid" 2>/dev/null || true; rm -rf "$work"' EXIT
ms() { echo $((($(date +%s%N) - $1) / 1000000)); }
memory() { awk '/VmRSS/ {printf "%d MB\n", $2 / 1024}' "/proc/$pid/status"; }
start() {
  : > "$work/ready"
  local from; from=$(date +%s%N)
  "${SLUICE_BIN:?}" serve --data-dir "$work/data" --kafka-listen 127.0.0.1:0 --flight-listen 127.0.0.1:0 --http-listen 127.0.0.1:0 > "$work/ready" 2> "$work/log" &
  pid=$!
  until grep -q '^ready' "$work/ready"; do sleep 0.01; done
  echo "$1: ready in $(ms "$from") ms, $(memory)"
  flight=$(sed -n 's/.*flight=\([^ ]*\).*/\1/p' "$work/ready")
}
sql() { "$SLUICE_BIN" sql --server "$flight" "$work/$1.sql" > "$work/$1.out"; }
for n in $(seq 1 "$tables"); do
  echo "CREATE TABLE t$n (k INT, v STRING, PRIMARY KEY (k) NOT ENFORCED) WITH ('bucket.num' = '$buckets');" >> "$work/create.sql"
  echo "INSERT INTO t$n SELECT value, 'row' FROM generate_series(1, 100);" >> "$work/insert.sql"
  echo "SELECT COUNT(*) FROM t$n;" >> "$work/read.sql"
  echo "DROP TABLE t$n;" >> "$work/drop.sql"
done
start "empty"
from=$(date +%s%N); sql create; echo "$tables tables of $buckets buckets created in $(ms "$from") ms, $(memory)"
from=$(date +%s%N); sql insert; echo "100 rows into each in $(ms "$from") ms, $(memory)"
sleep 35; echo "idle, after a flush: $(memory), $(find "$work/data/kv" -type f | wc -l) files of rows"
kill -9 "$pid"; wait "$pid" 2>/dev/null || true
start "after kill -9"
from=$(date +%s%N); sql read; echo "every table opened and counted in $(ms "$from") ms, $(memory)"
[ "$(grep -c '| 100 ' "$work/read.out")" = "$tables" ] || { echo "not every table has its 100 rows" >&2; exit 1; }
from=$(date +%s%N); sql drop; echo "all dropped in $(ms "$from") ms, $(memory)"
