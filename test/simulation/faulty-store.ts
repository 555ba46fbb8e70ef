/** The store as a process of the simulation sees it: the real one, with every verb, and every read and write of a record, a step. */
import { openChanges, type Side } from '../../src/backends/store/group-commit.ts'
import type { Store } from '../../src/backends/store/store.ts'
import type { Command } from '../../src/domain/subscription/commands.ts'
import type { Handle } from './real-store.ts'
import { brief, type Actor, type Asked, type Process, type Scheduler, type Step } from './scheduler.ts'

const READS = new Set<string>([
  'clock', 'heartbeats', 'subscription', 'subscriptionsWith', 'subscriptionsDue', 'periods', 'keysToTell', 'findKey', 'keyVersions', 'keysAlive',
  'keysOf', 'task', 'taskWithKey', 'tasks', 'tasksDue', 'oldestTask', 'openTasks', 'deliveries', 'declarations',
])

/** Makes the backends of one process. `patienceMs`: how long its queues try again before they give up. */
export function doorsOf(process: Process, handle: Handle, scheduler: Scheduler, patienceMs: number): (actor: Actor) => Store {
  const queues: Actor = { process, name: 'queue', fence: null }
  const changes = openChanges(handle.side, {
    patienceMs,
    clock: scheduler.now,
    pause: (ms) => scheduler.sleep(process, ms).done,
    between: (side) => stepping(side, queues, scheduler),
  })

  async function change(actor: Actor, id: string, command: Command, now: number): Promise<unknown> {
    const asked: Asked = { actor, subscription: id, command }
    process.asked.add(asked)
    scheduler.say(`${process.name} ${actor.name}`, `asks ${id} ${brief(command)}`)
    try {
      const answer = await changes.change(id, command as never, now)
      scheduler.say(`${process.name} ${actor.name}`, `${command.op} → ${brief(answer)}`)
      return answer
    } finally {
      process.asked.delete(asked)
    }
  }

  return (actor) =>
    new Proxy(handle.store, {
      get: (store, verb: keyof Store) => {
        if (verb === 'change') return (id: string, command: Command, now: number) => change(actor, id, command, now)
        const perform = Reflect.get(store, verb) as (...args: unknown[]) => Promise<unknown>
        return (...args: unknown[]) => {
          const step = { actor, label: labelOf(verb, args), args, writes: !READS.has(verb), asked: [] }
          return scheduler.step({ ...step, perform: () => perform(...args) })
        }
      },
    })
}

/** Every read and write that the queues make is a step, with the commands that it may contain. */
function stepping(side: Side, actor: Actor, scheduler: Scheduler): Side {
  const askedOf = (id: string) => [...actor.process.asked].filter(({ subscription }) => subscription === id)
  const named = (verb: string, asked: Asked[]) => `${verb} ${[...new Set(asked.map(({ command }) => command.op))].join(' ')}`
  const steps = (verb: string, id: string, writes: boolean): Omit<Step, 'perform' | 'resolve' | 'reject'> => {
    const asked = askedOf(id)
    return { actor, label: named(verb, asked), args: [id], writes, asked }
  }
  return {
    read: (id, known) => scheduler.step({ ...steps('read', id, false), perform: () => side.read(id, known) }),
    replace: (record, expected) => {
      const args = [record.id, `version ${expected}`]
      return scheduler.step({ ...steps('replace', record.id, true), args, perform: () => side.replace(record, expected) })
    },
  }
}

const FINAL = new Set(['completed', 'failed', 'canceled'])

/** `moveTask` is five different moments of a story. */
function labelOf(verb: string, args: unknown[]): string {
  if (verb !== 'moveTask') return verb
  const to = String(args[2])
  return `moveTask ${FINAL.has(to) ? 'final' : to}`
}
