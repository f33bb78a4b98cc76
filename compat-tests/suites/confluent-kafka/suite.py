"""suite.py BOOTSTRAP : confluent-kafka's producer, consumer and admin client, as an application uses them."""
import collections, os, random, sys, threading, time, traceback, uuid

from confluent_kafka import (Consumer, ConsumerGroupTopicPartitions, ConsumerGroupState, KafkaError, KafkaException, Producer,
                             TopicCollection, TopicPartition, TIMESTAMP_CREATE_TIME, libversion, version)
from confluent_kafka.admin import (AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewPartitions, NewTopic, OffsetSpec)

BS = sys.argv[1]
UID = uuid.uuid4().hex[:10]
T0 = 1_700_000_000_000
admin = AdminClient({'bootstrap.servers': BS, 'client.id': 'suite-admin'})


def equal(what, wanted, got):
    if wanted != got:
        raise AssertionError(f'{what}: got {str(got)[:200]!r}, not {str(wanted)[:200]!r}')


def wait(f, seconds=20):
    return f.result(timeout=seconds)


def all_of(futures):
    return {k: wait(f) for k, f in futures.items()}


def until(what, test, seconds=20):
    end = time.time() + seconds
    while time.time() < end:
        if test():
            return
        time.sleep(0.1)
    raise AssertionError(what() if callable(what) else what)


def served(topic, partitions):
    """Waits until each partition answers."""
    end = time.time() + 20
    while True:
        try:
            fresh = AdminClient({'bootstrap.servers': BS})  # has no older view of the cluster; held until it has answered
            return all_of(fresh.list_offsets({TopicPartition(topic, p): OffsetSpec.latest() for p in range(partitions)}, request_timeout=10))
        except KafkaException:
            if time.time() > end:
                raise
            time.sleep(0.3)


def topic(name, partitions=1, **config):
    t = f'py-{name}-{UID}'
    all_of(admin.create_topics([NewTopic(t, partitions, 1, config=config)], request_timeout=15))
    served(t, partitions)
    return t


def producer(**kw):
    return Producer({'bootstrap.servers': BS, 'message.timeout.ms': 20000, 'linger.ms': 20, **{k.replace('_', '.'): v for k, v in kw.items()}})


def consumer(**kw):
    return Consumer({'bootstrap.servers': BS, 'auto.offset.reset': 'earliest', 'enable.auto.commit': False, 'group.id': f'py-none-{UID}',
                     **{k.replace('_', '.'): v for k, v in kw.items()}})


def produce(p, t, rows):
    """rows: (partition, key, value, headers, timestamp). Returns the reports in order of sending."""
    out = [None] * len(rows)

    def report(i):
        def cb(err, msg):
            out[i] = (err, msg.offset())
        return cb
    for i, (part, k, v, h, ts) in enumerate(rows):
        p.produce(t, partition=part, key=k, value=v, headers=h, timestamp=ts, on_delivery=report(i))
        if i % 1000 == 0:
            p.poll(0)
    equal('not delivered', 0, p.flush(25))
    for err, _ in out:
        if err is not None:
            raise AssertionError(f'delivery: {err}')
    return [o for _, o in out]


def fill(t, partitions, a, b):
    return produce(producer(enable_idempotence=True), t, [(i % partitions, b'k%d' % i, b'%d' % i, None, T0 + i) for i in range(a, b)])


def read(t, partitions, n, seconds=20, start=0, **kw):
    c = consumer(**kw)
    try:
        c.assign([TopicPartition(t, p, start) for p in range(partitions)])
        got, end = [], time.time() + seconds
        while len(got) < n and time.time() < end:
            for m in c.consume(1000, 0.2):
                if m.error():
                    raise AssertionError(m.error())
                got.append(m)
        got += [m for m in c.consume(10, 0.05)]
        return got
    finally:
        c.close()


def round_trip(acks, codec):
    t = topic(f'{codec}{acks}')
    noise = random.Random(7).randbytes(3000)
    rows = []
    for i in range(40):
        key = None if i % 5 == 0 else b'' if i % 5 == 1 else b'key-%d' % i
        value = [None, b'', b'a sentence that compresses well; ' * 200, noise, 'värde'.encode(), b'x', b'\0' * 50][i % 7]
        headers = [('h', b'one'), ('h', b'two'), ('null', None), ('empty', b''), ('h', b'one')] if i % 3 == 0 else None
        rows.append((0, key, value, headers, T0 + i * 7919 % 1000))
    offsets = produce(producer(acks=acks, compression_type=codec), t, rows)
    if acks != 0:
        equal('offsets', list(range(40)), offsets)
    got = read(t, 1, 40)
    equal('records', 40, len(got))
    for i, (m, (_, k, v, h, ts)) in enumerate(zip(got, rows)):
        equal(f'record {i}', (i, k, v, h, (TIMESTAMP_CREATE_TIME, ts)), (m.offset(), m.key(), m.value(), m.headers(), m.timestamp()))


def idempotent():
    t = topic('idempotent', 4)
    n = 20000
    offsets = fill(t, 4, 0, n)
    equal('offsets', [i // 4 for i in range(n)], offsets)
    got = read(t, 4, n)
    equal('records', n, len(got))
    seen = collections.defaultdict(list)
    for m in got:
        seen[m.partition()].append(int(m.value()))
    for p in range(4):
        equal(f'order in {p}', list(range(p, n, 4)), seen[p])


def big():
    t = topic('big')
    data = random.Random(1).randbytes(900_000)
    produce(producer(), t, [(0, b'%d' % i, data, None, T0) for i in range(4)])
    got = read(t, 1, 4, fetch_message_max_bytes=1000)
    equal('records', [True] * 4, [m.value() == data for m in got])
    try:
        produce(producer(message_max_bytes=3_000_000), t, [(0, b'k', bytes(1_500_000), None, T0)])
    except AssertionError as e:
        if 'MSG_SIZE_TOO_LARGE' not in str(e):
            raise
    else:
        raise AssertionError('a record larger than max.message.bytes was taken')


def offsets():
    t = topic('offsets', 2)
    fill(t, 2, 0, 100)
    c = consumer()
    equal('watermarks', (0, 50), c.get_watermark_offsets(TopicPartition(t, 0), timeout=15))
    r = c.offsets_for_times([TopicPartition(t, 0, T0 + 41), TopicPartition(t, 1, T0 + 1000)], timeout=15)
    equal('offsets_for_times', [21, -1], [x.offset for x in r])
    c.close()
    r = all_of(admin.list_offsets({TopicPartition(t, 0): OffsetSpec.max_timestamp(), TopicPartition(t, 1): OffsetSpec.for_timestamp(T0 + 11)}))
    equal('list_offsets', {0: 49, 1: 5}, {k.partition: v.offset for k, v in r.items()})
    equal('list_offsets earliest', [0, 0], [v.offset for v in all_of(admin.list_offsets({TopicPartition(t, p): OffsetSpec.earliest() for p in (0, 1)})).values()])
    got = read(t, 1, 2, start=48)
    equal('from an offset', [(48, b'96'), (49, b'98')], [(m.offset(), m.value()) for m in got])
    got = read(t, 1, 50, start=1000)  # out of range: auto.offset.reset=earliest
    equal('after out of range', 50, len(got))


def commits():
    t, g = topic('commits'), f'py-commits-{UID}'
    fill(t, 1, 0, 30)
    c = consumer(group_id=g)
    equal('before', [-1001], [x.offset for x in c.committed([TopicPartition(t, 0)], timeout=15)])
    c.subscribe([t])
    got = []
    until(lambda: f'read {len(got)} of 30', lambda: got.extend(c.consume(12 - len(got), 0.2)) or len(got) >= 12)
    c.commit(message=got[-1], asynchronous=False)
    c.close()
    c = consumer(group_id=g)
    c.subscribe([t])
    more = []
    until(lambda: f'read {len(more)} of 18', lambda: more.extend(c.consume(100, 0.2)) or len(more) >= 18)
    equal('a restarted consumer goes on at', list(range(12, 30)), [m.offset() for m in more])
    c.commit(offsets=[TopicPartition(t, 0, 25, metadata='a note')], asynchronous=False)
    x = c.committed([TopicPartition(t, 0)], timeout=15)[0]
    equal('committed', (25, 'a note'), (x.offset, x.metadata))
    c.close()
    all_of(admin.delete_consumer_groups([g], request_timeout=15))


def administration():
    t = topic('admin', 2, **{'retention.ms': '3600000'})
    if t not in admin.list_topics(timeout=15).topics:
        raise AssertionError('not listed')
    equal('partitions', 2, len(all_of(admin.describe_topics(TopicCollection([t])))[t].partitions))
    try:
        all_of(admin.create_topics([NewTopic(t, 1, 1)], request_timeout=15))
        raise AssertionError('created twice')
    except KafkaException as e:
        equal('create again', KafkaError.TOPIC_ALREADY_EXISTS, e.args[0].code())
    all_of(admin.create_partitions([NewPartitions(t, 5)], request_timeout=15))
    until('5 partitions do not show', lambda: len(admin.list_topics(t, timeout=15).topics[t].partitions) == 5)
    served(t, 5)

    def retention():
        r = ConfigResource(ConfigResource.Type.TOPIC, t)
        return all_of(admin.describe_configs([r], request_timeout=15))[r]['retention.ms']
    equal('retention.ms', ('3600000', False), (retention().value, retention().is_default))
    for op, value, wanted in ((AlterConfigOpType.SET, '7200000', '7200000'), (AlterConfigOpType.DELETE, None, '604800000')):
        r = ConfigResource(ConfigResource.Type.TOPIC, t, incremental_configs=[ConfigEntry('retention.ms', value, incremental_operation=op)])
        all_of(admin.incremental_alter_configs([r], request_timeout=15))
        until(lambda: f'retention.ms after {op}: {retention().value}', lambda: retention().value == wanted, 5)
    fill(t, 5, 0, 50)
    r = all_of(admin.delete_records([TopicPartition(t, 0, 4), TopicPartition(t, 1, -1)], request_timeout=15))
    equal('low watermarks', {0: 4, 1: 10}, {k.partition: v.low_watermark for k, v in r.items()})
    r = all_of(admin.list_offsets({TopicPartition(t, 0): OffsetSpec.earliest()}))
    equal('first offset', [4], [v.offset for v in r.values()])
    equal('read after delete', 6, len(read(t, 1, 6)))
    c = wait(admin.describe_cluster(request_timeout=15))
    if not c.cluster_id or not c.nodes or c.controller is None:
        raise AssertionError('describe_cluster')
    all_of(admin.delete_topics([t], request_timeout=15))
    until('still listed', lambda: t not in admin.list_topics(timeout=15).topics)
    try:
        all_of(admin.delete_topics([t], request_timeout=15))
        raise AssertionError('deleted twice')
    except KafkaException as e:
        equal('delete again', KafkaError.UNKNOWN_TOPIC_OR_PART, e.args[0].code())


class Member(threading.Thread):
    def __init__(self, i, t, g, seen, **kw):
        super().__init__(daemon=True, name=f'member-{i}')
        self.owned, self.seen, self.over, self.error, self.refused = set(), seen, threading.Event(), None, 0
        self.c = consumer(group_id=g, client_id=self.name, **kw)
        self.t = t
        self.start()

    def run(self):
        try:
            def assigned(c, l):
                self.owned.update(x.partition for x in l)

            def revoked(c, l):
                self.owned.difference_update(x.partition for x in l)
            self.c.subscribe([self.t], on_assign=assigned, on_revoke=revoked, on_lost=revoked)
            while not self.over.is_set():
                l = self.c.consume(100, 0.2)
                for m in l:
                    if m.error():
                        raise AssertionError(m.error())
                    self.seen[(m.partition(), m.offset(), m.value())] += 1
                if l:
                    try:
                        self.c.commit(asynchronous=False)
                    except KafkaException as e:
                        if e.args[0].code() not in (KafkaError._NO_OFFSET, KafkaError.REBALANCE_IN_PROGRESS, KafkaError.ILLEGAL_GENERATION,
                                                    KafkaError.STALE_MEMBER_EPOCH, KafkaError._STATE):
                            raise
                        self.refused += len(l)
                        print(self.name, e, file=sys.stderr)
        except Exception as e:  # noqa: BLE001 - reported by the case
            traceback.print_exc()
            self.error = e
        finally:
            self.c.close()
            self.owned.clear()

    def leave(self):
        self.over.set()
        self.join(20)
        if self.is_alive():
            raise AssertionError(f'{self.name} does not close')


def owned(members, partitions, each):
    def done():
        for m in members:
            if m.error:
                raise AssertionError(f'{m.name}: {m.error}')
        sets = [set(m.owned) for m in members]
        return set().union(*sets) == set(range(partitions)) and sum(map(len, sets)) == partitions and min(map(len, sets)) >= each
    until(lambda: f'not every partition owned once: {[(m.name, sorted(m.owned)) for m in members]}', done, 30)


def group(name, **kw):
    t, g = topic(name, 6), f'py-{name}-{UID}'
    fill(t, 6, 0, 600)
    seen, members, gone = collections.Counter(), [], []
    try:
        for i in range(3):
            members.append(Member(i, t, g, seen, **kw))
        owned(members, 6, 2)
        d = all_of(admin.describe_consumer_groups([g], request_timeout=15))[g]
        equal('group', (3, ConsumerGroupState.STABLE), (len(d.members), d.state))
        if g not in [x.group_id for x in wait(admin.list_consumer_groups(request_timeout=15)).valid]:
            raise AssertionError('the group is not listed')
        fill(t, 6, 600, 1200)
        until(lambda: f'read {len(seen)} of 1200', lambda: len(seen) >= 1200)
        gone.append(members.pop(1))
        gone[0].leave()
        owned(members, 6, 3)
        fill(t, 6, 1200, 1800)
        until(lambda: f'read {len(seen)} of 1800 after one left', lambda: len(seen) >= 1800)
        while members:
            gone.append(members.pop())
            gone[-1].leave()
    finally:
        for m in members:
            m.over.set()
    equal('different values', 1800, len({v for _, _, v in seen}))
    # only what was read while a rebalance refused the commit may be read again
    twice, refused = sum(n - 1 for n in seen.values()), sum(m.refused for m in gone)
    if twice > refused:
        raise AssertionError(f'{twice} records read again, though the commits of only {refused} were refused')
    r = all_of(admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(g)], request_timeout=15))[g]
    equal('committed in all', 1800, sum(x.offset for x in r.topic_partitions))
    fill(t, 6, 1800, 1860)
    later = collections.Counter()
    m = Member(9, t, g, later, **kw)
    until(lambda: f'the fresh member read {len(later)} of 60', lambda: len(later) >= 60)
    time.sleep(0.3)
    m.leave()
    equal('read by the fresh member', 60, len(later))
    r = all_of(admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(g, [TopicPartition(t, 0, 7)])], request_timeout=15))[g]
    equal('altered', [None], [x.error for x in r.topic_partitions])
    r = all_of(admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(g, [TopicPartition(t, 0)])], request_timeout=15))[g]
    equal('offset after alter', [7], [x.offset for x in r.topic_partitions])
    all_of(admin.delete_consumer_groups([g], request_timeout=15))
    if g in [x.group_id for x in wait(admin.list_consumer_groups(request_timeout=15)).valid]:
        raise AssertionError('the group is still listed')


CASES = {f'produce-acks-{a}-{c}': (lambda a=a, c=c: round_trip(a, c)) for a in (0, 1, -1) for c in ('none', 'gzip', 'snappy', 'lz4', 'zstd')}
CASES |= {'idempotent-in-order': idempotent, 'big-records': big, 'offsets': offsets, 'commits': commits, 'admin': administration,
          'group-of-three-one-leaves': lambda: group('group', session_timeout_ms=10000, heartbeat_interval_ms=500),
          'group-of-three-cooperative': lambda: group('coop', session_timeout_ms=10000, heartbeat_interval_ms=500,
                                                      partition_assignment_strategy='cooperative-sticky')}
if os.environ.get('COMPAT_KIP848') == '1':
    CASES['group-of-three-newer-protocol'] = lambda: group('newer', group_protocol='consumer')
else:
    print('skip group-of-three-newer-protocol COMPAT_KIP848=1 runs it')


def main():
    print(f'# confluent-kafka {version()}, librdkafka {libversion()[0]}')
    bad = 0
    for name, f in CASES.items():
        if os.environ.get('ONLY', '') not in name:
            continue
        box = []

        def run():
            try:
                f()
            except BaseException as e:  # noqa: BLE001 - reported below
                traceback.print_exc()
                box.append(f'{type(e).__name__}: {e}')
            else:
                box.append(None)
        th = threading.Thread(target=run, daemon=True)
        th.start()
        th.join(60)
        why = box[0] if box else 'not done in 60 s'
        print(f'ok {name}' if why is None else f'not ok {name} ' + ' '.join(why.split()), flush=True)
        bad += why is not None
    sys.stdout.flush()
    os._exit(1 if bad else 0)


main()
