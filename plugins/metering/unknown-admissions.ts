/**
 * Admissions of this process with an unknown outcome: their reservation may be stored, or be stored later, and nobody settles it. A process knows them itself, so that it reads the
 * records of their subscriptions and no others.
 */
import type { Store } from '../../src/backends/store/store.ts'
import { sweepEach } from '../../src/tasks/sweep-pass.ts'

export type UnknownAdmissions = {
  /** The outcome of an admission to this subscription is unknown at `now` (epoch ms). At most one entry for each subscription. */
  add(subscription: string, now: number): void
  /**
   * Releases own reservations that are not in flight and older than `UNKNOWN_MS`, in the records that are due to be read. Returns their number. `isLast`: in all
   * of these records and of any age, because the process stops: what it leaves behind is charged.
   */
  release(now: number, isLast?: boolean): Promise<number>
}

/** A reservation of this process that is not in flight and older than this belongs to an admission with an unknown outcome. */
export const UNKNOWN_MS = 1_000
/** A record that nobody changes is read ever more rarely, down to this. */
const LONGEST_MS = 600_000

/** `version`: the record's when it was read last, after the latest of these admissions; null before. */
type Entry = { readAt: number; waitMs: number; version: number | null }

/** `failed` is called for each record that cannot be read or changed now; it stays due. */
export function openUnknownAdmissions(
  store: Pick<Store, 'subscription' | 'change'>,
  instance: string,
  inFlight: (id: string) => boolean,
  failed: (subscription: string, error: unknown) => void = () => {},
): UnknownAdmissions {
  const entries = new Map<string, Entry>()

  async function releaseIn(subscription: string, now: number, isLast: boolean): Promise<number> {
    const entry = entries.get(subscription)
    const record = await store.subscription(subscription)
    const own = Object.entries(record?.coding?.reservations ?? {}).filter(([id, one]) => one.instance === instance && !inFlight(id))
    const old = own.filter(([, { at }]) => isLast || now - at >= UNKNOWN_MS)
    for (const [id] of old) await store.change(subscription, { op: 'settle', id, usage: null, estimated: false }, now)
    // Added anew meanwhile.
    if (!entry || entries.get(subscription) !== entry) return old.length
    // A write replaces the version that it has read: once the record has another one, no late write of these admissions can take effect.
    const isFenced = record === null || (entry.version !== null && record.version > entry.version)
    if (isFenced && own.length === old.length) entries.delete(subscription)
    else
      entries.set(subscription, {
        readAt: now + entry.waitMs,
        waitMs: Math.min(entry.waitMs * 2, LONGEST_MS),
        version: entry.version ?? record?.version ?? null,
      })
    return old.length
  }

  return {
    add(subscription, now) {
      const readAt = Math.min(entries.get(subscription)?.readAt ?? Infinity, now + UNKNOWN_MS)
      entries.set(subscription, { readAt, waitMs: UNKNOWN_MS, version: null })
    },
    async release(now, isLast = false) {
      let released = 0
      const due = [...entries].filter(([, { readAt }]) => isLast || readAt <= now).map(([subscription]) => subscription)
      await sweepEach(due, async (subscription) => void (released += await releaseIn(subscription, now, isLast)), failed)
      return released
    },
  }
}
