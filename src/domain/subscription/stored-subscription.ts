/**
 * A subscription's record as documents keep it: its holds are a plain object by task id, and the kind of a price has the name `verb`, which
 * programs that an upgrade has not replaced yet read and write (docs/decisions/0092-kind-stored-as-verb.md). Pure.
 */
import type { MediaTerms, Price, Terms } from '../plans.ts'
import { entriesOf, holdsFrom } from './holds.ts'
import type { Hold, MediaAccount, Subscription } from './subscription.ts'

export type StoredPrice = Omit<Price, 'kind'> & { verb: string }

export type StoredSubscription = Omit<Subscription, 'media' | 'terms'> & {
  media: (Omit<MediaAccount, 'holds'> & { holds: Record<string, Hold> }) | null
  terms: StoredTerms
}

type StoredTerms = Omit<Terms, 'media'> & { media: (Omit<MediaTerms, 'prices'> & { prices: StoredPrice[] }) | null }

/** The record to store. */
export function toStoredRecord(record: Subscription): StoredSubscription {
  const { media, terms } = record
  return {
    ...record,
    media: media && { ...media, holds: Object.fromEntries(entriesOf(media.holds)) },
    terms: toStoredTerms(terms),
  }
}

/** The terms to store. */
export function toStoredTerms({ media, ...terms }: Terms): StoredTerms {
  return { ...terms, media: media && { ...media, prices: media.prices.map(toStoredPrice) } }
}

/** The same record, which no reader can change by accident: they share it. Its holds never change anyway. */
export function frozen(record: Subscription): Subscription {
  for (const part of [record, record.media, record.coding]) Object.freeze(part)
  return record
}

/** The record of what was stored. */
export function fromStoredRecord(stored: StoredSubscription): Subscription {
  const { media, terms } = stored
  return {
    ...stored,
    media: media && { ...media, holds: holdsFrom(Object.entries(media.holds)) },
    terms: { ...terms, media: terms.media && { ...terms.media, prices: terms.media.prices.map(fromStoredPrice) } },
  }
}

/** The price to store. */
export function toStoredPrice({ kind, ...price }: Price): StoredPrice {
  return { verb: kind, ...price }
}

/** The price of what was stored. */
export function fromStoredPrice({ verb, ...price }: StoredPrice): Price {
  return { kind: verb, ...price }
}
