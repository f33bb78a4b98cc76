#!/usr/bin/env bash
# Stands in for the script of a Kafka distribution, for the tests that call it.
exec "${LAB_PYTHON:-python3}" "$(dirname "$0")/topics.py" "$@"
