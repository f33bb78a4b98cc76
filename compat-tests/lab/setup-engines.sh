#!/usr/bin/env bash
# setup-engines.sh [golden|librdkafka|flink|spark]...
# Prepares the foreign programs that compat-tests/suites run. Without an argument: all four.
# Everything lands in the lab folder (SLUICE_LAB, default ~/.cache/sluice/lab) and comes from the ordinary
# registries (PyPI, Maven Central, crates.io, Debian). A finished part leaves a stamp, so a second run does nothing.
set -euo pipefail

LAB=${SLUICE_LAB:-${XDG_CACHE_HOME:-$HOME/.cache}/sluice/lab}
PYTHON=${PYTHON:-python3}

KAFKA_CLIENTS=4.4.0          # message definitions for the golden codec
RDKAFKA_SYS=4.10.0+2.12.1    # the crate whose package carries librdkafka's sources and tests
LIBRDKAFKA=2.12.1
CONFLUENT_KAFKA=2.12.1       # admin client behind the stand-in kafka-topics.sh
FLINK=2.2.0
FLINK_KAFKA=5.0.0-2.2
SPARK=4.2.0
SPARK_SCALA=2.13

usage() { sed -n '2,5p' "$0" | sed 's/^# //'; exit 2; }
say() { printf 'setup-engines: %s\n' "$*"; }
die() { say "$*" >&2; exit 1; }

stamp() { printf '%s/stamps/%s' "$LAB" "$1"; }
done_already() { [ -f "$(stamp "$1")" ]; }
mark() { mkdir -p "$LAB/stamps"; date -u +%FT%TZ > "$(stamp "$1")"; }

# need COMMAND PACKAGE: the command, from Debian when we are root
need() {
  command -v "$1" > /dev/null && return 0
  apt_install "$2"
  command -v "$1" > /dev/null || die "the command '$1' is missing (package $2)"
}

# apt_install PACKAGE...: only what is missing; not an error for an ordinary user
apt_install() {
  local missing=() p
  command -v dpkg-query > /dev/null || return 0
  for p in "$@"; do
    dpkg-query -W -f '${Status}' "$p" 2> /dev/null | grep -q 'install ok installed' || missing+=("$p")
  done
  [ ${#missing[@]} = 0 ] && return 0
  if [ "$(id -u)" != 0 ]; then say "not root, going on without: ${missing[*]}"; return 0; fi
  say "apt-get install ${missing[*]}"
  export DEBIAN_FRONTEND=noninteractive
  apt-get -o DPkg::Lock::Timeout=120 install -y -q --no-install-recommends "${missing[@]}" > "$LAB/apt.log" 2>&1 ||
    { apt-get update -q >> "$LAB/apt.log" 2>&1 && apt-get -o DPkg::Lock::Timeout=120 install -y -q --no-install-recommends "${missing[@]}" >> "$LAB/apt.log" 2>&1; } ||
    say "apt-get failed, see $LAB/apt.log; going on"
}

java_and_maven() { need java openjdk-17-jre-headless; need mvn maven; }

# jars FOLDER TRANSITIVE GROUP:ARTIFACT:VERSION...: the artifacts (and, when TRANSITIVE is yes, their runtime dependencies)
jars() {
  local out=$1 transitive=$2 w c; shift 2
  w=$(mktemp -d "$LAB/tmp.XXXXXX")
  {
    echo '<project><modelVersion>4.0.0</modelVersion><groupId>lab</groupId><artifactId>lab</artifactId><version>1</version><packaging>pom</packaging><dependencies>'
    for c in "$@"; do
      IFS=: read -r g a v <<< "$c"
      echo "<dependency><groupId>$g</groupId><artifactId>$a</artifactId><version>$v</version></dependency>"
    done
    echo '</dependencies></project>'
  } > "$w/pom.xml"
  rm -rf "$out"
  local only=(); [ "$transitive" = yes ] || only=(-DexcludeTransitive=true)
  mvn -B -q -f "$w/pom.xml" dependency:copy-dependencies -DincludeScope=runtime "${only[@]}" -DoutputDirectory="$out" \
    > "$LAB/mvn.log" 2>&1 || die "mvn failed: $(tail -5 "$LAB/mvn.log")"
  rm -rf "$w"
}

# venv FOLDER REQUIREMENT...
venv() {
  local out=$1; shift
  rm -rf "$out"
  "$PYTHON" -m venv "$out" 2> "$LAB/venv.log" || { apt_install python3-venv; rm -rf "$out"; "$PYTHON" -m venv "$out"; }
  "$out/bin/pip" install -q --disable-pip-version-check "$@"
}

golden() {
  local s=golden-$KAFKA_CLIENTS; done_already "$s" && return 0
  say "golden: message definitions of kafka-clients $KAFKA_CLIENTS"
  need "$PYTHON" python3; java_and_maven
  jars "$LAB/golden/jar" no "org.apache.kafka:kafka-clients:$KAFKA_CLIENTS"
  rm -rf "$LAB/golden/msg"
  "$PYTHON" - "$LAB/golden/jar/kafka-clients-$KAFKA_CLIENTS.jar" "$LAB/golden/msg" << 'PY'
import os, sys, zipfile
jar, out = sys.argv[1:]
os.makedirs(out)
with zipfile.ZipFile(jar) as z:
    for n in z.namelist():
        if n.startswith('common/message/') and n.endswith('.json'):
            with open(os.path.join(out, os.path.basename(n)), 'wb') as f: f.write(z.read(n))
PY
  [ -f "$LAB/golden/msg/ProduceRequest.json" ] || die 'golden: no message definitions in the jar'
  mark "$s"
}

librdkafka() {
  local s=librdkafka-$RDKAFKA_SYS d=$LAB/librdkafka w; done_already "$s" && return 0
  say "librdkafka $LIBRDKAFKA: library and test suite (out of the rdkafka-sys package)"
  need cargo cargo; need make make; need gcc gcc; need g++ g++; need "$PYTHON" python3
  # without these headers the tests 0053, 0098, 0101 and 0110 skip themselves
  apt_install libcurl4-openssl-dev libzstd-dev rapidjson-dev libssl-dev zlib1g-dev
  rm -rf "$d"; mkdir -p "$d"
  w=$(mktemp -d "$LAB/tmp.XXXXXX"); mkdir "$w/src"; : > "$w/src/lib.rs"
  printf '[package]\nname = "scratch"\nversion = "0.0.0"\nedition = "2021"\n[workspace]\n[dependencies]\nrdkafka-sys = "=%s"\n' "$RDKAFKA_SYS" > "$w/Cargo.toml"
  (cd "$w" && cargo vendor -q > /dev/null)
  mv "$w/vendor/rdkafka-sys/librdkafka" "$d/src"; rm -rf "$w"
  (
    cd "$d/src"
    find . -name '*.sh' -o -name configure -o -name '*.py' | xargs chmod +x
    ./configure --disable-gssapi > ../build.log 2>&1
    make -j"${SETUP_JOBS:-2}" libs >> ../build.log 2>&1
    make -C tests -j"${SETUP_JOBS:-2}" build >> ../build.log 2>&1
  ) || die "librdkafka: build failed, see $d/build.log"
  [ -x "$d/src/tests/test-runner" ] || die "librdkafka: no test-runner, see $d/build.log"
  venv "$d/venv" "confluent-kafka==$CONFLUENT_KAFKA"
  mark "$s"
}

flink() {
  local s=flink-$FLINK-$FLINK_KAFKA; done_already "$s" && return 0
  say "flink: apache-flink $FLINK with its Kafka connector"
  java_and_maven; need "$PYTHON" python3
  venv "$LAB/flink/venv" "apache-flink==$FLINK"
  jars "$LAB/flink/jars" no "org.apache.flink:flink-sql-connector-kafka:$FLINK_KAFKA"
  mark "$s"
}

spark() {
  local s=spark-$SPARK; done_already "$s" && return 0
  say "spark: pyspark $SPARK with its Kafka source and sink"
  java_and_maven; need "$PYTHON" python3
  venv "$LAB/spark/venv" "pyspark==$SPARK"
  jars "$LAB/spark/jars" yes "org.apache.spark:spark-sql-kafka-0-10_$SPARK_SCALA:$SPARK"
  mark "$s"
}

[ $# -gt 0 ] || set -- golden librdkafka flink spark
mkdir -p "$LAB/stamps"
for part in "$@"; do
  case $part in golden | librdkafka | flink | spark) ;; *) usage ;; esac
done
for part in "$@"; do
  exec 9> "$LAB/stamps/$part.lock" # two runs at once: the second waits, and then finds the stamp
  if command -v flock > /dev/null; then flock 9; fi
  "$part"
done
