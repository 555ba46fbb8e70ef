import { createServer, type AddressInfo } from 'node:net'
import t from 'tap'
import { openBroker } from '../../../src/backends/broker/broker.ts'
import { brokerPromises } from '../../contracts/broker.ts'
import { runContract } from '../../contracts/run-contract.ts'
import { kafka } from '../../servers/kafka.ts'
import { bells, dropped, inOrder, prefix, until, withAdmin } from './recording-consumer.ts'
import { member } from './group-member.ts'

t.test('over Kafka', async (t) => {
  const servers = await kafka(t)
  if (servers === null) return

  await t.test('it keeps the promises of a broker', (t) =>
    runContract(t, brokerPromises, async (t) => {
      const topicPrefix = prefix()
      dropped(t, servers, topicPrefix)
      return { ringer: await bells(t, servers, { topicPrefix }), hearer: await bells(t, servers, { topicPrefix }) }
    }),
  )

  await t.test('what is rung in a burst is heard, all of it, and shared among those who listen', async (t) => {
    const topicPrefix = prefix()
    dropped(t, servers, topicPrefix)
    const [ringer, one, other] = [await bells(t, servers, { topicPrefix }), await bells(t, servers, { topicPrefix }), await bells(t, servers, { topicPrefix })]
    for (const hearer of [one, other]) hearer.consume(['image'], () => {})
    await Promise.all([inOrder(one), inOrder(other)])
    const startMs = performance.now()
    for (let id = 0; id < 2000; id++) ringer.publish('image', `task-${id}`)
    await until(() => one.count('heard') + other.count('heard') >= 2000)
    t.comment(`2000 rings heard after ${Math.round(performance.now() - startMs)} ms: ${one.count('heard')} and ${other.count('heard')}`)
    await until(() => ringer.count('rung') === 2000)
    t.equal(ringer.count('lost'), 0)
    t.ok(one.count('heard') > 0 && other.count('heard') > 0)
  })

  await t.test('one ring after the other: how long each takes', async (t) => {
    const topicPrefix = prefix()
    dropped(t, servers, topicPrefix)
    const [ringer, hearer] = [await bells(t, servers, { topicPrefix }), await bells(t, servers, { topicPrefix })]
    let heard = () => {}
    hearer.consume(['image'], () => heard())
    await inOrder(hearer)
    const tookMs: number[] = []
    for (let id = 0; id < 200; id++) {
      const { promise, resolve } = Promise.withResolvers<void>()
      heard = resolve
      const startMs = performance.now()
      ringer.publish('image', `task-${id}`)
      await promise
      tookMs.push(performance.now() - startMs)
    }
    tookMs.sort((a, b) => a - b)
    const at = (share: number) => tookMs[Math.floor(share * tookMs.length)]?.toFixed(1)
    t.comment(`ring to heard: p50 ${at(0.5)} ms, p90 ${at(0.9)} ms, p99 ${at(0.99)} ms`)
    t.equal(hearer.count('heard'), 200)
  })

  await t.test('what a member that was killed had to hear is heard by the others', async (t) => {
    const topicPrefix = prefix()
    dropped(t, servers, topicPrefix)
    const [ringer, survivor] = [await bells(t, servers, { topicPrefix }), await bells(t, servers, { topicPrefix })]
    const victim = member(t, ringer.url)
    await victim.says('in order')
    survivor.consume(['image'], () => {})
    await inOrder(survivor)
    await victim.kill()
    // Each goes to the partition that its id belongs to, and half of those were the victim's.
    for (let id = 0; id < 50; id++) ringer.publish('image', `task-${id}`)
    await until(() => survivor.count('heard') >= 50)
    t.equal(survivor.count('rebuilt'), 0)
  })

  await t.test('who paused leaves rings to the time after it resumed', async (t) => {
    const topicPrefix = prefix()
    dropped(t, servers, topicPrefix)
    const ringer = await bells(t, servers, { topicPrefix })
    const [full, free] = [await bells(t, servers, { topicPrefix }), await bells(t, servers, { topicPrefix, group: `${topicPrefix}other` })]
    const listening = full.consume(['image'], () => {})
    listening.pause()
    free.consume(['image'], () => {})
    await Promise.all([inOrder(full), inOrder(free)])
    for (let id = 0; id < 50; id++) ringer.publish('image', `task-${id}`)
    await until(() => free.count('heard') >= 50)
    t.equal(full.count('heard'), 0)
    listening.resume()
    await until(() => full.count('heard') >= 50)
  })

  await t.test('a topic with fewer partitions than members is told once, and every ring is heard', async (t) => {
    const topicPrefix = prefix()
    dropped(t, servers, topicPrefix)
    const all = await Promise.all([1, 2, 3].map(() => bells(t, servers, { topicPrefix, partitions: '1' })))
    const [ringer] = all
    for (const hearer of all) hearer.consume(['image'], () => {})
    await Promise.all(all.map(inOrder))
    const warnings = () => all.flatMap((hearer) => hearer.warnings)
    await until(() => warnings().length > 0)
    for (let id = 0; id < 20; id++) ringer?.publish('image', `task-${id}`)
    await until(() => all.reduce((sum, hearer) => sum + hearer.count('heard'), 0) >= 20)
    t.match(warnings(), [{ facts: { topic: `${topicPrefix}image`, partitions: 1, members: Number }, message: /fewer partitions \(1\) than the group .* members \([23]\)/ }])
    t.equal(warnings().length, 1)
  })

  await t.test('topics are made as the address says, for rings that are of no use after minutes', async (t) => {
    const topicPrefix = prefix()
    dropped(t, servers, topicPrefix)
    const ringer = await bells(t, servers, { topicPrefix, partitions: '3', replication: '1' })
    ringer.publish('video', 'task-1')
    await until(() => ringer.count('rung') === 1)
    const topic = `${topicPrefix}video`
    const { partitions, retention } = await withAdmin(servers, async (admin) => {
      const { topics } = await admin.fetchTopicMetadata({ topics: [topic] })
      const { resources } = await admin.describeConfigs({ includeSynonyms: false, resources: [{ type: 2, name: topic, configNames: ['retention.ms'] }] })
      return { partitions: topics[0]?.partitions, retention: resources[0]?.configEntries[0]?.configValue }
    })
    t.equal(partitions?.length, 3)
    t.equal(retention, '600000')
  })

  await t.test('it writes nothing where nobody asked it to, and a process that closes it ends', async (t) => {
    const topicPrefix = prefix()
    dropped(t, servers, topicPrefix)
    const ringer = await bells(t, servers, { topicPrefix })
    const child = member(t, ringer.url)
    await child.says('in order')
    ringer.publish('image', 'task-1')
    await child.says('heard image')
    t.same(await child.end(), { code: 0, stderr: '' })
  })
})

t.test('an address that makes no sense is refused in one sentence, without its password', async (t) => {
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

t.test('a broker that does not speak what we need is told as such, and asked again only now and then', async (t) => {
  let connections = 0
  // ApiVersions v0: correlation id, no error, and one entry: ApiVersions itself. It is all that this broker speaks.
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
  await new Promise<void>((resolve) => fake.listen(0, '127.0.0.1', resolve))
  const broker = await bells(t, `127.0.0.1:${(fake.address() as AddressInfo).port}`, {})
  t.teardown(() => fake.close())
  broker.consume(['image'], () => t.fail('nothing can be heard'))
  broker.publish('image', 'task-1')
  await until(() => broker.count('rebuilt') >= 2)
  t.match(broker.health(), { ok: false, detail: /does not speak Metadata .* Kafka 2.4 or newer/ })
  t.equal(broker.warnings.length, 3, 'one line of each: who greets, who rings, who listens')
  t.ok(connections < 30, `${connections} connections`)
})

t.test('a password that would travel in the clear is warned of', async (t) => {
  const [warned, quiet] = [await bells(t, 'user:secret@127.0.0.1:9', { sasl: 'plain' }), await bells(t, 'user:secret@127.0.0.1:9', { sasl: 'scram-sha-256' })]
  t.match(warned.warnings[0]?.message, /in the clear/)
  t.same(quiet.warnings, [])
})
