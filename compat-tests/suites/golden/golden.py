#!/usr/bin/env python3
"""golden.py BOOTSTRAP OUTDIR [AREA...]: puts the golden probes to a server and compares the answers with Apache Kafka's.

Reads, beside itself:
  data/NN-area.json         what Apache Kafka 4.4.0 answered, probe by probe
  scope.tsv                 probes left out for now (file, pattern, reason)
  expected-differences.tsv  differences that are known and meant (file, probe key, path, reason)
Exit status 0 when every difference is an expected one. MESSAGES=1 counts differing error texts too.
"""
import json, os, re, subprocess, sys, time

HERE = os.path.dirname(os.path.abspath(__file__))
TEXTS = ("ErrorMessage", "BatchIndexErrorMessage")
SLACK_MS = 200  # a busy machine answers a timed probe late
AREA_LIMIT = 150  # seconds
SHOWN = 12  # differences printed for one probe


def rows(name, width):
    """The lines of a TSV beside us, without comments and blank lines."""
    out = []
    for n, line in enumerate(open(os.path.join(HERE, name), encoding="utf-8"), 1):
        line = line.rstrip("\n")
        if not line.strip() or line.startswith("#"):
            continue
        cells = line.split("\t")
        if len(cells) != width or not all(c.strip() for c in cells):
            sys.exit("%s:%d: %d columns wanted, separated by tabs, none empty" % (name, n, width))
        out.append(cells)
    return out


def load(path):
    """{probe key: entry}; a key seen again gets ' #2' and so on."""
    out, seen = {}, {}
    for e in json.load(open(path, encoding="utf-8")):
        k = "%s v%s %s" % (e["api"], e["version"], e["probe"]) if "api" in e else e["probe"] + " " + str(e.get("part"))
        seen[k] = seen.get(k, 0) + 1
        out[k if seen[k] == 1 else "%s #%d" % (k, seen[k])] = e
    return out


def canon(x):
    """Clients do not care for the order of structs in a list, unless they are record batches or aborted transactions."""
    if isinstance(x, dict):
        return {k: canon(v) for k, v in x.items()}
    if isinstance(x, list):
        y = [canon(v) for v in x]
        if all(isinstance(v, dict) and "base_offset" not in v and "FirstOffset" not in v for v in y):
            return sorted(y, key=lambda v: json.dumps(v, sort_keys=True))
        return y
    return x


def diff(a, b, path=""):
    if type(a) is not type(b):
        yield path or "response", a, b
    elif isinstance(a, dict):
        for k in sorted(set(a) | set(b)):
            if k not in a:
                yield path + "." + k, "(absent)", b[k]
            elif k not in b:
                yield path + "." + k, a[k], "(absent)"
            else:
                yield from diff(a[k], b[k], path + "." + k)
    elif isinstance(a, list):
        if len(a) != len(b):
            yield path + ".length", len(a), len(b)
        for i, (x, y) in enumerate(zip(a, b)):
            yield from diff(x, y, "%s[%d]" % (path, i))
    elif a != b:
        yield path or "response", a, b


def millis(took):
    n, unit = took.split()[:2]
    return float(n) * (1000 if unit == "s" else 1)


def compare(want, got):
    """[(probe key, path, golden value, value got)] of one area."""
    out = []
    for k, w in want.items():
        if k not in got:
            out.append((k, "(missing)", "an answer", "probe not reached"))
            continue
        g = got[k]
        out += [(k, *d) for d in diff(canon(w.get("response")), canon(g.get("response")))]
        if "took" in w:
            late = millis(g["took"]) - millis(w["took"]) if "took" in g else None
            if late is None or not -100 <= late <= SLACK_MS:
                out.append((k, "took", w["took"], g.get("took")))
    out += [(k, "(extra)", None, got[k].get("error")) for k in got if k not in want]
    return out


def glob(pattern, text):
    """'*' stands for anything; all else is literal."""
    return re.fullmatch(".*".join(re.escape(p) for p in pattern.split("*")), text, re.S) is not None


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    bootstrap, outdir, wanted = sys.argv[1], sys.argv[2], sys.argv[3:]
    os.makedirs(outdir, exist_ok=True)
    names = sorted(f[:-5] for f in os.listdir(HERE + "/data") if f.endswith(".json"))
    for w in wanted:
        if not any(n.startswith(w) for n in names):
            sys.exit("no area %s; there are: %s" % (w, " ".join(names)))
    names = [n for n in names if not wanted or any(n.startswith(w) for w in wanted)]
    scope = [(f, re.compile(p), r) for f, p, r in rows("scope.tsv", 3)]
    expected = [tuple(r) for r in rows("expected-differences.tsv", 4)]
    used, scoped = set(), {}
    probes = same = texts = 0
    unexpected = []
    for name in names:
        started = time.time()

        def out_of_scope(e):
            text = "%s/%s v%s %s" % (e.get("part"), e.get("api"), e.get("version"), e["probe"])
            return next((r for f, p, r in scope if f == name and p.search(text)), None)

        golden = load("%s/data/%s.json" % (HERE, name))
        left_out = {k: r for k, r in ((k, out_of_scope(e)) for k, e in golden.items()) if r}
        for r in left_out.values():
            scoped[name, r] = scoped.get((name, r), 0) + 1
        # a part of which nothing is left is not run at all
        parts = {e["part"] for e in golden.values()}
        skip = parts - {e["part"] for k, e in golden.items() if k not in left_out}
        file = "%s/%s.json" % (outdir, name)
        if os.path.exists(file):
            os.remove(file)
        cmd = [sys.executable, "-B", HERE + "/prober/probe.py", bootstrap, outdir, name]
        cmd += ["--skip", ",".join(sorted(skip))] if skip else []
        p = subprocess.Popen(cmd)
        try:
            p.wait(AREA_LIMIT)
        except subprocess.TimeoutExpired:
            print("%s: not done after %d s, stopped" % (name, AREA_LIMIT))
            p.terminate()
            p.wait()
        got = load(file) if os.path.exists(file) else {}
        got = {k: e for k, e in got.items() if k not in left_out}
        want = {k: e for k, e in golden.items() if k not in left_out}
        probes += len(want)
        ds = {}
        for k, path, a, b in compare(want, got):
            text = path.endswith(TEXTS)
            hit = [x for x in expected if x[0] == name and glob(x[1], k) and glob(x[2], path)]
            used.update(hit)
            if hit or text and not os.environ.get("MESSAGES"):
                texts += not hit
                continue
            ds.setdefault(k, []).append((path, a, b))
        same += len(want) - len(set(ds) & set(want))
        for k, d in ds.items():
            print("%s | %s" % (name, k))
            for path, a, b in d[:SHOWN]:
                print("    %s: %s -> %s" % (path, json.dumps(a)[:200], json.dumps(b)[:200]))
            if len(d) > SHOWN:
                print("    and %d more" % (len(d) - SHOWN))
        unexpected += [(name, k) for k in ds]
        print("# %s: %d probes, %d differ, %.1f s" % (name, len(want), len(ds), time.time() - started), flush=True)
    for (name, r), n in sorted(scoped.items()):
        print("OUT OF SCOPE %s: %d probes: %s" % (name, n, r))
    for x in expected:
        if x[0] in names and x not in used:
            print("WARNING: an expected difference is gone, take it out: %s | %s | %s" % x[:3])
    if texts:
        print("# %d differences in error texts, not counted" % texts)
    left = sum(scoped.values())
    print("# %d expected differences met" % len(used))
    print("%d passed, %d failed, %d skipped" % (same, len(unexpected), left))
    sys.exit(1 if unexpected or not probes else 0)


main()
