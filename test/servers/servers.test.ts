/** What the suites believe of the servers they run against: that a killed one keeps what it acknowledged, and a frozen one only stands still. */
import { setTimeout as pause } from 'node:timers/promises'
import { Kafka, logLevel } from 'kafkajs'
import { MongoClient } from 'mongodb'
import t from 'tap'
import { ownKafka } from './kafka.ts'
import { ownMongodb } from './mongodb.ts'
import { ownS3 } from './s3.ts'

t.test('a MongoDB-protocol server that is killed amid writes has every one that it acknowledged when it is back', async (t) => {
  const server = await ownMongodb(t)
  if (!server) return
  t.comment(server.version)
  const writing = await new MongoClient(server.url).connect()
  const acknowledged: number[] = []
  let next = 0
  const write = async (): Promise<void> => {
    for (;;) {
      const _id = next++
      await writing.db('servers').collection<{ _id: number }>('writes').insertOne({ _id })
      acknowledged.push(_id)
    }
  }
  const writers = Array.from({ length: 8 }, () => write().catch(() => {}))
  while (acknowledged.length < 500) await pause(5)
  await server.kill()
  await writing.close()
  await Promise.all(writers)

  await server.start()
  const reading = await new MongoClient(server.url).connect()
  t.teardown(() => reading.close())
  const kept = new Set((await reading.db('servers').collection<{ _id: number }>('writes').find().toArray()).map(({ _id }) => _id))
  t.same(acknowledged.filter((_id) => !kept.has(_id)), [])
})

t.test('a MongoDB-protocol server with users lets in who knows the password, and lets the reader read only', async (t) => {
  const server = await ownMongodb(t, { auth: true })
  if (!server) return
  const as = async <T>(url: string, work: (numbers: ReturnType<typeof collection>) => Promise<T>): Promise<T> => {
    const client = new MongoClient(url)
    return work(collection(client)).finally(() => client.close())
  }
  const collection = (client: MongoClient) => client.db('servers').collection('numbers')
  await as(server.url, (numbers) => numbers.insertOne({ n: 1 }))
  await t.rejects(as(server.url.replace('keeper-secret', 'wrong'), (numbers) => numbers.findOne()), { code: 18 })
  await t.rejects(as(server.url.replace('keeper:keeper-secret@', ''), (numbers) => numbers.findOne()), { code: 13 })
  t.match(await as(server.readOnlyUrl, (numbers) => numbers.findOne()), { n: 1 })
  await t.rejects(as(server.readOnlyUrl, (numbers) => numbers.insertOne({ n: 2 })), /permission denied/)
})

t.test('a Kafka broker that is killed has the messages that it acknowledged when it is back', async (t) => {
  const server = await ownKafka(t)
  if (!server) return
  const client = new Kafka({ brokers: [server.brokers], logLevel: logLevel.NOTHING, retry: { retries: 20, maxRetryTime: 500 } })
  const [admin, producer] = [client.admin(), client.producer()]
  t.teardown(() => Promise.all([admin.disconnect(), producer.disconnect()]))
  await Promise.all([admin.connect(), producer.connect()])
  await admin.createTopics({ topics: [{ topic: 'numbers' }], waitForLeaders: true })
  await producer.send({ topic: 'numbers', messages: [{ value: '1' }, { value: '2' }] })
  await server.kill()
  await server.start()
  t.match(await admin.fetchTopicOffsets('numbers'), [{ high: '2' }])
})

t.test('a frozen server leaves a request waiting, and answers it once thawed', async (t) => {
  const server = await ownS3(t)
  if (!server) return
  server.freeze()
  let answered = false
  const answer = fetch(server.url).finally(() => (answered = true))
  // Only ever wrong on the side of passing: a server that runs answers within a millisecond.
  await pause(100)
  t.equal(answered, false)
  server.thaw()
  t.equal((await answer).status, 403)
})
