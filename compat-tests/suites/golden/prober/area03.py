"""Produce: every way a batch can be wrong, every version, acks, limits, timestamps."""

from probe import *


def go(A):
    # Kafka makes its internal topics when they are first needed, and two probes below ask for them
    coord(N("g3"), 0)
    coord(N("g3"), 1)
    tp = N("g3-plain")
    tid = topic(tp, 2)
    A.name_id("topic-id", tid, "g3-plain")
    cp = N("g3-compact")
    topic(cp, 1, {"cleanup.policy": "compact"})
    cd = N("g3-compactdelete")
    topic(cd, 1, {"cleanup.policy": "compact,delete"})
    sm = N("g3-small")
    topic(sm, 1, {"max.message.bytes": "1000"})
    tsb = N("g3-ts")
    topic(tsb, 1, {"message.timestamp.before.max.ms": "3600000", "message.timestamp.after.max.ms": "3600000"})
    gz = N("g3-gzip")
    topic(gz, 1, {"compression.type": "gzip"})
    lat = N("g3-lat")
    topic(lat, 1, {"message.timestamp.type": "LogAppendTime"})

    def q(n, b, t=tp, v=11, part=0, **k):
        return A.P(n, "Produce", v, produce_req(v, t, b, part=part, topic_id=tid, **k), timeout=6)

    q("good", batch(2))
    for v in (0, 1, 2):
        A.P(
            "v%d good magic 2 (version advertised but removed)" % v,
            "Produce",
            v,
            {
                "Acks": 1,
                "TimeoutMs": 5000,
                "TopicData": [{"Name": tp, "PartitionData": [{"Index": 0, "Records": batch(1)}]}],
            },
            timeout=4,
        )
    for v in range(3, 14):
        q("v%d good" % v, batch(1), v=v)
    b = bytearray(batch(2))
    q("bad CRC", batch(2, crc=1))
    q("bad CRC v3", batch(2, crc=1), v=3)
    for m in (0, 1, 3):
        q("magic byte %d in a v2-shaped batch" % m, batch(1, magic=m))
    q("legacy magic 0 message set", legacy(0))
    q("legacy magic 1 message set", legacy(1))
    q("legacy magic 1, v3", legacy(1), v=3)
    q("legacy magic 1 bad crc", legacy(1, badcrc=True))
    q("legacy magic 0, v3", legacy(0), v=3)
    q("truncated batch: last 3 bytes missing", batch(2)[:-3])
    q("only 20 bytes", batch(2)[:20])
    q("only 61-byte header", batch(2)[:61])
    q("trailing 3 zero bytes", batch(2) + b"\x00\x00\x00")
    q("batch length 10", struct.pack(">qi", 0, 10) + batch(2)[12:])
    q("batch length negative", struct.pack(">qi", 0, -1) + batch(2)[12:])
    q("empty records", b"")
    q("null records", None)
    q("two batches in one partition", batch(1) + batch(1))
    q("two batches, no pid, v3", batch(1) + batch(1), v=3)
    q("count 3 but 2 records", batch(2, count=3))
    q("count 1 but 2 records", batch(2, count=1))
    q("count 3, lastOffsetDelta 2, but 2 records", batch(2, count=3, lod=2))
    q("count 1 and lastOffsetDelta 0, but 2 records", batch(2, count=1, lod=0))
    q("count 0", batch(0, lod=-1))
    q("count 0, lastOffsetDelta 0", batch(0, lod=0))
    q("count -1", batch(2, count=-1))
    q("count 2^31-1", batch(2, count=2**31 - 1))
    q("lastOffsetDelta 5 with 2 records", batch(2, lod=5))
    q("lastOffsetDelta -1", batch(2, lod=-1))
    q("offset deltas 0,2", batch(2, odelta=[0, 2]))
    q("offset deltas 1,0", batch(2, odelta=[1, 0]))
    q("offset deltas 0,0", batch(2, odelta=[0, 0]))
    q("maxTimestamp too low", batch(2, tsd=5, maxts=T0))
    q("maxTimestamp too high", batch(2, tsd=5, maxts=T0 + 99))
    q("maxTimestamp -1", batch(2, maxts=-1))
    q("timestamps -1", batch(2, ts=-1))
    q("timestamps 0", batch(1, ts=0))
    q("timestamps -2", batch(1, ts=-2))
    q("negative timestamp delta", batch([(b"k", b"v", -5)], maxts=T0 - 5))
    q("control batch", batch([(b"\x00\x00\x00\x00", b"\x00\x00\x00\x00\x00\x00")], control=True))
    q("attribute bit 3 (LogAppendTime) on CreateTime topic", batch(1, lat=True))
    q("attribute bit 6 (delete horizon)", batch(1, xattr=64))
    q("attribute bit 7 (unused)", batch(1, xattr=128))
    q("attribute codec 7", batch(1, codec=7))
    q("attribute codec 5", batch(1, codec=5, raw=b"xxxx"))
    for c, n in ((1, "gzip"), (2, "snappy"), (3, "lz4"), (4, "zstd")):
        q("corrupt %s payload" % n, batch(2, codec=c, raw=b"\x01\x02\x03garbage"))
    q("good gzip", batch(2, codec=1))
    q("gzip with count 3 but 2 records", batch(2, codec=1, count=3, lod=2))
    q("good gzip v3", batch(2, codec=1), v=3)
    for v in (3, 6, 7):
        q("zstd marked payload at v%d" % v, batch(1, codec=4, raw=bytes.fromhex("28b52ffd")), v=v)
    q("bad CRC within gzip", batch(2, codec=1, crc=7))
    q("record length field wrong", batch(1, raw=b"P" + rec(b"k", b"v", 0)[1:]))
    q("record with attributes 1", batch(1, raw=zz(8) + b"\x01" + rec(b"k", b"v", 0)[2:]))
    q("garbage after last record", batch(1, raw=rec(b"k", b"v", 0) + b"zzz"))
    q("header key null", batch([(b"k", b"v", 0, [(None, b"x")])]))
    q("header value null and repeated key", batch([(b"k", b"v", 0, [(b"h", None), (b"h", b"1")])]))
    q("key null, value null", batch([(None, None)]))
    q("empty key, empty value", batch([(b"", b"")]))
    q("oversized batch (>1 MiB default)", batch(1, val=b"x" * 1100000))
    q("small topic: 1001+ bytes", batch(1, val=b"x" * 1000), sm)
    q("small topic: gzip of 20000 bytes", batch(1, val=b"x" * 20000, codec=1), sm)
    base = len(batch(1, val=b"x" * 500)) - 500
    q("small topic: exactly 1000 bytes", batch(1, val=b"x" * (1000 - base)), sm)
    q("small topic: exactly 1001 bytes", batch(1, val=b"x" * (1001 - base)), sm)
    q("unknown topic", batch(1), N("g3-nope"))
    q("unknown partition", batch(1), part=9)
    q("negative partition", batch(1), part=-1)
    q("unknown topic, bad crc", batch(1, crc=3), N("g3-nope"))
    A.P(
        "unknown topic id v13",
        "Produce",
        13,
        produce_req(13, None, batch(1), topic_id="00000000-0000-0000-0000-0000000000aa"),
    )
    A.P("zero topic id v13", "Produce", 13, produce_req(13, None, batch(1), topic_id=ZERO))
    q("invalid topic name v11", batch(1), "bad name!")
    q("empty topic name v11", batch(1), "")
    q("internal topic __consumer_offsets", batch(1), "__consumer_offsets")
    q("internal topic __transaction_state", batch(1), "__transaction_state")
    for v in (3, 7, 8, 11):
        q("null key on compacted topic v%d" % v, batch([(b"a", b"v"), (None, b"v"), (None, b"w")]), cp, v=v)
    q("null key on compact,delete topic", batch([(None, b"v")]), cd)
    q("good key on compacted", batch([(b"a", None)]), cp)
    q("idempotent null key on compacted", batch([(None, b"v")], pid=initpid()[0], epoch=0, seq=0), cp)
    now = int(time.time() * 1000)
    for v in (3, 8, 11):
        A.P(
            "timestamp too old v%d" % v,
            "Produce",
            v,
            produce_req(v, tsb, batch([(b"a", b"v", now - T0), (b"b", b"v", 0)])),
        )
    A.P("timestamp too far ahead", "Produce", 11, produce_req(11, tsb, batch(2, ts=now + 7200000)))
    A.P("timestamp -1 with bounds", "Produce", 11, produce_req(11, tsb, batch(2, ts=-1)))
    A.P("default topic, 2 h ahead", "Produce", 11, produce_req(11, tp, batch(1, ts=now + 7200000)))
    A.P("LogAppendTime topic, old", "Produce", 11, produce_req(11, lat, batch(1, ts=5)))
    q("topic compression gzip, plain batch", batch(3), gz)
    A.P("fetch back gzip topic", "Fetch", 12, fetch_req(12, gz, 0))
    for a in (0, 1, -1, 2, -2, 100):
        if a != 0:
            q("acks %d" % a, batch(1), acks=a)

    def acks0(n, rq, v=11):
        c = Conn(3)
        c.send("Produce", v, rq)
        try:
            c.s.settimeout(1.5)
            c.send("ApiVersions", 0, {})
            b = c.frame()
            cid = struct.unpack(">i", b[:4])[0]
            r = {1: "answered the produce", 2: "no produce response, next request answered"}.get(
                cid, "correlation %d" % cid
            )
        except NORESP:
            r = "connection closed"
        except (socket.timeout, TimeoutError):
            r = "no response"
        c.close()
        A.put(n, "Produce", v, rq, r)

    acks0("acks 0 good, then ApiVersions on the same connection", produce_req(11, tp, batch(1), acks=0))
    acks0("acks 0 unknown topic, then ApiVersions", produce_req(11, N("g3-nope"), batch(1), acks=0))
    acks0("acks 0 bad crc, then ApiVersions", produce_req(11, tp, batch(1, crc=1), acks=0))
    acks0("acks 0 unknown partition", produce_req(11, tp, batch(1), part=9, acks=0))
    acks0("acks 0 duplicate/out of order", produce_req(11, tp, batch(1, initpid()[0], 0, 5), acks=0))
    acks0("acks 0 magic 1 legacy", produce_req(11, tp, legacy(1), acks=0))
    two = produce_req(11, tp, batch(1))
    two["TopicData"][0]["PartitionData"] += [
        {"Index": 1, "Records": batch(1, crc=1)},
        {"Index": 9, "Records": batch(1)},
    ]
    A.P("good + bad crc + unknown partition in one request", "Produce", 11, two)
    dup = produce_req(11, tp, batch(1))
    dup["TopicData"][0]["PartitionData"] += [{"Index": 0, "Records": batch(2)}]
    A.P("same partition twice in one request", "Produce", 11, dup)
    d2 = produce_req(11, tp, batch(1))
    d2["TopicData"] += d2["TopicData"]
    A.P("same topic twice in one request", "Produce", 11, d2)
    A.P("no topics", "Produce", 11, {"Acks": -1, "TimeoutMs": 1000, "TopicData": []})
    A.P(
        "topic with no partitions",
        "Produce",
        11,
        {"Acks": -1, "TimeoutMs": 1000, "TopicData": [{"Name": tp, "PartitionData": []}]},
    )
    A.P("timeout 0", "Produce", 11, dict(produce_req(11, tp, batch(1)), TimeoutMs=0))
    A.P("timeout -1", "Produce", 11, dict(produce_req(11, tp, batch(1)), TimeoutMs=-1))
    A.P("fetch back plain topic", "Fetch", 12, fetch_req(12, tp, 0))


PARTS = [go]
