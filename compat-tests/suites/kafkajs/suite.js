// suite.js BOOTSTRAP : KafkaJS's producer, consumer and admin client, as an application uses them.
'use strict'
const assert = require('node:assert')
const crypto = require('node:crypto')
const { AssignerProtocol, CompressionCodecs, CompressionTypes, ConfigResourceTypes, Kafka, Partitioners, logLevel } = require('kafkajs')

const uid = crypto.randomBytes(5).toString('hex')
const T0 = 1700000000000
const kafka = new Kafka({
  clientId: 'suite', brokers: [process.argv[2]], logLevel: logLevel.ERROR, connectionTimeout: 5000, requestTimeout: 15000,
  retry: { initialRetryTime: 100, retries: 8, maxRetryTime: 1000 },
  logCreator: () => ({ log }) => console.error(log.message, log.error || ''),
})
const admin = kafka.admin()
const sleep = ms => new Promise(resolve => setTimeout(resolve, ms))
const str = b => (b === null || b === undefined ? b : b.length > 60 ? `${b.length}:${crypto.createHash('md5').update(b).digest('hex')}` : b.toString())

async function until(what, test, seconds = 20) {
  const end = Date.now() + seconds * 1000
  while (!(await test())) {
    if (Date.now() > end) throw new Error(typeof what === 'function' ? what() : what)
    await sleep(50)
  }
}

// Codecs KafkaJS leaves to packages; a package that could not be installed is a skipped case.
const codecs = { none: CompressionTypes.None, gzip: CompressionTypes.GZIP }
const missing = {}
async function load(name, type, make) {
  try {
    const codec = await make()
    CompressionCodecs[type] = () => codec
    codecs[name] = type
  } catch (e) {
    missing[name] = e.message.split('\n')[0]
  }
}
const loadCodecs = async () => {
  await load('snappy', CompressionTypes.Snappy, () => require('kafkajs-snappy')())
  await load('lz4', CompressionTypes.LZ4, () => {
    const lz4 = require('lz4-napi')
    return { compress: e => lz4.compressFrame(e.buffer), decompress: b => lz4.decompressFrame(b) }
  })
  await load('zstd', CompressionTypes.ZSTD, async () => {
    const zstd = require('@bokuweb/zstd-wasm')
    await zstd.init()
    return { compress: async e => Buffer.from(zstd.compress(e.buffer, 3)), decompress: async b => Buffer.from(zstd.decompress(b)) }
  })
}

async function topic(name, numPartitions = 1, configEntries = []) {
  const t = `js-${name}-${uid}`
  assert.strictEqual(await admin.createTopics({ topics: [{ topic: t, numPartitions, replicationFactor: 1, configEntries }], waitForLeaders: true, timeout: 15000 }), true)
  await served(t)
  return t
}
// Waits until each partition answers.
async function served(t) {
  for (let i = 0; ; i++) {
    try { return await admin.fetchTopicOffsets(t) } catch (e) { if (i === 100) throw e; await sleep(200) }
  }
}

async function produce(messages, t, options = {}, producerOptions = {}) {
  const p = kafka.producer({ createPartitioner: Partitioners.DefaultPartitioner, allowAutoTopicCreation: false, ...producerOptions })
  await p.connect()
  try { return await p.send({ topic: t, messages, timeout: 15000, ...options }) } finally { await p.disconnect() }
}
const fill = (t, partitions, a, b) => {
  const l = []
  for (let i = a; i < b; i++) l.push({ partition: i % partitions, key: `k${i}`, value: `${i}`, timestamp: `${T0 + i}` })
  return produce(l, t)
}

// Reads n records of a topic by a group of its own.
async function read(t, n, seek) {
  const c = kafka.consumer({ groupId: `js-read-${crypto.randomBytes(5).toString('hex')}`, sessionTimeout: 10000, heartbeatInterval: 500, maxWaitTimeInMs: 200 })
  const got = []
  await c.connect()
  try {
    await c.subscribe({ topic: t, fromBeginning: true })
    await c.run({ autoCommit: false, eachMessage: async ({ partition, message }) => { got.push({ partition, ...message }) } })
    if (seek) c.seek({ topic: t, ...seek })
    await until(() => `read ${got.length} of ${n}`, () => got.length >= n)
    await sleep(100)
  } finally { await c.disconnect() }
  return got
}

async function roundTrip(acks, codec) {
  const t = await topic(`${codec}${acks}`)
  const noise = crypto.randomBytes(3000)
  const values = [null, Buffer.alloc(0), Buffer.from('a sentence that compresses well; '.repeat(200)), noise, Buffer.from('värde'), Buffer.from('x'), Buffer.alloc(50)]
  const l = []
  for (let i = 0; i < 40; i++) {
    l.push({
      partition: 0, value: values[i % 7], timestamp: `${T0 + (i * 7919) % 1000}`,
      key: i % 5 === 0 ? null : i % 5 === 1 ? Buffer.alloc(0) : Buffer.from(`key-${i}`),
      headers: i % 3 === 0 ? { h: ['one', 'two', 'one'], empty: '' } : {},
    })
  }
  const r = await produce(l, t, { acks, compression: codecs[codec] })
  if (acks !== 0) assert.deepStrictEqual([r[0].errorCode, r[0].baseOffset], [0, '0'])
  const got = await read(t, 40)
  const show = (m, offset) => JSON.stringify([offset, str(m.key), str(m.value), m.timestamp,
    Object.entries(m.headers || {}).map(([k, v]) => [k, (Array.isArray(v) ? v : [v]).map(x => x.toString())])])
  assert.strictEqual(got.length, 40)
  got.forEach((m, i) => assert.strictEqual(show(m, m.offset), show(l[i], `${i}`)))
}

async function idempotent() {
  const t = await topic('idempotent', 4)
  const p = kafka.producer({ idempotent: true, maxInFlightRequests: 1, createPartitioner: Partitioners.DefaultPartitioner })
  await p.connect()
  for (let b = 0; b < 10; b++) {
    const messages = []
    for (let i = b * 1000; i < (b + 1) * 1000; i++) messages.push({ partition: i % 4, value: `${i}` })
    await p.send({ topic: t, messages })
  }
  await p.disconnect()
  const got = await read(t, 10000)
  assert.strictEqual(got.length, 10000)
  const next = [0, 1, 2, 3]
  for (const m of got) {
    assert.strictEqual(`${m.value} ${m.offset}`, `${next[m.partition]} ${Math.floor(next[m.partition] / 4)}`)
    next[m.partition] += 4
  }
}

async function offsets() {
  const t = await topic('offsets', 2)
  await fill(t, 2, 0, 100)
  const by = l => l.sort((a, b) => a.partition - b.partition).map(x => [x.offset, x.low, x.high].filter(v => v !== undefined).join(' '))
  assert.deepStrictEqual(by(await admin.fetchTopicOffsets(t)), ['50 0 50', '50 0 50'])
  assert.deepStrictEqual(by(await admin.fetchTopicOffsetsByTimestamp(t, T0 + 41)), ['21', '20'])
  const got = await read(t, 52, { partition: 0, offset: '48' })
  assert.deepStrictEqual(got.filter(m => m.partition === 0).map(m => `${m.offset} ${m.value}`), ['48 96', '49 98'])
}

async function administration() {
  const t = await topic('admin', 2, [{ name: 'retention.ms', value: '3600000' }])
  assert.ok((await admin.listTopics()).includes(t), 'not listed')
  const partitions = async () => (await admin.fetchTopicMetadata({ topics: [t] })).topics[0].partitions.length
  assert.strictEqual(await partitions(), 2)
  assert.strictEqual(await admin.createTopics({ topics: [{ topic: t, numPartitions: 1 }] }), false)
  await admin.createPartitions({ topicPartitions: [{ topic: t, count: 5 }], timeout: 15000 })
  await until('5 partitions do not show', async () => (await partitions()) === 5)
  await served(t)
  const retention = async () => {
    const r = await admin.describeConfigs({ includeSynonyms: false, resources: [{ type: ConfigResourceTypes.TOPIC, name: t }] })
    return r.resources[0].configEntries.find(c => c.configName === 'retention.ms').configValue
  }
  assert.strictEqual(await retention(), '3600000')
  await admin.alterConfigs({ validateOnly: false, resources: [{ type: ConfigResourceTypes.TOPIC, name: t, configEntries: [{ name: 'retention.ms', value: '7200000' }] }] })
  await until('retention.ms does not change', async () => (await retention()) === '7200000', 5)
  await fill(t, 5, 0, 50)
  await admin.deleteTopicRecords({ topic: t, partitions: [{ partition: 0, offset: '4' }] })
  assert.strictEqual((await admin.fetchTopicOffsets(t)).find(p => p.partition === 0).low, '4')
  const c = await admin.describeCluster()
  assert.ok(c.clusterId && c.brokers.length > 0 && c.controller !== null, 'describeCluster')
  await admin.deleteTopics({ topics: [t], timeout: 15000 })
  await until('still listed', async () => !(await admin.listTopics()).includes(t))
  await assert.rejects(admin.deleteTopics({ topics: [`js-none-${uid}`] }), /does not host this topic-partition/)
}

async function member(name, t, groupId, seen) {
  const m = { name, owned: [], c: kafka.consumer({ groupId, sessionTimeout: 10000, rebalanceTimeout: 10000, heartbeatInterval: 300, maxWaitTimeInMs: 200 }) }
  m.c.on(m.c.events.GROUP_JOIN, e => { m.owned = e.payload.memberAssignment[t] || [] })
  m.c.on(m.c.events.REBALANCING, () => { m.owned = [] })
  m.c.on(m.c.events.CRASH, e => { m.error = e.payload.error })
  await m.c.connect()
  await m.c.subscribe({ topic: t, fromBeginning: true })
  await m.c.run({
    partitionsConsumedConcurrently: 3,
    eachBatchAutoResolve: false,
    autoCommit: false,
    eachBatch: async ({ batch, resolveOffset, heartbeat, isRunning, isStale }) => {
      if (!isRunning() || isStale()) return
      for (const x of batch.messages) {
        const k = `${batch.partition}:${x.offset}`
        seen.set(k, (seen.get(k) || 0) + 1)
        resolveOffset(x.offset)
      }
      await m.c.commitOffsets([{ topic: t, partition: batch.partition, offset: `${BigInt(batch.lastOffset()) + 1n}` }])
      await heartbeat()
    },
  })
  return m
}

async function group() {
  const t = await topic('group', 6); const groupId = `js-group-${uid}`
  await fill(t, 6, 0, 600)
  const seen = new Map(); const members = []
  const owned = (each) => until(() => `not every partition is owned once: ${members.map(m => `${m.name}[${m.owned}]`)}`, () => {
    for (const m of members) if (m.error) throw m.error
    const l = members.flatMap(m => m.owned)
    return l.length === 6 && new Set(l).size === 6 && members.every(m => m.owned.length >= each)
  }, 30)
  try {
    for (let i = 0; i < 3; i++) members.push(await member(`member-${i}`, t, groupId, seen))
    await owned(2)
    const d = (await admin.describeGroups([groupId])).groups[0]
    assert.deepStrictEqual([d.members.length, d.state], [3, 'Stable'])
    const parts = d.members.flatMap(x => AssignerProtocol.MemberAssignment.decode(x.memberAssignment).assignment[t])
    assert.deepStrictEqual(parts.sort(), [0, 1, 2, 3, 4, 5])
    assert.ok((await admin.listGroups()).groups.some(g => g.groupId === groupId), 'the group is not listed')
    await fill(t, 6, 600, 1200)
    await until(() => `read ${seen.size} of 1200`, () => seen.size >= 1200)
    await members.splice(1, 1)[0].c.disconnect()
    await owned(3)
    await fill(t, 6, 1200, 1800)
    await until(() => `read ${seen.size} of 1800 after one left`, () => seen.size >= 1800)
  } finally {
    for (const m of members) await m.c.disconnect()
  }
  assert.strictEqual(seen.size, 1800)
  // a member that leaves may have read what it could no longer commit; others must not be many
  const twice = [...seen.values()].filter(n => n > 1).length
  assert.ok(twice <= 600, `${twice} records read twice`)
  const committed = async () => (await admin.fetchOffsets({ groupId, topics: [t] }))[0].partitions.reduce((s, p) => s + Number(p.offset), 0)
  assert.strictEqual(await committed(), 1800)
  await fill(t, 6, 1800, 1860)
  const later = new Map()
  const m = await member('member-9', t, groupId, later)
  try {
    await until(() => `the fresh member read ${later.size} of 60`, () => later.size >= 60)
    await sleep(300)
  } finally { await m.c.disconnect() }
  assert.strictEqual(later.size, 60)
  await admin.resetOffsets({ groupId, topic: t, earliest: true })
  assert.ok((await committed()) <= 0, 'resetOffsets')
  await admin.setOffsets({ groupId, topic: t, partitions: [{ partition: 0, offset: '7' }] })
  assert.strictEqual((await admin.fetchOffsets({ groupId, topics: [t] }))[0].partitions.find(p => p.partition === 0).offset, '7')
  await admin.deleteGroups([groupId])
  assert.ok(!(await admin.listGroups()).groups.some(g => g.groupId === groupId), 'the group is still listed')
}

async function main() {
  console.log(`# kafkajs ${require('kafkajs/package.json').version}, node ${process.version}`)
  await loadCodecs()
  await admin.connect()
  const cases = []
  for (const acks of [0, 1, -1]) {
    for (const codec of ['none', 'gzip', 'snappy', 'lz4', 'zstd']) {
      const name = `produce-acks-${acks}-${codec}`
      if (missing[codec]) console.log(`skip ${name} no codec package: ${missing[codec]}`)
      else cases.push([name, () => roundTrip(acks, codec)])
    }
  }
  cases.push(['idempotent-in-order', idempotent], ['offsets', offsets], ['admin', administration], ['group-of-three-one-leaves', group])
  let bad = 0
  for (const [name, f] of cases) {
    if (!name.includes(process.env.ONLY || '')) continue
    let timer
    try {
      await Promise.race([f(), new Promise((resolve, reject) => { timer = setTimeout(() => reject(new Error('not done in 60 s')), 60000) })])
      console.log(`ok ${name}`)
    } catch (e) {
      bad++
      console.error(e)
      console.log(`not ok ${name} ${String(e.message || e).replace(/\s+/g, ' ')}`)
    }
    clearTimeout(timer)
  }
  process.exit(bad ? 1 : 0)
}
main().catch(e => { console.log(`not ok client ${String(e.message).replace(/\s+/g, ' ')}`); process.exit(1) })
