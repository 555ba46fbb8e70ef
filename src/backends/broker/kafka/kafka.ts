/** The doorbell among processes: a topic for each kind on Kafka. Best effort throughout; whoever works looks at the store each second anyway. */
import { readFileSync } from 'node:fs'
import type { Broker, BrokerSurroundings, BrokerConsumer } from '../broker.ts'
import { readAddress } from './kafka-url.ts'
import { openClient } from './kafka-client.ts'
import { sentenceOf } from './kafka-errors.ts'
import { openConsumer, type Listener } from './consumer.ts'
import { openTrouble, type Trouble } from './log-throttle.ts'
import { openPauses } from './backoff.ts'
import { openProducer, type Bell, type Producer } from './producer.ts'

/** What is still under way then is left behind: it gives up by itself a few seconds later. */
const CLOSE_MS = 5000

/** Resolves at once, whether or not Kafka is there. Throws an Error of one sentence when the address makes no sense. */
export async function openKafka(url: string, { log, counted }: BrokerSurroundings): Promise<Broker> {
  const address = readAddress(url, (file) => readFileSync(file, 'utf8'))
  if (address.sasl?.mechanism === 'plain' && !address.tls) log.warn({}, 'Kafka: the password travels in the clear: sasl=plain without tls=true')
  const bell: Bell = { kafka: openClient(address, log), address, log, counted }
  const ringers = new Map<string, Producer>()
  const listeners = new Set<Listener>()
  const banner = greet(bell)
  let closed: Promise<void> | null = null

  const ringerOf = (kind: string): Producer => {
    const ringer = ringers.get(kind) ?? openProducer(bell, kind)
    ringers.set(kind, ringer)
    return ringer
  }

  async function closeAll(): Promise<void> {
    for (const listener of listeners) listener.stop()
    const all = Promise.all([banner.close(), ...[...ringers.values()].map((ringer) => ringer.close()), ...[...listeners].map(({ stopped }) => stopped)])
    let late: NodeJS.Timeout | undefined
    await Promise.race([all, new Promise((resolve) => (late = setTimeout(resolve, CLOSE_MS)))])
    clearTimeout(late)
  }

  return {
    publish(kind, id) {
      if (closed) counted('lost', kind, 1)
      else ringerOf(kind).publish(id)
    },
    consume(kinds, heard): BrokerConsumer {
      if (closed) return { stop() {}, pause() {}, resume() {} }
      const own = kinds.map((kind) => openConsumer(bell, kind, () => heard(kind)))
      for (const listener of own) {
        listeners.add(listener)
        void listener.stopped.then(() => listeners.delete(listener))
      }
      const each = (verb: 'stop' | 'pause' | 'resume') => () => {
        for (const listener of own) listener[verb]()
      }
      return { stop: each('stop'), pause: each('pause'), resume: each('resume') }
    },
    health() {
      if (closed) return { ok: false, detail: 'closed' }
      const troubles = [banner, ...ringers.values(), ...listeners].map(({ trouble }) => trouble.sentence())
      const detail = [...new Set(troubles.filter((sentence) => sentence !== null))].join('; ')
      return detail === '' ? { ok: true, detail: `Kafka at ${address.brokers.join(', ')}` } : { ok: false, detail }
    },
    close() {
      closed ??= closeAll()
      return closed
    },
  }
}

/** Connects once, so that a broker that refuses us is known before the first ring. */
function greet({ kafka, address, log }: Bell): { trouble: Trouble; close(): Promise<void> } {
  const trouble = openTrouble(log, {}, 'connecting')
  const closing = new AbortController()
  const pauses = openPauses(closing.signal)
  const attempt = async () => {
    const admin = kafka.admin()
    try {
      await admin.connect()
      await admin.describeCluster()
      trouble.ends()
      return true
    } catch (error) {
      if (!closing.signal.aborted) trouble.begins(sentenceOf(error, { address }), error)
      return false
    } finally {
      await admin.disconnect().catch(() => {})
    }
  }
  const greeted = (async () => {
    while (!closing.signal.aborted && !(await attempt())) await pauses.next()
  })()
  return {
    trouble,
    close() {
      closing.abort()
      return greeted
    },
  }
}
