#!/bin/bash
# run.sh BOOTSTRAP : the Java program of suites/java with older kafka-clients (defaults), one run per version.
# env: OLD_CLIENTS ("3.0.2 3.9.1")
set -u
bs=${1:?bootstrap}
. "$(dirname "$0")/../../lab/lib.sh"
export OLD_CLIENTS=${OLD_CLIENTS:-3.0.2 3.9.1}
prepare java-old
for v in $OLD_CLIENTS; do
  program 120 java -XX:TieredStopAtLevel=1 -Xmx256m -XX:+UseSerialGC -cp "$LAB/java/clients-$v/*" "$here/../java/Clients.java" "$bs"
done
finish
