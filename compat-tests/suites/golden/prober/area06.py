"""Groups: classic protocol, commits, coordinators, and the consumer protocol (KIP-848)."""

from probe import *

SUB = struct.pack(">hi", 0, 1)
ASG = bytes.fromhex("00000000000000000000")


def subs(tp):
    return struct.pack(">hih", 0, 1, len(tp)) + tp.encode() + struct.pack(">i", -1)


def J(v, g, mid="", protos=("range",), ptype="consumer", inst=None, st=10000, rt=5000, tp="t", reason=None):
    d = {
        "GroupId": g,
        "SessionTimeoutMs": st,
        "MemberId": mid,
        "ProtocolType": ptype,
        "Protocols": [{"Name": p, "Metadata": subs(tp)} for p in protos],
    }
    if v >= 1:
        d["RebalanceTimeoutMs"] = rt
    if v >= 5:
        d["GroupInstanceId"] = inst
    if v >= 8:
        d["Reason"] = reason
    return d


def S(v, g, gen, mid, asg=(), inst=None, pt="consumer", pn="range"):
    d = {
        "GroupId": g,
        "GenerationId": gen,
        "MemberId": mid,
        "Assignments": [{"MemberId": m, "Assignment": ASG} for m in asg],
    }
    if v >= 3:
        d["GroupInstanceId"] = inst
    if v >= 5:
        d["ProtocolType"] = pt
        d["ProtocolName"] = pn
    return d


def H(v, g, gen, mid, inst=None):
    return dict({"GroupId": g, "GenerationId": gen, "MemberId": mid}, **{"GroupInstanceId": inst} if v >= 3 else {})


def L(v, g, mids, inst=None):
    if v < 3:
        return {"GroupId": g, "MemberId": mids[0]}
    return {"GroupId": g, "Members": [{"MemberId": m, "GroupInstanceId": inst} for m in mids]}


def OC(v, tp, g, gen=-1, mid="", off=5, meta="m", part=0, inst=None, tid=None, le=3):
    p = {"PartitionIndex": part, "CommittedOffset": off, "CommittedMetadata": meta}
    if v >= 6:
        p["CommittedLeaderEpoch"] = le
    t = {"Partitions": [p]}
    t["TopicId" if v >= 10 else "Name"] = tid if v >= 10 else tp
    d = {"GroupId": g, "GenerationIdOrMemberEpoch": gen, "MemberId": mid, "Topics": [t]}
    if v >= 7:
        d["GroupInstanceId"] = inst
    return d


def OF(v, g, tp, parts=(0, 1), alltopics=False, tid=None, mid=None, me=-1, stable=False):
    if v < 8:
        d = {"GroupId": g, "Topics": None if alltopics else [{"Name": tp, "PartitionIndexes": list(parts)}]}
    else:
        t = {"PartitionIndexes": list(parts)}
        t["TopicId" if v >= 10 else "Name"] = tid if v >= 10 else tp
        gg = {"GroupId": g, "Topics": None if alltopics else [t]}
        if v >= 9:
            gg["MemberId"] = mid
            gg["MemberEpoch"] = me
        d = {"Groups": [gg]}
    if v >= 7:
        d["RequireStable"] = stable
    return d


def join2(A, n, v, g, conn=None, rec=True, **k):
    """full join: returns the response of the completed join"""
    P = (lambda *a, **kk: A.P(*a, **kk)) if rec else lambda n, api, v, r, **kk: until(api, v, r, bad=(14, 15, 16))
    r = P(n + ": first join", "JoinGroup", v, J(v, g, **k), conn=conn)
    if r.get("ErrorCode") == 79:
        r = P(n + ": join with the given member id", "JoinGroup", v, J(v, g, mid=r["MemberId"], **k), conn=conn)
    return r


def prep(A):
    A.tp = N("g6-a")
    A.tid = topic(A.tp, 2)
    A.name_id("topic-id", A.tid, "g6-a")
    coord(N("g6"))
    until("OffsetFetch", 1, OF(1, N("g6-warm"), A.tp))
    time.sleep(0.5)
    for i in range(8):
        until("Heartbeat", 0, H(0, N("warm%d" % i), 0, "x"))


def classic(A):
    for v in range(0, 10):
        g = N("g6-v%d" % v)
        r = join2(A, "v%d" % v, v, g)
        gen, mid = (r.get("GenerationId", 1), r.get("MemberId", ""))
        sv, hv, lv = (min(v, 5), min(v, 4), min(v, 5))
        A.P("v%d sync by the leader" % v, "SyncGroup", sv, S(sv, g, gen, mid, [mid]))
        A.P("v%d heartbeat" % v, "Heartbeat", hv, H(hv, g, gen, mid))
        A.P("v%d leave" % v, "LeaveGroup", lv, L(lv, g, [mid]))
        A.P("v%d heartbeat after leave" % v, "Heartbeat", hv, H(hv, g, gen, mid))
    j = lambda n, v, *a, **k: A.P(n, "JoinGroup", v, J(v, *a, **k), timeout=8)
    j("unknown member id, new group v9", 9, N("g6-u"), "who")
    j("unknown member id v0", 0, N("g6-u0"), "who")
    j("empty group id v5", 5, "")
    j("session timeout 100", 5, N("g6-st"), st=100)
    j("session timeout 2000000", 5, N("g6-st"), st=2000000)
    j("session timeout 6000", 5, N("g6-st2"), st=6000)
    j("no protocols", 5, N("g6-np"), protos=())
    j("empty protocol type", 5, N("g6-np"), ptype="")
    j("no protocols v3 (no member-id round)", 3, N("g6-np3"), protos=())
    j("empty protocol type v3", 3, N("g6-np4"), ptype="")
    j("rebalance timeout -1 v5", 5, N("g6-rt"), rt=-1)
    g = N("g6-main")
    r = join2(A, "main", 7, g, tp=A.tp)
    gen, m1 = (r["GenerationId"], r["MemberId"])
    A.P("main: heartbeat before sync (CompletingRebalance)", "Heartbeat", 4, H(4, g, gen, m1))
    A.P("main: OffsetCommit before sync", "OffsetCommit", 8, OC(8, A.tp, g, gen, m1))
    A.P("DescribeGroups before sync", "DescribeGroups", 5, {"Groups": [g]})
    A.P("main: sync wrong generation", "SyncGroup", 5, S(5, g, gen + 1, m1, [m1]))
    A.P("main: sync unknown member", "SyncGroup", 5, S(5, g, gen, "who", [m1]))
    A.P("main: sync wrong protocol name", "SyncGroup", 5, S(5, g, gen, m1, [m1], pn="roundrobin"))
    A.P("main: sync wrong protocol type", "SyncGroup", 5, S(5, g, gen, m1, [m1], pt="connect"))
    A.P("main: sync unknown group", "SyncGroup", 5, S(5, N("g6-none"), gen, m1))
    A.P("main: sync empty group", "SyncGroup", 5, S(5, "", gen, m1))
    A.P("main: sync", "SyncGroup", 5, S(5, g, gen, m1, [m1]))
    A.P("main: sync again", "SyncGroup", 5, S(5, g, gen, m1, [m1]))
    for n, ge, m in (
        ("good", gen, m1),
        ("generation+1", gen + 1, m1),
        ("generation-1", gen - 1, m1),
        ("generation -1", -1, m1),
        ("unknown member", gen, "who"),
        ("empty member", gen, ""),
    ):
        A.P("main: heartbeat " + n, "Heartbeat", 4, H(4, g, ge, m))
    A.P("heartbeat unknown group", "Heartbeat", 4, H(4, N("g6-none"), 1, "who"))
    A.P("heartbeat empty group", "Heartbeat", 4, H(4, "", 1, "who"))
    c = lambda n, v, *a, **k: A.P(n, "OffsetCommit", v, OC(v, *a, **k))
    for v in (2, 5, 8, 9):
        c("commit good v%d" % v, v, A.tp, g, gen, m1)
        c("commit generation+1 v%d" % v, v, A.tp, g, gen + 1, m1)
        c("commit generation-1 v%d" % v, v, A.tp, g, gen - 1, m1)
        c("commit unknown member v%d" % v, v, A.tp, g, gen, "who")
        c("commit no member, generation -1, non-empty group v%d" % v, v, A.tp, g)
    c("commit generation -1 with member id", 8, A.tp, g, -1, m1)
    c("commit no member id with generation", 8, A.tp, g, gen, "")
    j("same group, other protocol", 7, g, protos=("other",))
    j("same group, other protocol type", 7, g, ptype="connect")
    j("same group, other protocol v3", 3, g, protos=("other",))
    j("same group, other protocol type v3", 3, g, ptype="connect")
    A.P("DeleteGroups non-empty", "DeleteGroups", 2, {"GroupsNames": [g]})
    A.P(
        "OffsetDelete subscribed topic",
        "OffsetDelete",
        0,
        {"GroupId": g, "Topics": [{"Name": A.tp, "Partitions": [{"PartitionIndex": 0}]}]},
    )
    A.P(
        "OffsetDelete subscribed and unknown",
        "OffsetDelete",
        0,
        {
            "GroupId": g,
            "Topics": [
                {"Name": A.tp, "Partitions": [{"PartitionIndex": 0}, {"PartitionIndex": 9}]},
                {"Name": N("g6-nope"), "Partitions": [{"PartitionIndex": 0}]},
            ],
        },
    )
    x = Conn(10)
    r2 = call("JoinGroup", 7, J(7, g, protos=("range", "rr")), x)
    m2 = r2["MemberId"]
    A.alias("member", m2)
    x.send("JoinGroup", 7, J(7, g, mid=m2, protos=("range", "rr")))
    time.sleep(0.3)
    A.P("rebalance: heartbeat of member 1", "Heartbeat", 4, H(4, g, gen, m1))
    A.P("rebalance: DescribeGroups", "DescribeGroups", 5, {"Groups": [g]})
    A.P("rebalance: commit by member 1, old generation", "OffsetCommit", 8, OC(8, A.tp, g, gen, m1))
    A.P("rebalance: sync by member 1", "SyncGroup", 5, S(5, g, gen, m1))
    A.P("rebalance: heartbeat of waiting member 2", "Heartbeat", 4, H(4, g, gen, m2))
    r = A.P("rebalance: member 1 rejoins (leader stays)", "JoinGroup", 7, J(7, g, mid=m1))
    A.put(
        "rebalance: member 2 join result (follower)",
        "JoinGroup",
        7,
        J(7, g, mid=m2, protos=("range", "rr")),
        x.recv("JoinGroup", 7),
    )
    gen = r["GenerationId"]
    x.send("SyncGroup", 5, S(5, g, gen, m2))
    time.sleep(0.2)
    A.P("rebalance: heartbeat while waiting for leader sync", "Heartbeat", 4, H(4, g, gen, m2))
    A.P("rebalance: leader sync without assignments for member 2", "SyncGroup", 5, S(5, g, gen, m1, [m1]))
    A.put("rebalance: member 2 sync result", "SyncGroup", 5, S(5, g, gen, m2), x.recv("SyncGroup", 5))
    A.P("Stable: DescribeGroups", "DescribeGroups", 5, {"Groups": [g]})
    A.P("Stable: follower rejoins with the same metadata", "JoinGroup", 7, J(7, g, mid=m2, protos=("range", "rr")))
    for v in (0, 2, 3, 5):
        A.P("leave unknown member v%d" % v, "LeaveGroup", v, L(v, g, ["who"]))
        A.P("leave unknown group v%d" % v, "LeaveGroup", v, L(v, N("g6-none"), ["who"]))
    A.P("leave empty group id", "LeaveGroup", 5, L(5, "", ["who"]))
    A.P("leave no members", "LeaveGroup", 5, L(5, g, []))
    A.P("leave good and unknown", "LeaveGroup", 5, L(5, g, [m2, "who"]))
    A.P("leave member 1", "LeaveGroup", 5, L(5, g, [m1]))
    A.P("Empty: DescribeGroups", "DescribeGroups", 5, {"Groups": [g]})
    A.P("Empty: heartbeat", "Heartbeat", 4, H(4, g, gen, m1))
    A.P("Empty: commit without member", "OffsetCommit", 8, OC(8, A.tp, g, off=7))
    A.P("Empty: commit with old member", "OffsetCommit", 8, OC(8, A.tp, g, gen, m1))
    A.P("Empty: DeleteGroups", "DeleteGroups", 2, {"GroupsNames": [g]})
    g = N("g6-static")
    r = join2(A, "static", 7, g, inst="i1")
    gen, m1 = (r["GenerationId"], r["MemberId"])
    A.P("static: sync", "SyncGroup", 5, S(5, g, gen, m1, [m1], "i1"))
    r = A.P("static: rejoin v7 without member id", "JoinGroup", 7, J(7, g, inst="i1"))
    A.P("static: heartbeat old member id", "Heartbeat", 4, H(4, g, gen, m1, "i1"))
    A.P("static: heartbeat old member id, no instance", "Heartbeat", 4, H(4, g, gen, m1))
    A.P("static: commit old member id", "OffsetCommit", 8, OC(8, A.tp, g, gen, m1, inst="i1"))
    A.P("static: heartbeat new", "Heartbeat", 4, H(4, g, r.get("GenerationId", 1), r.get("MemberId", ""), "i1"))
    A.P("static: rejoin v9 without member id", "JoinGroup", 9, J(9, g, inst="i1"))
    A.P("static: join with the old member id", "JoinGroup", 7, J(7, g, mid=m1, inst="i1"))
    A.P("static: unknown instance, unknown member", "Heartbeat", 4, H(4, g, gen, m1, "i9"))
    A.P("static: leave wrong member id", "LeaveGroup", 5, L(5, g, ["who"], "i1"))
    A.P("static: leave unknown instance", "LeaveGroup", 5, L(5, g, [""], "i9"))
    A.P("static: leave by instance", "LeaveGroup", 5, L(5, g, [""], "i1"))
    A.P("static: empty instance id", "JoinGroup", 7, J(7, g, inst=""), timeout=4)


def offsets(A):
    c = lambda n, v, *a, **k: A.P(n, "OffsetCommit", v, OC(v, *a, **k))
    f = lambda n, v, *a, **k: A.P(n, "OffsetFetch", v, OF(v, *a, **k))
    g = N("g6-simple")
    for v in range(2, 11):
        c("simple commit v%d" % v, v, A.tp, g, off=v, tid=A.tid)
        f("fetch after commit v%d" % v, v, g, A.tp, tid=A.tid)
    f("fetch v1", 1, g, A.tp)
    for v in range(1, 11):
        f("unknown group v%d" % v, v, N("g6-none"), A.tp, tid=A.tid)
    for v in range(2, 11):
        f("null topics v%d" % v, v, g, A.tp, alltopics=True)
    f("null topics unknown group v8", 8, N("g6-none"), A.tp, alltopics=True)
    f("unknown topic v8", 8, g, N("g6-nope"))
    f("unknown partition v8", 8, g, A.tp, parts=(99,))
    f("unknown topic id v10", 10, g, None, tid="00000000-0000-0000-0000-0000000000aa")
    f("zero topic id v10", 10, g, None, tid=ZERO)
    f("no partitions v8", 8, g, A.tp, parts=())
    f("empty group id v8", 8, "", A.tp)
    f("empty group id v5", 5, "", A.tp)
    f("member id on a simple group v9", 9, g, A.tp, mid="who", me=1)
    f("epoch without member v9", 9, g, A.tp, me=5)
    A.P(
        "two groups v8",
        "OffsetFetch",
        8,
        {"Groups": [OF(8, g, A.tp)["Groups"][0], OF(8, N("g6-none"), A.tp)["Groups"][0]]},
    )
    A.P("no groups v8", "OffsetFetch", 8, {"Groups": []})
    for v in (2, 8, 9):
        c("empty group id v%d" % v, v, A.tp, "")
        c("new group with unknown member v%d" % v, v, A.tp, N("g6-n%d" % v), -1, "who")
        c("new group with generation 3 v%d" % v, v, A.tp, N("g6-m%d" % v), 3, "who")
        c("generation 3, no member v%d" % v, v, A.tp, N("g6-k%d" % v), 3, "")
    c("unknown topic v8", 8, N("g6-nope"), g)
    c("unknown partition v8", 8, A.tp, g, part=99)
    c("unknown topic id v10", 10, None, g, tid="00000000-0000-0000-0000-0000000000aa")
    c("zero topic id v10", 10, None, g, tid=ZERO)
    c("offset -1", 8, A.tp, g, off=-1)
    f("after offset -1", 8, g, A.tp)
    c("null metadata", 8, A.tp, g, meta=None)
    f("after null metadata", 8, g, A.tp)
    c("leader epoch -1", 8, A.tp, g, le=-1)
    f("after leader epoch -1", 8, g, A.tp)
    c("metadata of 4096", 8, A.tp, g, meta="m" * 4096)
    c("metadata of 4097", 8, A.tp, g, meta="m" * 4097)
    c("instance id without member", 8, A.tp, g, inst="i1")
    A.P("no topics", "OffsetCommit", 8, dict(OC(8, A.tp, g), Topics=[]))
    d = OC(8, A.tp, g)
    d["Topics"].append(OC(8, N("g6-nope"), g)["Topics"][0])
    A.P("known and unknown topic", "OffsetCommit", 8, d)
    A.P("DescribeGroups simple", "DescribeGroups", 5, {"Groups": [g]})
    for v in (0, 5, 6):
        A.P("DescribeGroups unknown v%d" % v, "DescribeGroups", v, {"Groups": [N("g6-none"), ""]})
    A.P("DescribeGroups authorized ops", "DescribeGroups", 5, {"Groups": [g], "IncludeAuthorizedOperations": True})
    r = call("ListGroups", 5, {})
    A.put(
        "ListGroups v5, only g6-simple shown",
        "ListGroups",
        5,
        {},
        dict(r, Groups=[x for x in r["Groups"] if x["GroupId"] == g]),
    )
    for sf, tf in ((["Bogus"], []), ([], ["bogus"]), (["Empty"], ["Consumer"]), (["empty"], [])):
        r = call("ListGroups", 5, {"StatesFilter": sf, "TypesFilter": tf})
        A.put(
            "ListGroups filter",
            "ListGroups",
            5,
            {"StatesFilter": sf, "TypesFilter": tf},
            dict(r, Groups=[x for x in r["Groups"] if x["GroupId"] == g]),
        )
    A.P("DeleteGroups unknown, empty id", "DeleteGroups", 2, {"GroupsNames": [N("g6-none"), ""]})
    A.P(
        "OffsetDelete unknown group",
        "OffsetDelete",
        0,
        {"GroupId": N("g6-none"), "Topics": [{"Name": A.tp, "Partitions": [{"PartitionIndex": 0}]}]},
    )
    A.P(
        "OffsetDelete simple",
        "OffsetDelete",
        0,
        {"GroupId": g, "Topics": [{"Name": A.tp, "Partitions": [{"PartitionIndex": 0}, {"PartitionIndex": 1}]}]},
    )
    f("after OffsetDelete", 8, g, A.tp)
    A.P("DeleteGroups simple", "DeleteGroups", 2, {"GroupsNames": [g]})
    f("after DeleteGroups", 8, g, A.tp)
    A.P("DeleteGroups none", "DeleteGroups", 2, {"GroupsNames": []})
    k = lambda n, v, r: A.P(n, "FindCoordinator", v, r, retry=(15,))
    k("group v0", 0, {"Key": g})
    k("group v3", 3, {"Key": g, "KeyType": 0})
    k("txn v3", 3, {"Key": g, "KeyType": 1})
    k("type 9 v3", 3, {"Key": g, "KeyType": 9})
    k("type 2 (share) v3", 3, {"Key": g, "KeyType": 2})
    k("empty key v3", 3, {"Key": "", "KeyType": 0})
    k("empty txn key v3", 3, {"Key": "", "KeyType": 1})
    for v in (4, 5, 6):
        k("two keys v%d" % v, v, {"KeyType": 0, "CoordinatorKeys": [g, ""]})
        k("no keys v%d" % v, v, {"KeyType": 0, "CoordinatorKeys": []})
        k("type 9 v%d" % v, v, {"KeyType": 9, "CoordinatorKeys": [g]})
        k("type 2 bad share key v%d" % v, v, {"KeyType": 2, "CoordinatorKeys": ["abc"]})


def kip848(A):
    g = N("g6-848")
    U = lambda n: str(uuid.UUID(int=n))

    def hb(n, v=1, **k):
        d = {
            "GroupId": g,
            "MemberId": "",
            "MemberEpoch": 0,
            "InstanceId": None,
            "RackId": None,
            "RebalanceTimeoutMs": 30000,
            "SubscribedTopicNames": [A.tp],
            "ServerAssignor": None,
            "TopicPartitions": [],
        }
        if v >= 1:
            d["SubscribedTopicRegex"] = None
        d.update(k)
        return A.P(n, "ConsumerGroupHeartbeat", v, d)

    from base64 import urlsafe_b64encode as b64

    mid = b64(uuid.uuid4().bytes).decode().rstrip("=")
    A.alias("member", mid)
    hb("join without member id v1")
    hb("join without member id v0", 0, GroupId=N("g6-848b"))
    hb("empty group id", GroupId="", MemberId=mid)
    hb("group id of blanks", GroupId="  ", MemberId=mid)
    hb("rebalance timeout -1 on join", MemberId=mid, RebalanceTimeoutMs=-1)
    hb("null subscription on join", MemberId=mid, SubscribedTopicNames=None)
    hb("empty subscription on join", MemberId=mid, GroupId=N("g6-848e"), SubscribedTopicNames=[])
    hb("null owned on join", MemberId=mid, TopicPartitions=None)
    hb("owned not empty on join", MemberId=mid, TopicPartitions=[{"TopicId": A.tid, "Partitions": [0]}])
    hb("empty instance id", MemberId=mid, InstanceId="")
    hb("empty rack id", MemberId=mid, RackId="")
    hb("unknown assignor", MemberId=mid, ServerAssignor="bogus")
    hb("epoch -3", MemberId=mid, MemberEpoch=-3)
    hb("epoch -2 without instance", MemberId=mid, MemberEpoch=-2)
    hb("leave -1 of an unknown group", MemberId=mid, MemberEpoch=-1, GroupId=N("g6-848none"))
    hb("epoch 5 in an unknown group", MemberId=mid, MemberEpoch=5, GroupId=N("g6-848none"))
    hb("bad regex", MemberId=mid, SubscribedTopicRegex="[")
    hb("assignor uniform, empty string regex", MemberId=mid, GroupId=N("g6-848r"), SubscribedTopicRegex="")
    r = hb("join", MemberId=mid)
    e = r.get("MemberEpoch", 1)
    K = dict(RebalanceTimeoutMs=-1, SubscribedTopicNames=None, TopicPartitions=None)
    hb("keep-alive", MemberId=mid, MemberEpoch=e, **K)
    hb("epoch+1", MemberId=mid, MemberEpoch=e + 1, **K)
    hb("epoch-1", MemberId=mid, MemberEpoch=max(e - 1, 1) if e > 1 else e - 1, **K)
    hb("unknown member", MemberId="who", MemberEpoch=e, **K)
    hb(
        "full request re-sends the assignment",
        MemberId=mid,
        MemberEpoch=e,
        TopicPartitions=[{"TopicId": A.tid, "Partitions": [0, 1]}],
    )
    hb(
        "unknown topic subscribed",
        MemberId=mid,
        MemberEpoch=e,
        RebalanceTimeoutMs=-1,
        SubscribedTopicNames=[N("g6-nope")],
        TopicPartitions=None,
    )
    time.sleep(0.2)
    r = hb("next", MemberId=mid, MemberEpoch=e, **K)
    A.P("ConsumerGroupDescribe", "ConsumerGroupDescribe", 1, {"GroupIds": [g, N("g6-848none"), ""]})
    A.P("DescribeGroups of a consumer group", "DescribeGroups", 5, {"Groups": [g]})
    A.P("JoinGroup classic into a consumer group", "JoinGroup", 7, J(7, g))
    A.P("classic Heartbeat", "Heartbeat", 4, H(4, g, e, mid))
    A.P("LeaveGroup classic", "LeaveGroup", 5, L(5, g, ["who"]))
    for v in (8, 9):
        A.P("OffsetCommit v%d right epoch" % v, "OffsetCommit", v, OC(v, A.tp, g, r.get("MemberEpoch", e), mid))
        A.P("OffsetCommit v%d epoch+5" % v, "OffsetCommit", v, OC(v, A.tp, g, e + 9, mid))
        A.P("OffsetCommit v%d epoch 0" % v, "OffsetCommit", v, OC(v, A.tp, g, 0, mid))
        A.P("OffsetCommit v%d unknown member" % v, "OffsetCommit", v, OC(v, A.tp, g, e, "who"))
        A.P("OffsetCommit v%d no member" % v, "OffsetCommit", v, OC(v, A.tp, g))
    for me in (r.get("MemberEpoch", e), 99, 0, -1):
        A.P("OffsetFetch v9 epoch %d" % me, "OffsetFetch", 9, OF(9, g, A.tp, mid=mid, me=me))
    A.P("OffsetFetch v9 unknown member", "OffsetFetch", 9, OF(9, g, A.tp, mid="who", me=1))
    A.P("OffsetFetch v9 no member", "OffsetFetch", 9, OF(9, g, A.tp))
    A.P("DeleteGroups non-empty 848", "DeleteGroups", 2, {"GroupsNames": [g]})
    hb("leave -1", MemberId=mid, MemberEpoch=-1, **K)
    hb("heartbeat after leave", MemberId=mid, MemberEpoch=e, **K)
    hb("rejoin at epoch 0 with same id", MemberId=mid)
    hb("leave again", MemberId=mid, MemberEpoch=-1, **K)
    s1 = "s1-" + "a" * 20
    s2 = "s2-" + "a" * 20
    g2 = N("g6-848s")
    [A.alias("member", s) for s in (s1, s2)]
    r = hb("static join", GroupId=g2, MemberId=s1, InstanceId="i1")
    hb("static: second member, same instance, first live", GroupId=g2, MemberId=s2, InstanceId="i1")
    hb("static leave -2", GroupId=g2, MemberId=s1, InstanceId="i1", MemberEpoch=-2, **K)
    hb("static: replaced by second member", GroupId=g2, MemberId=s2, InstanceId="i1")
    hb("static: old member", GroupId=g2, MemberId=s1, InstanceId="i1", MemberEpoch=1, **K)
    hb("static: leave -1 with instance", GroupId=g2, MemberId=s2, InstanceId="i1", MemberEpoch=-1, **K)
    cg = N("g6-cl")
    r = join2(A, "classic then 848", 3, cg, rec=False)
    hb("848 join into a live classic group", GroupId=cg, MemberId=mid)
    call("LeaveGroup", 0, L(0, cg, [r["MemberId"]]))
    hb("848 join into an empty classic group", GroupId=cg, MemberId=mid)


PARTS = [prep, classic, offsets, kip848]
