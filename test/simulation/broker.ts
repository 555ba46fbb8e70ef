/**
 * The simulated broker: one of the living consumers of a kind receives each message, and another one does when its process crashes before the message was handled. With faults, messages
 * are lost, doubled, late and out of order, and forged ones are among them.
 */
import type { Message, TaskReady } from '../../src/domain/broker-messages.ts'
import type { Rng } from './seeded-random.ts'
import type { Process, Scheduler } from './scheduler.ts'

export type SimulatedConsumer = {
  process: Process
  kinds: readonly string[]
  /** Whether it is not paused. */
  takes(kind: string): boolean
  received(message: Message): Promise<void>
}

export type SimulatedBroker = {
  publish(message: Message): void
  /** Until its process crashes, or `stop` is called. */
  consume(consumer: SimulatedConsumer): { stop(): void }
  /** Whether a message is lost although there are no faults. */
  loses: ((message: Message) => boolean) | null
  /** Called at each delivery. */
  delivered: ((process: Process, message: Message) => void) | null
}

const RATES = { lost: 0.15, doubled: 0.1, forged: 0.1, late: 0.1 }
const DELAY_MS = { usual: 100, late: 60_000, forged: 30_000, paused: 500 }

/** `rng` is its own, so that messages do not change what else a seed does. */
export function openBroker(rng: Rng, scheduler: Pick<Scheduler, 'sleep' | 'log'>, isFaulty: () => boolean): SimulatedBroker {
  const consumers = new Set<SimulatedConsumer>()
  const later = (ms: number, run: () => void): void => void scheduler.sleep(null, ms).done.then(run)

  function publish(message: Message): void {
    if (broker.loses?.(message)) return scheduler.log('broker', `loses a message of ${message.kind}`)
    if (!isFaulty()) return later(rng.whole(0, DELAY_MS.usual), () => deliver(message))
    if (message.type === 'task.ready' && rng.chance(RATES.forged)) later(rng.whole(0, DELAY_MS.forged), () => deliver(forged(message)))
    if (rng.chance(RATES.lost)) return scheduler.log('broker', `loses a message of ${message.kind}`)
    for (let copies = rng.chance(RATES.doubled) ? 2 : 1; copies > 0; copies--) {
      later(rng.chance(RATES.late) ? rng.whole(0, DELAY_MS.late) : rng.whole(0, DELAY_MS.usual), () => deliver(message))
    }
  }

  /** Names another plan, a plan that does not exist, another task, or another kind. */
  function forged(message: TaskReady): TaskReady {
    const subscription = rng.pick(['acme/studio', 'beta/studio', 'acme/none', 'nobody/studio'])
    return { ...message, subscription, task: `forged-${rng.whole(1, 1e6)}`, attempt: rng.whole(0, 1e6), kind: rng.pick(['image', 'video', 'upscale']) }
  }

  function deliver(message: Message): void {
    const living = [...consumers].filter(({ process, kinds }) => process.alive && kinds.includes(message.kind))
    // Without a consumer it stays in the topic, for nobody in this world.
    if (living.length === 0) return
    const taking = living.filter(({ takes }) => takes(message.kind))
    if (taking.length === 0) return later(DELAY_MS.paused, () => deliver(message))
    const { process, received } = rng.pick(taking)
    let isHandled = false
    process.onCrash.add(() => {
      if (!isHandled) later(DELAY_MS.usual, () => deliver(message))
    })
    void received(message).then(() => (isHandled = true), () => {})
    broker.delivered?.(process, message)
  }

  const broker: SimulatedBroker = {
    publish,
    loses: null,
    delivered: null,
    consume(consumer) {
      consumers.add(consumer)
      consumer.process.onCrash.add(() => consumers.delete(consumer))
      return { stop: () => void consumers.delete(consumer) }
    },
  }
  return broker
}
