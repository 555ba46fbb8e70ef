/**
 * Kafka consumer of one kind, a member of that kind's consumer group. Each kind has its own consumer and group: in a shared one, a topic that is missing or
 * forbidden would stop all kinds, and members that know different topics would be assigned partitions that they do not read.
 */
import type { Consumer as KafkaJsConsumer } from 'kafkajs'
import { CONSUMER } from './kafka-client.ts'
import { describeError, DescribedError } from './kafka-errors.ts'
import { openConnectionState, type ConnectionState } from './connection-state.ts'
import { openBackoff } from './backoff.ts'
import { startSpan } from '../../../tracing/tracing.ts'
import { messaging, type KafkaContext } from './producer.ts'
import { ensureTopic } from './topic.ts'

export type Consumer = { state: ConnectionState; stop(): void; pause(): void; resume(): void; stopped: Promise<void> }

const COMMIT_MS = 500
/** A consumer fetches several times a second: without a fetch for this long, Kafka does not answer. */
const SLOW_MS = 4000
/** A consumer that neither joined nor fetched for this long is rebuilt even if nothing failed. Joining may take several rebalance timeouts. */
const STALLED_MS = 30_000

/** Consumes until `stop`; rebuilds the consumer whenever it ends otherwise. */
export function openConsumer({ kafka, address, log, counted }: KafkaContext, kind: string, received: () => void): Consumer {
  const names = { address, topic: address.topicPrefix + kind, group: `${address.group}.${kind}` }
  const { topic, group } = names
  const state = openConnectionState(log, { topic, group }, `joining the group ${group}`)
  const stopping = new AbortController()
  const backoff = openBackoff(stopping.signal)
  const partitionCheck = openPartitionCheck(log, topic, group)
  let consumer: KafkaJsConsumer | null = null
  let isMember = false
  let paused = false

  async function supervise(): Promise<void> {
    while (!stopping.signal.aborted) {
      try {
        await run(await ensureTopic(kafka, address, topic))
      } catch (error) {
        if (stopping.signal.aborted) return
        state.failed(describeError(error, names), error)
        await backoff.next()
        counted('rebuilt', kind, 1)
      }
    }
  }

  /** Runs one consumer. Resolves after `stop`, rejects with the error that ended it. */
  async function run(partitions: number): Promise<void> {
    if (stopping.signal.aborted) return
    const current = kafka.consumer({ ...CONSUMER, groupId: group })
    const end = Promise.withResolvers<void>()
    stopping.signal.addEventListener('abort', () => end.resolve(), { once: true })
    const watchdog = watchFetches(current, {
      slow: () => state.failed(`${address.brokers.join(', ')} does not answer`),
      resumed: state.recovered,
      stalled: () => end.reject(new DescribedError('the consumer has stopped fetching')),
    })
    current.on(current.events.CRASH, ({ payload }) => end.reject(payload.error))
    current.on(current.events.GROUP_JOIN, ({ payload }) => {
      isMember = true
      if (paused) current.pause([{ topic }])
      backoff.reset()
      state.recovered()
      if (payload.isLeader) void partitionCheck.run(current, partitions)
    })
    consumer = current
    const started = start(current, () => !stopping.signal.aborted).catch(end.reject)
    try {
      await end.promise
    } finally {
      isMember = false
      clearInterval(watchdog)
      await started
      await current.disconnect().catch(() => {})
    }
  }

  /** Takes no further step once `isRunning` is false. */
  async function start(current: KafkaJsConsumer, isRunning: () => boolean): Promise<void> {
    await current.connect()
    if (isRunning()) await current.subscribe({ topics: [topic], fromBeginning: true })
    // The handler runs outside the fetch loop, so that it can neither delay nor fail it.
    if (isRunning()) await current.run({ autoCommitInterval: COMMIT_MS, eachMessage: async ({ message }) => void setImmediate(receive, message.headers?.['traceparent']?.toString()) })
  }

  function receive(traceparent: string | undefined): void {
    if (stopping.signal.aborted) return
    counted('heard', kind, 1)
    // Not around what follows: the message wakes a worker, which may claim another task.
    if (traceparent !== undefined) startSpan(`process ${topic}`, { kind: 'consumer', parent: traceparent, attributes: messaging(topic, 'process') }).end()
    received()
  }

  return {
    state,
    stopped: supervise(),
    stop: () => stopping.abort(),
    pause() {
      if (!paused && isMember) consumer?.pause([{ topic }])
      paused = true
    },
    resume() {
      if (paused && isMember) consumer?.resume([{ topic }])
      paused = false
    },
  }
}

/** Reports when a consumer that has joined stops fetching (`slow`), when it fetches again, and when it neither joins nor fetches (`stalled`). */
function watchFetches(consumer: KafkaJsConsumer, report: { slow(): void; resumed(): void; stalled(): void }): NodeJS.Timeout {
  let activeMs = performance.now()
  let fetches = false
  let isSlow = false
  consumer.on(consumer.events.GROUP_JOIN, () => {
    activeMs = performance.now()
  })
  consumer.on(consumer.events.FETCH, () => {
    activeMs = performance.now()
    fetches = true
    if (isSlow) report.resumed()
    isSlow = false
  })
  return setInterval(() => {
    const idleMs = performance.now() - activeMs
    if (idleMs > STALLED_MS) report.stalled()
    else if (idleMs > SLOW_MS && fetches && !isSlow) {
      isSlow = true
      report.slow()
    }
  }, 500)
}

/** Warns once when the group has more members than the topic has partitions. Only the group leader checks, so that one process logs it. */
function openPartitionCheck(log: KafkaContext['log'], topic: string, group: string): { run(consumer: KafkaJsConsumer, partitions: number): Promise<void> } {
  let warned = false
  return {
    async run(consumer, partitions) {
      const members = await consumer.describeGroup().then((description) => description.members.length, () => 0)
      if (members > partitions && !warned) {
        log.warn({ event: 'kafka_too_few_partitions', topic, group, partitions, members }, 'kafka topic has fewer partitions than its consumer group has members')
      }
      warned = members > partitions
    },
  }
}
