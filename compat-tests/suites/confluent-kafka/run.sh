#!/bin/bash
# run.sh BOOTSTRAP : confluent-kafka for Python (librdkafka).   env: ONLY=part of a case name, COMPAT_KIP848=1
set -u
bs=${1:?bootstrap}
. "$(dirname "$0")/../../lab/lib.sh"
prepare python
PYTHONUNBUFFERED=1 program 110 "$LAB/python/bin/python" "$here/suite.py" "$bs"
finish
