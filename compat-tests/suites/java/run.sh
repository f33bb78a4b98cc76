#!/bin/bash
# run.sh BOOTSTRAP : Apache Kafka 4.4's console tools, one JVM each, then its Java clients (Clients.java).
# env: TOOLS=0 leaves the tools out, CLIENTS=0 the Java program; COMPAT_KIP848=1 adds the newer group protocol
set -u
bs=${1:?bootstrap}
. "$(dirname "$0")/../../lab/lib.sh"
prepare java
java_opts=(-XX:TieredStopAtLevel=1 -Xmx256m -XX:+UseSerialGC -Xshare:auto "-Dlog4j2.configurationFile=$lab_src/log4j2.yaml" -Dlab.log=error)
tools=org.apache.kafka.tools; groups=$tools.consumer.group.ConsumerGroupCommand
T=tools-$uid G=group-$uid
out() { cat "$tmp/$1.out"; }
# tool NAME CLASS ARGUMENTS... : runs one tool with $in as input; output in $tmp/NAME.out, errors in NAME.err
tool() {
  local n=$1 c=$2 rc; shift 2
  if over; then : > "$tmp/$n.out"; echo "no time left" > "$tmp/$n.err"; return 1; fi
  timeout -k 5 "$(at_most "${secs:-30}")" java "${java_opts[@]}" "-XX:SharedArchiveFile=$LAB/java/tools.jsa" -Xlog:disable -cp "$LAB/java/kafka/*" "$c" --bootstrap-server "$bs" "$@" \
    > "$tmp/$n.out" 2> "$tmp/$n.err" < "${in:-/dev/null}"; rc=$?
  [ "$rc" = 0 ] || echo "exit code $rc" >> "$tmp/$n.err"
  return "$rc"
}
# expect NAME REGEX : the tool NAME's output has a line that matches
expect() { if grep -qE -- "$2" "$tmp/$1.out"; then ok "$1"; else not_ok "$1" "no line '$2' in: $(cat "$tmp/$1.out" "$tmp/$1.err")"; fi; }
# equals NAME GOT WANTED
equals() { if [ "$2" = "$3" ]; then ok "$1"; else not_ok "$1" "got '$2', not '$3': $(cat "$tmp/$1.err" 2>/dev/null)"; fi; }
# sum of field 3 of topic:partition:offset lines
total() { awk -F: 'NF >= 3 {s += $3; n++} END {print n + 0 ":" s + 0}' "$tmp/$1.out"; }
# CURRENT-OFFSET, LOG-END-OFFSET and LAG added up over the rows of the topic
offsets() { awk -v t="$T" '$2 == t {n++; c += $4; e += $5; l += $6} END {print n + 0, c + 0, e + 0, l + 0}' "$tmp/$1.out"; }

tools_part() {
  # topics
  tool topic-create $tools.TopicCommand --create --topic "$T" --partitions 3 --replication-factor 1 --config retention.ms=3600000
  expect topic-create "Created topic $T"
  tool topic-list $tools.TopicCommand --list; expect topic-list "^$T\$"
  tool topic-create-again $tools.TopicCommand --create --topic "$T" --partitions 3
  if grep -q TopicExistsException "$tmp/topic-create-again.err" "$tmp/topic-create-again.out"; then ok topic-create-again
  else not_ok topic-create-again "no TopicExistsException: $(out topic-create-again)"; fi
  tool topic-describe $tools.TopicCommand --describe --topic "$T"
  expect topic-describe "PartitionCount: 3.*ReplicationFactor: 1.*Configs:.*retention.ms=3600000"
  broker=$(sed -n 's/.*Leader: \([0-9]*\).*/\1/p' "$tmp/topic-describe.out" | head -1)
  tool topic-alter $tools.TopicCommand --alter --topic "$T" --partitions 4 || true
  tool topic-altered $tools.TopicCommand --describe --topic "$T"; expect topic-altered "PartitionCount: 4"

  # produce and consume
  seq 1 100 | sed 's/.*/k&:v&/' > "$tmp/in.txt"
  before=$(($(date +%s%3N) - 1000))
  in="$tmp/in.txt" tool console-producer $tools.ConsoleProducer --topic "$T" --reader-property parse.key=true --reader-property key.separator=:
  equals console-producer "$?:$(cat "$tmp/console-producer.err")" "0:"
  tool console-consumer $tools.consumer.ConsoleConsumer --topic "$T" --from-beginning --group "$G" --max-messages 100 --timeout-ms 20000 \
    --formatter-property print.key=true --formatter-property key.separator=:
  equals console-consumer "$(sort "$tmp/console-consumer.out" | cksum)" "$(sort "$tmp/in.txt" | cksum)"

  # offsets
  tool get-offsets-latest $tools.GetOffsetShell --topic "$T" --time -1; equals get-offsets-latest "$(total get-offsets-latest)" 4:100
  tool get-offsets-earliest $tools.GetOffsetShell --topic "$T" --time -2; equals get-offsets-earliest "$(total get-offsets-earliest)" 4:0
  tool get-offsets-max-timestamp $tools.GetOffsetShell --topic "$T" --time -3
  equals get-offsets-max-timestamp "$(join -t: <(sed 's/:\([0-9]*\)$/-\1/; s/^.*:\([0-9]*\)-/\1:/' "$tmp/get-offsets-latest.out" | sort) \
    <(sed 's/:\([0-9]*\)$/-\1/; s/^.*:\([0-9]*\)-/\1:/' "$tmp/get-offsets-max-timestamp.out" | sort) | awk -F: '$3 >= 0 && $3 < $2 {n++} END {print n + 0}')" 4
  tool get-offsets-by-time $tools.GetOffsetShell --topic "$T" --time "$before"; equals get-offsets-by-time "$(total get-offsets-by-time)" 4:0
  # a time after the last record: no partition has an offset (the tool leaves them out)
  tool get-offsets-by-late-time $tools.GetOffsetShell --topic "$T" --time $(($(date +%s%3N) + 3600000))
  equals get-offsets-by-late-time "$(total get-offsets-by-late-time)$(cat "$tmp/get-offsets-by-late-time.err")" 0:0

  # groups
  tool group-list $groups --list; expect group-list "^$G\$"
  tool group-describe $groups --describe --group "$G"; equals group-describe "$(offsets group-describe)" "4 100 100 0"
  tool group-state-empty $groups --describe --group "$G" --state; expect group-state-empty "^$G .*Empty +0"
  timeout -k 5 90 java "${java_opts[@]}" -cp "$LAB/java/kafka/*" $tools.consumer.ConsoleConsumer --bootstrap-server "$bs" --topic "$T" --group "$G" > "$tmp/member.out" 2>&1 < /dev/null &
  member=$!; pids+=("$member")
  for _ in 1 2 3 4 5; do
    tool group-state $groups --describe --group "$G" --state
    grep -qE "^$G .*Stable +1" "$tmp/group-state.out" && break; sleep 0.5
  done
  expect group-state "^$G .*Stable +1"
  tool group-members $groups --describe --group "$G" --members --verbose; expect group-members "^$G +console-consumer-[^ ]+ +.*console-consumer +4 .*$T"
  kill "$member" 2>/dev/null; wait "$member" 2>/dev/null
  for _ in 1 2 3 4 5; do # the member left: offsets may be reset
    tool group-reset-offsets $groups --reset-offsets --group "$G" --topic "$T" --to-earliest --execute && break; sleep 0.5
  done
  equals group-reset-offsets "$(awk -v t="$T" '$2 == t || $3 == t {n++; s += $NF} END {print n + 0, s + 0}' "$tmp/group-reset-offsets.out")" "4 0"
  tool group-after-reset $groups --describe --group "$G"; equals group-after-reset "$(offsets group-after-reset)" "4 0 100 100"
  tool group-delete-offsets $groups --delete-offsets --group "$G" --topic "$T:0"
  expect group-delete-offsets "$T +0 +Successful"
  tool group-delete $groups --delete --group "$G"; expect group-delete "Deletion of requested.*successful"
  tool group-gone $groups --list
  if [ -s "$tmp/group-gone.err" ] || grep -q "^$G\$" "$tmp/group-gone.out"; then not_ok group-gone "still there: $(cat "$tmp/group-gone.err")"; else ok group-gone; fi

  # configs
  tool config-describe-all $tools.ConfigCommand --entity-type topics --entity-name "$T" --describe --all
  if grep -q ' cleanup.policy=delete ' "$tmp/config-describe-all.out"; then expect config-describe-all 'retention.ms=3600000 .*DYNAMIC_TOPIC_CONFIG'
  else not_ok config-describe-all "no cleanup.policy=delete: $(cat "$tmp/config-describe-all.out" "$tmp/config-describe-all.err")"; fi
  tool config-alter $tools.ConfigCommand --entity-type topics --entity-name "$T" --alter --add-config retention.ms=7200000
  tool config-altered $tools.ConfigCommand --entity-type topics --entity-name "$T" --describe; expect config-altered 'retention.ms=7200000 '
  tool config-delete $tools.ConfigCommand --entity-type topics --entity-name "$T" --alter --delete-config retention.ms
  tool config-deleted $tools.ConfigCommand --entity-type topics --entity-name "$T" --describe
  if [ -s "$tmp/config-deleted.err" ] || grep -q retention.ms= "$tmp/config-deleted.out"; then not_ok config-deleted "$(out config-deleted)"; else ok config-deleted; fi
  tool config-unknown $tools.ConfigCommand --entity-type topics --entity-name "$T" --alter --add-config no.such.config=1
  if grep -q InvalidConfigurationException "$tmp/config-unknown.err" "$tmp/config-unknown.out"; then ok config-unknown; else not_ok config-unknown "accepted: $(out config-unknown)"; fi
  tool config-broker $tools.ConfigCommand --entity-type brokers --entity-name "${broker:-1}" --describe --all; expect config-broker 'num.partitions=[0-9]+ '

  # records, cluster
  end0=$(sed -n "s/^$T:0://p" "$tmp/get-offsets-latest.out")
  echo '{"partitions":[{"topic":"'"$T"'","partition":0,"offset":-1}],"version":1}' > "$tmp/delete.json"
  tool delete-records $tools.DeleteRecordsCommand --offset-json-file "$tmp/delete.json"; expect delete-records "partition: $T-0[[:space:]]+low_watermark: $end0\$"
  tool deleted-records $tools.GetOffsetShell --topic "$T" --time -2; expect deleted-records "^$T:0:$end0\$"
  timeout -k 5 "$(at_most 30)" java "${java_opts[@]}" -cp "$LAB/java/kafka/*" $tools.ClusterTool cluster-id --bootstrap-server "$bs" > "$tmp/cluster-id.out" 2> "$tmp/cluster-id.err"
  expect cluster-id '^Cluster ID: .{8,}'
  tool topic-delete $tools.TopicCommand --delete --topic "$T"
  equals topic-delete "$?:$(cat "$tmp/topic-delete.err")" "0:"
  tool topic-gone $tools.TopicCommand --list
  if [ -s "$tmp/topic-gone.err" ] || grep -q "^$T\$" "$tmp/topic-gone.out"; then not_ok topic-gone "$(cat "$tmp/topic-gone.err")"; else ok topic-gone; fi
}

[ "${TOOLS:-1}" = 0 ] || tools_part
[ "${CLIENTS:-1}" = 0 ] || program 120 java "${java_opts[@]}" -cp "$LAB/java/kafka/*" "$here/Clients.java" "$bs"
finish
