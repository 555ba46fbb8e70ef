/** Finished tasks with which benchmarks fill a store. */
import { randomUUID } from 'node:crypto'
import type { Task } from '../src/domain/task.ts'

const DAY_MS = 24 * 3600 * 1000

/** A UUID v7. */
export function idAt(ms: number): string {
  const time = ms.toString(16).padStart(12, '0')
  return `${time.slice(0, 8)}-${time.slice(8)}-7${randomUUID().slice(15)}`
}

/** A completed task of a tenant. */
export function finishedTask(id: string, owner: string): Task {
  const now = Date.now()
  const result = { file: `${id}-1`, contentType: 'image/png', bytes: 68, width: 1024, height: 1024, durationMs: null, expiresAt: now + 7 * DAY_MS }
  return {
    id,
    tenant: owner,
    subscription: `${owner}/plan`,
    keyId: randomUUID(),
    keyVersionId: `${randomUUID()}-0`,
    object: 'generation',
    kind: 'image',
    input: { kind: 'image', prompt: 'A lighthouse at dawn', size: '1024x1024' },
    webhookUrl: null,
    metadata: {},
    idempotency: null,
    price: { kind: 'image', micro: 10_000, per: 'Job' },
    estimatedCost: 10_000,
    maxAttempts: 3,
    state: 'completed',
    epoch: 1,
    progress: 100,
    attempts: 1,
    lostLeases: 0,
    job: null,
    outcome: { outcome: 'completed', cost: 10_000, result },
    actualCost: 10_000,
    refundAmount: 0,
    createdAt: now,
    startedAt: now,
    endedAt: now,
    sweepAt: null,
    outbox: [],
  }
}
