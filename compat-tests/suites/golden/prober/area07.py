"""Topics, DeleteRecords, configurations, metadata, cluster, and raw framing."""

from probe import *


# Topic options that Sluice has and Kafka has not: left out of the comparison.
OWN_OPTIONS = ("durability.acks-all", "visibility")


def topics(A):
    A.tp = N("g7-a")
    A.tid = topic(A.tp, 2, {"retention.ms": "123456"})
    A.name_id("topic-id", A.tid, "g7-a")

    def T(name, n=1, rf=1, cfg=None, asg=None):
        return {
            "Name": name,
            "NumPartitions": n,
            "ReplicationFactor": rf,
            "Configs": [{"Name": k, "Value": v} for k, v in (cfg or {}).items()],
            "Assignments": [{"PartitionIndex": i, "BrokerIds": b} for i, b in asg or []],
        }

    def q(n, ts, v=7, vo=False):
        r = A.P(
            n,
            "CreateTopics",
            v,
            {"Topics": ts if isinstance(ts, list) else [ts], "timeoutMs": 5000, "validateOnly": vo},
        )
        e = A.out[-1]["response"]
        if isinstance(e, dict):
            for t in e.get("Topics", []):
                if t.get("Configs"):
                    t["Configs"] = [c for c in t["Configs"] if c["Name"] not in OWN_OPTIONS]
                    t["Configs"] = {
                        "count": len(t["Configs"]),
                        "not default (source != 5)": [c for c in t["Configs"] if c["ConfigSource"] != 5],
                        "names": sorted((c["Name"] for c in t["Configs"])),
                    }
        return r

    for v in range(2, 8):
        q("good v%d" % v, T(N("g7-v%d" % v)), v)
    q("exists", T(A.tp))
    q("-1/-1 defaults", T(N("g7-def"), -1, -1))
    q("-1/-1 v3", T(N("g7-def3"), -1, -1), 3)
    q("0 partitions", T(N("g7-x"), 0))
    q("-2 partitions", T(N("g7-x"), -2))
    q("RF 3", T(N("g7-x"), 1, 3))
    # A server that takes it made the topic that the following probes want to be missing.
    call("DeleteTopics", 5, {"TopicNames": [N("g7-x")], "TimeoutMs": 5000})
    q("RF 0", T(N("g7-x"), 1, 0))
    q("RF -2", T(N("g7-x"), 1, -2))
    q("RF 3 validate only", T(N("g7-x"), 1, 3), vo=True)
    q("unknown config", T(N("g7-x"), cfg={"foo.bar": "1"}))
    q("bad config value", T(N("g7-x"), cfg={"retention.ms": "abc"}))
    q("config retention.ms -2", T(N("g7-x"), cfg={"retention.ms": "-2"}))
    q("cleanup.policy bogus", T(N("g7-x"), cfg={"cleanup.policy": "bogus"}))
    q("null config value", T(N("g7-x"), cfg={"retention.ms": None}))
    q("empty cleanup.policy", T(N("g7-xe"), cfg={"cleanup.policy": ""}))
    q("min.insync.replicas 0", T(N("g7-x"), cfg={"min.insync.replicas": "0"}))
    q(
        "good configs",
        T(
            N("g7-cfg"),
            cfg={
                "retention.ms": "9223372036854775807",
                "segment.bytes": "1048576",
                "cleanup.policy": "compact,delete",
                "min.insync.replicas": "1",
                "message.timestamp.type": "LogAppendTime",
            },
        ),
    )
    q("segment.bytes 100", T(N("g7-x"), cfg={"segment.bytes": "100"}))
    q("message.format.version", T(N("g7-mfv"), cfg={"message.format.version": "2.8"}))
    q("validate only good", T(N("g7-vo"), 3), vo=True)
    q("validate only exists", T(A.tp), vo=True)
    for n in ("", ".", "..", "bad name", "bad/name", "ä", "a" * 249, "b" * 250):
        q("name %r" % (n if len(n) < 20 else n[0] + "*%d" % len(n)), T(n), vo=True)
    q("name of 249 chars for real", T((RUN + "a" * 249)[:249]))
    q("name with __ prefix", T("__" + N("g7")))
    q("name __consumer_offsets", T("__consumer_offsets"))
    q("dot topic", T(N("g7.col.x")))
    q("underscore collision", T(N("g7_col_x")))
    q("same name twice", [T(N("g7-tw")), T(N("g7-tw"))])
    q("collision within one request", [T(N("g7.two")), T(N("g7_two"))])
    q("good and bad together", [T(N("g7-good")), T("bad name")])
    q("no topics", [])
    q("assignment broker 1", T(N("g7-asg"), -1, -1, asg=[(0, [1])]))
    q("assignment unknown broker", T(N("g7-x"), -1, -1, asg=[(0, [99])]))
    q("assignment and partition count", T(N("g7-x"), 1, 1, asg=[(0, [1])]))
    q("assignment with gap", T(N("g7-x"), -1, -1, asg=[(1, [1])]))
    q("10001 partitions", T(N("g7-x"), 10001), vo=True)
    p = lambda n, v, t, c, asg=None, vo=False: A.P(
        n,
        "CreatePartitions",
        v,
        {"Topics": [{"Name": t, "Count": c, "Assignments": asg}], "TimeoutMs": 5000, "ValidateOnly": vo},
    )
    for v in (0, 3):
        p("lower v%d" % v, v, A.tp, 1)
        p("same v%d" % v, v, A.tp, 2)
    p("validate only 5", 3, A.tp, 5, vo=True)
    p("3", 3, A.tp, 3)
    p("0", 3, A.tp, 0)
    p("-1", 3, A.tp, -1)
    p("unknown topic", 3, N("g7-nope"), 3)
    p("assignment too short", 3, A.tp, 5, [{"BrokerIds": [1]}])
    p("assignment unknown broker", 3, A.tp, 4, [{"BrokerIds": [99]}])
    A.P(
        "same topic twice",
        "CreatePartitions",
        3,
        {"Topics": [{"Name": A.tp, "Count": 4, "Assignments": None}] * 2, "TimeoutMs": 5000},
    )
    p("internal topic", 3, "__consumer_offsets", 3)
    d = lambda n, v, r: A.P(n, "DeleteTopics", v, dict(r, TimeoutMs=5000))
    for v in (1, 5):
        d("unknown name v%d" % v, v, {"TopicNames": [N("g7-nope")]})
    d("unknown name v6", 6, {"Topics": [{"Name": N("g7-nope")}]})
    d("unknown id v6", 6, {"Topics": [{"Name": None, "TopicId": "00000000-0000-0000-0000-0000000000aa"}]})
    d("name and id both", 6, {"Topics": [{"Name": A.tp, "TopicId": A.tid}]})
    d("neither", 6, {"Topics": [{"Name": None}]})
    d("empty list", 6, {"Topics": []})
    d("good by name twice in one request", 6, {"Topics": [{"Name": N("g7-v2")}] * 2})
    d("good by name v5", 5, {"TopicNames": [N("g7-v3")]})
    d("good by name v6", 6, {"Topics": [{"Name": N("g7-v4")}]})
    d("good by name again", 6, {"Topics": [{"Name": N("g7-v4")}]})
    t5 = topic(N("g7-byid"))
    A.name_id("topic-id", t5, "g7-byid")
    d("good by id", 6, {"Topics": [{"Name": None, "TopicId": t5}]})
    d("empty name", 6, {"Topics": [{"Name": ""}]})


def records(A):
    tp = N("g7-rec")
    topic(tp)
    [produce(tp, batch(5)) for _ in range(2)]
    c = N("g7-comp")
    topic(c, 1, {"cleanup.policy": "compact"})
    cd = N("g7-cd")
    topic(cd, 1, {"cleanup.policy": "compact,delete"})
    produce(cd, batch(2))
    q = lambda n, t, o, part=0, v=2: A.P(
        n,
        "DeleteRecords",
        v,
        {"Topics": [{"Name": t, "Partitions": [{"PartitionIndex": part, "Offset": o}]}], "TimeoutMs": 5000},
    )
    q("to 3", tp, 3)
    q("to 2 (below start)", tp, 2)
    q("to 11 (beyond HW 10)", tp, 11)
    q("to -2", tp, -2)
    q("to -1", tp, -1)
    q("to -1 again", tp, -1)
    q("v0 to 10", tp, 10, v=0)
    q("compact topic", c, 0)
    q("compact,delete topic", cd, 1)
    q("unknown topic", N("g7-nope"), 0)
    q("unknown partition", tp, 0, 9)
    q("internal topic", "__consumer_offsets", 0)


def cfgs(A):

    def q(n, v, rs, **k):
        if n.startswith("after "):
            time.sleep(0.4)  # Kafka's broker learns of a changed configuration a moment later
        A.P(n, "DescribeConfigs", v, dict({"Resources": rs}, **k))
        e = A.out[-1]["response"]
        if isinstance(e, dict):
            for r in e["Results"]:
                cs = [c for c in r.get("Configs") or [] if c["Name"] not in OWN_OPTIONS]
                if len(cs) > 6:
                    r["Configs"] = {
                        "count": len(cs),
                        "names": sorted((c["Name"] for c in cs)),
                        "not default": [
                            c
                            for c in cs
                            if c.get("ConfigSource", 5) not in (5,)
                            and c["Name"] in ("retention.ms", "num.partitions", "cleanup.policy")
                        ],
                        "sample": [
                            c for c in cs if c["Name"] in ("cleanup.policy", "min.insync.replicas", "retention.bytes")
                        ],
                    }

    R = lambda t, n, keys=None: {"ResourceType": t, "ResourceName": n, "ConfigurationKeys": keys}
    for v in (1, 2, 3, 4):
        q("topic all v%d" % v, v, [R(2, A.tp)])
        q(
            "topic two keys v%d with synonyms" % v,
            v,
            [R(2, A.tp, ["retention.ms", "cleanup.policy", "no.such.key"])],
            IncludeSynonyms=True,
            **{"IncludeDocumentation": True} if v == 3 else {}
        )
    q("empty key list", 4, [R(2, A.tp, [])])
    q("unknown topic", 4, [R(2, N("g7-nope"))])
    q("bad topic name", 4, [R(2, "bad name")])
    q("empty topic name", 4, [R(2, "")])
    q("broker 1", 4, [R(4, "1")])
    q("broker 1 two keys", 4, [R(4, "1", ["num.partitions", "default.replication.factor"])], IncludeSynonyms=True)
    q("broker empty (cluster default)", 4, [R(4, "")])
    q("broker 99", 4, [R(4, "99")])
    q("broker abc", 4, [R(4, "abc")])
    q("type 0", 4, [R(0, "x")])
    q("type 8 broker logger", 4, [R(8, "1", ["root"])])
    q("type 99", 4, [R(99, "x")])
    q("type 32 group", 4, [R(32, N("g7-grp"))])
    q("type 16 client metrics", 4, [R(16, N("g7-cm"))])
    q("same resource twice", 4, [R(2, A.tp, ["retention.ms"])] * 2)
    q("no resources", 4, [])

    def i(n, ops, t=2, name=None, v=1, vo=False):
        A.P(
            n,
            "IncrementalAlterConfigs",
            v,
            {
                "Resources": [
                    {
                        "ResourceType": t,
                        "ResourceName": A.tp if name is None else name,
                        "Configs": [{"Name": a, "ConfigOperation": b, "Value": c} for a, b, c in ops],
                    }
                ],
                "ValidateOnly": vo,
            },
        )

    i("set", [("retention.ms", 0, "1000")])
    i("set null", [("retention.ms", 0, None)])
    i("delete", [("retention.ms", 1, None)])
    i("delete again", [("retention.ms", 1, None)])
    i("append to non-list", [("retention.ms", 2, "5")])
    i("append cleanup.policy compact", [("cleanup.policy", 2, "compact")])
    q("after append", 4, [R(2, A.tp, ["cleanup.policy"])])
    i("append compact again", [("cleanup.policy", 2, "compact")])
    q("after second append", 4, [R(2, A.tp, ["cleanup.policy"])])
    i("subtract delete", [("cleanup.policy", 3, "delete")])
    q("after subtract", 4, [R(2, A.tp, ["cleanup.policy"])])
    i("subtract what is not there", [("cleanup.policy", 3, "delete")])
    i("unknown op 7", [("retention.ms", 7, "5")])
    i("same key twice", [("retention.ms", 0, "5"), ("retention.ms", 1, None)])
    i("unknown config", [("foo", 0, "1")])
    i("delete unknown config", [("foo", 1, None)])
    i("bad value", [("retention.ms", 0, "abc")])
    i("validate only", [("retention.ms", 0, "77")], vo=True)
    q("after validate only", 4, [R(2, A.tp, ["retention.ms"])])
    i("unknown topic", [("retention.ms", 0, "5")], name=N("g7-nope"))
    i("no ops", [])
    i("broker 99", [("log.retention.ms", 0, "5")], 4, "99")
    i("broker read-only", [("broker.id", 0, "5")], 4, "1")
    i("type 0", [("a", 0, "b")], 0, "x")
    i("empty key", [("", 0, "b")])
    A.P(
        "same resource twice",
        "IncrementalAlterConfigs",
        1,
        {
            "Resources": [
                {
                    "ResourceType": 2,
                    "ResourceName": A.tp,
                    "Configs": [{"Name": "retention.ms", "ConfigOperation": 0, "Value": "5"}],
                }
            ]
            * 2
        },
    )
    a = lambda n, cs, name=None, vo=False: A.P(
        n,
        "AlterConfigs",
        2,
        {
            "Resources": [
                {"ResourceType": 2, "ResourceName": name or A.tp, "Configs": [{"Name": x, "Value": y} for x, y in cs]}
            ],
            "ValidateOnly": vo,
        },
    )
    a("AlterConfigs replaces", [("segment.bytes", "2097152")])
    q("after AlterConfigs", 4, [R(2, A.tp, ["cleanup.policy", "segment.bytes"])])
    a("AlterConfigs null value", [("segment.bytes", None)])
    a("AlterConfigs unknown topic", [("segment.bytes", "2097152")], N("g7-nope"))
    a("AlterConfigs bad", [("segment.bytes", "x")])


def meta(A):

    def m(n, v, ts, auto=False, **k):
        r = {"Topics": ts}
        if v >= 4:
            r["AllowAutoTopicCreation"] = auto
        r.update(k)
        try:
            x = call("Metadata", v, r)
        except NORESP:
            x = "connection closed"
        except (socket.timeout, TimeoutError):
            x = "no response"
        if isinstance(x, dict) and len(x.get("Topics") or []) > 5:
            x["Topics"] = "more than 5"
        A.put(n, "Metadata", v, r, x)

    nt = lambda n, v=12: {"Name": n}
    for v in range(0, 14):
        m("known topic v%d" % v, v, [nt(A.tp)])
        m("null topics v%d" % v, v, None) if v else None
        m("empty topics v%d" % v, v, [])
    for v in (0, 1, 4, 9, 12, 13):
        m("unknown topic, auto-create false v%d" % v, v, [nt(N("g7-nope"))]) if v >= 4 else None
        m("bad name v%d" % v, v, [nt("bad name")])
        m("empty name v%d" % v, v, [nt("")])
    m("name of 250", 12, [nt("b" * 250)])
    m("bad name, auto-create true", 12, [nt("bad name")], True)
    m("auto-create true, new topic", 12, [nt(N("g7-auto"))], True)
    time.sleep(0.5)
    m("auto-created, again", 12, [nt(N("g7-auto"))], True)
    m("__ name, auto-create true", 12, [nt("__" + N("g7-auto"))], True)
    m("unknown id", 12, [{"Name": None, "TopicId": "00000000-0000-0000-0000-0000000000aa"}])
    m("known id", 12, [{"Name": None, "TopicId": A.tid}])
    m("name and id", 12, [{"Name": A.tp, "TopicId": A.tid}])
    m("zero id null name", 12, [{"Name": None}])
    m("id at v10 with a name", 10, [{"Name": A.tp, "TopicId": A.tid}])
    m("same topic twice", 12, [nt(A.tp)] * 2)
    m("authorized ops", 12, [nt(A.tp)], IncludeTopicAuthorizedOperations=True)
    m(
        "authorized ops v8 cluster+topic",
        8,
        [nt(A.tp)],
        IncludeTopicAuthorizedOperations=True,
        IncludeClusterAuthorizedOperations=True,
    )
    for v in (0, 1, 2):
        A.P("DescribeCluster v%d" % v, "DescribeCluster", v, {"IncludeClusterAuthorizedOperations": v == 1})
    A.P("DescribeCluster endpoint type 2", "DescribeCluster", 1, {"EndpointType": 2})
    A.P("DescribeCluster endpoint type 9", "DescribeCluster", 1, {"EndpointType": 9})
    big = N("g7-big")
    b = topic(big, 5)
    A.name_id("topic-id", b, "g7-big")
    D = lambda n, **k: A.P(
        n,
        "DescribeTopicPartitions",
        0,
        dict({"Topics": [{"Name": big}], "ResponsePartitionLimit": 2000, "Cursor": None}, **k),
    )
    D("all")
    D("limit 2", ResponsePartitionLimit=2)
    D("limit 2 cursor 2", ResponsePartitionLimit=2, Cursor={"TopicName": big, "PartitionIndex": 2})
    D("limit 2 cursor 4", ResponsePartitionLimit=2, Cursor={"TopicName": big, "PartitionIndex": 4})
    D("cursor 5 (past end)", Cursor={"TopicName": big, "PartitionIndex": 5})
    D("cursor -1", Cursor={"TopicName": big, "PartitionIndex": -1})
    D("cursor on another topic", Cursor={"TopicName": N("h"), "PartitionIndex": 0})
    D("limit 0", ResponsePartitionLimit=0)
    D("unknown topic", Topics=[{"Name": N("g7-nope")}])
    D("bad name", Topics=[{"Name": "bad name"}])
    D("two topics limit 3 (sorted by name?)", Topics=[{"Name": big}, {"Name": A.tp}], ResponsePartitionLimit=3)
    D("same topic twice", Topics=[{"Name": big}] * 2, ResponsePartitionLimit=2)
    A.P(
        "DescribeAcls without authorizer",
        "DescribeAcls",
        3,
        {
            "ResourceTypeFilter": 1,
            "PatternTypeFilter": 1,
            "Operation": 1,
            "PermissionType": 1,
            "ResourceNameFilter": None,
            "PrincipalFilter": None,
            "HostFilter": None,
        },
    )
    A.P(
        "CreateAcls without authorizer",
        "CreateAcls",
        3,
        {
            "Creations": [
                {
                    "ResourceType": 2,
                    "ResourceName": "x",
                    "ResourcePatternType": 3,
                    "Principal": "User:a",
                    "Host": "*",
                    "Operation": 3,
                    "PermissionType": 3,
                }
            ]
        },
    )
    A.P("DescribeLogDirs unknown topic", "DescribeLogDirs", 4, {"Topics": [{"Topic": N("g7-nope"), "Partitions": [0]}]})
    e = A.out[-1]["response"]
    if isinstance(e, dict):
        [r.update({k: "<n>" for k in ("TotalBytes", "UsableBytes", "LogDir") if k in r}) for r in e.get("Results", [])]
    A.P(
        "ElectLeaders preferred",
        "ElectLeaders",
        2,
        {"ElectionType": 0, "TopicPartitions": [{"Topic": A.tp, "Partitions": [0, 9]}], "TimeoutMs": 2000},
    )
    A.P("ListConfigResources v1", "ListConfigResources", 1, {"ResourceTypes": [16]})
    A.P("DescribeClientQuotas all", "DescribeClientQuotas", 1, {"Components": [], "Strict": False})
    A.P("DescribeUserScramCredentials none", "DescribeUserScramCredentials", 0, {"Users": [{"Name": "nobody"}]})
    A.P("SaslHandshake on PLAINTEXT", "SaslHandshake", 1, {"Mechanism": "PLAIN"})
    A.P("SaslAuthenticate on PLAINTEXT", "SaslAuthenticate", 2, {"AuthBytes": b"x"})
    A.P("ListPartitionReassignments", "ListPartitionReassignments", 0, {"TimeoutMs": 2000, "Topics": None})
    A.P(
        "DescribeQuorum bad topic",
        "DescribeQuorum",
        1,
        {"Topics": [{"TopicName": "x", "Partitions": [{"PartitionIndex": 0}]}]},
    )
    A.P(
        "ListTransactions bad state filter",
        "ListTransactions",
        1,
        {"StateFilters": ["Bogus"], "ProducerIdFilters": [], "DurationFilter": -1},
    )


def wire(A):

    def raw(n, b, wait=3, then=False, decode=None, eof=False):
        c = Conn(wait)
        try:
            c.raw(b)
            c.s.settimeout(wait)
            f = c.frame()
            r = {
                "correlation": struct.unpack(">i", f[:4])[0],
                "body": (
                    f[4:].hex().replace(("%s" % HP[0]).encode().hex() + "%08x" % HP[1], "<host+port>")
                    if len(f) < 60
                    else "bytes:%d starts %s" % (len(f) - 4, f[4:12].hex()) if "count -2" not in n else "all topics"
                ),
            }
            if decode:
                r["decoded"] = {
                    k: v
                    for k, v in Msg(APIS["ApiVersions"][2]).dec(f, decode[0], 4).items()
                    if k in ("ErrorCode", "ThrottleTimeMs")
                }
                r["decoded"]["ApiKeys count"] = len(Msg(APIS["ApiVersions"][2]).dec(f, decode[0], 4)["ApiKeys"])
            if then:
                c.c = 7
                c.send("ApiVersions", 0, {})
                x = c.recv("ApiVersions", 0)
                r["then ApiVersions v0 on the same connection"] = x["ErrorCode"]
        except NORESP:
            r = "connection closed"
        except (socket.timeout, TimeoutError):
            r = "no response (connection open)"
        except Exception as e:
            r = "decode failure %s %s" % (type(e).__name__, e)
        c.close()
        A.put(n, "raw", None, {"bytes": b.hex() if len(b) < 200 else "bytes:%d" % len(b)}, r)

    def fr(key, ver, body, cid=5, client=b"\x00\x05probe", tag=b""):
        b = struct.pack(">hhi", key, ver, cid) + client + tag + body
        return struct.pack(">i", len(b)) + b

    av = Msg(APIS["ApiVersions"][1])
    B = lambda n="probe", s="1.0", v=3: av.enc({"ClientSoftwareName": n, "ClientSoftwareVersion": s}, v)
    for v in range(0, 6):
        A.P(
            "ApiVersions v%d" % v,
            "ApiVersions",
            v,
            dict(
                {"ClientSoftwareName": "probe", "ClientSoftwareVersion": "1.0"} if v >= 3 else {},
                **{"ClusterId": None, "NodeId": -1} if v >= 5 else {}
            ),
        )
        e = A.out[-1]["response"]
        if isinstance(e, dict):
            e["FinalizedFeaturesEpoch"] = "<n>" if "FinalizedFeaturesEpoch" in e else None
    if True:
        for n, k in (
            ("wrong cluster id", {"ClusterId": "wrong", "NodeId": -1}),
            ("wrong node id", {"ClusterId": None, "NodeId": 77}),
        ):
            A.P(
                "ApiVersions v5 " + n,
                "ApiVersions",
                5,
                dict({"ClientSoftwareName": "probe", "ClientSoftwareVersion": "1.0"}, **k),
            )
            e = A.out[-1]["response"]
            if isinstance(e, dict) and len(e.get("ApiKeys") or []) > 3:
                e["ApiKeys"] = "count %d" % len(e["ApiKeys"])
                e["FinalizedFeaturesEpoch"] = "<n>"
    raw("ApiVersions v99 (v3-style header and body)", fr(18, 99, B(), tag=b"\x00"), then=True, decode=(0,))
    raw("ApiVersions v99 empty body", fr(18, 99, b""), then=True, decode=(0,))
    raw("ApiVersions v-1", fr(18, -1, b""), then=True, decode=(0,))
    raw("ApiVersions v6", fr(18, 6, B(), tag=b"\x00"), decode=(0,))
    for n, a, b in (
        ('bad client name "bad name!"', "bad name!", "1.0"),
        ("empty client name", "", "1.0"),
        ("empty client version", "probe", ""),
        ("name ending in dash", "probe-", "1"),
        ("version with space", "probe", "1 0"),
        ("name with underscore", "pro_be", "1"),
    ):
        raw("ApiVersions v3 " + n, fr(18, 3, B(a, b), tag=b"\x00"), then=True, decode=(3,))
    raw("ApiVersions v3 without header tag byte", fr(18, 3, B()), decode=(3,))
    raw("ApiVersions v0 with extra bytes", fr(18, 0, b"\x01\x02\x03"), decode=(0,))
    raw("ApiVersions v3 truncated body", fr(18, 3, B()[:3], tag=b"\x00"))
    raw("ApiVersions v0 null client id", fr(18, 0, b"", client=b"\xff\xff"), decode=(0,))
    raw("ApiVersions v3 header with unknown tag", fr(18, 3, B(), tag=b"\x01c\x02ab"), decode=(3,))
    raw("ApiVersions v3 body unknown tag", fr(18, 3, B()[:-1] + b"\x01c\x02ab", tag=b"\x00"), decode=(3,))
    raw("unknown api key 999", fr(999, 0, b""))
    raw("api key -1", fr(-1, 0, b""))
    raw("Fetch v3 (removed)", fr(1, 3, b"\x00" * 20))
    raw("Fetch v19", fr(1, 19, b"\x00" * 20))
    raw("Metadata v99", fr(3, 99, b"\x00"))
    raw("Vote (controller api)", fr(52, 0, b"\x00" * 8))
    raw("LeaderAndIsr key 4", fr(4, 0, b""))
    raw("Metadata v1 truncated (count 5, no elements)", fr(3, 1, struct.pack(">i", 5)))
    raw("Metadata v1 count 2^31-1", fr(3, 1, struct.pack(">i", 2**31 - 1)))
    raw("Metadata v1 count -2", fr(3, 1, struct.pack(">i", -2)))
    raw("Metadata v9 huge compact count", fr(3, 9, b"\xff\xff\xff\xff\x07", tag=b"\x00"))
    raw("Metadata v1 extra trailing bytes", fr(3, 1, struct.pack(">i", 0) + b"\x00\x00\x00"))
    raw("Metadata v1 string length -5", fr(3, 1, struct.pack(">ih", 1, -5)))
    raw("Metadata v1 null name", fr(3, 1, struct.pack(">ih", 1, -1)))
    raw("Metadata v1 invalid UTF-8 name", fr(3, 1, struct.pack(">ih", 1, 2) + b"\xff\xfe"))
    raw("frame length 0", struct.pack(">i", 0))
    raw("frame length -1", struct.pack(">i", -1))
    raw("frame length 4 (too short for header)", struct.pack(">i", 4) + b"\x00\x12\x00\x00")
    raw("frame length 104857601", struct.pack(">i", 104857601))
    raw("frame length 104857600, 10 bytes sent", struct.pack(">i", 104857600) + b"\x00" * 10, wait=1.5)
    raw("frame length 2^31-1", struct.pack(">i", 2**31 - 1))
    raw("HTTP GET", b"GET / HTTP/1.1\r\n\r\n")
    raw("TLS hello", bytes.fromhex("16030100c8010000c40303") + b"\x00" * 60)
    raw("client id length -2", fr(18, 0, b"", client=b"\xff\xfe"))
    raw("client id length beyond frame", fr(18, 0, b"", client=b"\x7f\xff"))
    c = Conn(5)
    c.send("Metadata", 1, {"Topics": []})
    c.send("ApiVersions", 0, {})
    c.send("Metadata", 1, {"Topics": []})
    order = [struct.unpack(">i", c.frame()[:4])[0] for _ in range(3)]
    c.close()
    A.put("three pipelined requests: response order", "raw", None, {}, {"order": order})
    c = Conn(5)
    c.send("Fetch", 12, dict(fetch_req(12, A.tp, 0), MaxWaitMs=700, MinBytes=1))
    c.send("ApiVersions", 0, {})
    t = time.time()
    order = [struct.unpack(">i", c.frame()[:4])[0] for _ in range(2)]
    c.close()
    A.put(
        "ApiVersions behind a parked Fetch (700 ms)",
        "raw",
        None,
        {},
        {"order": order},
        took="%.1f s" % (time.time() - t),
    )


PARTS = [topics, records, cfgs, meta, wire]
