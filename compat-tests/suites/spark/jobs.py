"""jobs.py BOOTSTRAP JARS [CASE...]: PySpark on local[2] against a Kafka-compatible server.

Cases (default batch and stream): batch, stream, headers.
One line a case, then "<passed> passed, <failed> failed"; exit status 0 when none failed.
"""
import glob, json, shutil, sys, tempfile, time, uuid
from pyspark.sql import SparkSession

BOOTSTRAP, JARS = sys.argv[1:3]
RUN = uuid.uuid4().hex[:6]
WORK = tempfile.mkdtemp(prefix="jobs-")
CONNECTOR = ("spark-sql-kafka", "spark-token-provider", "kafka-clients", "commons-pool2")
spark = (
    SparkSession.builder.master("local[2]")
    .appName("jobs")
    .config("spark.ui.enabled", "false")
    .config("spark.ui.showConsoleProgress", "false")
    .config("spark.sql.shuffle.partitions", "2")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.jars", ",".join(j for n in CONNECTOR for j in sorted(glob.glob(f"{JARS}/{n}*.jar"))))
    .config("spark.sql.warehouse.dir", WORK + "/warehouse")
    .getOrCreate()
)
spark.sparkContext.setLogLevel("ERROR")
K = {"kafka.bootstrap.servers": BOOTSTRAP}


def write(df, topic):
    df.write.format("kafka").options(**K, topic=topic).save()


def batch():
    t = f"sp-b-{RUN}"
    write(spark.range(1000).selectExpr("cast(id as string) key", "concat('v', id) value"), t)
    d = spark.read.format("kafka").options(**K, subscribe=t, startingOffsets="earliest", endingOffsets="latest").load()
    n, k = d.selectExpr("count(*)", "count(distinct cast(key as string))").first()
    assert (n, k) == (1000, 1000), (n, k)
    # offsets by number in partition 0, all of the others (Spark wants every partition named)
    others = {str(r[0]) for r in d.select("partition").distinct().collect()} - {"0"}
    start = json.dumps({t: {"0": 10, **dict.fromkeys(others, -2)}})
    end = json.dumps({t: {"0": 20, **dict.fromkeys(others, -1)}})
    d2 = spark.read.format("kafka").options(**K, subscribe=t, startingOffsets=start, endingOffsets=end).load()
    d2 = d2.where("partition = 0").count()
    assert d2 == 10, d2
    d3 = (
        spark.read.format("kafka")
        .options(**K, subscribePattern=f"sp-b-{RUN}.*", startingTimestamp="0", endingOffsets="latest")
        .load()
        .count()
    )
    assert d3 == 1000, d3
    return n, d2, d3


def headers():
    t = f"sp-h-{RUN}"
    df = spark.sql("select 'k' key, 'v' value, array(struct('h1' as key, cast('x' as binary) as value)) headers")
    df.write.format("kafka").options(**K, topic=t).option("includeHeaders", "true").save()
    r = spark.read.format("kafka").options(**K, subscribe=t, includeHeaders="true").load().first()
    assert r.headers[0].key == "h1" and bytes(r.headers[0].value) == b"x", r
    return r.headers


def stream():
    s, t = f"sp-s-{RUN}", f"sp-t-{RUN}"

    def put(a, b):
        write(spark.range(a, b).selectExpr("cast(id % 7 as string) key", "cast(id as string) value"), s)

    def copy():
        q = (
            spark.readStream.format("kafka")
            .options(**K, subscribe=s, startingOffsets="earliest", maxOffsetsPerTrigger="200")
            .load()
            .selectExpr("cast(key as string) key", "cast(value as string) value")
            .writeStream.format("kafka")
            .options(**K, topic=t)
            .option("checkpointLocation", WORK + "/copy")
            .trigger(availableNow=True)
            .start()
        )
        q.awaitTermination(120)
        e = q.exception()
        if e:
            raise e
        return [p["numInputRows"] for p in q.recentProgress]

    put(0, 500)
    p1 = copy()
    put(500, 800)
    p2 = copy()  # goes on from the checkpoint
    n, k = (
        spark.read.format("kafka")
        .options(**K, subscribe=t)
        .load()
        .selectExpr("count(*)", "count(distinct cast(value as string))")
        .first()
    )
    assert (n, k) == (800, 800), (n, k, p1, p2)
    q = (
        spark.readStream.format("kafka")
        .options(**K, subscribe=t, startingOffsets="earliest")
        .load()
        .selectExpr("cast(key as string) key")
        .groupBy("key")
        .count()
        .writeStream.format("memory")
        .queryName("agg")
        .outputMode("complete")
        .option("checkpointLocation", WORK + "/agg")
        .trigger(processingTime="1 second")
        .start()
    )
    q.processAllAvailable()
    q.stop()
    total = spark.sql("select sum(count) from agg").first()[0]
    assert total == 800, total
    return p1, p2, total


ok = bad = 0
for c in sys.argv[3:] or ["batch", "stream"]:
    t0 = time.time()
    try:
        r = globals()[c]()
        ok += 1
        print(f"ok spark-{c} ({time.time() - t0:.1f} s) {str(r)[:150]}", flush=True)
    except Exception as e:
        bad += 1
        print(f"not ok spark-{c} ({time.time() - t0:.1f} s) {type(e).__name__}: {str(e)[:1500]}", flush=True)
spark.stop()
shutil.rmtree(WORK, ignore_errors=True)
print(f"{ok} passed, {bad} failed")
sys.exit(bad > 0)
