/**
 * Hears the rings of one kind, as a member of that kind's group. Each kind has a consumer and a group of its own: in a shared one, a topic that is missing or forbidden
 * would stop all kinds, and members that know different topics would be given partitions that they do not read.
 */
import type { Consumer } from 'kafkajs'
import { CONSUMER } from './kafka-client.ts'
import { SaidError, sentenceOf } from './kafka-errors.ts'
import { openTrouble, type Trouble } from './log-throttle.ts'
import { openPauses } from './backoff.ts'
import type { Bell } from './producer.ts'
import { ensureTopic } from './topic.ts'

export type Listener = { trouble: Trouble; stop(): void; pause(): void; resume(): void; stopped: Promise<void> }

const COMMIT_MS = 500
/** A consumer fetches several times a second: Kafka does not answer one that did not for so long. */
const SLOW_MS = 4000
/** A consumer that neither joined nor fetched for so long, although nothing failed, is built anew. Joining may take the rebalance timeout several times over. */
const SILENT_MS = 30_000

/** Listens until `stop`, and builds the consumer anew whenever it ends otherwise. */
export function openConsumer({ kafka, address, log, counted }: Bell, kind: string, heard: () => void): Listener {
  const about = { address, topic: address.topicPrefix + kind, group: `${address.group}.${kind}` }
  const { topic, group } = about
  const trouble = openTrouble(log, { topic, group }, `joining the group ${group}`)
  const stopping = new AbortController()
  const pauses = openPauses(stopping.signal)
  const crowd = openCrowd(log, topic, group)
  let consumer: Consumer | null = null
  let isMember = false
  let paused = false

  async function supervise(): Promise<void> {
    while (!stopping.signal.aborted) {
      try {
        await listen(await ensureTopic(kafka, address, topic))
      } catch (error) {
        if (stopping.signal.aborted) return
        trouble.begins(sentenceOf(error, about), error)
        await pauses.next()
        counted('rebuilt', kind, 1)
      }
    }
  }

  /** One life of a consumer. Resolves after `stop`, rejects with what ended it. */
  async function listen(partitions: number): Promise<void> {
    if (stopping.signal.aborted) return
    const current = kafka.consumer({ ...CONSUMER, groupId: group })
    const end = Promise.withResolvers<void>()
    stopping.signal.addEventListener('abort', () => end.resolve(), { once: true })
    const watch = watchSigns(current, {
      slow: () => trouble.begins(`${address.brokers.join(', ')} does not answer`),
      again: trouble.ends,
      silent: () => end.reject(new SaidError('the consumer fell silent')),
    })
    current.on(current.events.CRASH, ({ payload }) => end.reject(payload.error))
    current.on(current.events.GROUP_JOIN, ({ payload }) => {
      isMember = true
      if (paused) current.pause([{ topic }])
      pauses.begin()
      trouble.ends()
      if (payload.isLeader) void crowd.look(current, partitions)
    })
    consumer = current
    const started = start(current, () => !stopping.signal.aborted).catch(end.reject)
    try {
      await end.promise
    } finally {
      isMember = false
      clearInterval(watch)
      await started
      await current.disconnect().catch(() => {})
    }
  }

  /** A step that is under way when all ends must not be followed by the next. */
  async function start(current: Consumer, goesOn: () => boolean): Promise<void> {
    await current.connect()
    if (goesOn()) await current.subscribe({ topics: [topic], fromBeginning: true })
    // What a message starts runs outside of the loop that fetches, and nothing in that loop can fail.
    if (goesOn()) await current.run({ autoCommitInterval: COMMIT_MS, eachMessage: async () => void setImmediate(hear) })
  }

  function hear(): void {
    if (stopping.signal.aborted) return
    counted('heard', kind, 1)
    heard()
  }

  return {
    trouble,
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

/** Says when a consumer that has joined stops fetching, when it fetches again, and when neither that nor joining goes on. */
function watchSigns(consumer: Consumer, say: { slow(): void; again(): void; silent(): void }): NodeJS.Timeout {
  let signMs = performance.now()
  let fetches = false
  let isSlow = false
  consumer.on(consumer.events.GROUP_JOIN, () => {
    signMs = performance.now()
  })
  consumer.on(consumer.events.FETCH, () => {
    signMs = performance.now()
    fetches = true
    if (isSlow) say.again()
    isSlow = false
  })
  return setInterval(() => {
    const silentMs = performance.now() - signMs
    if (silentMs > SILENT_MS) say.silent()
    else if (silentMs > SLOW_MS && fetches && !isSlow) {
      isSlow = true
      say.slow()
    }
  }, 500)
}

/** Says once when there are more members than partitions. Only a group's leader looks, so that one of them says it. */
function openCrowd(log: Bell['log'], topic: string, group: string): { look(consumer: Consumer, partitions: number): Promise<void> } {
  let said = false
  return {
    async look(consumer, partitions) {
      const members = await consumer.describeGroup().then((found) => found.members.length, () => 0)
      if (members > partitions && !said) {
        log.warn(
          { topic, group, partitions, members },
          `Kafka: the topic ${topic} has fewer partitions (${partitions}) than the group ${group} has members (${members}): who has none looks for work each second instead; kafka-topics.sh --alter --partitions gives it more`,
        )
      }
      said = members > partitions
    },
  }
}
