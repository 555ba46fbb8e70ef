/** The store of one simulated process: the real one, where every verb and every read and write of a record is a step of the scheduler. */
import { openChanges } from '../../src/backends/store/group-commit.ts'
import type { VersionedRecords } from '../../src/backends/store/versioned-records.ts'
import type { Store } from '../../src/backends/store/store.ts'
import type { Write } from '../../src/backends/store/queued-command.ts'
import type { Answer, Command, CommandName } from '../../src/domain/subscription/commands.ts'
import type { Handle } from './real-store.ts'
import { brief, type Actor, type PendingCommand, type Process, type Scheduler, type Step } from './scheduler.ts'

const READS = new Set<string>([
  'clock', 'heartbeats', 'subscription', 'subscriptionsWith', 'subscriptionsDue', 'periods', 'keysToTell', 'findKey', 'keyVersion', 'keyVersions', 'keysAlive',
  'keysOf', 'task', 'taskWithKey', 'tasks', 'tasksDue', 'oldestTask', 'openTasks', 'deliveries', 'scan', 'events', 'declarations', 'usageRecords', 'usageFloor',
])

export type FaultyOptions = {
  /** How long the queues of the process retry. */
  retryForMs: number
  /** Nobody else writes the store. */
  isSole: boolean
  /** The process takes leases. */
  leases: boolean
  storeTime: () => number | null
  /** Called with every verb that writes, when the process calls it. */
  called: (verb: string) => void
  /** Called when a write of a record has ended. */
  wrote: (succeeded: boolean) => void
}

/** Opens the store of one process; the result is the store of one actor. */
export function openFaultyStore(process: Process, handle: Handle, scheduler: Scheduler, { called, wrote, ...options }: FaultyOptions): (actor: Actor) => Store {
  const queues: Actor = { process, name: 'queue', fence: null }
  const changes = openChanges(handle.records, {
    ...options,
    recordsUsage: true,
    clock: scheduler.now,
    pause: (ms) => scheduler.sleep(process, ms).done,
    wrap: (records) => stepping(records, queues, scheduler, called, wrote, options.leases),
  })

  /** A command that is pending until its answer is written. */
  async function pendingFor<A>(actor: Actor, id: string, command: Command, ask: () => Promise<A>, written: (answer: A) => Promise<unknown>): Promise<A> {
    called(command.op)
    const pending: PendingCommand = { actor, subscription: id, command }
    const who = `${process.name} ${actor.name}`
    const done = () => process.pending.delete(pending)
    process.pending.add(pending)
    scheduler.log(who, `calls ${id} ${brief(command)}`)
    try {
      const answer = await ask()
      scheduler.log(who, `${command.op} → ${brief(answer)}`)
      void written(answer).catch(() => {}).finally(done)
      return answer
    } catch (error) {
      done()
      throw error
    }
  }

  const change = (actor: Actor, id: string, command: Command, now: number) => pendingFor(actor, id, command, () => changes.change(id, command as never, now), async () => {})
  const decide = (actor: Actor, id: string, command: Command, now: number) => pendingFor(actor, id, command, () => changes.decide(id, command as never, now), ({ durable }) => durable)

  /** Decided in this step, or not called at all. */
  function decideNow(actor: Actor, id: string, command: Command, now: number, write: Write): Answer<CommandName> | null {
    const pending: PendingCommand = { actor, subscription: id, command }
    const done = () => process.pending.delete(pending)
    process.pending.add(pending)
    const answer = changes.decideNow(id, command as never, now, { stored: () => (done(), write.stored()), lost: (error) => (done(), write.lost(error)) })
    if (answer === null) done()
    else {
      called(command.op)
      scheduler.log(`${process.name} ${actor.name}`, `decides ${id} ${brief(command)} → ${brief(answer)}`)
    }
    return answer
  }

  return (actor) =>
    new Proxy(handle.store, {
      get: (store, verb: keyof Store) => {
        if (verb === 'change') return (id: string, command: Command, now: number) => change(actor, id, command, now)
        if (verb === 'decideNow') return (id: string, command: Command, now: number, write: Write) => decideNow(actor, id, command, now, write)
        if (verb === 'decide') return (id: string, command: Command, now: number) => decide(actor, id, command, now)
        const perform = Reflect.get(store, verb) as (...args: unknown[]) => Promise<unknown>
        return (...args: unknown[]) => {
          const writes = !READS.has(verb)
          if (writes) called(verb)
          const step = { actor, label: labelOf(verb, args), args, writes, commands: [] }
          return scheduler.step({ ...step, perform: () => perform(...args) })
        }
      },
    })
}

/** Every read and write of the queues is a step, with the commands that it may contain. */
function stepping(records: VersionedRecords, actor: Actor, scheduler: Scheduler, called: FaultyOptions['called'], wrote: FaultyOptions['wrote'], leases: boolean): VersionedRecords {
  const pendingOf = (id: string) => [...actor.process.pending].filter(({ subscription }) => subscription === id)
  const named = (verb: string, commands: PendingCommand[]) => `${verb} ${[...new Set(commands.map(({ command }) => command.op))].join(' ')}`
  const steps = (verb: string, id: string, writes: boolean): Omit<Step, 'perform' | 'resolve' | 'reject' | 'since'> => {
    const commands = pendingOf(id)
    return { actor, label: named(verb, commands), args: [id], writes, commands }
  }
  return {
    ...(records.known ? { known: records.known } : {}),
    unstored: records.unstored,
    read: (id, known) => scheduler.step({ ...steps('read', id, false), perform: () => records.read(id, known) }),
    async replace(record, before) {
      called('replace')
      const args = [record.id, `version ${before?.version ?? 0}`]
      let outcome: 'replaced' | 'conflict' | null = null
      try {
        return (outcome = await scheduler.step({ ...steps('replace', record.id, true), args, perform: () => records.replace(record, before) }))
      } finally {
        // A conflict does not end a lease.
        wrote(outcome === 'replaced' || (leases && outcome === 'conflict'))
      }
    },
  }
}

/** `moveTask` is a fault point of its own for each kind of target state. */
function labelOf(verb: string, args: unknown[]): string {
  if (verb !== 'moveTask') return verb
  return `moveTask ${String(args[2])}`
}
