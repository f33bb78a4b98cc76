"""Fetch: versions, offsets, limits, waiting, fetch sessions, aborted transactions."""

from probe import *


def prep(A):
    A.tp = N("g4-a")
    A.tid = topic(A.tp, 2)
    A.name_id("topic-id", A.tid, "g4-a")
    A.e = N("g4-empty")
    A.eid = topic(A.e, 1)
    A.name_id("topic-id", A.eid, "g4-empty")
    for i in range(4):
        produce(A.tp, batch(5))
    produce(A.tp, batch(3, val=b"x" * 63), part=1)
    A.d = N("g4-del")
    A.did = topic(A.d)
    A.name_id("topic-id", A.did, "g4-del")
    [produce(A.d, batch(5)) for _ in range(3)]
    call(
        "DeleteRecords",
        2,
        {"Topics": [{"Name": A.d, "Partitions": [{"PartitionIndex": 0, "Offset": 7}]}], "TimeoutMs": 5000},
    )


def basic(A):
    F = lambda n, v, tp, tid, off, **k: A.P(n, "Fetch", v, fetch_req(v, tp, off, tid=tid, **k))
    for v in range(4, 19):
        F("v%d from 0" % v, v, A.tp, A.tid, 0)
    F("empty topic (records null or empty?) v4", 4, A.e, A.eid, 0)
    F("empty topic v11", 11, A.e, A.eid, 0)
    F("empty topic v12", 12, A.e, A.eid, 0)
    F("empty topic v17", 17, A.e, A.eid, 0)
    for o in (7, 12, 19):
        F("offset %d in the middle of a batch" % o, 17, A.tp, A.tid, o)
    for o in (20, 21, -1, -2, 1000):
        F("offset %d (end is 20)" % o, 17, A.tp, A.tid, o)
    for v in (4, 11, 17):
        F("out of range above v%d" % v, v, A.tp, A.tid, 99)
    F("below log start (7), offset 3", 17, A.d, A.did, 3)
    F("at log start 7 (middle of batch)", 17, A.d, A.did, 7)
    F("offset 6 (in the kept batch but below log start)", 17, A.d, A.did, 6)
    for v in (13, 17):
        F("unknown topic id v%d" % v, v, None, "00000000-0000-0000-0000-0000000000aa", 0)
        F("zero topic id v%d" % v, v, None, ZERO, 0)
    for v in (4, 11, 12):
        F("unknown topic name v%d" % v, v, N("g4-nope"), None, 0)
    A.P("unknown partition v12", "Fetch", 12, fetch_req(12, A.tp, 0, part=9))
    A.P("unknown partition v17", "Fetch", 17, fetch_req(17, None, 0, part=9, tid=A.tid))
    for le in (-1, 0, 1, 5):
        F("current_leader_epoch %d v17" % le, 17, A.tp, A.tid, 0, CurrentLeaderEpoch=le)
        F("current_leader_epoch %d v11" % le, 11, A.tp, None, 0, CurrentLeaderEpoch=le)
    for lf in (0, 1, 7):
        F("last_fetched_epoch %d offset 3" % lf, 17, A.tp, A.tid, 3, CurrentLeaderEpoch=0, LastFetchedEpoch=lf)
    F("last_fetched_epoch 0 offset 25 (beyond)", 17, A.tp, A.tid, 25, CurrentLeaderEpoch=0, LastFetchedEpoch=0)
    F("max_bytes 1", 17, A.tp, A.tid, 0, MaxBytes=1)
    F("partition_max_bytes 1", 17, A.tp, A.tid, 0, PartitionMaxBytes=1)
    F("max_bytes 0", 17, A.tp, A.tid, 0, MaxBytes=0)
    F("partition_max_bytes 0", 17, A.tp, A.tid, 0, PartitionMaxBytes=0)
    n = len(batch(5))
    F("partition_max_bytes = 2.5 batches", 17, A.tp, A.tid, 0, PartitionMaxBytes=int(n * 2.5))
    F("max_bytes = 2.5 batches", 17, A.tp, A.tid, 0, MaxBytes=int(n * 2.5))
    F("partition_max_bytes = 2.5 batches from offset 7", 17, A.tp, A.tid, 7, PartitionMaxBytes=int(n * 2.5))
    F("partition_max_bytes = 2.5 batches v4", 4, A.tp, A.tid, 0, PartitionMaxBytes=int(n * 2.5))
    two = fetch_req(17, None, 0, tid=A.tid, MaxBytes=1)
    two["Topics"][0]["Partitions"].append({"Partition": 1, "FetchOffset": 0, "PartitionMaxBytes": 1 << 20})
    A.P("max_bytes 1, two partitions", "Fetch", 17, two)
    two = json.loads(json.dumps(two))
    two["Topics"][0]["Partitions"].reverse()
    A.P("max_bytes 1, two partitions, reversed", "Fetch", 17, two)
    two = json.loads(json.dumps(two))
    two["MaxBytes"] = 1 << 20
    two["Topics"][0]["Partitions"][1]["PartitionMaxBytes"] = 1
    A.P("partition_max_bytes 1 on the second partition", "Fetch", 17, two)
    A.P("no topics", "Fetch", 17, {"MaxWaitMs": 1000, "MinBytes": 1, "Topics": []}, timing=True)
    A.P("replica id 5 by v14", "Fetch", 14, dict(fetch_req(14, None, 0, tid=A.tid), ReplicaId=5))
    A.P("replica id -2 v11", "Fetch", 11, dict(fetch_req(11, A.tp, 0), ReplicaId=-2))
    A.P("isolation level 7", "Fetch", 17, dict(fetch_req(17, None, 0, tid=A.tid), IsolationLevel=7), timeout=3)
    A.P(
        "same partition twice",
        "Fetch",
        17,
        dict(fetch_req(17, None, 0, tid=A.tid), Topics=fetch_req(17, None, 0, tid=A.tid)["Topics"] * 2),
    )


def timing(A):
    W = lambda n, **k: A.P(
        n, "Fetch", 17, fetch_req(17, None, k.pop("off", 20), tid=k.pop("tid", A.tid), **k), timing=True
    )
    W("at end, min 1, wait 500", MaxWaitMs=500, MinBytes=1)
    W("at end, min 0, wait 500", MaxWaitMs=500, MinBytes=0)
    W("data, min 1, wait 1000", off=0, MaxWaitMs=1000, MinBytes=1)
    W("data, min 1 MB, wait 700", off=0, MaxWaitMs=700, MinBytes=1000000)
    W("out of range, min 1, wait 1000", off=99, MaxWaitMs=1000, MinBytes=1)
    W("unknown topic id, wait 1000", tid="00000000-0000-0000-0000-0000000000aa", MaxWaitMs=1000, MinBytes=1)
    W("wrong epoch, wait 1000", MaxWaitMs=1000, MinBytes=1, CurrentLeaderEpoch=9)
    W("wait 0", MaxWaitMs=0, MinBytes=1)
    W("wait -1", MaxWaitMs=-1, MinBytes=1)
    W(
        "partition_max_bytes 1 and min 5000 at offset 0, wait 500",
        off=0,
        MaxWaitMs=500,
        MinBytes=5000,
        PartitionMaxBytes=1,
    )
    import threading

    th = threading.Timer(0.3, lambda: produce(A.e, batch(1)))
    th.start()
    A.P(
        "produce after 300 ms wakes a 2000 ms wait",
        "Fetch",
        17,
        fetch_req(17, None, 0, tid=A.eid, MaxWaitMs=2000, MinBytes=1),
        timing=True,
    )
    th.join()


def sessions(A):
    v = 17
    P = lambda tid, off, part=0: {
        "TopicId": tid,
        "Partitions": [{"Partition": part, "FetchOffset": off, "PartitionMaxBytes": 1 << 20}],
    }
    c = Conn(8)
    S = lambda n, sid, ep, topics, forget=(), v=17, **k: A.P(
        n,
        "Fetch",
        v,
        dict(
            {
                "MaxWaitMs": 100,
                "MinBytes": 0,
                "SessionId": sid,
                "SessionEpoch": ep,
                "Topics": topics,
                "ForgottenTopicsData": [{"TopicId": t, "Partitions": p} for t, p in forget],
            },
            **k
        ),
        conn=c,
    )
    S("id 0 epoch -1: no session", 0, -1, [P(A.tid, 18)])
    r = S("id 0 epoch 0: creates", 0, 0, [P(A.tid, 20), P(A.eid, 1)])
    s = r.get("SessionId", 0)
    S("epoch 1, nothing changed", s, 1, [])
    produce(A.e, batch(1))
    S("epoch 2 after a produce to g4-empty", s, 2, [])
    S("epoch 3: same (offset not advanced)", s, 3, [])
    S("epoch 4: advance offset of g4-empty to 2", s, 4, [P(A.eid, 2)])
    S("epoch 4 again (wrong, expected 5)", s, 4, [])
    S("epoch 9 (wrong)", s, 9, [])
    S("epoch 5 after errors", s, 5, [])
    S("epoch 6: forget g4-empty", s, 6, [], [(A.eid, [0])])
    produce(A.e, batch(1))
    S("epoch 7: produce to forgotten", s, 7, [])
    S("epoch 8: add out-of-range", s, 8, [P(A.tid, 99, 1)])
    S("epoch 9: error stays", s, 9, [])
    S("epoch 10: repaired", s, 10, [P(A.tid, 3, 1)])
    S("epoch 11: unknown topic id added", s, 11, [P("00000000-0000-0000-0000-0000000000aa", 0)])
    S("epoch 12: unknown id stays", s, 12, [])
    S("epoch 13: forget a partition not in the session", s, 13, [], [(A.did, [0])])
    S("unknown session id, epoch 1", 123456789, 1, [])
    S("unknown session id, epoch 0", 123456789, 0, [P(A.tid, 20)])
    S("session 0, epoch 5", 0, 5, [P(A.tid, 20)])
    S("known id with epoch 0 (new full session)", s, 0, [P(A.tid, 20)])
    S("old id after that", s, 14, [])
    S("id 0 epoch 0 no topics", 0, 0, [])
    S("epoch -1 with known id (close)", s, -1, [P(A.tid, 20)])
    S("negative epoch -5", 0, -5, [P(A.tid, 20)])
    r = A.P(
        "v12 session by name",
        "Fetch",
        12,
        {
            "ReplicaId": -1,
            "MaxWaitMs": 100,
            "MinBytes": 0,
            "SessionId": 0,
            "SessionEpoch": 0,
            "Topics": [{"Topic": A.tp, "Partitions": [{"Partition": 0, "FetchOffset": 20, "PartitionMaxBytes": 1000}]}],
        },
        conn=c,
    )
    s = r.get("SessionId", 0)
    S("v17 request (ids) on a name session", s, 1, [P(A.eid, 0)])
    A.P(
        "v7 session by name",
        "Fetch",
        7,
        {
            "ReplicaId": -1,
            "MaxWaitMs": 100,
            "MinBytes": 0,
            "SessionId": 0,
            "SessionEpoch": 0,
            "Topics": [{"Topic": A.tp, "Partitions": [{"Partition": 0, "FetchOffset": 20, "PartitionMaxBytes": 1000}]}],
        },
        conn=c,
    )
    c.close()
    x = Conn(8)
    y = Conn(8)
    r = A.P(
        "session opened on connection 1",
        "Fetch",
        17,
        {"MaxWaitMs": 0, "SessionEpoch": 0, "SessionId": 0, "Topics": [P(A.tid, 20)]},
        conn=x,
    )
    A.P(
        "used from connection 2",
        "Fetch",
        17,
        {"MaxWaitMs": 0, "SessionEpoch": 1, "SessionId": r.get("SessionId", 0), "Topics": []},
        conn=y,
    )


def txn(A):
    tp = N("g4-txn")
    tid = topic(tp)
    A.name_id("topic-id", tid, "g4-txn")
    coord(N("x"), 1)

    def beg(n):
        t = N("g4-" + n)
        p, e = initpid(t)
        A.alias("pid", p)
        return (t, p, e)

    a, b, c = (beg("a"), beg("b"), beg("c"))
    w = lambda x, s, n=2: produce(tp, batch(n, x[1], x[2], s, txn=True), 12, x[0])
    fin = lambda x, cm: until(
        "EndTxn", 5, {"TransactionalId": x[0], "ProducerId": x[1], "ProducerEpoch": x[2], "Committed": cm}
    )
    F = lambda n, off, iso=1, v=17: A.P(n, "Fetch", v, dict(fetch_req(v, tp, off, tid=tid), IsolationLevel=iso))
    L = lambda n, ts, iso: A.P(
        n,
        "ListOffsets",
        7,
        {
            "ReplicaId": -1,
            "IsolationLevel": iso,
            "Topics": [{"Name": tp, "Partitions": [{"PartitionIndex": 0, "Timestamp": ts}]}],
        },
    )
    w(b, 0)
    w(a, 0)
    produce(tp, batch(1))
    w(c, 0)
    w(a, 2)
    F("all open: read_committed", 0)
    F("all open: read_uncommitted", 0, 0)
    L("latest read_committed", -1, 1)
    L("latest read_uncommitted", -1, 0)
    L("max timestamp read_committed", -3, 1)
    fin(a, False)
    time.sleep(0.3)
    F("a aborted (9), b open at 0: read_committed", 0)
    fin(b, False)
    time.sleep(0.3)
    F("b aborted (10), c open at 5: read_committed", 0)
    fin(c, True)
    time.sleep(0.3)
    w((c[0], c[1], c[2] + 1), 0, 1)
    for o in (0, 2, 4, 5, 9, 10, 11, 12):
        F("from %d read_committed" % o, o)
    F("from 0 read_uncommitted", 0, 0)
    F("from 0 read_committed v4", 0, 1, 4)
    F("from 0 read_uncommitted v4", 0, 0, 4)
    fin((c[0], c[1], c[2] + 1), False)
    time.sleep(0.3)
    F("after last abort, from 12", 12)
    F("at end read_committed", 14)
    L("latest read_committed at the end", -1, 1)
    A.P("DescribeProducers", "DescribeProducers", 0, {"Topics": [{"Name": tp, "PartitionIndexes": [0]}]})
    n = len(batch(2))
    A.P(
        "first batch only: aborted list limited to range?",
        "Fetch",
        17,
        dict(fetch_req(17, tp, 0, tid=tid, PartitionMaxBytes=n), IsolationLevel=1),
    )


PARTS = [prep, basic, timing, sessions, txn]
