// java -cp 'JARS/*' Clients.java BOOTSTRAP : Apache Kafka's Java producer, consumer and admin client, as an application uses them.
// Uses only what kafka-clients 3.0 has, so that the same file runs with older clients. Prints "ok CASE", "not ok CASE WHY", "skip CASE WHY".
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.*;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.*;

@SuppressWarnings({"deprecation", "removal"})
public class Clients {
  static String bootstrap, uid = Long.toString(System.nanoTime() & 0xffffffffL, 36) + ThreadLocalRandom.current().nextInt(1000);
  static Admin admin;
  static int failed;

  interface Case { void run() throws Exception; }

  static void test(String name, int seconds, Case c) {
    FutureTask<Void> task = new FutureTask<>(() -> { c.run(); return null; });
    Thread t = new Thread(task, name);
    t.setDaemon(true);
    t.start();
    try {
      task.get(seconds, TimeUnit.SECONDS);
      System.out.println("ok " + name);
    } catch (Throwable e) {
      Throwable cause = e instanceof ExecutionException ? e.getCause() : e;
      failed++;
      String why = e instanceof TimeoutException ? "not done in " + seconds + " s" : String.valueOf(cause);
      System.out.println("not ok " + name + " " + why.replaceAll("\\s+", " "));
      cause.printStackTrace();
    }
  }

  static void equal(String what, Object wanted, Object got) {
    if (!Objects.equals(wanted, got)) throw new AssertionError(what + ": got " + cut(got) + ", not " + cut(wanted));
  }
  static String cut(Object o) { String s = String.valueOf(o); return s.length() > 200 ? s.substring(0, 200) + "..." : s; }
  static void check(boolean b, String what) { if (!b) throw new AssertionError(what); }

  static byte[] b(String s) { return s == null ? null : s.getBytes(StandardCharsets.UTF_8); }

  static Map<String, Object> props(Object... kv) {
    Map<String, Object> m = new HashMap<>();
    m.put("bootstrap.servers", bootstrap);
    m.put("request.timeout.ms", "15000");
    m.put("default.api.timeout.ms", "20000");
    for (int i = 0; i < kv.length; i += 2) m.put((String) kv[i], kv[i + 1]);
    return m;
  }
  static KafkaProducer<byte[], byte[]> producer(Object... kv) {
    Map<String, Object> m = props(kv);
    m.remove("default.api.timeout.ms");
    m.putIfAbsent("delivery.timeout.ms", "20000");
    m.putIfAbsent("max.block.ms", "15000");
    return new KafkaProducer<>(m, new ByteArraySerializer(), new ByteArraySerializer());
  }
  static KafkaConsumer<byte[], byte[]> consumer(Object... kv) {
    Map<String, Object> m = props(kv);
    m.putIfAbsent("auto.offset.reset", "earliest");
    m.putIfAbsent("enable.auto.commit", "false");
    return new KafkaConsumer<>(m, new ByteArrayDeserializer(), new ByteArrayDeserializer());
  }
  static String topic(String name, int partitions) throws Exception {
    String t = "java-" + name + "-" + uid;
    admin.createTopics(List.of(new NewTopic(t, partitions, (short) 1))).all().get(20, TimeUnit.SECONDS);
    served(t, partitions);
    return t;
  }
  /** Waits until each partition answers: Kafka may refuse an idempotent producer's first batch and take its second while a topic is being made. */
  static void served(String t, int partitions) throws Exception {
    Map<TopicPartition, OffsetSpec> m = new HashMap<>();
    for (int p = 0; p < partitions; p++) m.put(new TopicPartition(t, p), OffsetSpec.latest());
    for (int i = 0; ; i++) {
      try { admin.listOffsets(m).all().get(20, TimeUnit.SECONDS); break; }
      catch (ExecutionException e) { if (i == 100) throw e; Thread.sleep(200); }
    }
  }

  static String show(byte[] v) { return v == null ? "null" : v.length > 40 ? v.length + ":" + Arrays.hashCode(v) : "'" + new String(v, StandardCharsets.UTF_8) + "'"; }
  static String show(byte[] key, byte[] value, Iterable<Header> headers, long timestamp) {
    StringBuilder s = new StringBuilder(show(key) + "=" + show(value) + " @" + timestamp);
    for (Header h : headers) s.append(' ').append(h.key()).append(':').append(show(h.value()));
    return s.toString();
  }

  static List<ProducerRecord<byte[], byte[]>> records(String topic) {
    String big = "a sentence that compresses well; ".repeat(200);
    byte[] noise = new byte[3000];
    new Random(7).nextBytes(noise);
    List<ProducerRecord<byte[], byte[]>> l = new ArrayList<>();
    long time = 1_700_000_000_000L;
    for (int i = 0; i < 40; i++) {
      byte[] key = i % 5 == 0 ? null : i % 5 == 1 ? new byte[0] : b("key-" + i);
      byte[] value = i % 7 == 0 ? null : i % 7 == 1 ? new byte[0] : i % 7 == 2 ? b(big + i) : i % 7 == 3 ? noise : b("värde-" + i);
      ProducerRecord<byte[], byte[]> r = new ProducerRecord<>(topic, 0, time + (i * 7919L) % 1000, key, value);
      if (i % 3 == 0) {
        r.headers().add("h", b("one")).add("h", b("two")).add("null", null).add("empty", new byte[0]).add("h", b("one"));
      }
      l.add(r);
    }
    return l;
  }

  /** All records of the topic's partitions up to their ends, by assign. */
  static List<ConsumerRecord<byte[], byte[]>> readAll(String topic, int partitions, int wanted) {
    List<ConsumerRecord<byte[], byte[]>> got = new ArrayList<>();
    try (KafkaConsumer<byte[], byte[]> c = consumer()) {
      List<TopicPartition> tps = new ArrayList<>();
      for (int p = 0; p < partitions; p++) tps.add(new TopicPartition(topic, p));
      c.assign(tps);
      c.seekToBeginning(tps);
      long end = System.nanoTime() + 15_000_000_000L;
      while (got.size() < wanted && System.nanoTime() < end) for (ConsumerRecord<byte[], byte[]> r : c.poll(Duration.ofMillis(300))) got.add(r);
      for (ConsumerRecord<byte[], byte[]> r : c.poll(Duration.ofMillis(50))) got.add(r);
    }
    return got;
  }

  static void roundTrip(String acks, String codec) throws Exception {
    String t = topic(codec + acks, 1);
    List<ProducerRecord<byte[], byte[]>> sent = records(t);
    List<String> wanted = new ArrayList<>(), got = new ArrayList<>();
    List<Future<RecordMetadata>> acked = new ArrayList<>();
    List<Object> kv = new ArrayList<>(List.of("acks", acks, "compression.type", codec, "linger.ms", "20"));
    if (!acks.equals("all")) kv.addAll(List.of("enable.idempotence", "false"));
    try (KafkaProducer<byte[], byte[]> p = producer(kv.toArray())) {
      for (ProducerRecord<byte[], byte[]> r : sent) acked.add(p.send(r));
    }
    for (int i = 0; i < sent.size(); i++) {
      RecordMetadata m = acked.get(i).get(1, TimeUnit.SECONDS);
      equal("acknowledged offset", acks.equals("0") ? -1L : (long) i, m.offset());
      ProducerRecord<byte[], byte[]> r = sent.get(i);
      wanted.add(i + " " + show(r.key(), r.value(), r.headers(), r.timestamp()));
    }
    for (ConsumerRecord<byte[], byte[]> r : readAll(t, 1, sent.size())) {
      got.add(r.offset() + " " + show(r.key(), r.value(), r.headers(), r.timestamp()));
      equal("timestamp type", "CreateTime", r.timestampType().toString());
      equal("serialized key size", r.key() == null ? -1 : r.key().length, r.serializedKeySize());
    }
    equal("records", wanted.size(), got.size());
    for (int i = 0; i < got.size(); i++) equal("record " + i, wanted.get(i), got.get(i));
  }

  static void fill(String t, int partitions, int from, int to) throws Exception {
    try (KafkaProducer<byte[], byte[]> p = producer()) {
      List<Future<RecordMetadata>> l = new ArrayList<>();
      for (int i = from; i < to; i++) l.add(p.send(new ProducerRecord<>(t, i % partitions, 1_700_000_000_000L + i, b("k" + i), b("" + i))));
      for (Future<RecordMetadata> f : l) f.get(20, TimeUnit.SECONDS);
    }
  }

  static void manyRecords() throws Exception {
    String t = topic("many", 4);
    int n = 20000;
    fill(t, 4, 0, n);
    int[] next = {0, 1, 2, 3};
    long[] offset = new long[4];
    List<ConsumerRecord<byte[], byte[]>> got = readAll(t, 4, n);
    equal("records", n, got.size());
    for (ConsumerRecord<byte[], byte[]> r : got) {
      equal("value in " + r.partition(), "" + next[r.partition()], new String(r.value()));
      equal("offset in " + r.partition(), offset[r.partition()]++, r.offset());
      next[r.partition()] += 4;
    }
  }

  static void bigRecords() throws Exception {
    String t = topic("big", 1);
    byte[] big = new byte[900_000];
    new Random(3).nextBytes(big);
    try (KafkaProducer<byte[], byte[]> p = producer("max.request.size", "2000000")) {
      for (int i = 0; i < 4; i++) p.send(new ProducerRecord<>(t, 0, b("" + i), big)).get(20, TimeUnit.SECONDS);
      try {
        p.send(new ProducerRecord<>(t, 0, b("too big"), new byte[1_500_000])).get(20, TimeUnit.SECONDS);
        throw new AssertionError("a record larger than max.message.bytes was taken");
      } catch (ExecutionException e) {
        equal("too big", "RecordTooLargeException", e.getCause().getClass().getSimpleName());
      }
    }
    try (KafkaConsumer<byte[], byte[]> c = consumer("max.partition.fetch.bytes", "1000")) { // a record larger than the limit still comes
      c.assign(List.of(new TopicPartition(t, 0)));
      int n = 0;
      for (int i = 0; i < 50 && n < 4; i++) for (ConsumerRecord<byte[], byte[]> r : c.poll(Duration.ofMillis(300))) { n++; check(Arrays.equals(big, r.value()), "a big value changed"); }
      equal("records", 4, n);
    }
  }

  static void offsets() throws Exception {
    String t = topic("offsets", 2);
    fill(t, 2, 0, 100);
    TopicPartition p0 = new TopicPartition(t, 0), p1 = new TopicPartition(t, 1);
    try (KafkaConsumer<byte[], byte[]> c = consumer()) {
      equal("partitionsFor", 2, c.partitionsFor(t).size());
      check(c.listTopics().containsKey(t), "listTopics");
      equal("endOffsets", Map.of(p0, 50L, p1, 50L), c.endOffsets(List.of(p0, p1)));
      equal("beginningOffsets", Map.of(p0, 0L, p1, 0L), c.beginningOffsets(List.of(p0, p1)));
      Map<TopicPartition, OffsetAndTimestamp> m = c.offsetsForTimes(Map.of(p0, 1_700_000_000_000L + 41, p1, 1_700_000_000_000L + 1000));
      equal("offsetsForTimes offset", 21L, m.get(p0).offset());
      equal("offsetsForTimes timestamp", 1_700_000_000_000L + 42, m.get(p0).timestamp());
      equal("offsetsForTimes after the end", null, m.get(p1));
      c.assign(List.of(p0, p1));
      c.seek(p0, 48); c.seekToEnd(List.of(p1));
      equal("position", 50L, c.position(p1));
      List<String> got = new ArrayList<>();
      for (int i = 0; i < 30 && got.size() < 2; i++) for (ConsumerRecord<byte[], byte[]> r : c.poll(Duration.ofMillis(300))) got.add(r.partition() + ":" + r.offset() + ":" + new String(r.value()));
      equal("after seek", List.of("0:48:96", "0:49:98"), got);
      c.seek(p0, 1000); // out of range: auto.offset.reset says earliest
      long first = -1;
      for (int i = 0; i < 30 && first < 0; i++) for (ConsumerRecord<byte[], byte[]> r : c.poll(Duration.ofMillis(300))) { if (first < 0) first = r.offset(); }
      equal("after out of range", 0L, first);
    }
    Map<TopicPartition, ListOffsetsResult.ListOffsetsResultInfo> l = admin.listOffsets(Map.of(p0, OffsetSpec.latest(), p1, OffsetSpec.earliest())).all().get(20, TimeUnit.SECONDS);
    equal("admin latest", 50L, l.get(p0).offset());
    equal("admin earliest", 0L, l.get(p1).offset());
    equal("admin max timestamp", 49L, admin.listOffsets(Map.of(p0, OffsetSpec.maxTimestamp())).partitionResult(p0).get(20, TimeUnit.SECONDS).offset());
  }

  static void commits() throws Exception {
    String t = topic("commits", 1), g = "java-commits-" + uid;
    fill(t, 1, 0, 30);
    TopicPartition p = new TopicPartition(t, 0);
    try (KafkaConsumer<byte[], byte[]> c = consumer("group.id", g)) {
      c.assign(List.of(p));
      equal("committed before", null, c.committed(Set.of(p)).get(p));
      c.commitSync(Map.of(p, new OffsetAndMetadata(12, Optional.of(0), "a note")));
      equal("committed", 12L, c.committed(Set.of(p)).get(p).offset());
      equal("metadata", "a note", c.committed(Set.of(p)).get(p).metadata());
    }
    try (KafkaConsumer<byte[], byte[]> c = consumer("group.id", g, "enable.auto.commit", "true")) {
      c.subscribe(List.of(t));
      long first = -1, last = -1;
      for (int i = 0; i < 50 && last < 29; i++) for (ConsumerRecord<byte[], byte[]> r : c.poll(Duration.ofMillis(300))) { if (first < 0) first = r.offset(); last = r.offset(); }
      equal("resumes at", 12L, first);
      equal("reads to", 29L, last);
    } // close commits
    equal("committed at close", 30L, admin.listConsumerGroupOffsets(g).partitionsToOffsetAndMetadata().get(20, TimeUnit.SECONDS).get(p).offset());
    admin.deleteConsumerGroups(List.of(g)).all().get(20, TimeUnit.SECONDS);
  }

  @SuppressWarnings("unchecked")
  static int partitions(String t) throws Exception {
    DescribeTopicsResult r = admin.describeTopics(List.of(t));
    java.lang.reflect.Method m; // 3.0 calls it values(), 4.0 and newer topicNameValues()
    try { m = r.getClass().getMethod("topicNameValues"); } catch (NoSuchMethodException e) { m = r.getClass().getMethod("values"); }
    return ((Map<String, org.apache.kafka.common.KafkaFuture<TopicDescription>>) m.invoke(r)).get(t).get(20, TimeUnit.SECONDS).partitions().size();
  }

  static void administration() throws Exception {
    String t = topic("admin", 2);
    equal("partitions", 2, partitions(t));
    check(admin.listTopics().names().get(20, TimeUnit.SECONDS).contains(t), "listTopics");
    admin.createPartitions(Map.of(t, NewPartitions.increaseTo(5))).all().get(20, TimeUnit.SECONDS);
    for (int i = 0; i < 20 && partitions(t) != 5; i++) Thread.sleep(200);
    equal("partitions after createPartitions", 5, partitions(t));
    served(t, 5);
    ConfigResource r = new ConfigResource(ConfigResource.Type.TOPIC, t);
    admin.incrementalAlterConfigs(Map.of(r, List.of(new AlterConfigOp(new ConfigEntry("retention.ms", "123456789"), AlterConfigOp.OpType.SET)))).all().get(20, TimeUnit.SECONDS);
    String v = "";
    for (int i = 0; i < 20 && !"123456789".equals(v); i++, Thread.sleep(100)) v = admin.describeConfigs(List.of(r)).all().get(20, TimeUnit.SECONDS).get(r).get("retention.ms").value();
    equal("retention.ms", "123456789", v);
    TopicPartition p = new TopicPartition(t, 0);
    fill(t, 5, 0, 50);
    equal("low watermark", 4L, admin.deleteRecords(Map.of(p, RecordsToDelete.beforeOffset(4))).all().get(20, TimeUnit.SECONDS) == null
        ? admin.listOffsets(Map.of(p, OffsetSpec.earliest())).partitionResult(p).get(20, TimeUnit.SECONDS).offset() : -1L);
    DescribeClusterResult cl = admin.describeCluster();
    check(!cl.nodes().get(20, TimeUnit.SECONDS).isEmpty() && cl.clusterId().get() != null && cl.controller().get() != null, "describeCluster");
    try { admin.createTopics(List.of(new NewTopic(t, 1, (short) 1))).all().get(20, TimeUnit.SECONDS); throw new AssertionError("created twice"); }
    catch (ExecutionException e) { equal("create again", "TopicExistsException", e.getCause().getClass().getSimpleName()); }
    admin.deleteTopics(List.of(t)).all().get(20, TimeUnit.SECONDS);
    try { admin.deleteTopics(List.of("java-none-" + uid)).all().get(20, TimeUnit.SECONDS); throw new AssertionError("deleted a topic that is not there"); }
    catch (ExecutionException e) { equal("delete unknown", "UnknownTopicOrPartitionException", e.getCause().getClass().getSimpleName()); }
    for (int i = 0; i < 20 && admin.listTopics().names().get(20, TimeUnit.SECONDS).contains(t); i++) Thread.sleep(200);
    check(!admin.listTopics().names().get(20, TimeUnit.SECONDS).contains(t), "still listed after deleteTopics");
  }

  /** A member of a group in its own thread: reads, notes what it read, commits synchronously. */
  static class Member extends Thread {
    final KafkaConsumer<byte[], byte[]> c;
    final AtomicBoolean stop = new AtomicBoolean();
    final Set<Integer> owned = ConcurrentHashMap.newKeySet();
    final Map<String, Integer> seen;
    volatile Throwable error;
    volatile long refused;
    Member(int i, String topic, String group, String protocol, Map<String, Integer> seen) {
      super("member-" + i);
      this.seen = seen;
      Map<String, Object> m = new HashMap<>(Map.of("group.id", group, "client.id", "member-" + i));
      if (protocol != null) m.put("group.protocol", protocol); else m.putAll(Map.of("heartbeat.interval.ms", "500", "session.timeout.ms", "10000"));
      List<Object> kv = new ArrayList<>();
      m.forEach((k, v) -> { kv.add(k); kv.add(v); });
      c = consumer(kv.toArray());
      c.subscribe(List.of(topic), new ConsumerRebalanceListener() {
        public void onPartitionsRevoked(Collection<TopicPartition> l) { for (TopicPartition p : l) owned.remove(p.partition()); }
        public void onPartitionsAssigned(Collection<TopicPartition> l) { for (TopicPartition p : l) owned.add(p.partition()); }
      });
      setDaemon(true);
      start();
    }
    public void run() {
      try {
        while (!stop.get()) {
          ConsumerRecords<byte[], byte[]> l = c.poll(Duration.ofMillis(200));
          for (ConsumerRecord<byte[], byte[]> r : l) seen.merge(r.partition() + ":" + r.offset() + ":" + new String(r.value()), 1, Integer::sum);
          try { if (!l.isEmpty()) c.commitSync(); }
          catch (CommitFailedException | org.apache.kafka.common.errors.RebalanceInProgressException e) { refused += l.count(); System.err.println(getName() + " " + e); }
        }
      } catch (Throwable e) { error = e; e.printStackTrace(); }
      finally { try { c.close(Duration.ofSeconds(10)); } catch (Throwable e) { if (error == null) error = e; } owned.clear(); }
    }
    void leave() throws Exception { stop.set(true); join(15000); check(!isAlive(), getName() + " does not close"); }
  }

  static String perPartition(Map<String, Integer> seen) {
    Map<String, Integer> m = new TreeMap<>();
    for (String k : seen.keySet()) m.merge(k.split(":")[0], 1, Integer::sum);
    return m.toString();
  }

  static void owned(List<Member> members, int partitions, int each) throws Exception {
    long end = System.nanoTime() + 25_000_000_000L;
    String s = "";
    while (System.nanoTime() < end) {
      Set<Integer> all = new TreeSet<>();
      int n = 0, least = partitions;
      s = "";
      for (Member m : members) {
        if (m.error != null) throw new AssertionError(m.getName() + " " + m.error);
        Set<Integer> o = new TreeSet<>(m.owned);
        all.addAll(o); n += o.size(); least = Math.min(least, o.size()); s += m.getName() + o + " ";
      }
      if (all.size() == partitions && n == partitions && least >= each) { System.err.println("assigned: " + s); return; }
      Thread.sleep(50);
    }
    throw new AssertionError("not every partition is owned once by " + members.size() + " members: " + s);
  }

  static void group(String name, String protocol) throws Exception {
    String t = topic(name, 6), g = "java-" + name + "-" + uid;
    fill(t, 6, 0, 600);
    Map<String, Integer> seen = new ConcurrentHashMap<>();
    List<Member> members = new ArrayList<>(), all = new ArrayList<>();
    try {
      for (int i = 0; i < 3; i++) members.add(new Member(i, t, g, protocol, seen));
      all.addAll(members);
      owned(members, 6, 2);
      ConsumerGroupDescription d = admin.describeConsumerGroups(List.of(g)).all().get(20, TimeUnit.SECONDS).get(g);
      equal("members", 3, d.members().size());
      equal("state", "Stable", d.state().toString());
      check(admin.listConsumerGroups().all().get(20, TimeUnit.SECONDS).stream().anyMatch(x -> x.groupId().equals(g)), "the group is not listed");
      fill(t, 6, 600, 1200);
      until(() -> seen.size() == 1200, () -> "read " + seen.size() + " of 1200: " + perPartition(seen));
      members.remove(1).leave();
      owned(members, 6, 3);
      fill(t, 6, 1200, 1800);
      until(() -> seen.size() == 1800, () -> "read " + seen.size() + " of 1800 after one left: " + perPartition(seen));
      for (Member m : members) m.leave();
    } finally { for (Member m : members) m.stop.set(true); }
    Set<String> values = new HashSet<>();
    for (String s : seen.keySet()) values.add(s.split(":")[2]);
    equal("different values", 1800, values.size());
    // only what was read while a rebalance refused the commit may be read again
    long twice = seen.values().stream().mapToLong(x -> x - 1).sum(), refused = all.stream().mapToLong(m -> m.refused).sum();
    check(twice <= refused, twice + " records read again, though the commits of only " + refused + " were refused");
    // a fresh member goes on where the group stopped
    long sum = 0;
    for (OffsetAndMetadata o : admin.listConsumerGroupOffsets(g).partitionsToOffsetAndMetadata().get(20, TimeUnit.SECONDS).values()) sum += o.offset();
    equal("committed in all", 1800L, sum);
    fill(t, 6, 1800, 1860);
    Map<String, Integer> later = new ConcurrentHashMap<>();
    Member m = new Member(9, t, g, protocol, later);
    try {
      until(() -> later.size() >= 60, () -> "the fresh member read " + later.size() + " of 60");
      Thread.sleep(300);
      equal("read by the fresh member", 60, later.size());
    } finally { m.leave(); }
    equal("state at the end", "Empty", admin.describeConsumerGroups(List.of(g)).all().get(20, TimeUnit.SECONDS).get(g).state().toString());
    admin.deleteConsumerGroups(List.of(g)).all().get(20, TimeUnit.SECONDS);
  }

  static void until(Callable<Boolean> c, Callable<String> why) throws Exception {
    long end = System.nanoTime() + 20_000_000_000L;
    while (!c.call()) { if (System.nanoTime() > end) throw new AssertionError(why.call()); Thread.sleep(50); }
  }

  public static void main(String[] args) throws Exception {
    bootstrap = args[0];
    String only = System.getenv().getOrDefault("ONLY", "");
    Properties about = new Properties();
    try (java.io.InputStream in = Producer.class.getResourceAsStream("/kafka/kafka-version.properties")) { about.load(in); }
    String version = about.getProperty("version");
    System.out.println("# kafka-clients " + version);
    admin = Admin.create(props());
    Map<String, Case> cases = new LinkedHashMap<>();
    for (String acks : List.of("0", "1", "all")) for (String codec : List.of("none", "gzip", "snappy", "lz4", "zstd"))
      cases.put("produce-acks-" + acks + "-" + codec, () -> roundTrip(acks, codec));
    cases.put("many-records-in-order", Clients::manyRecords);
    cases.put("big-records", Clients::bigRecords);
    cases.put("offsets", Clients::offsets);
    cases.put("commits", Clients::commits);
    cases.put("admin", Clients::administration);
    cases.put("group-of-three-one-leaves", () -> group("group", null));
    if (!version.startsWith("3.")) {
      if ("1".equals(System.getenv("COMPAT_KIP848"))) cases.put("group-of-three-newer-protocol", () -> group("newer", "consumer"));
      else System.out.println("skip group-of-three-newer-protocol COMPAT_KIP848=1 runs it");
    }
    cases.forEach((name, c) -> { if (name.contains(only)) test(name, 60, c); });
    admin.close(Duration.ofSeconds(5));
    System.exit(failed == 0 ? 0 : 1);
  }
}
