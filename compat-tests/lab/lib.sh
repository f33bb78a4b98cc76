# lib.sh, sourced by each suites/*/run.sh once bs=HOST:PORT is set: where the lab is, and how a case is reported.
here=$(cd "$(dirname "${BASH_SOURCE[1]}")" && pwd)
lab_src=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
LAB=${SLUICE_LAB:-${XDG_CACHE_HOME:-$HOME/.cache}/sluice/lab}
passed=0 failed=0 skipped=0
tmp=$(mktemp -d "${TMPDIR:-/tmp}/sluice-suite.XXXXXX")
uid=$(od -An -N5 -tx1 /dev/urandom | tr -d ' \n')
pids=()
cleanup() {
  local p
  for p in ${pids[@]+"${pids[@]}"}; do kill "$p" 2>/dev/null; done
  if [ -n "${SUITE_KEEP:-}" ]; then echo "kept $tmp" >&2; else rm -rf "$tmp"; fi
}
trap cleanup EXIT
trap 'exit 130' INT TERM

# prepare WHAT : run setup.sh, unless SLUICE_LAB_READY says that it is done
prepare() { [ -n "${SLUICE_LAB_READY:-}" ] || "$lab_src/setup.sh" "$@" || { echo "not ok setup $*"; echo "0 passed, 1 failed, 0 skipped"; exit 1; }; }

# a server that does not listen fails the suite at once
timeout 5 bash -c "exec 3<>/dev/tcp/${bs%:*}/${bs##*:}" 2>/dev/null || { echo "not ok connect nothing listens at $bs"; echo "0 passed, 1 failed, 0 skipped"; exit 1; }

# over : the suite has used up SUITE_SECONDS (240); nothing more is started, so that a server that never answers cannot hold it for long
over() { [ "$SECONDS" -ge "${SUITE_SECONDS:-240}" ]; }
at_most() { local left=$((${SUITE_SECONDS:-240} - SECONDS)); [ "$left" -ge 1 ] || left=1; echo $((left < $1 ? left : $1)); }

one_line() { tr '\n\t' '  ' | tr -s ' ' | cut -c1-"${1:-300}"; }
ok() { passed=$((passed + 1)); echo "ok $1"; }
not_ok() { local c=$1; shift; failed=$((failed + 1)); echo "not ok $c $(echo "$*" | one_line)"; }
skip() { local c=$1; shift; skipped=$((skipped + 1)); echo "skip $c $*"; }
# check NAME WHY COMMAND... : ok if the command succeeds, else not ok with WHY
check() { local c=$1 why=$2; shift 2; if "$@"; then ok "$c"; else not_ok "$c" "$why"; fi; }
finish() { echo "$passed passed, $failed failed, $skipped skipped"; [ "$failed" = 0 ] && [ "$passed" -gt 0 ]; exit; }

# program SECONDS COMMAND... : a program that prints its own "ok", "not ok" and "skip" lines
program() {
  local secs=$1 rc n; shift
  timeout -k 5 "$secs" "$@" 2> "$tmp/program.err" < /dev/null | tee "$tmp/program.out" | grep --line-buffered -E '^(ok|not ok|skip|#) '
  rc=${PIPESTATUS[0]}
  n=$(grep -c '^ok ' "$tmp/program.out"); passed=$((passed + n))
  n=$(grep -c '^not ok ' "$tmp/program.out"); failed=$((failed + n))
  skipped=$((skipped + $(grep -c '^skip ' "$tmp/program.out")))
  if [ "$rc" = 124 ] || [ "$rc" = 137 ]; then not_ok program "$(basename "$1") not done in $secs s: $(tail -3 "$tmp/program.err")"
  elif [ "$rc" != 0 ] && [ "$n" = 0 ]; then not_ok program "exit code $rc: $(tail -3 "$tmp/program.err")"
  fi
  [ "$rc" = 0 ] && [ -z "${SUITE_VERBOSE:-}" ] || tail -n "${SUITE_ERR_LINES:-20}" "$tmp/program.err" >&2
}
