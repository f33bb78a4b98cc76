#!/bin/bash
# start.sh DIRECTORY : Apache Fluss 0.9.1 with one tablet server in DIRECTORY, which must be new; prints its bootstrap address.
# stop: kill the process ids in DIRECTORY/pids. Ports 19100 (ZooKeeper), 19110 (coordinator), 19120 (tablet server).
set -euo pipefail
lab=${SLUICE_LAB:-${XDG_CACHE_HOME:-$HOME/.cache}/sluice/lab}
run=${1:?a directory}
mkdir -p "$run"/{zk,coordinator,tablet,remote}
: > "$run/pids"
printf 'rootLogger.level = warn\n' > "$run/log4j2.properties"
cat > "$run/zk/zookeeper.properties" <<X
dataDir=$run/zk
clientPort=19100
clientPortAddress=127.0.0.1
admin.enableServer=false
maxClientCnxns=0
X
settings() { # PORT DATA
  cat <<X
zookeeper.address: localhost:19100
zookeeper.path.root: /fluss
default.replication.factor: 1
remote.data.dir: $run/remote
kv.snapshot.interval: 30 s
bind.listeners: FLUSS://localhost:$1
advertised.listeners: FLUSS://localhost:$1
data.dir: $2
X
}
settings 19110 "$run/coordinator/data" > "$run/coordinator/server.yaml"
{ settings 19120 "$run/tablet/data"; echo "tablet-server.id: 0"; } > "$run/tablet/server.yaml"
launch() { # NAME HEAP CLASS ARGUMENTS...
  local name=$1 heap=$2; shift 2
  # shellcheck disable=SC2086
  setsid nohup java $heap --add-opens=java.base/java.nio=ALL-UNNAMED --add-opens=java.base/java.lang=ALL-UNNAMED \
    --add-opens=java.base/sun.nio.ch=ALL-UNNAMED -Dio.netty.tryReflectionSetAccessible=true \
    "-Dlog4j2.configurationFile=$run/log4j2.properties" -cp "$lab/fluss/server/*" "$@" > "$run/$name.out" 2>&1 < /dev/null &
  echo $! >> "$run/pids"
}
listens() { for _ in $(seq 1 300); do (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null && return 0; sleep 0.2; done; echo "nothing listens on port $1" >&2; return 1; }
launch zk -Xmx256m org.apache.fluss.shaded.zookeeper3.org.apache.zookeeper.server.quorum.QuorumPeerMain "$run/zk/zookeeper.properties"
listens 19100
launch coordinator "-Xms256m -Xmx512m" org.apache.fluss.server.coordinator.CoordinatorServer --configDir "$run/coordinator"
listens 19110
launch tablet "-Xms512m -Xmx2g -XX:MaxDirectMemorySize=2g" org.apache.fluss.server.tablet.TabletServer --configDir "$run/tablet"
listens 19120
echo localhost:19110
