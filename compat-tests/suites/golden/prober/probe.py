"""probe.py HOST:PORT OUTDIR AREA [--skip PART,...]: puts one area's scripted requests to a server, writes OUTDIR/AREA.json.

Every probe has its own connection unless it says otherwise. Topic and group names carry a random suffix, which the
written answers no longer have; ids that vary (topic ids, producer ids, member ids, times) become names in order of
first sight. The area modules import everything from here.
"""

import sys, os, json, socket, struct, time, secrets, uuid, re, importlib, signal, traceback
from codec import *

RUN = "x" + secrets.token_hex(4)


def N(s):
    return s + RUN


class Conn:

    def __init__(self, timeout=20):
        self.s = socket.create_connection(HP, timeout=10)
        self.s.settimeout(timeout)
        self.c = 0
        self.s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def raw(self, b):
        self.s.sendall(b)

    def recvn(self, n):
        o = b""
        while len(o) < n:
            x = self.s.recv(n - len(o))
            if not x:
                raise ConnectionError("connection closed")
            o += x
        return o

    def frame(self):
        return self.recvn(struct.unpack(">i", self.recvn(4))[0])

    def close(self):
        try:
            self.s.close()
        except OSError:
            pass

    def send(self, api, ver, req, client="probe", tail=b""):
        key, rq, rs = APIS[api]
        m = Msg(rq)
        self.c += 1
        h = struct.pack(">hhi", key, ver, self.c) + (
            struct.pack(">h", -1) if client is None else struct.pack(">h", len(client)) + client.encode()
        )
        if m.flex(ver):
            h += b"\x00"
        b = h + m.enc(req, ver) + tail
        self.raw(struct.pack(">i", len(b)) + b)
        return self.c

    def recv(self, api, ver, bodyver=None):
        key, rq, rs = APIS[api]
        m = Msg(rs)
        b = self.frame()
        cid = struct.unpack(">i", b[:4])[0]
        p = 4
        if m.flex(ver) and api != "ApiVersions":
            p = 5
        r = m.dec(b, ver if bodyver is None else bodyver, p)
        if cid != self.c:
            r["_wrong_correlation"] = True
        return r


NORESP = (ConnectionError, BrokenPipeError)


def call(api, ver, req, conn=None, timeout=20):
    c = conn or Conn(timeout)
    try:
        c.s.settimeout(timeout)
        c.send(api, ver, req)
        return c.recv(api, ver)
    finally:
        if not conn:
            c.close()


# After this many unanswered probes in an area the server is taken for stuck, and later ones wait less.
PATIENCE = 6


class Area:

    def __init__(self, name):
        self.name = name
        self.part = None
        self.silent = 0
        self.out = []
        self.ids = {}
        self.n = {}
        self.conns = []

    def alias(self, kind, x):
        k = (kind, x)
        if k not in self.ids:
            self.n[kind] = self.n.get(kind, 0) + 1
            self.ids[k] = "<%s-%d>" % (kind, self.n[kind])
        return self.ids[k]

    def name_id(self, kind, x, nm):
        self.ids[kind, x] = "<%s:%s>" % (kind, nm)

    def st(self, s):
        s = s.replace(RUN, "").replace("%s:%d" % HP, "<host:port>")
        for (kind, x), a in self.ids.items():
            if isinstance(x, str) and len(x) > 8 and (x in s):
                s = s.replace(x, a)
            elif isinstance(x, int) and x > 999:
                s = re.sub("(?<!\\d)%d(?!\\d)" % x, a, s)
        s = re.sub("(?<![\\w-])-92233702\\d{11}(?!\\d)|(?<!\\d)1(?!700000)[789]\\d{11}(?!\\d)", "<ts>", s)
        return re.sub("[0-9a-f]{8}-[0-9a-f-]{27}", "<uuid>", s)

    def norm(self, k, x, resp):
        if isinstance(x, dict):
            return {
                a: b if a == "ProducerId" and b == 0 and x.get("ErrorCode") else self.norm(a, b, resp)
                for a, b in x.items()
            }
        if isinstance(x, list):
            return [self.norm(k, y, resp) for y in x]
        if isinstance(x, (bytes, bytearray)):
            if k in ("Records",) and (not x or len(x) > 16):
                return self.norm("batches", batches(x), resp) if resp else "batches:%s" % self.short(x)
            return "hex:" + x.hex().replace(RUN.encode().hex(), "") if len(x) < 200 else "bytes:%d" % len(x)
        if isinstance(x, bool) or x is None:
            return x
        if k == "ProducerId" and isinstance(x, int) and (x >= 0):
            if ("pid", x) in self.ids or (resp and x < 900000000):
                return self.alias("pid", x)
            return x
        if k in ("SessionId",) and x > 0 and (resp or ("session", x) in self.ids):
            return self.alias("session", x)
        if k in ("TopicId", "NextTopicId") or k == "TopicIds":
            if x == ZERO:
                return "ZERO"
            return self.alias("topic-id", x) if resp or ("topic-id", x) in self.ids else x
        if k in ("MemberId", "Leader", "SubscribedMember") and isinstance(x, str) and x:
            if ("member", x) in self.ids or (resp and len(x) > 20):
                return self.alias("member", x)
        if k == "CoordinatorEpoch" and resp and isinstance(x, int) and (x >= 0):
            return "<n>"
        if k == "ClusterId" and x:
            return "<cluster-id>"
        if k == "Host" and x:
            return "<host>"
        if k == "Port":
            return "<port>"
        if (
            k in ("LogAppendTimeMs", "TransactionStartTimeMs", "IssueTimestampMs", "LastTimestamp")
            and isinstance(x, int)
            and (x > 0)
            and (x > T0 + 10**8)
        ):
            return "<now>"
        if k in ("Timestamp", "base_ts", "max_ts") and isinstance(x, int) and (x > T0 + 10**10):
            return "<now>"
        if isinstance(x, float) and x != x:
            return "NaN"
        return self.st(x) if isinstance(x, str) else x

    def short(self, b):
        try:
            o = []
            for d in batches(b):
                o.append({k: self.norm(k, v, False) for k, v in d.items()})
            return json.dumps(o)
        except Exception:
            return "bytes:%d" % len(b)

    def put(self, probe, api, ver, req, resp, **kw):
        e = {
            "part": self.part,
            "probe": probe,
            "api": api,
            "version": ver,
            "request": self.norm("", req, False),
            "response": self.norm("", resp, True) if not isinstance(resp, str) else resp,
        }
        e.update(kw)
        self.out.append(e)

    def P(self, probe, api, ver, req, conn=None, retry=(), timeout=12, timing=False, **kw):
        """send, record, return the raw response dict (or a string)"""
        t = time.time()
        if self.silent > PATIENCE:
            timeout = min(timeout, 2)
        for _ in range(60):
            try:
                t = time.time()
                r = call(api, ver, req, conn, timeout)
            except NORESP:
                r = "connection closed"
            except (socket.timeout, TimeoutError):
                r = "no response"
                self.silent += 1
            except Exception as e:
                r = "decode failure: %s %s" % (type(e).__name__, e)
            if isinstance(r, dict) and retry and codes(r) & set(retry):
                time.sleep(0.05)
                continue
            break
        if timing:
            ms = (time.time() - t) * 1000
            kw["took"] = "%d ms (rounded to 100)" % (round(ms / 100) * 100)
        if retry:
            kw["retry_on"] = list(retry)
        self.put(probe, api, ver, req, r, **kw)
        return r if isinstance(r, dict) else {"_": r}

    def note(self, probe, **kw):
        self.out.append(dict({"part": self.part, "probe": probe}, **kw))


def codes(r):
    s = set()
    if isinstance(r, dict):
        for k, v in r.items():
            if k.endswith("ErrorCode") and isinstance(v, int):
                s.add(v)
            else:
                s |= codes(v)
    elif isinstance(r, list):
        for y in r:
            s |= codes(y)
    return s


def until(api, ver, req, bad=(14, 15, 16, 51, 5, 3), conn=None):
    for _ in range(100):
        r = call(api, ver, req, conn)
        if not codes(r) & set(bad):
            return r
        time.sleep(0.05)
    return r


def topic(name, parts=1, configs=None, rf=1):
    c = {"retention.ms": "-1"}
    c.update(configs or {})
    r = call(
        "CreateTopics",
        7,
        {
            "Topics": [
                {
                    "Name": name,
                    "NumPartitions": parts,
                    "ReplicationFactor": rf,
                    "Configs": [{"Name": k, "Value": v} for k, v in c.items()],
                }
            ],
            "timeoutMs": 10000,
        },
    )
    t = r["Topics"][0]
    if t["ErrorCode"] == 40 and "compact" in c.get("cleanup.policy", ""):
        # A server without compaction: the other probes of the area still want their topics.
        return topic(name, parts, {k: v for k, v in c.items() if k != "cleanup.policy"}, rf)
    if t["ErrorCode"]:
        raise RuntimeError("create %s: %s" % (name, t))
    until("Metadata", 12, {"Topics": [{"Name": name}], "AllowAutoTopicCreation": False})
    time.sleep(0.05)
    return t.get("TopicId", ZERO)


def produce_req(ver, topic_, recs, part=0, acks=-1, tid=None, topic_id=None):
    t = {"PartitionData": [{"Index": part, "Records": recs}]}
    t["TopicId" if ver >= 13 else "Name"] = topic_id if ver >= 13 else topic_
    return {"TransactionalId": tid, "Acks": acks, "TimeoutMs": 5000, "TopicData": [t]}


def produce(topic_, recs, ver=11, tid=None, part=0):
    r = until("Produce", ver, produce_req(ver, topic_, recs, part, tid=tid))
    return r["Responses"][0]["PartitionResponses"][0]


def fetch_req(ver, tp, offset, part=0, tid=None, **kw):
    f = {
        k: kw.pop(k)
        for k in list(kw)
        if k in ("CurrentLeaderEpoch", "PartitionMaxBytes", "LastFetchedEpoch", "LogStartOffset")
    }
    p = {"Partition": part, "FetchOffset": offset, "PartitionMaxBytes": 1 << 20}
    p.update(f)
    t = {"Partitions": [p]}
    t["TopicId" if ver >= 13 else "Topic"] = tid if ver >= 13 else tp
    d = {"MaxWaitMs": 100, "MinBytes": 0, "MaxBytes": 1 << 24, "Topics": [t]}
    if ver < 15:
        d["ReplicaId"] = -1
    d.update(kw)
    return d


def coord(key, typ=0):
    until("FindCoordinator", 2, {"Key": key, "KeyType": typ})


def initpid(tid=None, ver=5, pid=-1, epoch=-1, timeout=60000):
    r = until(
        "InitProducerId",
        ver,
        (
            {"TransactionalId": tid, "TransactionTimeoutMs": timeout, "ProducerId": pid, "ProducerEpoch": epoch}
            if ver >= 3
            else {"TransactionalId": tid, "TransactionTimeoutMs": timeout}
        ),
    )
    return (r["ProducerId"], r["ProducerEpoch"])


def main():
    global HP
    host, port = sys.argv[1].rsplit(":", 1)
    HP = (host, int(port))
    out, name = sys.argv[2:4]
    skip = sys.argv[5].split(",") if sys.argv[4:5] == ["--skip"] else []
    os.makedirs(out, exist_ok=True)
    area = Area(name)

    def write(*_):
        with open("%s/%s.json" % (out, name), "w") as f:
            json.dump(area.out, f, indent=1)
            f.write("\n")
        if _:
            os._exit(3)

    signal.signal(signal.SIGTERM, write)
    for part in importlib.import_module("area" + name[:2]).PARTS:
        if part.__name__ in skip:
            continue
        area.part = part.__name__
        try:
            part(area)
        except Exception as e:
            traceback.print_exc()
            area.note("PART FAILED", error="%s: %s" % (type(e).__name__, area.st(str(e))))
    write()


if __name__ == "__main__":
    sys.modules["probe"] = sys.modules["__main__"]
    main()
