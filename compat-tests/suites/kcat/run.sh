#!/bin/bash
# run.sh BOOTSTRAP : kcat, the command-line client over librdkafka.   env: KCAT (the program)
set -u
bs=${1:?bootstrap}
. "$(dirname "$0")/../../lab/lib.sh"
[ -n "${KCAT:-}" ] || prepare kcat
KCAT=${KCAT:-$(command -v kcat || command -v kafkacat)}
k() { if over; then echo "no time left" >> "$tmp/err"; return 1; fi; timeout -k 2 "$(at_most "${secs:-20}")" "$KCAT" -b "$bs" -m 15 -q "$@" 2>> "$tmp/err"; }
why() { tail -3 "$tmp/err"; }
equals() { if [ "$2" = "$3" ]; then ok "$1"; else not_ok "$1" "got '$(echo "$2" | one_line 100)', not '$(echo "$3" | one_line 100)': $(why)"; fi; : > "$tmp/err"; }
sum() { sort "$@" | cksum; }
: > "$tmp/err"

# a topic is made by the first who writes to it
T=kcat-$uid
echo first | k -P -t "$T" -p 0; equals auto-create "$?" 0
equals auto-created "$(k -L -t "$T" | grep -c "topic \"$T\" with [0-9]* partitions")" 1
k -L > "$tmp/all"; equals metadata-list "$(grep -cE "^ +broker [0-9]+ at [^ ]+:[0-9]+|topic \"$T\"" "$tmp/all")" 2
k -L -J -t "$T" > "$tmp/json"; equals metadata-json "$(grep -c "\"topic\":\"$T\",\"partitions\":\[{\"partition\":0,\"leader\":[0-9]*" "$tmp/json")" 1

# every codec with every acks
seq 1 300 | sed 's/.*/key&:a value that compresses, number &/' > "$tmp/in"
for acks in 0 1 -1; do
  for codec in none gzip snappy lz4 zstd; do
    t=$T-$codec-a$acks
    seq 1 3 | k -P -t "$t" -p 0 > /dev/null # makes it, so that acks=0 loses nothing
    k -P -t "$t" -p 0 -K: -l -z "$codec" -X "acks=$acks" -X linger.ms=20 "$tmp/in"; rc=$?
    k -C -t "$t" -p 0 -o 3 -e -K: > "$tmp/out"
    equals "produce-acks-$acks-$codec" "$rc $(cksum < "$tmp/out")" "0 $(cksum < "$tmp/in")"
  done
done

# null, empty, headers, timestamps
t=$T-shape
printf 'k1:\nk2:x\n:y\n' | k -P -t "$t" -p 0 -K: -Z -H a=1 -H a=2 -H b=
equals null-and-headers "$(k -C -t "$t" -p 0 -o beginning -e -f '%o %K %S %h;')" '0 2 -1 a=1,a=2,b=;1 2 1 a=1,a=2,b=;2 -1 1 a=1,a=2,b=;'

# where to start
t=$T-order
seq 0 49 | k -P -t "$t" -p 0; sleep 1.1; now=$(date +%s%3N); sleep 0.1; seq 50 99 | k -P -t "$t" -p 0
equals from-beginning "$(k -C -t "$t" -p 0 -o beginning -e | cksum)" "$(seq 0 99 | cksum)"
equals from-offset "$(k -C -t "$t" -p 0 -o 90 -e | cksum)" "$(seq 90 99 | cksum)"
equals from-near-the-end "$(k -C -t "$t" -p 0 -o -5 -e | cksum)" "$(seq 95 99 | cksum)"
equals from-end "$(k -C -t "$t" -p 0 -o end -e; echo "$?")" 0
equals from-timestamp "$(k -C -t "$t" -p 0 -o "s@$now" -e | cksum)" "$(seq 50 99 | cksum)"
equals count "$(k -C -t "$t" -p 0 -o 10 -c 5 | cksum)" "$(seq 10 14 | cksum)"
(sleep 2; echo late | k -P -t "$t" -p 0) & pids+=($!)
equals waits-for-new "$(k -C -t "$t" -p 0 -o end -c 1)" late; wait $!

# offset queries
equals query-latest "$(k -Q -t "$t:0:-1")" "$t [0] offset 101"
equals query-earliest "$(k -Q -t "$t:0:-2")" "$t [0] offset 0"
equals query-timestamp "$(k -Q -t "$t:0:$now")" "$t [0] offset 50"
equals query-late-timestamp "$(k -Q -t "$t:0:$((now + 3600000))" | sed 's/offset -1$/offset 101/')" "$t [0] offset 101"

# groups: reads, commits, goes on
g=kcat-group-$uid
equals group-reads "$(k -G "$g" -X auto.offset.reset=earliest -c 40 "$t" | cksum)" "$(seq 0 39 | cksum)"
equals group-goes-on "$(k -G "$g" -X auto.offset.reset=earliest -c 61 "$t" | cksum)" "$( (seq 40 99; echo late) | cksum)"
secs=6 k -G "$g" -X auto.offset.reset=earliest -e "$t" > "$tmp/rest"; equals group-has-it-all "$?:$(cat "$tmp/rest")" 0:

# two members of one group share the partitions; one leaves; the other takes over
t=$T-shared
for p in 0 1 2 3; do seq 0 24 | sed "s/^/$p-/" | k -P -t "$t" -p "$p" 2>/dev/null || true; done
parts=$(k -L -t "$t" | sed -n 's/.*with \([0-9]*\) partitions.*/\1/p')
if [ "${parts:-0}" -lt 2 ]; then skip group-of-two "the server makes topics with ${parts:-no} partition(s), this needs 2"
else
  n=$((parts < 4 ? parts : 4))
  for m in 1 2; do
    timeout -k 2 60 "$KCAT" -b "$bs" -q -G "$g-2" -X auto.offset.reset=earliest -X session.timeout.ms=8000 -X heartbeat.interval.ms=500 -X auto.commit.interval.ms=200 -u -f '%p %s\n' "$t" > "$tmp/m$m" 2>> "$tmp/err" &
    pids+=($!); declare "m$m=$!"
  done
  # wait for the two to share: write to every partition until both have read
  shared=no
  for _ in $(seq 1 60); do
    over && break
    for p in $(seq 0 $((n - 1))); do echo "$p-ping" | k -P -t "$t" -p "$p"; done
    if grep -q . "$tmp/m1" && grep -q . "$tmp/m2" && ! diff -q <(tail -1 "$tmp/m1" | cut -d' ' -f1) <(tail -1 "$tmp/m2" | cut -d' ' -f1) > /dev/null; then shared=yes; break; fi
    sleep 0.3
  done
  equals group-shares "$shared" yes
  sleep 1; kill -TERM "$m1" 2>/dev/null; wait "$m1" 2>/dev/null
  for p in $(seq 0 $((n - 1))); do seq 100 124 | sed "s/^/$p-/" | k -P -t "$t" -p "$p"; done
  for _ in $(seq 1 100); do over && break; [ "$(grep -cE ' [0-9]-1(0[0-9]|1[0-9]|2[0-4])$' "$tmp/m2")" -ge $((25 * n)) ] && break; sleep 0.2; done
  equals one-leaves-the-other-takes-over "$(grep -E ' [0-9]-1[0-2][0-9]$' "$tmp/m2" | sort | uniq -c | awk '$1 == 1 {n++} END {print n + 0}')" $((25 * n))
  kill -TERM "$m2" 2>/dev/null; wait "$m2" 2>/dev/null
  equals nothing-lost "$(cat "$tmp/m1" "$tmp/m2" | grep -E ' [0-9]-([0-9]|1[0-9]|2[0-4])$' | sort -u | wc -l)" $((25 * n))
fi
finish
