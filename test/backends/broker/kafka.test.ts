import { createServer } from 'node:net'
import kafkajs from 'kafkajs'
import t from 'tap'
import { openBroker } from '../../../src/backends/broker/broker.ts'
import { brokerPromises, handled, ready } from '../../contracts/broker.ts'
import { runContract } from '../../contracts/run-contract.ts'
import { kafka } from '../../servers/kafka.ts'
import { recordingBroker, healthy, ownPrefix, publishUntilReceived, until, withAdmin } from './recording-broker.ts'
import { member } from './group-member.ts'
import { listening } from '../../fakes/listening.ts'

t.test('Kafka', async (t) => {
  const servers = await kafka(t)
  if (servers === null) return

  await t.test('it keeps the contract of a broker', (t) =>
    runContract(t, brokerPromises, async (t) => {
      const topicPrefix = ownPrefix(t, servers)
      return { producer: await recordingBroker(t, servers, { topicPrefix }), consumer: await recordingBroker(t, servers, { topicPrefix }) }
    }),
  )

  await t.test('every message of a burst is received, and the consumers share them', async (t) => {
    const topicPrefix = ownPrefix(t, servers)
    const [producer, one, other] = [await recordingBroker(t, servers, { topicPrefix }), await recordingBroker(t, servers, { topicPrefix }), await recordingBroker(t, servers, { topicPrefix })]
    for (const consumer of [one, other]) consumer.consume('image', handled)
    await Promise.all([healthy(one), healthy(other)])
    const startMs = performance.now()
    for (let id = 0; id < 2000; id++) producer.publish(ready('image', `task-${id}`))
    await until(() => one.count('received') + other.count('received') >= 2000)
    t.comment(`2000 messages received after ${Math.round(performance.now() - startMs)} ms: ${one.count('received')} and ${other.count('received')}`)
    await until(() => producer.count('published') === 2000)
    t.equal(producer.count('failed'), 0)
    t.ok(one.count('received') > 0 && other.count('received') > 0)
  })

  await t.test('latency of single messages', async (t) => {
    const topicPrefix = ownPrefix(t, servers)
    const [producer, consumer] = [await recordingBroker(t, servers, { topicPrefix }), await recordingBroker(t, servers, { topicPrefix })]
    let received = () => {}
    consumer.consume('image', async () => received())
    await healthy(consumer)
    const tookMs: number[] = []
    for (let id = 0; id < 200; id++) {
      const { promise, resolve } = Promise.withResolvers<void>()
      received = resolve
      const startMs = performance.now()
      producer.publish(ready('image', `task-${id}`))
      await promise
      tookMs.push(performance.now() - startMs)
    }
    tookMs.sort((a, b) => a - b)
    const at = (share: number) => tookMs[Math.floor(share * tookMs.length)]?.toFixed(1)
    t.comment(`published to received: p50 ${at(0.5)} ms, p90 ${at(0.9)} ms, p99 ${at(0.99)} ms`)
    t.equal(consumer.count('received'), 200)
  })

  await t.test('messages that the broker compresses by zstd are reported with what to do, once, and a topic that was deleted for them works', async (t) => {
    const topicPrefix = ownPrefix(t, servers)
    const topic = `${topicPrefix}image`
    const [producer, consumer] = [await recordingBroker(t, servers, { topicPrefix }), await recordingBroker(t, servers, { topicPrefix })]
    consumer.consume('image', handled)
    await publishUntilReceived(producer, consumer)
    const resource = { type: kafkajs.ConfigResourceTypes.TOPIC, name: topic }
    const compress = (value: string) => withAdmin(servers, (admin) => admin.alterConfigs({ validateOnly: false, resources: [{ ...resource, configEntries: [{ name: 'compression.type', value }] }] }))
    const reports = (what: string) => until(() => consumer.health().detail.startsWith(`the topic ${topic} has ${what}, which Tollgate cannot read: `))
    await compress('zstd')
    // A broker follows the change a moment later.
    const publishing = setInterval(() => producer.publish(ready('image', 'task')), 100)
    await reports('compression.type=zstd')
    clearInterval(publishing)
    await compress('producer')
    await reports('compressed messages (ZSTD compression not implemented)')
    const [restarts, warnings] = [consumer.count('restarted'), consumer.warnings.length]
    await until(() => consumer.count('restarted') > restarts + 1)
    t.equal(consumer.warnings.length, warnings)
    await withAdmin(servers, (admin) => admin.deleteTopics({ topics: [topic] }))
    await publishUntilReceived(producer, consumer)
    await healthy(consumer)
    const { resources } = await withAdmin(servers, (admin) => admin.describeConfigs({ includeSynonyms: false, resources: [{ ...resource, configNames: ['compression.type'] }] }))
    t.match(resources, [{ configEntries: [{ configValue: 'producer' }] }])
  })

  await t.test('the partitions of a killed member are taken over by the others', async (t) => {
    const topicPrefix = ownPrefix(t, servers)
    const [producer, survivor] = [await recordingBroker(t, servers, { topicPrefix }), await recordingBroker(t, servers, { topicPrefix })]
    const victim = member(t, producer.url)
    await victim.prints('healthy')
    survivor.consume('image', handled)
    await healthy(survivor)
    await victim.kill()
    // The key decides the partition, and half of the partitions were the victim's.
    for (let id = 0; id < 50; id++) producer.publish(ready('image', `task-${id}`))
    await until(() => survivor.count('received') >= 50)
    t.equal(survivor.count('restarted'), 0)
  })

  await t.test('a paused consumer receives its messages after it resumes', async (t) => {
    const topicPrefix = ownPrefix(t, servers)
    const producer = await recordingBroker(t, servers, { topicPrefix })
    const [full, free] = [await recordingBroker(t, servers, { topicPrefix }), await recordingBroker(t, servers, { topicPrefix, group: `${topicPrefix}other` })]
    const subscription = full.consume('image', handled)
    subscription.pause()
    free.consume('image', handled)
    await Promise.all([healthy(full), healthy(free)])
    for (let id = 0; id < 50; id++) producer.publish(ready('image', `task-${id}`))
    await until(() => free.count('received') >= 50)
    t.equal(full.count('received'), 0)
    subscription.resume()
    await until(() => full.count('received') >= 50)
  })

  await t.test('a topic with fewer partitions than members is logged once, and every message is received', async (t) => {
    const topicPrefix = ownPrefix(t, servers)
    const all = await Promise.all([1, 2, 3].map(() => recordingBroker(t, servers, { topicPrefix, partitions: '1' })))
    const [producer] = all
    for (const consumer of all) consumer.consume('image', handled)
    await Promise.all(all.map(healthy))
    const warnings = () => all.flatMap((consumer) => consumer.warnings)
    await until(() => warnings().length > 0)
    for (let id = 0; id < 20; id++) producer?.publish(ready('image', `task-${id}`))
    await until(() => all.reduce((sum, consumer) => sum + consumer.count('received'), 0) >= 20)
    t.match(warnings(), [{ facts: { event: 'kafka_too_few_partitions', topic: `${topicPrefix}image`, group: /workers\.image$/, partitions: 1, members: /^[23]$/ }, message: /fewer partitions than/ }])
    t.equal(warnings().length, 1)
  })

  await t.test('topics are created with the parameters of the address and one day of retention', async (t) => {
    const topicPrefix = ownPrefix(t, servers)
    const producer = await recordingBroker(t, servers, { topicPrefix, partitions: '3', replication: '1' })
    producer.publish(ready('video', 'task-1'))
    await until(() => producer.count('published') === 1)
    const topic = `${topicPrefix}video`
    const { partitions, retention } = await withAdmin(servers, async (admin) => {
      const { topics } = await admin.fetchTopicMetadata({ topics: [topic] })
      const { resources } = await admin.describeConfigs({ includeSynonyms: false, resources: [{ type: 2, name: topic, configNames: ['retention.ms'] }] })
      return { partitions: topics[0]?.partitions, retention: resources[0]?.configEntries[0]?.configValue }
    })
    t.equal(partitions?.length, 3)
    t.equal(retention, '86400000')
  })

  await t.test('it prints nothing to stderr, and a process that closes it ends', async (t) => {
    const topicPrefix = ownPrefix(t, servers)
    const producer = await recordingBroker(t, servers, { topicPrefix })
    const child = member(t, producer.url)
    await child.prints('healthy')
    producer.publish(ready('image', 'task-1'))
    await child.prints('received image')
    t.same(await child.end(), { code: 0, stderr: '' })
  })
})

t.test('an invalid address is refused in one sentence, without its password', async (t) => {
  const refused: [address: string, sentence: RegExp][] = [
    ['kafka:broker:9092', /form kafka:\/\/host:9092/],
    ['kafka://', /form kafka/],
    ['kafka://user:secret@', /form kafka/],
    ['kafka://user:secret/word@broker', /percent-encoded/],
    ['kafka://broker:0', /not host or host:port/],
    ['kafka://one:9092,,two:9092', /not host or host:port/],
    ['kafka://[::1]:9092', /IPv4/],
    ['kafka://broker?parttions=3', /no parameter "parttions".*topicPrefix, group, partitions, replication/],
    ['kafka://broker?password=secret', /no parameter "password"/],
    ['kafka://broker?partitions=3&partitions=4', /partitions twice/],
    ['kafka://broker?partitions=0', /partitions .* from 1 to 1000/],
    ['kafka://broker?replication=1.5', /replication .* from 1 to 10/],
    ['kafka://broker?topicPrefix=', /topicPrefix .* letters/],
    ['kafka://broker?group=a%20b', /group .* letters/],
    ['kafka://broker?tls=yes', /tls .* true or false/],
    ['kafka://broker?caFile=ca.pem', /need tls=true/],
    ['kafka://broker?tls=true&caFile=/nowhere/ca.pem', /caFile .*\/nowhere\/ca.pem.* cannot be read \(ENOENT\)/],
    [`kafka://broker?tls=true&caFile=${import.meta.filename}`, /caFile .*PEM/],
    ['kafka://broker?tls=true&certFile=cert.pem', /need each other/],
    [`kafka://broker?tls=true&certFile=${import.meta.filename}&keyFile=${import.meta.filename}`, /PEM that fit together/],
    ['kafka://broker?sasl=digest', /plain, scram-sha-256, scram-sha-512/],
    ['kafka://user:secret@broker', /needs sasl/],
    ['kafka://broker?username=user', /needs sasl/],
    ['kafka://broker?sasl=plain', /one password/],
    ['kafka://user@broker?sasl=plain', /one password/],
    ['kafka://user:secret@broker?sasl=plain&passwordFile=/nowhere/password', /one password/],
    ['kafka://user:secret@broker?sasl=plain&username=user', /one of them/],
    ['kafka://:secret@broker?sasl=plain', /not empty/],
    ['kafka://user:sec%ret@broker?sasl=plain', /percent-encoded/],
    ['kafka://broker?sasl=plain&username=user&passwordFile=/nowhere/password', /passwordFile .* cannot be read/],
  ]
  for (const [address, sentence] of refused) {
    const error = await openBroker(address).then(() => null, (error: Error) => error)
    t.equal(error?.constructor, Error, address)
    t.match(error?.message, sentence)
    t.notMatch(error?.message, /secret/)
  }
})

t.test('a broker without the required API versions is reported as such, and retried with backoff', async (t) => {
  let connections = 0
  // ApiVersions v0: correlation id, no error, and one entry: ApiVersions itself. This broker supports nothing else.
  const fake = createServer((socket) => {
    connections++
    socket.on('error', () => {})
    socket.on('data', (request: Buffer) => {
      const answer = Buffer.alloc(4 + 4 + 2 + 4 + 6)
      answer.writeInt32BE(answer.length - 4, 0)
      request.copy(answer, 4, 8, 12)
      answer.writeInt32BE(1, 10)
      answer.writeInt16BE(18, 14)
      socket.write(answer)
    })
  })
  const broker = await recordingBroker(t, `127.0.0.1:${await listening(t, fake)}`, {})
  broker.consume('image', async () => void t.fail('received a message'))
  broker.publish(ready('image', 'task-1'))
  await until(() => broker.count('restarted') >= 2)
  t.match(broker.health(), { ok: false, detail: /does not support Metadata .* Kafka 2.4 or newer/ })
  t.equal(broker.warnings.length, 3, 'one line each of the connection check, the producer and the consumer')
  t.ok(connections < 30, `${connections} connections`)
})

t.test('an unencrypted password is logged as a warning', async (t) => {
  const [warned, quiet] = [await recordingBroker(t, 'user:secret@127.0.0.1:9', { sasl: 'plain' }), await recordingBroker(t, 'user:secret@127.0.0.1:9', { sasl: 'scram-sha-256' })]
  t.match(warned.warnings[0]?.message, /unencrypted/)
  t.same(quiet.warnings, [])
})
