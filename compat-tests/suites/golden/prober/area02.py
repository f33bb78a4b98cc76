"""Idempotent produce: sequences, duplicates, epochs, producer state after DeleteRecords."""

from probe import *

M = 2**31 - 1


def idem(A):
    tp = N("g2-idem")
    topic(tp)
    tl = N("g2-lat")
    topic(tl, 1, {"message.timestamp.type": "LogAppendTime"})
    pid, ep = initpid()
    A.alias("pid", pid)
    q = lambda n, b, t=tp, v=11, part=0: A.P(n, "Produce", v, produce_req(v, t, b))
    for i in range(7):
        q("batch %d of 1 record, seq %d" % (i, i), batch(1, pid, ep, i))
    for i in (6, 5, 4, 3, 2):
        q("duplicate of seq %d (within last 5)" % i, batch(1, pid, ep, i))
    for i in (1, 0):
        q("duplicate of seq %d (older than last 5)" % i, batch(1, pid, ep, i))
    q("gap: seq 9 (expected 7)", batch(1, pid, ep, 9))
    q("partial overlap: seq 6, 2 records", batch(2, pid, ep, 6))
    q("same seq 6 other content", batch(1, pid, ep, 6, val=b"other"))
    q("seq -1 with pid", batch(1, pid, ep, -1))
    q("no pid, seq 5", batch(1, -1, -1, 5))
    q("pid with epoch -1", batch(1, pid, -1, 7))
    q("next good seq 7", batch(3, pid, ep, 7))
    q("epoch+1 seq 10 (must be 0)", batch(1, pid, ep + 1, 10))
    q("epoch+1 seq 0", batch(1, pid, ep + 1, 0))
    q("old epoch seq 10", batch(1, pid, ep, 10))
    q("old epoch duplicate seq 7", batch(3, pid, ep, 7))
    q("epoch+1 seq 1", batch(1, pid, ep + 1, 1))
    q("epoch+9 seq 0", batch(1, pid, ep + 9, 0))
    for v in (3, 9, 12):
        q("old epoch v%d" % v, batch(1, pid, ep, 10), v=v)
    pid2, e2 = initpid()
    q("new pid first seq 5", batch(1, pid2, e2, 5))
    q("new pid next seq 6", batch(1, pid2, e2, 6))
    q("new pid repeat seq 5", batch(1, pid2, e2, 5))
    q("new pid seq 0", batch(1, pid2, e2, 0))
    q("pid never issued, seq 0", batch(1, 987654321, 0, 0))
    q("pid never issued, seq 7", batch(1, 987654322, 0, 7))
    q("pid never issued, epoch 5, seq 3", batch(1, 987654323, 5, 3))
    pid3, e3 = initpid()
    q("start at MAX-2, 5 records", batch(5, pid3, e3, M - 2))
    q("wrap: next seq 2", batch(1, pid3, e3, 2))
    q("wrap: duplicate of MAX-2 batch", batch(5, pid3, e3, M - 2))
    pid4, e4 = initpid()
    q("start at MAX, 1 record", batch(1, pid4, e4, M))
    q("next seq 0", batch(1, pid4, e4, 0))
    q("next seq 1", batch(1, pid4, e4, 1))
    q("dup seq MAX", batch(1, pid4, e4, M))
    q("two partitions? log_append_time on CreateTime topic", batch(2))
    q("no producer id", batch(2, ts=T0 + 5))
    q("LogAppendTime topic", batch(2), tl)
    pid5, e5 = initpid()
    q("LogAppendTime idempotent", batch(2, pid5, e5, 0), tl)
    q("LogAppendTime duplicate", batch(2, pid5, e5, 0), tl)
    A.P("fetch back LogAppendTime", "Fetch", 12, fetch_req(12, tl, 0))
    A.P("fetch back idempotent log", "Fetch", 12, fetch_req(12, tp, 0))
    A.P("DescribeProducers", "DescribeProducers", 0, {"Topics": [{"Name": tp, "PartitionIndexes": [0]}]})
    q("base offset 77 from client", batch(1, base=77))
    q("leader epoch 5 from client", batch(1, ple=5))
    q("acks 0 then", batch(1))
    tp2 = N("g2-del")
    topic(tp2)
    pid6, e6 = initpid()
    [produce(tp2, batch(1, pid6, e6, i)) for i in range(3)]
    call(
        "DeleteRecords",
        2,
        {"Topics": [{"Name": tp2, "Partitions": [{"PartitionIndex": 0, "Offset": -1}]}], "TimeoutMs": 5000},
    )
    q("after DeleteRecords to the end: seq 9 (expected 3)", batch(1, pid6, e6, 9), tp2)
    q("after DeleteRecords: seq 3", batch(1, pid6, e6, 3), tp2)


PARTS = [idem]
