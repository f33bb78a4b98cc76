#!/bin/bash
# run.sh BOOTSTRAP : franz-go, the Go client.   env: ONLY=part of a case name
set -u
bs=${1:?bootstrap}
. "$(dirname "$0")/../../lab/lib.sh"
prepare go
program 110 "$LAB/go/franz-go-suite" "$bs"
finish
