"""sql_jobs.py BOOTSTRAP JARS [CASE...]: PyFlink SQL jobs on a local minicluster against a Kafka-compatible server.

Cases (default a): a JSON append table; b upsert-kafka; c exactly-once sink and a read_committed source.
One line a case, then "<passed> passed, <failed> failed"; exit status 0 when none failed.
"""
import glob, os, socket, sys, time, uuid
from pyflink.common import Configuration
from pyflink.table import EnvironmentSettings, TableEnvironment

BOOTSTRAP, JARS = sys.argv[1:3]
RUN = os.environ.get("RUN") or uuid.uuid4().hex[:6]


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def env(**conf):
    c = Configuration()
    jars = sorted(glob.glob(JARS + "/flink-*.jar"))
    c.set_string("pipeline.jars", ";".join("file://" + os.path.abspath(j) for j in jars))
    c.set_string("parallelism.default", "1")
    c.set_string("rest.port", str(free_port()))
    c.set_string("taskmanager.memory.network.max", "64mb")
    c.set_string("table.exec.sink.upsert-materialize", "NONE")
    for k, v in conf.items():
        c.set_string(k, v)
    return TableEnvironment.create(
        EnvironmentSettings.new_instance().with_configuration(c).in_streaming_mode().build()
    )


def rows(t, query):
    with t.execute_sql(query).collect() as it:
        return [tuple(r) for r in it]


def case_a():
    t = env()
    t.execute_sql(f"""CREATE TABLE k (id INT, name STRING, ts TIMESTAMP(3) METADATA FROM 'timestamp',
        part INT METADATA FROM 'partition' VIRTUAL, off BIGINT METADATA FROM 'offset' VIRTUAL)
      WITH ('connector'='kafka','topic'='fl-a-{RUN}','properties.bootstrap.servers'='{BOOTSTRAP}',
        'properties.group.id'='fl-a-{RUN}','format'='json',
        'scan.startup.mode'='earliest-offset','scan.bounded.mode'='latest-offset')""")
    t.execute_sql("""INSERT INTO k VALUES (1,'a',TIMESTAMP '2026-01-01 00:00:00'),
        (2,'b',TIMESTAMP '2026-01-01 00:00:01'),(3,'c',TIMESTAMP '2026-01-01 00:00:02')""").wait()
    r = rows(t, "SELECT id, name, ts, part, off FROM k")
    assert sorted(x[:2] for x in r) == [(1, "a"), (2, "b"), (3, "c")], r
    assert sorted(str(x[2]) for x in r) == ["2026-01-01 00:00:0%d" % i for i in range(3)], r
    # offsets run from 0 in every topic partition
    parts = {p: sorted(x[4] for x in r if x[3] == p) for p in {x[3] for x in r}}
    assert all(o == list(range(len(o))) for o in parts.values()), r
    return r


def case_b():
    t = env()
    t.execute_sql(f"""CREATE TABLE u (id INT, v BIGINT, PRIMARY KEY (id) NOT ENFORCED)
      WITH ('connector'='upsert-kafka','topic'='fl-b-{RUN}','properties.bootstrap.servers'='{BOOTSTRAP}',
        'key.format'='json','value.format'='json','scan.bounded.mode'='latest-offset')""")
    t.execute_sql("""INSERT INTO u SELECT id, COUNT(*) FROM (VALUES (1),(2),(1),(1),(2),(3)) AS x(id)
        GROUP BY id""").wait()
    r = rows(t, "SELECT id, v FROM u")
    last = {x[0]: x[1] for x in r}
    assert last == {1: 3, 2: 2, 3: 1}, r
    return r


def case_c():
    t = env(**{"execution.checkpointing.interval": "1s", "execution.checkpointing.mode": "EXACTLY_ONCE"})
    t.execute_sql("""CREATE TABLE g (n BIGINT) WITH ('connector'='datagen','rows-per-second'='400',
        'fields.n.kind'='sequence','fields.n.start'='1','fields.n.end'='2000')""")
    t.execute_sql(f"""CREATE TABLE e (n BIGINT)
      WITH ('connector'='kafka','topic'='fl-c-{RUN}','properties.bootstrap.servers'='{BOOTSTRAP}','format'='json',
        'sink.delivery-guarantee'='exactly-once','sink.transactional-id-prefix'='fl-c-{RUN}',
        'properties.transaction.timeout.ms'='60000','scan.startup.mode'='earliest-offset',
        'scan.bounded.mode'='latest-offset','properties.isolation.level'='read_committed',
        'properties.group.id'='fl-c-{RUN}')""")
    t.execute_sql("INSERT INTO e SELECT n FROM g").wait()
    r = rows(t, "SELECT COUNT(*), COUNT(DISTINCT n), MIN(n), MAX(n) FROM e")
    assert r[-1][-4:] == (2000, 2000, 1, 2000), r[-1]
    return r[-1]


ok = bad = 0
for c in sys.argv[3:] or ["a"]:
    t0 = time.time()
    try:
        r = globals()["case_" + c]()
        ok += 1
        print(f"ok flink-{c} ({time.time() - t0:.1f} s) {str(r)[:150]}", flush=True)
    except Exception as e:
        bad += 1
        print(f"not ok flink-{c} ({time.time() - t0:.1f} s) {type(e).__name__}: {str(e)[-1500:]}", flush=True)
print(f"{ok} passed, {bad} failed")
sys.exit(bad > 0)
