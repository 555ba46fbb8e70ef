/** Idempotency-Key: the same key with the same body is the same task, with another body it is refused (`create-task.ts`, `docs/media.md`). Pure. */
import { createHash } from 'node:crypto'
import type { Task } from '../domain/task.ts'

/** What a task keeps of the key and the body of its request; null without a key. */
export function idempotencyOf(key: string | null, body: unknown): Task['idempotency'] {
  return key === null ? null : { key, bodyHash: bodyHash(body) }
}

/** SHA-256 over the body with its members sorted: another spelling of the same body is the same request. */
function bodyHash(body: unknown): string {
  return createHash('sha256')
    .update(JSON.stringify(sorted(body)))
    .digest('hex')
}

function sorted(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(sorted)
  if (typeof value !== 'object' || value === null) return value
  return Object.fromEntries(
    Object.entries(value)
      .sort(([a], [b]) => (a < b ? -1 : 1))
      .map(([name, member]) => [name, sorted(member)]),
  )
}
