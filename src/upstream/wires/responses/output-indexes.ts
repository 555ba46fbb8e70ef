/**
 * Numbers the items of a streamed response, their parts and annotations anew: a dropped one would leave a gap, and SDKs find an item in the
 * output by its index.
 */
import type { Members } from '../allowlist.ts'

/** Outer before inner. An event has some of them. */
const INDEXES = ['output_index', 'content_index', 'summary_index', 'annotation_index'] as const

/** The indexes of an upstream's event. */
export type IndexedEvent = { [index in (typeof INDEXES)[number]]?: unknown }

/** The indexes that an event has. */
export function indexesOf(event: Members): IndexedEvent {
  return Object.fromEntries(INDEXES.flatMap((name) => (typeof event[name] === 'number' ? [[name, event[name]]] : [])))
}

export type OutputIndexes = {
  /** The cleaned event with our indexes, or null when it belongs to an item or part that was dropped. `event` is the upstream's. */
  renumber(event: Members, cleaned: Members): Members | null
  /** Whether the place of an event is known and keeps the upstream's indexes. */
  areUnchanged(event: IndexedEvent): boolean
  /** The item, part or annotation of the upstream's event was dropped. */
  drop(event: Members): void
}

/** The upstream's indexes and ours, null for a dropped one. */
type Numbering = { ours: Map<number, number | null>; next: number }

export function openOutputIndexes(): OutputIndexes {
  /** Events of one place follow each other, by one template. */
  let lastUnchanged: IndexedEvent | null = null
  /** By the place of the holder. */
  const places = new Map<string, Numbering>()

  /** Each index of the event with its numbering. */
  function placesOf(event: IndexedEvent): { name: string; index: number; numbering: Numbering }[] {
    const found: { name: string; index: number; numbering: Numbering }[] = []
    let path = ''
    for (const name of INDEXES) {
      const index = event[name]
      if (typeof index !== 'number') continue
      path += `/${name}`
      const numbering = places.getOrInsertComputed(path, () => ({ ours: new Map(), next: 0 }))
      found.push({ name, index, numbering })
      path += `/${index}`
    }
    return found
  }

  return {
    renumber(event, cleaned) {
      const renumbered = { ...cleaned }
      for (const { name, index, numbering } of placesOf(event)) {
        if (!numbering.ours.has(index)) numbering.ours.set(index, numbering.next++)
        const ours = numbering.ours.get(index)
        if (ours === null) return null
        renumbered[name] = ours
      }
      return renumbered
    },
    areUnchanged(event) {
      if (event === lastUnchanged) return true
      for (const { index, numbering } of placesOf(event)) if (numbering.ours.get(index) !== index) return false
      lastUnchanged = event
      return true
    },
    drop(event) {
      const innermost = placesOf(event).at(-1)
      if (innermost && !innermost.numbering.ours.has(innermost.index)) innermost.numbering.ours.set(innermost.index, null)
    },
  }
}
