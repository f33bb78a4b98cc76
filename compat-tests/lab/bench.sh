#!/bin/bash
# bench.sh [options] : Sluice against Apache Kafka, the same librdkafka client, like with like. Prints Markdown.
#   --rounds N      rounds of both servers, in turn (3); two more of each, back to back, are the A/A control
#   --quick         one round, a tenth of the records: shows that everything runs, not how fast
#   --cases REGEX   only cases whose name matches (see `bench --list`; a fetch does not depend on acks, so the
#                   default leaves the acks=all ones out)
#   --modes A,B     of page-cache,fsync (both)
#   --servers A,B   of kafka,sluice (both)
#   --out FILE      keep the raw rows too: mode, server, run, then the columns of `bench`
# env: SLUICE_BIN (the server's binary), BENCH_BIN (the load program, else built here), BENCH_PORT (19600: the first
# of four ports), BENCH_DIR (where data goes, else the temporary directory; on the disk in question), SLUICE_LAB
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
rounds=3 control=2 scale=1.0 warm=5000000 seconds=10 e2e=10 e2e_warm=8 out='' modes=page-cache,fsync servers=kafka,sluice
cases='^(idle|produce|e2e|fetch-.*-acks1$)'
port=${BENCH_PORT:-19600}

# ---- like with like: what each mode means on each server ----
sluice_config() {  # the TOML of a mode
  case $1 in
    page-cache) printf '[durability]\nacks-all = "page-cache"\n\n[visibility]\ndefault = "appended"\n' ;;
    fsync) ;;
  esac
}
kafka_config() {  # the server.properties lines of a mode
  case $1 in
    page-cache) ;;
    fsync) echo log.flush.interval.messages=1 ;;
  esac
}

say() { echo "bench: $*" >&2; }
while [ $# -gt 0 ]; do
  case $1 in
    --quick) rounds=1 control=1 scale=0.1 warm=200000 seconds=3 e2e=3 e2e_warm=2; shift ;;
    --rounds) rounds=${2:?rounds}; shift 2 ;;
    --cases) cases=${2:?regex}; shift 2 ;;
    --modes) modes=${2:?modes}; shift 2 ;;
    --servers) servers=${2:?servers}; shift 2 ;;
    --out) out=${2:?file}; shift 2 ;;
    *) say "unknown option $1"; sed -n '2,12p' "${BASH_SOURCE[0]}" >&2; exit 2 ;;
  esac
done
for mode in ${modes//,/ }; do case $mode in page-cache|fsync) ;; *) say "no such mode: $mode"; exit 2 ;; esac; done
for server in ${servers//,/ }; do case $server in kafka|sluice) ;; *) say "no such server: $server"; exit 2 ;; esac; done

has() { case ",$servers," in *",$1,"*) return 0 ;; *) return 1 ;; esac; }
if has sluice && [ ! -x "${SLUICE_BIN:-}" ]; then say "SLUICE_BIN must be the path of the server's binary"; exit 2; fi
if has kafka; then "$here/setup.sh" java; fi
if [ -z "${BENCH_BIN:-}" ]; then
  BENCH_BIN=$(cd "$here/../.." && cargo build --release -p sluice-compat-tests --example bench --message-format=json-render-diagnostics |
    sed -n 's/.*"executable":"\([^"]*\)".*/\1/p' | tail -1)
fi
chosen=$("$BENCH_BIN" --list | grep -E -- "$cases" || true)
[ -n "$chosen" ] || { say "no case matches $cases"; exit 2; }
idle=$(grep '^idle' <<< "$chosen" | paste -sd, || true)
loads=$(grep -v '^idle' <<< "$chosen" | paste -sd, || true)

work=$(mktemp -d "${BENCH_DIR:-${TMPDIR:-/tmp}}/sluice-bench.XXXXXX")
rows=$work/rows.tsv; : > "$rows"
pid=''
stop() {  # the one server that runs, by its pid
  [ -n "$pid" ] || return 0
  kill "$pid" 2>/dev/null || true
  for _ in $(seq 1 300); do kill -0 "$pid" 2>/dev/null || break; sleep 0.1; done
  kill -9 "$pid" 2>/dev/null || true
  pid=''
}
cleanup() { stop; [ -z "$out" ] || cp "$rows" "$out"; rm -rf "$work"; }
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

start_kafka() {  # MODE DIR
  KAFKA_EXTRA=$(kafka_config "$1") "$here/start-kafka.sh" "$2" "$port" $((port + 1)) > "$2.start" || return 1
  pid=$(cat "$2/pid")
}
start_sluice() {  # MODE DIR
  mkdir -p "$2"
  sluice_config "$1" > "$2.toml"
  "$SLUICE_BIN" serve --data-dir "$2" --kafka-listen "127.0.0.1:$port" --http-listen "127.0.0.1:$((port + 2))" \
    --flight-listen "127.0.0.1:$((port + 3))" --config "$2.toml" > "$2.log" 2>&1 &
  pid=$!
  disown "$pid"
  for _ in $(seq 1 300); do
    kill -0 "$pid" 2>/dev/null || break
    (exec 3<> "/dev/tcp/127.0.0.1/$port") 2>/dev/null && return 0
    sleep 0.1
  done
  tail -20 "$2.log" >&2
  return 1
}

# load MODE SERVER RUN CASES WARM : the server alone, fresh, warmed up; its rows are added to $rows
load() {
  local mode=$1 server=$2 run=$3 names=$4 warm=$5 dir=$work/data
  [ -n "$names" ] || return 0
  if (exec 3<> "/dev/tcp/127.0.0.1/$port") 2>/dev/null; then say "port $port is taken: set BENCH_PORT"; exit 1; fi
  "start_$server" "$mode" "$dir" || { say "$server did not start"; exit 1; }
  "$BENCH_BIN" "127.0.0.1:$port" "$pid" --no-header --cases "$names" --warm "$warm" --scale "$scale" \
    --max-seconds "$seconds" --e2e-seconds "$e2e" --e2e-warm "$e2e_warm" > "$work/out" || say "$mode, $server, run $run: a case failed; it has no figure"
  sed "s/^/$mode\t$server\t$run\t/" "$work/out" >> "$rows"
  stop
  rm -rf "$dir" "$dir".*
}
one_run() {  # MODE SERVER RUN
  has "$2" || return 0
  say "$1, $2, run $3 (load $(cut -d' ' -f1 /proc/loadavg))"
  load "$1" "$2" "$3" "$idle" 0   # memory at rest wants a server that did nothing before
  load "$1" "$2" "$3" "$loads" "$warm"
}

for mode in ${modes//,/ }; do
  run=0
  for _ in $(seq 1 "$rounds"); do
    run=$((run + 1))
    if [ $((run % 2)) = 1 ]; then order='kafka sluice'; else order='sluice kafka'; fi
    for server in $order; do one_run "$mode" "$server" "$run"; done
  done
  for server in kafka sluice; do
    for extra in $(seq 1 "$control"); do one_run "$mode" "$server" $((rounds + extra)); done
  done
done

awk -F'\t' -v rounds="$rounds" -v runs=$((rounds + control)) -f "$here/bench.awk" "$rows"
