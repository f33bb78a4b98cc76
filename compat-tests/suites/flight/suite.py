"""suite.py BOOTSTRAP FLIGHT : tables through pyarrow.flight and ADBC, filled by confluent-kafka."""
import json, os, sys, traceback, uuid

import adbc_driver_flightsql
import adbc_driver_flightsql.dbapi as dbapi
import adbc_driver_manager
import pyarrow
import pyarrow.flight as flight
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

BS, FLIGHT = sys.argv[1:3]
UID = uuid.uuid4().hex[:10]
T0 = 1_700_000_000_000
PARTITIONS = 3
RAW = f'fl-raw-{UID}'
EMPTY = f'fl-empty-{UID}'
TYPED = f'fl-typed-{UID}'
HEADERS = [('tag', b'a'), ('tag', b''), ('none', None)]


def equal(what, wanted, got):
    if wanted != got:
        raise AssertionError(f'{what}: got {str(got)[:300]!r}, not {str(wanted)[:300]!r}')


def refused(kind, f):
    try:
        f()
    except kind as e:
        return e
    raise AssertionError(f'not refused with {kind.__name__}')


def fill():
    """Produces with every codec; returns the rows as a scan should show them, by partition and offset."""
    admin = AdminClient({'bootstrap.servers': BS})
    topics = [NewTopic(RAW, PARTITIONS, 1), NewTopic(EMPTY, 2, 1),
              NewTopic(TYPED, 1, 1, config={'table.schema': 'id BIGINT NOT NULL, name STRING, price DECIMAL(10, 2), at TIMESTAMP(3)'})]
    for made in admin.create_topics(topics, request_timeout=15).values():
        made.result(20)
    rows = {}

    def send(p, topic, partition, key, value, headers, timestamp):
        def done(error, message):
            if error is None:
                rows[(message.topic(), partition, message.offset())] = (key, value, headers, timestamp)
        p.produce(topic, key=key, value=value, partition=partition, headers=headers, timestamp=timestamp, on_delivery=done)

    n = 0
    for codec in ('none', 'gzip', 'snappy', 'lz4', 'zstd'):
        p = Producer({'bootstrap.servers': BS, 'compression.type': codec, 'linger.ms': 20})
        for i in range(3000):
            send(p, RAW, i % PARTITIONS, f'k{i}'.encode(), f'{codec}-{i}-'.encode() + b'x' * 50, [], T0 + i)
            n += 1
        for key, value in ((None, b''), (b'', None), (None, None)):
            send(p, RAW, 0, key, value, HEADERS, T0)
            n += 1
        equal('not flushed', 0, p.flush(30))
    p = Producer({'bootstrap.servers': BS})
    p.produce(TYPED, value=b'{"id": 1, "name": "a", "price": 9.5, "at": "2026-01-02 03:04:05"}')
    p.produce(TYPED, value=b'{"id": 2}')
    equal('not flushed', 0, p.flush(30))
    equal('delivered', n, len(rows))
    return rows


ROWS = {}


def as_rows(table):
    found = {}
    for row in table.to_pylist():
        headers = [(h['key'], h['value']) for h in row['headers']]
        at = row['timestamp']
        ms = round(at.timestamp() * 1000)
        found[(RAW, row['_bucket'], row['_log_offset'])] = (row['key'], row['value'], headers, ms)
    return found


def client():
    return flight.connect(f'grpc://{FLIGHT}')


def descriptor(table):
    return flight.FlightDescriptor.for_path('default', table)


def read(c, info):
    tables = [c.do_get(endpoint.ticket).read_all() for endpoint in info.endpoints]
    for table in tables:
        equal('schema of an endpoint', info.schema, table.schema)
    return pyarrow.concat_tables(tables)


def listed():
    with client() as c:
        names = [tuple(part.decode() for part in info.descriptor.path) for info in c.list_flights()]
        equal('flights', True, {('default', RAW), ('default', EMPTY), ('default', TYPED)} <= set(names))


def schemas():
    with client() as c:
        for table in (RAW, EMPTY, TYPED):
            equal(table, c.get_flight_info(descriptor(table)).schema, c.get_schema(descriptor(table)).schema)


def by_path():
    with client() as c:
        info = c.get_flight_info(descriptor(RAW))
        equal('endpoints', PARTITIONS, len(info.endpoints))
        equal('locations', [[]] * PARTITIONS, [endpoint.locations for endpoint in info.endpoints])
        equal('rows', ROWS, as_rows(read(c, info)))


def empty():
    with client() as c:
        table = read(c, c.get_flight_info(descriptor(EMPTY)))
        equal('rows and columns', (0, 6), (table.num_rows, table.num_columns))


def typed():
    with client() as c:
        found = read(c, c.get_flight_info(descriptor(TYPED))).to_pylist()
    equal('rows', [1, 2], [row['id'] for row in found])
    equal('first', ('a', '9.50', '2026-01-02 03:04:05'), (found[0]['name'], str(found[0]['price']), str(found[0]['at'])))
    equal('second', [None, None, None], [found[1][column] for column in ('name', 'price', 'at')])


def refusals():
    with client() as c:
        refused(KeyError, lambda: c.get_schema(descriptor('no-such-table')))
        bad = bytearray(c.get_flight_info(descriptor(RAW)).endpoints[0].ticket.ticket)
        bad[-1] ^= 1
        refused(pyarrow.ArrowInvalid, lambda: c.do_get(flight.Ticket(bytes(bad))).read_all())


def token():
    with client() as c:
        header = c.authenticate_basic_token('anyone', 'anything')
        options = flight.FlightCallOptions(headers=[header])
        equal('columns', 6, len(c.get_schema(descriptor(RAW), options).schema))


def connect():
    return dbapi.connect(f'grpc://{FLIGHT}', autocommit=True)


def adbc_select():
    with connect() as conn, conn.cursor() as cursor:
        cursor.execute(f'SELECT * FROM "{RAW}"')
        equal('rows', ROWS, as_rows(cursor.fetch_arrow_table()))
        cursor.execute(f'SELECT * FROM default."{RAW}" LIMIT 10')
        equal('with a limit', 10, len(cursor.fetchall()))
        cursor.execute(f'SELECT * FROM "{EMPTY}"')
        equal('of an empty table', [], cursor.fetchall())


def adbc_browse():
    with connect() as conn:
        equal('vendor', 'Sluice', conn.adbc_get_info()['vendor_name'])
        equal('table types', ['TABLE'], conn.adbc_get_table_types())
        objects = conn.adbc_get_objects(depth='columns', table_name_filter=RAW).read_all().to_pylist()
        catalog = {o['catalog_name']: o for o in objects}['sluice']
        schema = {s['db_schema_name']: s for s in catalog['catalog_db_schemas']}['default']
        [table] = schema['db_schema_tables']
        columns = [column['column_name'] for column in table['table_columns']]
        equal('columns', ['key', 'value', 'headers', 'timestamp', '_bucket', '_log_offset'], columns)
        equal('schema', columns, conn.adbc_get_table_schema(RAW, catalog_filter='sluice', db_schema_filter='default').names)


def adbc_refusals():
    with connect() as conn, conn.cursor() as cursor:
        refused(adbc_driver_manager.NotSupportedError, lambda: cursor.execute(f"COPY \"{RAW}\" TO 'x'"))
        refused(adbc_driver_manager.ProgrammingError, lambda: cursor.execute(f'SELECT nothing FROM "{RAW}"'))
        refused(adbc_driver_manager.ProgrammingError, lambda: cursor.execute('SELECT * FROM nowhere'))
        cursor.execute(f'SELECT * FROM "{TYPED}"')
        equal('after refusals', 2, len(cursor.fetchall()))


def update(cursor, text, *parameters):
    cursor.execute(text, *parameters)
    return cursor.fetchall() if cursor.description else cursor.rowcount


def adbc_tables():
    """What SQL makes and writes is what a Kafka consumer and a lookup see."""
    database, table = f'fl_{UID}', 'orders'
    with connect() as conn, conn.cursor() as cursor:
        update(cursor, f'CREATE DATABASE {database}')
        update(cursor, f'''CREATE TABLE {database}.{table} (order_id BIGINT, status STRING, total DECIMAL(18, 2),
            PRIMARY KEY (order_id) NOT ENFORCED) WITH ('bucket.num' = '4')''')
        update(cursor, f"INSERT INTO {database}.{table} VALUES (1, 'new', 12.50), (2, 'new', 7)")
        cursor.executemany(f'INSERT INTO {database}.{table} (order_id, status) VALUES (?, ?)', [(2, 'paid'), (3, "it's")])
        update(cursor, f'DELETE FROM {database}.{table} WHERE order_id = 1')
        cursor.execute(f'SELECT order_id, status, CAST(total AS STRING) FROM {database}.{table} ORDER BY order_id')
        equal('rows', [(2, 'paid', '7.00'), (3, "it's", None)], cursor.fetchall())
        cursor.execute(f'SELECT status FROM {database}.{table} WHERE order_id = ?', (3,))
        equal('by parameter', [("it's",)], cursor.fetchall())
    c = Consumer({'bootstrap.servers': BS, 'group.id': UID, 'auto.offset.reset': 'earliest', 'enable.partition.eof': True})
    c.assign([TopicPartition(f'{database}.{table}', p, 0) for p in range(4)])
    state, ends = {}, 0
    while ends < 4:
        m = c.poll(20)
        if m is None:
            raise AssertionError('the end does not come')
        if m.error():
            equal('error', KafkaError._PARTITION_EOF, m.error().code())
            ends += 1
            continue
        key, value = int.from_bytes(m.key(), 'big'), m.value()
        state.pop(key, None)
        if value is not None:
            state[key] = json.loads(value)
    c.close()
    equal('by Kafka', {2: 'paid', 3: "it's"}, {key: value['status'] for key, value in state.items()})
    with client() as c:
        ticket = json.dumps({'lookup': {'table': f'{database}.{table}', 'keys': [[3], [1]]}})
        found = c.do_get(flight.Ticket(ticket)).read_all().to_pylist()
        equal('by key', [("it's", True), (None, False)], [(row['status'], row['__found']) for row in found])


def adbc_ingest():
    table = f'fl_ingest_{UID}'
    rows = pyarrow.table({'a': pyarrow.array([1, 2, None], pyarrow.int32()), 'b': ['x', None, 'z'],
                          'at': pyarrow.array([0, 1, None], pyarrow.timestamp('us'))})
    with connect() as conn, conn.cursor() as cursor:
        equal('rows', 3, cursor.adbc_ingest(table, rows, mode='create'))
        equal('rows', 3, cursor.adbc_ingest(table, rows, mode='append'))
        refused(adbc_driver_manager.Error, lambda: cursor.adbc_ingest(table, rows, mode='create'))
        refused(adbc_driver_manager.Error, lambda: cursor.adbc_ingest(table, pyarrow.table({'c': [1]}), mode='append'))
        cursor.execute(f'SELECT * FROM {table}')
        equal('table', rows, cursor.fetch_arrow_table().slice(0, 3))
        cursor.execute(f'SELECT COUNT(*), SUM(a) FROM {table}')
        equal('sum', [(6, 6)], cursor.fetchall())


def pyarrow_puts():
    table = f'fl_put_{UID}'
    with connect() as conn, conn.cursor() as cursor:
        update(cursor, f'CREATE TABLE {table} (k INT, v STRING, PRIMARY KEY (k) NOT ENFORCED)')
    schema = pyarrow.schema([pyarrow.field('k', pyarrow.int32(), nullable=False), pyarrow.field('v', pyarrow.string())])

    def put(descriptor, *batches):
        writer, reader = c.do_put(descriptor, schema)
        for batch in batches:
            writer.write_table(pyarrow.table(batch, schema=schema))
        writer.done_writing()
        told = []
        while (buffer := reader.read()) is not None:
            told.append(json.loads(buffer.to_pybytes()))
        writer.close()
        return told

    with client() as c:
        told = put(descriptor(table), {'k': [1, 2], 'v': ['a', None]}, {'k': [2], 'v': ['b']})
        equal('places', [{'rows': 2, 'offsets': {'0': 2}}, {'rows': 1, 'offsets': {'0': 4}}], told)
        delete = flight.FlightDescriptor.for_command(json.dumps({'put': {'table': table, 'mode': 'delete'}}))
        equal('a delete', [{'rows': 1, 'offsets': {'0': 5}}], put(delete, {'k': [1], 'v': [None]}))
        equal('rows', [{'k': 2, 'v': 'b'}], read(c, c.get_flight_info(descriptor(table))).to_pylist())
        command = flight.FlightDescriptor.for_command(json.dumps({'lookup': {'table': table}}))
        writer, reader = c.do_exchange(command)
        with writer:
            writer.begin(pyarrow.schema([pyarrow.field('k', pyarrow.int32())]))
            for n in range(100):
                writer.write_with_metadata(pyarrow.record_batch({'k': pyarrow.array([n, 2], pyarrow.int32())}), str(n).encode())
            writer.done_writing()
            for n in range(100):
                chunk = reader.read_chunk()
                equal('its batch', str(n).encode(), chunk.app_metadata.to_pybytes())
                equal('found', [n == 2, True], chunk.data.column('__found').to_pylist())


CASES = {'pyarrow-list-flights': listed, 'pyarrow-schemas': schemas, 'pyarrow-read-by-path': by_path, 'pyarrow-empty-table': empty,
         'pyarrow-typed-table': typed, 'pyarrow-refusals': refusals, 'pyarrow-basic-token': token, 'adbc-select-star': adbc_select,
         'adbc-browse': adbc_browse, 'adbc-refusals': adbc_refusals, 'adbc-tables': adbc_tables, 'adbc-ingest': adbc_ingest, 'pyarrow-puts-and-lookups': pyarrow_puts}


def main():
    print(f'# pyarrow {pyarrow.__version__}, adbc-driver-flightsql {adbc_driver_flightsql.__version__}')
    ROWS.update({key: row for key, row in fill().items() if key[0] == RAW})
    bad = 0
    for name, f in CASES.items():
        if os.environ.get('ONLY', '') not in name:
            continue
        try:
            f()
            print(f'ok {name}')
        except BaseException as e:  # noqa: BLE001 - reported here
            traceback.print_exc()
            print(f'not ok {name} ' + ' '.join(f'{type(e).__name__}: {e}'.split()))
            bad += 1
    sys.exit(1 if bad else 0)


main()
