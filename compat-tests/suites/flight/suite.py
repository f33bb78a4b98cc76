"""suite.py BOOTSTRAP FLIGHT : tables through pyarrow.flight and ADBC, filled by confluent-kafka."""
import os, sys, traceback, uuid

import adbc_driver_flightsql
import adbc_driver_flightsql.dbapi as dbapi
import adbc_driver_manager
import pyarrow
import pyarrow.flight as flight
from confluent_kafka import Producer
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
        refused(adbc_driver_manager.NotSupportedError, lambda: cursor.execute(f'SELECT key FROM "{RAW}"'))
        refused(adbc_driver_manager.ProgrammingError, lambda: cursor.execute('SELECT * FROM nowhere'))
        cursor.execute(f'SELECT * FROM "{TYPED}"')
        equal('after refusals', 2, len(cursor.fetchall()))


CASES = {'pyarrow-list-flights': listed, 'pyarrow-schemas': schemas, 'pyarrow-read-by-path': by_path, 'pyarrow-empty-table': empty,
         'pyarrow-typed-table': typed, 'pyarrow-refusals': refusals, 'pyarrow-basic-token': token, 'adbc-select-star': adbc_select,
         'adbc-browse': adbc_browse, 'adbc-refusals': adbc_refusals}


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
