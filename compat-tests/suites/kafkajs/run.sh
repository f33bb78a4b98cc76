#!/bin/bash
# run.sh BOOTSTRAP : KafkaJS on Node.js.   env: ONLY=part of a case name
set -u
bs=${1:?bootstrap}
. "$(dirname "$0")/../../lab/lib.sh"
prepare node
NODE_PATH="$LAB/node/node_modules" KAFKAJS_NO_PARTITIONER_WARNING=1 program 110 node "$here/suite.js" "$bs"
finish
