#!/usr/bin/env bash
# run.sh BOOTSTRAP [batch] [stream] [headers]: Apache Spark jobs with the unmodified Kafka source and sink (default: batch stream).
# env: LIMIT (seconds for all, default 300), JAVA_HOME or java on the PATH
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
[ $# -ge 1 ] || { sed -n '2s/^# //p' "$0"; exit 2; }
lab=${SLUICE_LAB:-${XDG_CACHE_HOME:-$HOME/.cache}/sluice/lab}
bootstrap=$1; shift
for c in "$@"; do case $c in batch | stream | headers) ;; *) echo "no case '$c'" >&2; exit 2 ;; esac; done
"$here/../../lab/setup-engines.sh" spark
work=$(mktemp -d "${TMPDIR:-/tmp}/spark.XXXXXX"); trap 'rm -rf "$work"' EXIT
cd "$work"
unset SPARK_HOME
export TMPDIR=$work SPARK_LOCAL_DIRS=$work SPARK_LOCAL_IP=127.0.0.1 PYSPARK_PYTHON=$lab/spark/venv/bin/python
rc=0
timeout -k 10 "${LIMIT:-300}" "$lab/spark/venv/bin/python" -B "$here/jobs.py" "$bootstrap" "$lab/spark/jars" "$@" \
  2> >(grep -vE '^(WARNING|Setting default log level|To adjust logging|Using Spark)|NativeCodeLoader' >&2) | tee "$work/out" || rc=$?
if ! grep -qE '^[0-9]+ passed, ' "$work/out"; then # ended by the limit, or never began
  echo "not ok spark # exit $rc before the end (limit ${LIMIT:-300} s)"
  echo "$(grep -c '^ok ' "$work/out" || true) passed, $(($(grep -c '^not ok ' "$work/out" || true) + 1)) failed"
fi
exit "$rc"
