#!/bin/bash
# bench-tables.sh : a table with a primary key on Sluice and on Apache Fluss 0.9.1 in turn, ROUNDS times (3), ROWS (500000), LOOKUPS (100000).
# env: SLUICE_BIN the release binary, BENCH_BIN the example tables_bench; Fluss with its Java client. The machine should do nothing else.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
lab=${SLUICE_LAB:-${XDG_CACHE_HOME:-$HOME/.cache}/sluice/lab}
rows=${ROWS:-500000} lookups=${LOOKUPS:-100000}
for part in server client; do
  [ -d "$lab/fluss/$part" ] || mvn -B -q -f "$here/fluss/pom-$part.xml" dependency:copy-dependencies -DincludeScope=runtime "-DoutputDirectory=$lab/fluss/$part"
done
work=$(mktemp -d "${TMPDIR:-/tmp}/bench-tables.XXXXXX")
pids=()
stop() { for p in ${pids[@]+"${pids[@]}"}; do kill "$p" 2>/dev/null || true; done; sleep 1; for p in ${pids[@]+"${pids[@]}"}; do kill -9 "$p" 2>/dev/null || true; done; pids=(); }
trap 'stop; rm -rf "$work"' EXIT
printf 'rootLogger.level = error\n' > "$work/log4j2.properties"
javac -nowarn -cp "$lab/fluss/client/*" -d "$work/classes" "$here/fluss/Bench.java"
memory() { awk '/VmRSS/ {s += $2} END {printf "server memory %d MB\n", s / 1024}' $(printf '/proc/%s/status ' "$@"); }
for round in $(seq 1 "${ROUNDS:-3}"); do
  echo "== round $round: Sluice"
  "${SLUICE_BIN:?}" serve --data-dir "$work/sluice" --kafka-listen 127.0.0.1:0 --flight-listen 127.0.0.1:0 --http-listen 127.0.0.1:0 > "$work/ready" 2> "$work/log" &
  pids=($!)
  until grep -q '^ready' "$work/ready"; do sleep 0.1; done
  kafka=$(sed -n 's/.*kafka=\([^ ]*\).*/\1/p' "$work/ready") flight=$(sed -n 's/.*flight=\([^ ]*\).*/\1/p' "$work/ready")
  "${BENCH_BIN:?}" "$kafka" "$flight" "$rows" "$lookups"
  memory "${pids[@]}"
  stop; rm -rf "$work/sluice"
  echo "== round $round: Fluss"
  "$here/fluss/start.sh" "$work/fluss" > /dev/null
  mapfile -t pids < "$work/fluss/pids"
  sleep 3
  java -Xmx1500m --add-opens=java.base/java.nio=ALL-UNNAMED "-Dlog4j2.configurationFile=$work/log4j2.properties" \
    -cp "$work/classes:$lab/fluss/client/*" Bench localhost:19110 "$rows" "$lookups"
  memory "${pids[@]}"
  stop; rm -rf "$work/fluss"
done
