import java.time.Duration;
import java.util.*;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.fluss.client.*;
import org.apache.fluss.client.admin.Admin;
import org.apache.fluss.client.lookup.Lookuper;
import org.apache.fluss.client.metadata.KvSnapshots;
import org.apache.fluss.client.table.Table;
import org.apache.fluss.client.table.scanner.ScanRecord;
import org.apache.fluss.client.table.scanner.batch.BatchScanner;
import org.apache.fluss.client.table.scanner.log.*;
import org.apache.fluss.client.table.writer.UpsertWriter;
import org.apache.fluss.config.Configuration;
import org.apache.fluss.metadata.*;
import org.apache.fluss.row.*;
import org.apache.fluss.types.DataTypes;
import org.apache.fluss.utils.CloseableIterator;

/** Bench BOOTSTRAP [ROWS] [LOOKUPS] : a table with a primary key on Apache Fluss, the rows of tables_bench.rs. */
public class Bench {
    static final int BUCKETS = 3;

    static void rate(String what, long n, long t0) {
        double s = (System.nanoTime() - t0) / 1e9;
        System.out.printf("%-44s %9d rows %8.2f s %12.0f rows/s%n", what, n, s, n / s);
    }

    static long drain(BatchScanner s) throws Exception {
        long n = 0;
        try (s) {
            for (;;) {
                CloseableIterator<InternalRow> it = s.pollBatch(Duration.ofSeconds(10));
                if (it == null) return n;
                while (it.hasNext()) { it.next(); n++; }
                it.close();
            }
        }
    }

    static void upsert(String what, Table t, int rows, String[] payloads) throws Exception {
        UpsertWriter w = t.newUpsert().createWriter();
        AtomicLong errors = new AtomicLong();
        long t0 = System.nanoTime();
        for (int i = 0; i < rows; i++) {
            GenericRow r = new GenericRow(4);
            r.setField(0, i);
            r.setField(1, BinaryString.fromString("name-" + i));
            r.setField(2, BinaryString.fromString(payloads[i & 4095]));
            r.setField(3, (long) i * 7);
            w.upsert(r).whenComplete((x, e) -> { if (e != null) errors.incrementAndGet(); });
        }
        w.flush();
        rate(what, rows, t0);
        if (errors.get() != 0) throw new RuntimeException(errors + " upserts failed");
    }

    public static void main(String[] a) throws Exception {
        int rows = a.length > 1 ? Integer.parseInt(a[1]) : 500_000, lookups = a.length > 2 ? Integer.parseInt(a[2]) : 100_000;
        Configuration conf = new Configuration();
        conf.setString("bootstrap.servers", a[0]);
        conf.setString("client.writer.batch-timeout", "10ms");
        conf.setString("client.lookup.batch-timeout", "1ms");
        Random random = new Random(1);
        String[] payloads = new String[4096];
        for (int i = 0; i < payloads.length; i++) {
            StringBuilder b = new StringBuilder(72);
            while (b.length() < 72) b.append((char) ('a' + random.nextInt(26)));
            payloads[i] = b.toString();
        }
        try (Connection c = ConnectionFactory.createConnection(conf); Admin admin = c.getAdmin()) {
            admin.createDatabase("bench", DatabaseDescriptor.EMPTY, true).get();
            TablePath path = TablePath.of("bench", "f" + System.nanoTime());
            Schema schema = Schema.newBuilder().column("id", DataTypes.INT()).column("name", DataTypes.STRING())
                .column("payload", DataTypes.STRING()).column("v", DataTypes.BIGINT()).primaryKey("id").build();
            admin.createTable(path, TableDescriptor.builder().schema(schema).distributedBy(BUCKETS, "id").build(), false).get();
            try (Table t = c.getTable(path)) {
                upsert("upsert, Java client", t, rows, payloads);
                upsert("the same again: every row is an update", t, rows, payloads);
                Lookuper lookuper = t.newLookup().createLookuper();
                AtomicLong hits = new AtomicLong();
                Semaphore inFlight = new Semaphore(2000);
                long t0 = System.nanoTime();
                for (int i = 0; i < lookups; i++) {
                    int id = random.nextInt(rows);
                    GenericRow k = new GenericRow(1);
                    k.setField(0, id);
                    inFlight.acquire();
                    lookuper.lookup(k).whenComplete((r, e) -> {
                        if (e == null && r.getSingletonRow() != null && r.getSingletonRow().getLong(3) == id * 7L) hits.incrementAndGet();
                        inFlight.release();
                    });
                }
                inFlight.acquire(2000);
                rate("lookup, Java client, 2,000 in flight", lookups, t0);
                if (hits.get() != lookups) throw new RuntimeException(hits + " of " + lookups + " lookups were right");
                t0 = System.nanoTime();
                for (int i = 0; i < 2000; i++) {
                    GenericRow k = new GenericRow(1);
                    k.setField(0, i);
                    lookuper.lookup(k).get();
                }
                rate("lookup, Java client, one at a time", 2000, t0);
                try (LogScanner s = t.newScan().createLogScanner()) {
                    for (int b = 0; b < BUCKETS; b++) s.subscribeFromBeginning(b);
                    long n = 0;
                    t0 = System.nanoTime();
                    for (int empty = 0; n < 3L * rows && empty < 30; ) {
                        ScanRecords records = s.poll(Duration.ofSeconds(1));
                        if (records.isEmpty()) empty++;
                        for (ScanRecord r : records) n++;
                    }
                    rate("changelog, Java client", n, t0);
                }
                long until = System.currentTimeMillis() + 90_000, id = t.getTableInfo().getTableId();
                KvSnapshots snapshots;
                for (;;) {
                    snapshots = admin.getLatestKvSnapshots(path).get();
                    boolean all = true;
                    for (int b = 0; b < BUCKETS; b++) all &= snapshots.getSnapshotId(b).isPresent();
                    if (all || System.currentTimeMillis() > until) break;
                    Thread.sleep(1000);
                }
                long n = 0;
                t0 = System.nanoTime();
                for (int b = 0; b < BUCKETS; b++)
                    n += drain(t.newScan().createBatchScanner(new TableBucket(id, b), snapshots.getSnapshotId(b).getAsLong()));
                rate("snapshot, Java client", n, t0);
            }
        }
        System.exit(0);
    }
}
