/** What the life of a task writes on the wire: each write of its document costs the server more than anything else of it. */
import { MongoClient, type CommandStartedEvent, type Document } from 'mongodb'
import t, { type Test } from 'tap'
import { createTask } from '../../../src/tasks/create-task.ts'
import { claimDue } from '../../../src/tasks/claim-tasks.ts'
import { conclude } from '../../../src/tasks/run-outcome.ts'
import type { TaskContext } from '../../../src/tasks/task-context.ts'
import type { Task } from '../../../src/domain/task.ts'
import { hold, mediaPlan, T0, task, taskId } from '../../contracts/store/acme.ts'
import { onMongodb } from './empty-store.ts'

/** Statements that write, by collection and kind, in the order of the first of each; and those that update tasks, and plans, as text. */
function watch(t: Test): { writes: Map<string, number>; updates: string[]; changes: string[] } {
  const writes = new Map<string, number>()
  const [updates, changes]: [string[], string[]] = [[], []]
  const { connect } = MongoClient.prototype
  t.teardown(() => Object.assign(MongoClient.prototype, { connect }))
  MongoClient.prototype.connect = function (this: MongoClient) {
    Object.assign(this, { monitorCommands: true })
    this.on('commandStarted', ({ command, commandName }: CommandStartedEvent) => {
      const statements = (command as Document)[{ insert: 'documents', update: 'updates', delete: 'deletes' }[commandName] ?? ''] as unknown[] | undefined
      const name = `${commandName} ${String(command[commandName])}`
      if (statements) writes.set(name, (writes.get(name) ?? 0) + statements.length)
      if (name === 'update tasks') updates.push(JSON.stringify(statements))
      if (name === 'update subscriptions') changes.push(JSON.stringify(statements))
    })
    return connect.call(this)
  }
  return { writes, updates, changes }
}

t.test('a task with a webhook is one insert and three updates of its document, and an insert each of its event and its delivery', onMongodb(async (t, { place }) => {
  const { writes, updates } = watch(t)
  const store = await (await place(t)).open()
  await store.change('acme/studio', mediaPlan(), T0)
  const record = (await store.subscription('acme/studio'))!
  const quiet = () => {}
  const log = { info: quiet, warn: quiet, error: quiet }
  const context = { store, clock: () => T0, uuid: () => 'claim', random: () => 0, publish: quiet, moved: quiet, link: () => 'https://files.example/f', log } as unknown as TaskContext
  const creating: Parameters<typeof createTask>[1] = async (attempt) => (await attempt('acme/studio', { keyId: 'key-1', keyCap: null, keysVersion: record.keysVersion })) as never
  writes.clear()

  t.match(await createTask(context, creating, task(1), record), { outcome: 'created', task: { state: 'queued' } })
  t.same([...writes], [['insert tasks', 1], ['update subscriptions', 1]], 'accepted')
  const started: Task[] = []
  await claimDue(context, { leaseMs: 60_000, kinds: ['image'], limit: 1, start: (one) => void started.push(one) })
  t.same([...writes], [['insert tasks', 1], ['update subscriptions', 2], ['update tasks', 1]], 'begun')
  const result = { file: 'f', contentType: 'image/png', bytes: 1, width: 1, height: 1, durationMs: null, expiresAt: T0 + 1000 }
  t.match(await conclude(context, started[0]!, { outcome: 'made', result, cost: 40_000 }), { outcome: 'completed' })
  t.same(Object.fromEntries(writes), { 'insert tasks': 1, 'update subscriptions': 3, 'update tasks': 3, 'insert events': 1, 'insert deliveries': 1, 'update lanes': 1, 'insert lanes': 1 }, 'ended')
  t.equal(updates.length, 3)
  t.notMatch(updates.join(), /"(input|metadata|createdAt)"/, 'an update has what it changes')
}))

t.test('a change of a plan with many open tasks has the holds that it changes, and neither the others nor the terms of the plan', onMongodb(async (t, { place }) => {
  const { changes } = watch(t)
  const store = await (await place(t)).open()
  const terms = mediaPlan({ allowance: 2_000_000 })
  await store.change('acme/studio', terms, T0)
  await Promise.all(Array.from({ length: 300 }, (_, n) => store.change('acme/studio', hold(taskId(n)), T0)))
  changes.length = 0
  await store.change('acme/studio', { op: 'claim', claim: 'claim-1', kinds: ['image'] }, T0)
  await store.change('acme/studio', hold(taskId(300)), T0)
  await store.change('acme/studio', { op: 'close', task: taskId(0), actual: 40_000 }, T0)
  const ids = changes.map((text) => [...new Set(text.match(/[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f-]{17}/g))])
  t.same(ids, [[taskId(0)], [taskId(300)], [taskId(0)]])
  t.notMatch(changes.join(), /"terms"/)
  await store.change('acme/studio', { ...terms, state: 'Suspended', terms: { ...terms.terms, maxKeys: 7 } }, T0)
  t.match(changes[3], /"maxKeys":7/, 'changed terms are sent')
}))
