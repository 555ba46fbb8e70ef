/** A store of the test, and the context of the task flows over it, which tells nobody anything. */
import { join } from 'node:path'
import type { Test } from 'tap'
import { openStore, type Store } from '../../src/backends/store/store.ts'
import type { TaskContext } from '../../src/tasks/task-context.ts'

export async function storeOf(t: Test, options: Parameters<typeof openStore>[1] = {}): Promise<Store> {
  const store = await openStore(`sqlite:${join(t.testdir(), 'tollgate.db')}`, options)
  t.teardown(() => store.close())
  return store
}

const quiet = () => {}

export function contextOf(store: Store, clock: () => number, changed: Partial<TaskContext> = {}): TaskContext {
  let ids = 0
  const log = { info: quiet, warn: quiet, error: quiet }
  return { store, files: { remove: quiet } as unknown as TaskContext['files'], clock, uuid: () => `claim-${ids++}`, random: () => 0, publish: quiet, moved: quiet, link: () => '', linkedFile: () => null, resultMs: 1, log, ...changed }
}
