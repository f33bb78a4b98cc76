#!/bin/bash
# start-kafka.sh DIR PORT CPORT : a single-node Apache Kafka (KRaft) for comparison and benchmarks.
# Prints the broker's pid once it serves 127.0.0.1:PORT; CPORT is its controller's. Stop it with `kill PID`;
# started again on the same DIR it finds its data. Needs `setup.sh java`.
# env: NUM_PARTITIONS (4), KAFKA_HEAP (1g), KAFKA_EXTRA (more server.properties lines), KAFKA_LOG (warn|info), SLUICE_LAB
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
dir=${1:?directory}; port=${2:?port}; cport=${3:?controller port}
LAB=${SLUICE_LAB:-${XDG_CACHE_HOME:-$HOME/.cache}/sluice/lab}
cp="$LAB/java/kafka/*"; heap=${KAFKA_HEAP:-1g}
mkdir -p "$dir"; dir=$(cd "$dir" && pwd)
cat > "$dir/server.properties" <<EOF
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:$cport
listeners=PLAINTEXT://127.0.0.1:$port,CONTROLLER://127.0.0.1:$cport
advertised.listeners=PLAINTEXT://127.0.0.1:$port
inter.broker.listener.name=PLAINTEXT
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs=$dir/data
num.partitions=${NUM_PARTITIONS:-4}
offsets.topic.replication.factor=1
offsets.topic.num.partitions=5
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=5
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
share.coordinator.state.topic.num.partitions=5
group.initial.rebalance.delay.ms=0
${KAFKA_EXTRA:-}
EOF
log="-Dlog4j2.configurationFile=$here/log4j2.yaml"
if [ ! -f "$dir/data/meta.properties" ]; then
  id=$(java $log -cp "$cp" kafka.tools.StorageTool random-uuid)
  java $log -cp "$cp" kafka.tools.StorageTool format -t "$id" -c "$dir/server.properties" > "$dir/format.log" 2>&1
fi
rm -f "$dir/server.log"
# the flags of Apache Kafka's own start script
nohup java -Xmx"$heap" -Xms"$heap" -server -XX:+UseG1GC -XX:MaxGCPauseMillis=20 -XX:InitiatingHeapOccupancyPercent=35 \
  -XX:+ExplicitGCInvokesConcurrent -Djava.awt.headless=true $log -Dlab.log="${KAFKA_LOG:-info}" \
  -cp "$cp" kafka.Kafka "$dir/server.properties" > "$dir/server.log" 2>&1 < /dev/null &
pid=$!
echo "$pid" > "$dir/pid"
for _ in $(seq 1 240); do
  kill -0 "$pid" 2>/dev/null || { tail -20 "$dir/server.log" >&2; echo "the broker died" >&2; exit 1; }
  # it serves once a client may connect and the log (at info) says it has started
  if grep -qs 'Kafka Server started' "$dir/server.log" || { [ "${KAFKA_LOG:-info}" != info ] && (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; }; then
    echo "$pid"; exit 0
  fi
  sleep 0.25
done
tail -20 "$dir/server.log" >&2; echo "not up in 60 s" >&2; kill "$pid" 2>/dev/null || true
exit 1
