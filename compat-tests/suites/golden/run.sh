#!/usr/bin/env bash
# run.sh BOOTSTRAP OUTDIR [AREA...]: the golden probes against a running server (see README.md).
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
[ $# -ge 2 ] || { sed -n '2s/^# //p' "$0"; exit 2; }
lab=${SLUICE_LAB:-${XDG_CACHE_HOME:-$HOME/.cache}/sluice/lab}
"$here/../../lab/setup-engines.sh" golden
export KAFKA_MESSAGES=$lab/golden/msg
exec "${PYTHON:-python3}" -B "$here/golden.py" "$@"
