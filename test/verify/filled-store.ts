/** A store with plans, a key, requests and tasks in several states. */
import { overLimit } from '../../src/domain/errors.ts'
import type { Terms } from '../../src/domain/plans.ts'
import type { Store } from '../../src/backends/store/store.ts'
import type { Creating, Stale } from '../../src/domain/subscription/commands.ts'
import { createTask } from '../../src/tasks/create-task.ts'
import { keyVersion } from '../contracts/store/acme.ts'
import type { Task } from '../../src/domain/task.ts'
import type { TaskContext } from '../../src/tasks/task-context.ts'
import { claimDue } from '../../src/tasks/claim-tasks.ts'
import { conclude, type RunOutcome } from '../../src/tasks/run-outcome.ts'

export const NOW = Date.UTC(2026, 0, 5, 12)
export const HOUR_MS = 3_600_000
export const STUDIO = 'acme/studio'
export const CODE = 'acme/code'

const BASE = { displayName: '', requestsPerMinute: 10_000, maxKeys: 5, rotationOverlapMs: 0 }
const MEDIA: Terms = {
  ...BASE,
  coding: null,
  media: { allowance: 1000, period: { unit: 'days', count: 30 }, maxConcurrentTasks: 2, maxQueuedTasks: 10, attempts: 3, prices: [] },
}
const CODING: Terms = {
  ...BASE,
  media: null,
  coding: {
    sessionTokens: 1000,
    sessionMs: HOUR_MS,
    weeklyTokens: 5000,
    weights: { input: 1000, cachedInput: 1000, output: 1000 },
    onAbort: 'Cancel',
    maxConcurrentRequests: 2,
    maxOutputTokens: 100,
  },
}

/** The id of the n-th task; UUIDs v7 of the time. */
export function taskId(n: number): string {
  return `019b8e1a-${n.toString(16).padStart(4, '0')}-7000-8000-000000000000`
}

export function contextOf(store: Store): TaskContext {
  let ids = 0
  const quiet = () => {}
  const log = { info: quiet, warn: quiet, error: quiet }
  return { store, files: {} as TaskContext['files'], clock: () => NOW, uuid: () => `claim-${ids++}`, random: () => 0, publish: quiet, moved: quiet, link: () => 'https://files.test/1', linkedFile: () => null, resultMs: 1, log }
}

const creating: Creating = async (run) => {
  const answer = await run(STUDIO, { keyId: 'key-1', keyCap: null, keysVersion: 1 })
  if (answer.outcome === 'stale') throw overLimit('store')
  return answer as Exclude<typeof answer, Stale>
}

async function create(backends: TaskContext, n: number): Promise<void> {
  const price = { kind: 'image', micro: 100, per: 'Job' as const }
  const owner = { tenant: 'acme', subscription: STUDIO, keyId: 'key-1', keyVersionId: 'key-1-1' }
  const request = { object: 'generation' as const, kind: 'image', input: {}, webhookUrl: 'https://hooks.test/1', metadata: {} }
  const idempotency = { key: `key ${n}`, bodyHash: '' }
  const record = await backends.store.subscription(STUDIO)
  if (!record) throw new Error('there is no plan')
  await createTask(backends, creating, { id: taskId(n), ...owner, ...request, idempotency, price, estimatedCost: 100, maxAttempts: 3 }, record)
}

async function claim(backends: TaskContext): Promise<Task | undefined> {
  const claimed: Task[] = []
  await claimDue(backends, { kinds: ['image'], limit: 1, leaseMs: HOUR_MS, start: (task) => claimed.push(task) })
  return claimed[0]
}

async function run(backends: TaskContext, outcome: 'made' | 'failed'): Promise<void> {
  const task = await claim(backends)
  if (!task) throw new Error('nothing to run')
  const result = { file: '1', contentType: 'image/png', bytes: 1, width: 1, height: 1, durationMs: null, expiresAt: NOW }
  const made: RunOutcome = outcome === 'made' ? { outcome, cost: 60, result } : { outcome, code: 'provider_rejected', retryable: false }
  await conclude(backends, task, made)
}

/** Task 1 completed, 2 failed, 3 is processing, 4 is queued; a coding request is in flight and another was settled. */
export async function fill(store: Store): Promise<void> {
  const resource = { uid: 'u', createdAt: NOW - HOUR_MS, generation: 1 }
  const plan = { plan: resource, state: 'Active', activeFrom: null, activeUntil: null, verdict: null } as const
  await store.change(STUDIO, { op: 'applyPlan', ...plan, product: 'Media', terms: MEDIA }, NOW - HOUR_MS)
  await store.change(CODE, { op: 'applyPlan', ...plan, product: 'Coding', terms: CODING }, NOW - HOUR_MS)
  await store.mintKey(keyVersion('key-1', 1, { tenant: 'acme', subscription: STUDIO, state: 'active' }))
  const backends = contextOf(store)
  for (let n = 1; n <= 4; n++) await create(backends, n)
  await run(backends, 'made')
  await run(backends, 'failed')
  await claim(backends)
  await store.heartbeat('gateway-1', 1)
  const key = { keyId: 'key-2', keyCap: null, keysVersion: 1 }
  const admit = { op: 'admit', instance: 'gateway-1', ...key, promptBytes: 0, maxOutputTokens: 50 } as const
  await store.change(CODE, { ...admit, id: 'request-1' }, NOW)
  await store.change(CODE, { ...admit, id: 'request-2' }, NOW)
  await store.change(CODE, { op: 'settle', id: 'request-2', usage: { input: 0, cachedInput: 0, output: 30 }, estimated: false }, NOW)
}
