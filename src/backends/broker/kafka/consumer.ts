/**
 * Kafka consumer of one kind, a member of that kind's consumer group. Each kind has its own consumer and group: in a shared one, a topic that is missing or
 * forbidden would stop all kinds, and members that know different topics would be assigned partitions that they do not read.
 */
import type { Consumer as KafkaJsConsumer } from 'kafkajs'
import { CONSUMER } from './kafka-client.ts'
import { describeError, DescribedError } from './kafka-errors.ts'
import { openConnectionState, type ConnectionState } from './connection-warnings.ts'
import { openBackoff } from './backoff.ts'
import type { Message } from '../../../domain/broker-messages.ts'
import { startSpan } from '../../../telemetry/tracing.ts'
import type { BrokerConsumer } from '../broker.ts'
import { decodeEvent } from './cloud-event-schemas.ts'
import { openOffsets } from './offsets.ts'
import { messaging, type KafkaContext } from './producer.ts'
import { ensureTopic } from './topic.ts'

export type Consumer = BrokerConsumer & { state: ConnectionState; stopped: Promise<void> }

const COMMIT_MS = 500
/** A consumer fetches several times a second: without a fetch for this long, Kafka does not answer. */
const SLOW_MS = 4000
/** A consumer that neither joined nor fetched for this long is restarted even if nothing failed. Joining may take several rebalance timeouts. */
const STALLED_MS = 30_000

/**
 * Consumes until `stop`; restarts the consumer whenever it ends otherwise. The offset of a message is committed once the promise of
 * `received` has resolved, outside the fetch loop: a commit that fails there would end the consumer.
 */
export function openConsumer(
  { kafka, address, log, counted }: KafkaContext,
  kind: string,
  received: (message: Message) => Promise<void>,
): Consumer {
  const names = { address, topic: address.topicPrefix + kind, group: `${address.group}.${kind}` }
  const { topic, group } = names
  const state = openConnectionState(log, { topic, group }, `joining the group ${group}`)
  const stopping = new AbortController()
  const backoff = openBackoff(stopping.signal)
  const partitionCheck = openPartitionCheck(log, topic, group)
  let consumer: KafkaJsConsumer | null = null
  let isMember = false
  let hasPartitions = false
  let paused = false
  let offsets = openOffsets()

  async function supervise(): Promise<void> {
    while (!stopping.signal.aborted) {
      try {
        await run(await ensureTopic(kafka, address, topic))
      } catch (error) {
        if (stopping.signal.aborted) return
        state.failed(describeError(error, names), error)
        await backoff.next()
        counted('restarted', kind, 1)
      }
    }
  }

  /** Runs one consumer. Resolves after `stop`, rejects with the error that ended it. */
  async function run(partitions: number): Promise<void> {
    if (stopping.signal.aborted) return
    const current = kafka.consumer({ ...CONSUMER, groupId: group })
    const end = Promise.withResolvers<void>()
    const stop = (): void => end.resolve()
    stopping.signal.addEventListener('abort', stop)
    const watchdog = watchFetches(current, {
      // Only now, and not when it has joined: a message that cannot be read ends it then, each time.
      fetched() {
        backoff.reset()
        state.recovered()
      },
      slow: () => state.failed(`${address.brokers.join(', ')} does not answer`),
      stalled: () => end.reject(new DescribedError('the consumer has stopped fetching')),
    })
    // It can be paused no more, and reports its crash later.
    current.on(current.events.STOP, () => {
      isMember = hasPartitions = false
    })
    current.on(current.events.CRASH, ({ payload }) => end.reject(payload.error))
    current.on(current.events.GROUP_JOIN, ({ payload }) => {
      isMember = true
      hasPartitions = (payload.memberAssignment[topic]?.length ?? 0) > 0
      // What was received and not committed before is received again, by whoever has the partition now.
      offsets = openOffsets()
      if (paused) current.pause([{ topic }])
      if (payload.isLeader) void partitionCheck.run(current, partitions)
    })
    consumer = current
    const committing = setInterval(() => void commit(current), COMMIT_MS)
    const started = start(current, () => !stopping.signal.aborted).catch(end.reject)
    try {
      await end.promise
    } finally {
      if (isMember && state.problem() === null) await commit(current)
      isMember = hasPartitions = false
      clearInterval(watchdog)
      clearInterval(committing)
      stopping.signal.removeEventListener('abort', stop)
      await started
      await current.disconnect().catch(() => {})
    }
  }

  /** Takes no further step once `isRunning` is false. */
  async function start(current: KafkaJsConsumer, isRunning: () => boolean): Promise<void> {
    await current.connect()
    if (isRunning()) await current.subscribe({ topics: [topic], fromBeginning: true })
    if (isRunning())
      await current.run({
        autoCommit: false,
        eachMessage: async ({ partition, message }) => receive(message.value, offsets.received(partition, message.offset)),
      })
  }

  /** Not awaited by the fetch loop, which it can neither delay nor fail. */
  function receive(value: Buffer | null, handled: () => void): void {
    if (stopping.signal.aborted) return
    counted('received', kind, 1)
    const message = decodeEvent(kind, value)
    if (message === null) {
      counted('ignored', kind, 1)
      return handled()
    }
    // Not around what follows: a worker that receives the message may claim another task.
    if (message.traceparent !== undefined)
      startSpan(`process ${topic}`, { kind: 'consumer', parent: message.traceparent, attributes: messaging(topic, 'process') }).end()
    received(message).then(handled, () => {})
  }

  async function commit(current: KafkaJsConsumer): Promise<void> {
    const [from, positions] = [offsets, offsets.committable()]
    if (!isMember || positions.length === 0) return
    // The next try includes what this one could not commit.
    await current.commitOffsets(positions.map((position) => ({ topic, ...position }))).then(
      () => from.committed(positions),
      () => {},
    )
  }

  return {
    state,
    stopped: supervise(),
    isReceiving: () => isMember && hasPartitions && state.problem() === null,
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

/** Reports each fetch, when a consumer that has joined stops fetching (`slow`), and when it neither joins nor fetches (`stalled`). */
function watchFetches(consumer: KafkaJsConsumer, report: { fetched(): void; slow(): void; stalled(): void }): NodeJS.Timeout {
  let activeMs = performance.now()
  let fetches = false
  consumer.on(consumer.events.GROUP_JOIN, () => {
    activeMs = performance.now()
  })
  consumer.on(consumer.events.FETCH, () => {
    activeMs = performance.now()
    fetches = true
    report.fetched()
  })
  return setInterval(() => {
    const idleMs = performance.now() - activeMs
    if (idleMs > STALLED_MS) report.stalled()
    else if (idleMs > SLOW_MS && fetches) report.slow()
  }, 500)
}

/** Warns once when the group has more members than the topic has partitions. Only the group leader checks, so that one process logs it. */
function openPartitionCheck(
  log: KafkaContext['log'],
  topic: string,
  group: string,
): { run(consumer: KafkaJsConsumer, partitions: number): Promise<void> } {
  let warned = false
  return {
    async run(consumer, partitions) {
      const members = await consumer.describeGroup().then(
        (description) => description.members.length,
        () => 0,
      )
      if (members > partitions && !warned) {
        log.warn(
          { event: 'kafka_too_few_partitions', topic, group, partitions, members },
          'kafka topic has fewer partitions than its consumer group has members',
        )
      }
      warned = members > partitions
    },
  }
}
