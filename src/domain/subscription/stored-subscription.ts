/** A subscription's record as stores keep it: its holds are a plain object by task id. Pure. */
import { entriesOf, holdsFrom } from './holds.ts'
import type { Hold, MediaAccount, Subscription } from './subscription.ts'

export type StoredSubscription = Omit<Subscription, 'media'> & {
  media: (Omit<MediaAccount, 'holds'> & { holds: Record<string, Hold> }) | null
}

/** The record to store. */
export function toStoredRecord(record: Subscription): StoredSubscription {
  const { media } = record
  return { ...record, media: media && { ...media, holds: Object.fromEntries(entriesOf(media.holds)) } }
}

/** The same record, which no reader can change by accident: they share it. Its holds never change anyway. */
export function frozen(record: Subscription): Subscription {
  for (const part of [record, record.media, record.coding]) Object.freeze(part)
  return record
}

/** The record of what was stored. */
export function fromStoredRecord(stored: StoredSubscription): Subscription {
  const { media } = stored
  return { ...stored, media: media && { ...media, holds: holdsFrom(Object.entries(media.holds)) } }
}
