"""Kafka request encoder and response decoder, driven by Apache Kafka's own message definitions.

KAFKA_MESSAGES names the folder with the *.json files of kafka-clients' jar (common/message/).
"""

import json, os, re, struct, uuid, zlib, gzip

HERE = os.environ["KAFKA_MESSAGES"] + "/"
ZERO = "00000000-0000-0000-0000-000000000000"


def _load(f):
    t = open(f).read()
    t = re.sub("(?m)^\\s*//.*$", "", t)
    t = re.sub('(?m)(?<=[,\\]\\}\\{\\["])\\s*//.*$', "", t)
    return json.loads(t)


APIS = {}
BYKEY = {}
for fn in os.listdir(HERE):
    if fn.endswith("Request.json"):
        rq = _load(HERE + fn)
        n = fn[:-12]
        try:
            rs = _load(HERE + n + "Response.json")
        except FileNotFoundError:
            continue
        APIS[n] = (rq["apiKey"], rq, rs)
        BYKEY[rq["apiKey"]] = n


def inv(spec, v):
    if spec is None or spec == "none":
        return False
    if spec.endswith("+"):
        return v >= int(spec[:-1])
    if "-" in spec:
        a, b = spec.split("-")
        return int(a) <= v <= int(b)
    return v == int(spec)


def uvar(n):
    o = b""
    while n > 127:
        o += bytes([n & 127 | 128])
        n >>= 7
    return o + bytes([n])


def zz(n):
    return uvar(n << 1 ^ n >> 63 if n >= 0 else (-n << 1) - 1)


PRIM = {"int8": ">b", "int16": ">h", "uint16": ">H", "int32": ">i", "uint32": ">I", "int64": ">q", "float64": ">d"}


class Msg:

    def __init__(self, d):
        self.d = d
        self.structs = {s["name"]: s["fields"] for s in d.get("commonStructs", [])}
        self._col(d["fields"])

    def _col(self, fs):
        for f in fs:
            if "fields" in f:
                self.structs.setdefault(f["type"].lstrip("[]"), f["fields"])
                self._col(f["fields"])

    def flex(self, v):
        return inv(self.d.get("flexibleVersions"), v)

    def default(self, f, v):
        t = f["type"]
        d = f.get("default")
        if d == "null":
            return None
        if t.startswith("[]"):
            return []
        if t == "string":
            return d if d is not None else ""
        if t in ("bytes", "records"):
            return b"" if t == "bytes" else None
        if t == "uuid":
            return ZERO
        if t == "bool":
            return d in (True, "true")
        if t in PRIM:
            return (float(d) if t == "float64" else int(str(d), 0)) if d is not None else 0
        return {}

    def enc(self, val, v):
        return self._enc(self.d["fields"], val, v, self.flex(v))

    def _enc(self, fs, val, v, fx):
        o = b""
        tags = []
        known = {f["name"] for f in fs}
        for k in val:
            if k not in known:
                raise KeyError(k + " not in " + str(known))
        for f in fs:
            if not inv(f["versions"], v):
                continue
            x = val[f["name"]] if f["name"] in val else self.default(f, v)
            if inv(f.get("taggedVersions"), v):
                if f["name"] in val:
                    tags.append((f["tag"], self._e1(f, f["type"], x, v, fx)))
                continue
            o += self._e1(f, f["type"], x, v, fx)
        if fx:
            o += uvar(len(tags))
            for t, b in sorted(tags):
                o += uvar(t) + uvar(len(b)) + b
        return o

    def _e1(self, f, t, x, v, fx):
        if t.startswith("[]"):
            if x is None:
                return uvar(0) if fx else struct.pack(">i", -1)
            return (uvar(len(x) + 1) if fx else struct.pack(">i", len(x))) + b"".join(
                (self._e1({}, t[2:], y, v, fx) for y in x)
            )
        if t == "bool":
            return bytes([1 if x else 0])
        if t in PRIM:
            return struct.pack(PRIM[t], x)
        if t == "uuid":
            return uuid.UUID(x).bytes
        if t == "string":
            if x is None:
                return uvar(0) if fx else struct.pack(">h", -1)
            b = x.encode()
            return (uvar(len(b) + 1) if fx else struct.pack(">h", len(b))) + b
        if t in ("bytes", "records"):
            if x is None:
                return uvar(0) if fx else struct.pack(">i", -1)
            return (uvar(len(x) + 1) if fx else struct.pack(">i", len(x))) + x
        if inv(f.get("nullableVersions"), v):
            if x is None:
                return b"\xff"
            return b"\x01" + self._enc(self.structs[t], x, v, fx)
        return self._enc(self.structs[t], x, v, fx)

    def dec(self, b, v, pos=0):
        self.b = b
        self.p = pos
        r = self._dec(self.d["fields"], v, self.flex(v))
        if self.p != len(b):
            r["_trailing_bytes"] = len(b) - self.p
        return r

    def rd(self, n):
        if self.p + n > len(self.b):
            raise ValueError("short response")
        x = self.b[self.p : self.p + n]
        self.p += n
        return x

    def i(self, fmt):
        return struct.unpack(fmt, self.rd(struct.calcsize(fmt)))[0]

    def uv(self):
        r = s = 0
        while True:
            c = self.rd(1)[0]
            r |= (c & 127) << s
            s += 7
            if c < 128:
                return r

    def _dec(self, fs, v, fx):
        r = {}
        tg = {}
        for f in fs:
            if not inv(f["versions"], v):
                continue
            if inv(f.get("taggedVersions"), v):
                tg[f["tag"]] = f
                continue
            r[f["name"]] = self._d1(f, f["type"], v, fx)
        if fx:
            for _ in range(self.uv()):
                t = self.uv()
                n = self.uv()
                e = self.p + n
                if t in tg:
                    r[tg[t]["name"]] = self._d1(tg[t], tg[t]["type"], v, fx)
                    assert self.p == e, "tag length"
                else:
                    r["_tag%d" % t] = self.rd(n).hex()
        return r

    def _d1(self, f, t, v, fx):
        if t.startswith("[]"):
            n = self.uv() - 1 if fx else self.i(">i")
            return None if n < 0 else [self._d1({}, t[2:], v, fx) for _ in range(n)]
        if t == "bool":
            return self.rd(1) != b"\x00"
        if t in PRIM:
            return self.i(PRIM[t])
        if t == "uuid":
            return str(uuid.UUID(bytes=self.rd(16)))
        if t == "string":
            n = self.uv() - 1 if fx else self.i(">h")
            return None if n < 0 else self.rd(n).decode("utf8", "replace")
        if t in ("bytes", "records"):
            n = self.uv() - 1 if fx else self.i(">i")
            return None if n < 0 else self.rd(n)
        if inv(f.get("nullableVersions"), v) and self.i(">b") < 0:
            return None
        return self._dec(self.structs[t], v, fx)


# ---- CRC32C and record batches
_T = []
for _i in range(256):
    c = _i
    for _ in range(8):
        c = c >> 1 ^ 0x82F63B78 if c & 1 else c >> 1
    _T.append(c)


def crc32c(b):
    c = 0xFFFFFFFF
    T = _T
    for x in b:
        c = T[(c ^ x) & 255] ^ c >> 8
    return c ^ 0xFFFFFFFF


def rec(k, v, i, tsd=0, headers=()):

    def bs(x):
        return zz(-1) if x is None else zz(len(x)) + x

    b = b"\x00" + zz(tsd) + zz(i) + bs(k) + bs(v) + zz(len(headers)) + b"".join((bs(h) + bs(x) for h, x in headers))
    return zz(len(b)) + b


T0 = 1700000000000


def batch(
    recs=1,
    pid=-1,
    epoch=-1,
    seq=-1,
    txn=False,
    control=False,
    codec=0,
    ts=T0,
    tsd=None,
    magic=2,
    base=0,
    crc=None,
    count=None,
    lod=None,
    ple=-1,
    raw=None,
    val=b"v",
    key=b"k",
    maxts=None,
    lat=False,
    odelta=None,
    xattr=0,
):
    """recs: int or list of (key, value[, tsdelta[, headers]])"""
    if isinstance(recs, int):
        recs = [(key, val + b"%d" % i if len(val) < 64 else val) for i in range(recs)]
    body = b""
    mx = 0
    for i, r in enumerate(recs):
        d = r[2] if len(r) > 2 else (tsd or 0) * i
        mx = max(mx, d)
        body += rec(r[0], r[1], odelta[i] if odelta else i, d, r[3] if len(r) > 3 else ())
    if codec == 1:
        body = gzip.compress(body, mtime=0)
    if raw is not None:
        body = raw
    attr = codec | (8 if lat else 0) | (16 if txn else 0) | (32 if control else 0) | xattr
    n = len(recs)
    t = (
        struct.pack(
            ">hiqqqhii",
            attr,
            n - 1 if lod is None else lod,
            ts,
            ts + mx if maxts is None else maxts,
            pid,
            epoch,
            seq,
            n if count is None else count,
        )
        + body
    )
    c = crc32c(t) if crc is None else crc
    return struct.pack(">qiibI", base, len(t) + 9, ple, magic, c) + t


def legacy(magic, n=1, key=b"k", ts=T0, badcrc=False):
    o = b""
    for i in range(n):
        v = b"v%d" % i
        b = (
            struct.pack(">bb", magic, 0)
            + (struct.pack(">q", ts) if magic else b"")
            + struct.pack(">i", len(key))
            + key
            + struct.pack(">i", len(v))
            + v
        )
        b = struct.pack(">I", zlib.crc32(b) ^ (1 if badcrc else 0)) + b
        o += struct.pack(">qi", i, len(b)) + b
    return o


def batches(b):
    """summary of a records field"""
    if b is None:
        return None
    out = []
    p = 0
    while p + 17 <= len(b):
        base, ln = struct.unpack(">qi", b[p : p + 12])
        if b[p + 16] != 2 or ln < 49:
            out.append({"magic": b[p + 16], "size": ln + 12})
            if ln < 0:
                return out
            p += 12 + ln
            continue
        if p + 12 + ln > len(b):
            out.append({"PARTIAL": len(b) - p})
            return out
        ple, mg, crc, attr, lod, ts, mts, pid, ep, seq, n = struct.unpack(">ibIhiqqqhii", b[p + 12 : p + 61])
        d = {
            "base_offset": base,
            "last_offset_delta": lod,
            "count": n,
            "attributes": attr,
            "leader_epoch": ple,
            "ProducerId": pid,
            "ProducerEpoch": ep,
            "base_sequence": seq,
            "base_ts": ts,
            "max_ts": mts,
            "crc_ok": crc32c(b[p + 21 : p + 12 + ln]) == crc,
        }
        if attr & 32:
            d["control"] = {0: "abort marker", 1: "commit marker"}.get(b[p + 68], "type %d" % b[p + 68])
        out.append(d)
        p += 12 + ln
    if p < len(b):
        out.append({"TRAILING": len(b) - p})
    return out
