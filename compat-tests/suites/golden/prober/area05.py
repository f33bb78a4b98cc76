"""ListOffsets and OffsetForLeaderEpoch."""

from probe import *


def lo(A):
    tp = N("g5-a")
    topic(tp, 2)
    em = N("g5-empty")
    topic(em)
    dl = N("g5-del")
    topic(dl)
    lat = N("g5-lat")
    topic(lat, 1, {"message.timestamp.type": "LogAppendTime"})
    produce(tp, batch(5, tsd=10, codec=1))
    produce(tp, batch(5, ts=T0 + 100, tsd=10))
    produce(tp, batch(3, ts=T0 + 50, tsd=1))
    produce(lat, batch(3))
    [produce(dl, batch(5, ts=T0 + i * 100, tsd=10)) for i in range(3)]
    call(
        "DeleteRecords",
        2,
        {"Topics": [{"Name": dl, "Partitions": [{"PartitionIndex": 0, "Offset": 7}]}], "TimeoutMs": 5000},
    )

    def R(v, t, ts, part=0, le=None, iso=0, rep=-1, **k):
        p = {"PartitionIndex": part, "Timestamp": ts}
        if le is not None:
            p["CurrentLeaderEpoch"] = le
        d = {"ReplicaId": rep, "Topics": [{"Name": t, "Partitions": [p]}]}
        if v >= 2:
            d["IsolationLevel"] = iso
        if v >= 10:
            d["TimeoutMs"] = 1000
        d.update(k)
        return d

    q = lambda n, v, *a, **k: A.P("%s v%d" % (n, v), "ListOffsets", v, R(v, *a, **k))
    for v in range(1, 12):
        for ts in (-1, -2, -3, -4, -5, -6, -7):
            q("special %d" % ts, v, tp, ts)
        q("timestamp T0+15 (inside a gzip batch)", v, tp, T0 + 15)
    for d in (0, 10, 40, 41, 50, 100, 105, 140, 141, 100000):
        q("timestamp T0+%d" % d, 7, tp, T0 + d)
    q("timestamp 0", 7, tp, 0)
    q("timestamp T0+141 (none)", 1, tp, T0 + 141)
    q("timestamp T0+141 (none)", 11, tp, T0 + 141)
    for ts in (-1, -2, -3, -4, -5, -6, T0):
        q("empty topic %d" % ts, 11, em, ts)
    for ts in (-1, -2, -3, -4, -5, T0, T0 + 100, T0 + 120):
        q("log start 7: %d" % ts, 11, dl, ts)
    q("LogAppendTime topic, -3", 11, lat, -3)
    q("LogAppendTime topic, ts T0", 11, lat, T0)
    for v in (1, 5, 11):
        q("unknown topic", v, N("g5-nope"), -1)
        q("unknown partition", v, tp, -1, part=9)
    for le in (-1, 0, 1, 5):
        q("current_leader_epoch %d latest" % le, 7, tp, -1, le=le)
        q("current_leader_epoch %d timestamp" % le, 7, tp, T0, le=le)
    q("replica -2", 7, tp, -1, rep=-2)
    q("replica 5 (not a broker)", 7, tp, -1, rep=5)
    q("isolation 1", 7, tp, -1, iso=1)
    q("isolation 7", 7, tp, -1, iso=7)
    A.P("no topics", "ListOffsets", 7, {"ReplicaId": -1, "Topics": []})
    d = R(7, tp, -1)
    d["Topics"][0]["Partitions"].append({"PartitionIndex": 0, "Timestamp": -2})
    A.P("same partition twice", "ListOffsets", 7, d)
    d = R(7, tp, -1)
    d["Topics"].append({"Name": tp, "Partitions": [{"PartitionIndex": 1, "Timestamp": -1}]})
    A.P("same topic twice, other partition", "ListOffsets", 7, d)
    e = lambda n, v, t, ep, cur=-1, part=0, rep=-2: A.P(
        "%s v%d" % (n, v),
        "OffsetForLeaderEpoch",
        v,
        dict(
            {
                "Topics": [
                    {"Topic": t, "Partitions": [{"Partition": part, "CurrentLeaderEpoch": cur, "LeaderEpoch": ep}]}
                ]
            },
            **{"ReplicaId": rep} if v >= 3 else {}
        ),
    )
    for v in (2, 3, 4):
        for ep in (-1, 0, 1, 5):
            e("epoch %d" % ep, v, tp, ep)
    for cur in (0, 1, 5):
        e("current %d, epoch 0" % cur, 4, tp, 0, cur)
    e("unknown topic", 4, N("g5-nope"), 0)
    e("unknown partition", 4, tp, 0, part=9)
    e("empty topic", 4, em, 0)
    e("empty partition 1", 4, tp, 0, part=1)
    e("log start 7", 4, dl, 0)
    e("replica -1", 4, tp, 0, rep=-1)


PARTS = [lo]
