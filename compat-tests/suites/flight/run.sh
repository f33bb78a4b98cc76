#!/bin/bash
# run.sh BOOTSTRAP FLIGHT : pyarrow.flight and ADBC's Flight SQL driver.   env: ONLY=part of a case name
set -u
bs=${1:?bootstrap} flight=${2:?address of the Flight listener}
. "$(dirname "$0")/../../lab/lib.sh"
prepare python
PYTHONUNBUFFERED=1 program 110 "$LAB/python/bin/python" "$here/suite.py" "$bs" "$flight"
finish
