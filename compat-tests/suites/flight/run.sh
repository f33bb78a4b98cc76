#!/bin/bash
# run.sh BOOTSTRAP FLIGHT : pyarrow.flight, ADBC's Flight SQL driver, and Arrow's JDBC driver.   env: ONLY=part of a case name
set -u
bs=${1:?bootstrap} flight=${2:?address of the Flight listener}
. "$(dirname "$0")/../../lab/lib.sh"
prepare python
PYTHONUNBUFFERED=1 program 110 "$LAB/python/bin/python" "$here/suite.py" "$bs" "$flight"
prepare jdbc
# The driver's memory needs java.nio opened (its own documentation).
[ -n "${ONLY:-}" ] || program 110 java -XX:TieredStopAtLevel=1 -Xmx256m -XX:+UseSerialGC --add-opens=java.base/java.nio=ALL-UNNAMED \
  -cp "$LAB/java/jdbc/*" "$here/Jdbc.java" "$flight"
finish
