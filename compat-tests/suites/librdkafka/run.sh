#!/usr/bin/env bash
# run.sh BOOTSTRAP [--long | NNNN[/SUBTEST]...]: librdkafka's own tests against a running server.
# Without more: the tests of tests.short. --long: all of tests.allow. Or the ones given.
# env: JOBS (tests at a time, default 2), LIMIT (seconds for each, default 240), RETRY=1 (failed ones once more, one at a
#      time: some have tight clocks, which a busy machine breaks), OUT (folder for the logs, default a new temporary one), TEST_CONSUMER_GROUP_PROTOCOL (default classic), DEBUG_CONF (more lines for the clients' configuration)
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
lab=${SLUICE_LAB:-${XDG_CACHE_HOME:-$HOME/.cache}/sluice/lab}

# ---- one number: its own process, since the runner aborts or hangs after a failure
if [ "${1:-}" = --one ]; then
  id=$2; n=${id%%/*}; log=$OUT/${id//\//-}.log; rc=0
  [ "$n" = "$id" ] || export SUBTESTS=${id#*/}
  cd "$lab/librdkafka/src/tests"
  from=$EPOCHREALTIME
  # -L no tests without a broker, -E none that meddle with sockets, -K none with known issues. Never -Q: it skips most of them.
  ulimit -c 0 # a failing test aborts
  { TESTS=$n timeout -k 5 "$LIMIT" ./test-runner -p1 -E -L -K > "$log" 2>&1 < /dev/null || rc=$?; } 2> /dev/null
  took=$(awk -v a="$from" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.1f", b - a }')
  plain=$(sed 's/\x1b\[[0-9;]*m//g' "$log")
  passed=$(grep -cE "^\|? *${n}_[^|]*\| *PASSED" <<< "$plain" || true)
  [ -z "${SUBTESTS:-}" ] || passed=$(grep -cE "\[ $SUBTESTS[^]]*: PASS" <<< "$plain" || true)
  if [ "$rc" = 0 ] && [ "$passed" -gt 0 ]; then verdict="ok $id" word=ok
  elif [ "$rc" = 0 ]; then verdict="not ok $id # skipped itself" word=skip
  elif [ "$rc" = 124 ] || { [ "$rc" = 137 ] && [ "${took%.*}" -ge "$LIMIT" ]; }; then verdict="not ok $id # no end after $LIMIT s" word=fail
  else
    why=$(grep -aoE '(### Test "[^"]*" failed|Test failure|TEST FAILED|Assert failed).*' <<< "$plain" | head -1 | cut -c1-200 || true)
    verdict="not ok $id # exit $rc${why:+: $why}" word=fail
  fi
  printf '%s (%s s)\n' "$verdict" "$took"
  printf '%s\t%s\t%s\n' "$id" "$word" "$took" >> "$OUT/results.tsv"
  exit 0
fi

[ $# -ge 1 ] || { sed -n '2,5s/^# //p' "$0"; exit 2; }
bootstrap=$1; shift
# lists have a test number, the seconds it took on Kafka, and what it is about; the longest go first
numbers() { grep -E '^[0-9]{4}' "$1" | sort -k2,2nr -k1,1 | awk '{ print $1 }'; }
case ${1:-} in
  '') list=$(numbers "$here/tests.short") ;;
  --long) list=$(numbers "$here/tests.allow") ;;
  *) list=$(printf '%s\n' "$@") ;;
esac
grep -qvE '^[0-9]{4}(/[a-z_0-9]+)?$' <<< "$list" && { sed -n '2,5s/^# //p' "$0"; exit 2; }

"$here/../../lab/setup-engines.sh" librdkafka
OUT=${OUT:-$(mktemp -d "${TMPDIR:-/tmp}/librdkafka.XXXXXX")}; mkdir -p "$OUT"; OUT=$(cd "$OUT" && pwd)
rm -f "$OUT"/[0-9]*.log "$OUT/results.tsv"; : > "$OUT/results.tsv"
printf 'bootstrap.servers=%s\n%s\n' "$bootstrap" "${DEBUG_CONF:-}" > "$OUT/test.conf"
export OUT LIMIT=${LIMIT:-240} RDKAFKA_TEST_CONF=$OUT/test.conf BROKERS=$bootstrap
export TEST_KAFKA_VERSION=4.2.0.0 TEST_CONSUMER_GROUP_PROTOCOL=${TEST_CONSUMER_GROUP_PROTOCOL:-classic}
export KAFKA_PATH=$here/kafka-path LAB_PYTHON=$lab/librdkafka/venv/bin/python PYTHONDONTWRITEBYTECODE=1
export LD_LIBRARY_PATH=$lab/librdkafka/src/src:$lab/librdkafka/src/src-cpp
unset CI SUBTESTS TESTS_SKIP # with CI set the runner has other limits

xargs -P "${JOBS:-2}" -n 1 "$here/run.sh" --one <<< "$list"
if [ -n "${RETRY:-}" ] && again=$(awk -F '\t' '$2 == "fail" { print $1 }' "$OUT/results.tsv") && [ -n "$again" ]; then
  echo "# once more: ${again//$'\n'/ }"
  sed -i '/\tfail\t/d' "$OUT/results.tsv"
  xargs -P 1 -n 1 "$here/run.sh" --one <<< "$again"
fi

count() { awk -F '\t' -v w="$1" '$2 == w { n++ } END { print n + 0 }' "$OUT/results.tsv"; }
p=$(count ok) f=$(count fail) s=$(count skip)
[ "$f$s" = 00 ] || printf '# logs: %s\n' "$OUT"
printf '%d passed, %d failed, %d skipped\n' "$p" "$f" "$s"
[ "$p" -gt 0 ] && [ "$p" = "$(wc -l <<< "$list")" ]
