/** Media tasks over Kafka and MongoDB with a no-op engine: throughput, response time of creations, and time from publication to claim. */
import { randomUUID } from 'node:crypto'
import { join } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import { Kafka, logLevel } from 'kafkajs'
import { MongoClient } from 'mongodb'
import type { Distributed, Deployment } from '../distributed.ts'
import type { Choice } from '../stage.ts'
import { steadily } from '../load.ts'
import { media } from '../manifests.ts'
import { imageBytes } from '../requests.ts'
import { cpuMsByName } from '../processes.ts'
import type { Servers } from '../servers.ts'
import { median, percentile, spread } from '../statistics.ts'
import type { Table } from '../table.ts'
import { complete, CONNECTIONS, SLOTS } from '../tasks.ts'

export const ROLES = ['controller', 'gateway', 'worker', 'dispatcher'] as const
export const SETTINGS = { PLUGINS: join(import.meta.dirname, '../noop.ts'), ENGINES: 'engines.yaml', WORKER_SLOTS: SLOTS }
const TENANTS = [1, 20]
/** Fewer measure how the processes warm up. */
const [WARM_TASKS, TASKS] = [2000, 4000]
/** A rate that leaves every process mostly idle. */
const STEADY = { connections: 16, perSecond: 25, count: 500 }
const LONGEST_MS = 30_000

type Round = { completed: number; accepted: number; gatewayMs: number; workerMs: number; allMs: number; byName: [string, number][] }
/** Milliseconds, one per task: the response time of its creation, from its publication to its claim, from creation to end. */
type Steady = { createdMs: number[]; claimedMs: number[]; endedMs: number[] }

/** Each round starts new processes on an empty database. */
export async function distributedTasks({ start, servers }: Distributed, { rounds }: Choice): Promise<Table[]> {
  const shapes = TENANTS.map((tenants) => ({ tenants, bursts: [] as Round[], steady: [] as Steady[] }))
  for (let round = 0; round < rounds; round++) {
    for (const { tenants, bursts, steady } of shapes) {
      const deployment = await start(media(tenants), ROLES, SETTINGS)
      bursts.push(await burst(deployment))
      steady.push(await steadyRate(deployment, servers))
      await deployment.stop()
    }
  }
  const rate = (bursts: Round[]) => bursts.map(({ completed }) => completed)
  const of = (bursts: Round[], which: Exclude<keyof Round, 'byName'>) => median(bursts.map((one) => one[which]))
  const both = (steady: Steady[], which: keyof Steady) => [0.5, 0.99].map((share) => median(steady.map((one) => percentile(one[which], share))).toFixed(1)).join(' / ')
  return [
    {
      title: `Media tasks over Kafka and MongoDB with a no-op engine (${TASKS} tasks, ${CONNECTIONS} clients; one gateway, one worker with ${SETTINGS.WORKER_SLOTS} slots)`,
      head: ['tenants', 'completed', 'by round', 'accepted', 'CPU per task, gateway', 'worker', 'all with the servers'],
      rows: shapes.map(({ tenants, bursts }) => [
        tenants, `${of(bursts, 'completed').toFixed(0)}/s`, spread(rate(bursts)), `${of(bursts, 'accepted').toFixed(0)}/s`,
        `${of(bursts, 'gatewayMs').toFixed(2)} ms`, `${of(bursts, 'workerMs').toFixed(2)} ms`, `${of(bursts, 'allMs').toFixed(2)} ms`,
      ]),
      note: shapes.map(({ tenants, bursts }) => `Milliseconds of a task by name of the process, ${tenants} tenants: ${bursts.map(({ byName }) => byName.map(([name, ms]) => `${name} ${ms.toFixed(2)}`).join(', ')).join('; ')}.`).join(' '),
    },
    {
      title: `The same at a steady ${STEADY.perSecond} tasks a second (milliseconds, p50 / p99)`,
      head: ['tenants', 'creation answered', 'published → claimed', 'created → completed'],
      rows: shapes.map(({ tenants, steady }) => [tenants, both(steady, 'createdMs'), both(steady, 'claimedMs'), both(steady, 'endedMs')]),
    },
  ]
}

async function burst({ of, keys }: Deployment): Promise<Round> {
  const [[gateway], [worker]] = [of('gateway'), of('worker')]
  if (!gateway || !worker) throw new Error('there is no gateway or no worker')
  await complete(gateway.url, keys, WARM_TASKS, 0)
  const before = { gatewayMs: gateway.cpuMs(), workerMs: worker.cpuMs(), names: cpuMsByName() }
  const { acceptedMs, completedMs } = await complete(gateway.url, keys, TASKS, WARM_TASKS)
  const byName = [...cpuMsByName()].map(([name, ms]): [string, number] => [name, (ms - (before.names.get(name) ?? 0)) / TASKS]).filter(([, ms]) => ms >= 0.01)
  return {
    completed: (TASKS * 1000) / completedMs,
    accepted: (TASKS * 1000) / acceptedMs,
    gatewayMs: (gateway.cpuMs() - before.gatewayMs) / TASKS,
    workerMs: (worker.cpuMs() - before.workerMs) / TASKS,
    allMs: byName.reduce((sum, [, ms]) => sum + ms, 0),
    byName: byName.sort((a, b) => b[1] - a[1]),
  }
}

/** The tenants take turns. The times of each task are read from the store and the broker afterwards, so that the reads do not disturb the run. */
async function steadyRate({ of, keys, settings }: Deployment, servers: Servers): Promise<Steady> {
  const url = of('gateway')[0]?.url ?? ''
  const [first = '', ...others] = keys
  const taken = await steadily({ url, bytes: [imageBytes(first), ...others.map(imageBytes)] }, { status: 202, end: '}' }, STEADY)
  const client = await new MongoClient(settings['STORE_URL'] ?? '').connect()
  const tasks = client.db().collection<{ _id: string; createdAt: number; startedAt: number; endedAt: number | null }>('tasks')
  const begunMs = performance.now()
  while ((await tasks.countDocuments({ state: 'completed' })) < WARM_TASKS + TASKS + STEADY.count) {
    if (performance.now() - begunMs > LONGEST_MS) throw new Error('tasks were not completed in half a minute')
    await pause(100)
  }
  const ended = await tasks.find().sort({ _id: -1 }).limit(STEADY.count).toArray()
  await client.close()
  const publishedAt = await publications(servers.brokers, new URL(settings['BROKER_URL'] ?? '').searchParams.get('topicPrefix') ?? '')
  return {
    createdMs: taken.map(({ ms }) => ms),
    claimedMs: ended.flatMap(({ _id, startedAt }) => startedAt - (publishedAt.get(_id) ?? Number.NaN)).filter((ms) => !Number.isNaN(ms)),
    endedMs: ended.map(({ createdAt, endedAt }) => (endedAt ?? Number.NaN) - createdAt),
  }
}

/** First publication of each task, by the timestamp that its publisher gave the Kafka message. */
async function publications(brokers: string, prefix: string): Promise<Map<string, number>> {
  const topic = `${prefix}image`
  const kafka = new Kafka({ brokers: brokers.split(','), logLevel: logLevel.NOTHING })
  const admin = kafka.admin()
  await admin.connect()
  const ends = await admin.fetchTopicOffsets(topic)
  await admin.disconnect()
  const left = new Map(ends.filter(({ low, high }) => low !== high).map(({ partition, high }) => [partition, Number(high) - 1]))
  const published = new Map<string, number>()
  const consumer = kafka.consumer({ groupId: `bench-${randomUUID()}` })
  const all = Promise.withResolvers<void>()
  await consumer.connect()
  await consumer.subscribe({ topics: [topic], fromBeginning: true })
  await consumer.run({
    autoCommit: false,
    eachMessage: async ({ partition, message }) => {
      const { data } = JSON.parse(String(message.value)) as { data: { task: string } }
      if (!published.has(data.task)) published.set(data.task, Number(message.timestamp))
      if (Number(message.offset) >= (left.get(partition) ?? Infinity)) left.delete(partition)
      if (left.size === 0) all.resolve()
    },
  })
  await all.promise
  await consumer.disconnect()
  return published
}
