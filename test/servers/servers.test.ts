/** Assumptions of the suites about the test servers: a killed one keeps acknowledged writes, and a frozen one resumes. */
import { setTimeout as pause } from 'node:timers/promises'
import { Kafka, logLevel } from 'kafkajs'
import { MongoClient } from 'mongodb'
import t from 'tap'
import { ownKafka } from './kafka.ts'
import { ownMongodb } from './mongodb.ts'
import { ownS3 } from './s3.ts'

t.test('a MongoDB-protocol server that is killed during writes keeps every acknowledged one', async (t) => {
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

t.test('a MongoDB-protocol server with users requires the password, and refuses writes of the read-only user', async (t) => {
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

t.test('a killed Kafka broker keeps the acknowledged messages', async (t) => {
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

t.test('a frozen server blocks a request, and answers it once thawed', async (t) => {
  const server = await ownS3(t)
  if (!server) return
  await server.freeze()
  let answered = false
  const answer = fetch(server.url).finally(() => (answered = true))
  // Errs on the side of passing only: a running server answers within a millisecond.
  await pause(100)
  t.equal(answered, false)
  server.thaw()
  t.equal((await answer).status, 403)
})
