/** Which due tasks a pass of the sweep takes: a list for each reason, and the tenants of a list in turn, so that nobody waits for the backlog of another. */
import type { DueList } from '../backends/store/task-store.ts'
import type { Task, TaskState } from '../domain/task.ts'
import { allOf } from './sweep-pass.ts'
import type { TaskContext } from './task-context.ts'

/** By reason: an expired lease, a settlement or a creation that stopped, an outbox that was not relayed, and a task that waits for a worker. */
const LISTS = {
  lease: ['processing'],
  settling: ['settling'],
  pending: ['pending'],
  relay: ['completed', 'failed', 'canceled'],
  queued: ['queued'],
} satisfies Record<string, readonly TaskState[]>

type List = keyof typeof LISTS

/** The tenant after which the next pass begins, by list; the first one for a list that is not in it. */
export type SweepTurns = Map<List, string>

/** Tasks of one list in a pass. */
const BATCH = 100
/** Those of one tenant in a round. A pass has several rounds where less than a batch is due besides. */
const SHARE = 20

/**
 * Calls `sweep` with the due tasks of each list, one task of each tenant after the other, and again with what is due then, until each list has had its batch or has no more. `turns` is
 * changed. The lists are swept at the same time. Throws the first failure of `sweep`.
 */
export async function eachDue({ store, clock }: TaskContext, turns: SweepTurns, sweep: (tasks: Task[]) => Promise<void>): Promise<void> {
  const rooms = new Map((Object.keys(LISTS) as List[]).map((list) => [list, BATCH]))
  while (rooms.size > 0) {
    const asked = [...rooms].map(([list, limit]) => ({ list, states: LISTS[list], after: turns.get(list) ?? '', limit, perTenant: SHARE }))
    const due = await store.tasksDue(clock(), asked)
    await allOf(due.map((tasks) => sweep(inTurns(tasks))))
    for (const [n, one] of asked.entries()) {
      const tasks = due[n] ?? []
      const room = one.limit - tasks.length
      turns.set(one.list, room === 0 ? (tasks.at(-1)?.tenant ?? '') : '')
      if (room > 0 && hasMore(one, tasks)) rooms.set(one.list, room)
      else rooms.delete(one.list)
    }
  }
}

/** Whether tasks may be left that were not returned: of the tenants before, or of one with more than its share. */
function hasMore({ after }: DueList, tasks: Task[]): boolean {
  return after !== '' || byTenant(tasks).some((own) => own.length === SHARE)
}

/** One task of each tenant, then the second of each, and so on. */
function inTurns(tasks: Task[]): Task[] {
  const queues = byTenant(tasks)
  return Array.from({ length: SHARE }, (_, n) => queues.flatMap((own) => own[n] ?? [])).flat()
}

function byTenant(tasks: Task[]): Task[][] {
  return [...Map.groupBy(tasks, ({ tenant }) => tenant).values()]
}
