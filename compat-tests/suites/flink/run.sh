#!/usr/bin/env bash
# run.sh BOOTSTRAP [a] [b] [c]: Apache Flink SQL jobs with the unmodified Kafka connector (default: case a).
# env: LIMIT (seconds for all, default 300), RUN (what topics' names end in, so that they may be made before), JAVA_HOME or java on the PATH
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
[ $# -ge 1 ] || { sed -n '2s/^# //p' "$0"; exit 2; }
lab=${SLUICE_LAB:-${XDG_CACHE_HOME:-$HOME/.cache}/sluice/lab}
bootstrap=$1; shift
for c in "$@"; do case $c in a | b | c) ;; *) echo "no case '$c'" >&2; exit 2 ;; esac; done
"$here/../../lab/setup-engines.sh" flink
work=$(mktemp -d "${TMPDIR:-/tmp}/flink.XXXXXX"); trap 'rm -rf "$work"' EXIT
cd "$work"
export TMPDIR=$work FLINK_LOG_DIR=$work _JAVA_OPTIONS="-Djava.io.tmpdir=$work ${_JAVA_OPTIONS:-}"
rc=0
timeout -k 10 "${LIMIT:-300}" "$lab/flink/venv/bin/python" -B "$here/sql_jobs.py" "$bootstrap" "$lab/flink/jars" "$@" \
  2> >(grep -vE '^(Picked up|WARNING|SLF4J|log4j)' >&2) | tee "$work/out" || rc=$?
if ! grep -qE '^[0-9]+ passed, ' "$work/out"; then # ended by the limit, or never began
  echo "not ok flink # exit $rc before the end (limit ${LIMIT:-300} s)"
  echo "$(grep -c '^ok ' "$work/out" || true) passed, $(($(grep -c '^not ok ' "$work/out" || true) + 1)) failed"
fi
exit "$rc"
